"""Classes whose calls make values, and class methods that do: of Python, its standard library and numpy."""

from __future__ import annotations

import array
import collections
import contextlib
import datetime
import decimal
import fractions
import ipaddress
import itertools
import operator
import statistics
import string
import struct
import zoneinfo
from io import StringIO
from random import Random
from uuid import UUID

import numpy as np

from anabranch.compiler.reading.known.effects import BOOL, BYTES, FLOAT, INT, ITERATOR, STR, Effect, only
from anabranch.compiler.reading.known.library_functions import FUNCTIONS
from anabranch.compiler.reading.values import PLAIN

#: Classes whose call makes a new value and nothing else.
TYPES: dict[type, Effect] = {
    int: Effect(INT),
    float: Effect(FLOAT),
    str: Effect(STR),
    bool: Effect(BOOL),
    bytes: Effect(BYTES),
    complex: Effect(only(complex)),
    bytearray: Effect(only(bytearray), text=False),
    range: Effect(only(range), text=False),
    tuple: Effect(only(tuple), aliases=True, iterates=True),
    list: Effect(only(list), aliases=True, iterates=True, text=False),
    dict: Effect(only(dict), aliases=True, iterates=True, text=False),
    set: Effect(only(set), aliases=True, text=False),
    frozenset: Effect(only(frozenset), aliases=True, text=False),
    collections.deque: Effect(only(collections.deque), aliases=True, iterates=True, text=False),
    collections.Counter: Effect(only(collections.Counter), aliases=True, iterates=True, text=False),
    collections.OrderedDict: Effect(only(collections.OrderedDict), aliases=True, iterates=True, text=False),
    collections.defaultdict: Effect(only(collections.defaultdict), calls=(0,), aliases=True, iterates=True, text=False),
    array.array: Effect(only(array.array), aliases=True, iterates=True, text=False),
    datetime.datetime: Effect(only(datetime.datetime)),
    datetime.date: Effect(only(datetime.date)),
    datetime.time: Effect(only(datetime.time)),
    datetime.timedelta: Effect(only(datetime.timedelta)),
    datetime.timezone: Effect(only(datetime.timezone)),
    decimal.Decimal: Effect(only(decimal.Decimal)),
    fractions.Fraction: Effect(only(fractions.Fraction)),
    UUID: Effect(only(UUID)),
    zoneinfo.ZoneInfo: Effect(only(zoneinfo.ZoneInfo)),
    Random: Effect(only(Random), text=False),
    StringIO: Effect(only(StringIO), text=False),
    string.Template: Effect(only(string.Template), text=False),
    ipaddress.IPv4Address: Effect(PLAIN),
    ipaddress.IPv6Address: Effect(PLAIN),
    struct.Struct: Effect(PLAIN, text=False),
    statistics.NormalDist: Effect(PLAIN, text=False),
    **{kind: Effect(PLAIN, text=False) for kind in (np.float64, np.float32, np.int64, np.int32, np.bool_)},
    **{
        getattr(itertools, name): FUNCTIONS[getattr(itertools, name)]
        for name in (
            "chain",
            "islice",
            "cycle",
            "repeat",
            "zip_longest",
            "product",
            "permutations",
            "count",
            "combinations",
            "combinations_with_replacement",
            "compress",
            "pairwise",
            "groupby",
            "takewhile",
            "dropwhile",
            "filterfalse",
            "starmap",
            "accumulate",
        )
    },
    **{kind: FUNCTIONS[kind] for kind in (enumerate, zip, map, filter, reversed, slice)},
    operator.itemgetter: FUNCTIONS[operator.itemgetter],
    operator.attrgetter: FUNCTIONS[operator.attrgetter],
    contextlib.suppress: FUNCTIONS[contextlib.suppress],
}

#: Methods of classes that are functions of their arguments: (class, name).
CLASS_METHODS: dict[tuple[type, str], Effect] = {
    (datetime.datetime, "fromisoformat"): Effect(only(datetime.datetime)),
    (datetime.datetime, "strptime"): Effect(only(datetime.datetime)),
    (datetime.datetime, "combine"): Effect(only(datetime.datetime)),
    (datetime.datetime, "fromordinal"): Effect(only(datetime.datetime)),
    (datetime.date, "fromisoformat"): Effect(only(datetime.date)),
    (datetime.date, "fromordinal"): Effect(only(datetime.date)),
    (datetime.date, "fromisocalendar"): Effect(only(datetime.date)),
    (dict, "fromkeys"): Effect(only(dict), aliases=True, iterates=True, text=False),
    (bytes, "fromhex"): Effect(BYTES),
    (int, "from_bytes"): Effect(INT),
    (float, "fromhex"): Effect(FLOAT),
    (itertools.chain, "from_iterable"): Effect(ITERATOR, aliases=True, iterates=True, text=False),
    (decimal.Decimal, "from_float"): Effect(only(decimal.Decimal)),
}
