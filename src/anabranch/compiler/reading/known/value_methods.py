"""Methods of built-in and library values: which change the value, what they return, what they call."""

from __future__ import annotations

import array
import collections
import csv
import datetime
import decimal
import enum
import fractions
import hashlib
import hmac
import ipaddress
import operator
import re
import statistics
import string
import struct
import types
from io import StringIO
from random import Random
from uuid import UUID

import numpy as np

from anabranch.compiler.reading.known.effects import BOOL, BYTES, FLOAT, INT, STR, only
from anabranch.compiler.reading.values import PLAIN, SCALARS, Iterator, NoneType, Plain, Types
from anabranch.program.object_pieces import CHANGING, PIECES
from anabranch.program.schema import Row

_SEQUENCE_MUTATORS = {"append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"}
_SET_MUTATORS = {
    "add",
    "discard",
    "remove",
    "pop",
    "clear",
    "update",
    "intersection_update",
    "difference_update",
    "symmetric_difference_update",
}
_DICT_MUTATORS = {"pop", "popitem", "clear", "update", "setdefault"}
#: The methods that change a value, by type; every other public method of the type leaves it alone.
MUTATORS: dict[type, set[str]] = {
    list: _SEQUENCE_MUTATORS,
    bytearray: _SEQUENCE_MUTATORS,
    array.array: _SEQUENCE_MUTATORS | {"byteswap", "frombytes", "fromfile", "fromlist", "fromunicode", "tofile"},
    collections.deque: _SEQUENCE_MUTATORS | {"appendleft", "popleft", "extendleft", "rotate"},
    set: _SET_MUTATORS,
    dict: _DICT_MUTATORS,
    collections.defaultdict: _DICT_MUTATORS,
    collections.OrderedDict: _DICT_MUTATORS | {"move_to_end"},
    collections.Counter: _DICT_MUTATORS | {"subtract"},
    np.ndarray: {
        "sort",
        "fill",
        "put",
        "resize",
        "itemset",
        "partition",
        "setflags",
        "byteswap",
        "setfield",
        "tofile",
        "dump",
    },
    Iterator: {"__next__", "send", "throw", "close"},
    type(hashlib.sha256()): {"update"},
    hmac.HMAC: {"update"},
    types.MappingProxyType: set(),
    frozenset: set(),
    tuple: set(),
    re.Pattern: set(),
    re.Match: set(),
    struct.Struct: {"pack_into"},
    operator.itemgetter: set(),
    operator.attrgetter: set(),
    np.generic: {"tofile", "dump", "setfield", "setflags"},
    np.float64: {"tofile", "dump", "setfield", "setflags"},
    np.int64: {"tofile", "dump", "setfield", "setflags"},
    **{
        kind: set()
        for kind in (
            *SCALARS,
            ipaddress.IPv4Network,
            ipaddress.IPv6Network,
            ipaddress.IPv4Interface,
            ipaddress.IPv6Interface,
            string.Template,
            ipaddress.IPv4Address,
            ipaddress.IPv6Address,
            statistics.NormalDist,
        )
    },
}
_RANDOM_FLOATS = {
    "random",
    "uniform",
    "gauss",
    "normalvariate",
    "lognormvariate",
    "expovariate",
    "betavariate",
    "gammavariate",
    "paretovariate",
    "weibullvariate",
    "vonmisesvariate",
    "triangular",
}
_RANDOM_INTEGERS = {"randint", "randrange", "getrandbits"}
_WRITER = type(csv.writer(StringIO()))
# Values with a state of their own: what reads them changes them, too.
MUTATORS[Random] = {*_RANDOM_FLOATS, *_RANDOM_INTEGERS, "choice", "choices", "sample", "shuffle", "seed"}
MUTATORS[StringIO] = {"write", "writelines", "read", "readline", "readlines", "seek", "truncate", "close"}
MUTATORS[_WRITER] = {"writerow", "writerows"}
_MUTATING_RESULTS: dict[tuple[type, str], Types] = {
    **{(Random, name): FLOAT for name in _RANDOM_FLOATS},
    **{(Random, name): INT for name in _RANDOM_INTEGERS},
    **{(Random, name): PLAIN for name in ("choice", "choices", "sample", "shuffle")},
    **{(StringIO, name): STR for name in ("read", "readline")},
    **{(StringIO, name): INT for name in ("write", "seek", "truncate")},
    (StringIO, "readlines"): PLAIN,
    (_WRITER, "writerow"): PLAIN,
}
#: Methods that read the clock, the environment or the disk though they belong to a plain value.
IMPURE_VALUE_METHODS = {"astimezone": "uses the machine's time zone if none is given"}
#: Explicit calls of operators by their method names.
SUBSCRIPT_METHODS = {"__getitem__", "__setitem__", "__delitem__", "__contains__"}
#: Methods with a function among their arguments.
METHOD_CALLBACKS: dict[str, tuple[int | str, ...]] = {
    "sort": ("key",),
    "sub": (0, "repl"),
    "subn": (0, "repl"),
}

_SAME_TYPE = {
    str: {
        "lower",
        "upper",
        "strip",
        "lstrip",
        "rstrip",
        "title",
        "capitalize",
        "casefold",
        "swapcase",
        "replace",
        "zfill",
        "center",
        "ljust",
        "rjust",
        "removeprefix",
        "removesuffix",
        "translate",
        "expandtabs",
        "format",
        "format_map",
        "join",
    },
    bytes: {"lower", "upper", "strip", "replace", "join"},
    datetime.datetime: {"replace"},
    datetime.date: {"replace"},
    set: {"union", "intersection", "difference", "symmetric_difference", "copy"},
    frozenset: {"union", "intersection", "difference", "symmetric_difference", "copy"},
    list: {"copy"},
    dict: {"copy"},
    collections.Counter: {"copy"},
    collections.deque: {"copy"},
    decimal.Decimal: {"quantize", "normalize", "copy_abs"},
}
_METHOD_RESULTS: dict[tuple[type, str], Types] = {
    **{
        (str, name): BOOL
        for name in (
            "startswith",
            "endswith",
            "isdigit",
            "isalpha",
            "isalnum",
            "isspace",
            "isupper",
            "islower",
            "isnumeric",
            "isdecimal",
            "isidentifier",
        )
    },
    **{(str, name): INT for name in ("find", "rfind", "index", "rindex", "count")},
    **{(str, name): only(list) for name in ("split", "rsplit", "splitlines")},
    (str, "partition"): only(tuple),
    (str, "rpartition"): only(tuple),
    (str, "encode"): BYTES,
    (bytes, "decode"): STR,
    (bytes, "hex"): STR,
    (int, "bit_length"): INT,
    (float, "is_integer"): BOOL,
    (datetime.datetime, "date"): only(datetime.date),
    (datetime.datetime, "time"): only(datetime.time),
    (datetime.datetime, "timestamp"): FLOAT,
    **{
        (kind, name): INT
        for kind in (datetime.datetime, datetime.date)
        for name in ("weekday", "isoweekday", "toordinal")
    },
    **{(kind, name): STR for kind in (datetime.datetime, datetime.date) for name in ("isoformat", "strftime")},
    (datetime.timedelta, "total_seconds"): FLOAT,
    (StringIO, "getvalue"): STR,
    (list, "index"): INT,
    (list, "count"): INT,
    (tuple, "index"): INT,
    (tuple, "count"): INT,
}
_ATTRIBUTE_RESULTS: dict[tuple[type, str], Types] = {
    **{
        (kind, name): INT
        for kind in (datetime.datetime, datetime.date, datetime.time)
        for name in ("year", "month", "day", "hour", "minute", "second", "microsecond")
    },
    (datetime.timedelta, "days"): INT,
    (datetime.timedelta, "seconds"): INT,
}

ALL_MUTATORS = frozenset(name for names in MUTATORS.values() for name in names)
DATA_TYPES = tuple(kind for kind in MUTATORS if kind is not Iterator)
UNORDERED: frozenset[type] = frozenset({set, frozenset})
#: Containers that can be gone through again and again.
REITERABLE = (
    list,
    tuple,
    dict,
    str,
    bytes,
    set,
    frozenset,
    range,
    collections.deque,
    bytearray,
    array.array,
    types.MappingProxyType,
    np.ndarray,
)
CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque, types.MappingProxyType)
ENUM = enum.Enum


def mutating_result(kind: type, name: str) -> Types:
    """The types that a method gives which changes its object; None if it gives nothing of interest."""
    return _MUTATING_RESULTS.get((kind, name))


def method_result(kind: type, name: str) -> Types:
    """The types a method of a built-in type returns."""
    if name in _SAME_TYPE.get(kind, ()):
        return frozenset({kind})
    return _METHOD_RESULTS.get((kind, name), PLAIN)


def attribute_result(kind: type, name: str) -> Types:
    return _ATTRIBUTE_RESULTS.get((kind, name), PLAIN)


#: What state may hold: the types a checkpoint keeps exactly.
KEEPABLE: frozenset[type] = frozenset(
    {
        NoneType,
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        bytearray,
        list,
        dict,
        tuple,
        set,
        frozenset,
        collections.deque,
        collections.Counter,
        collections.defaultdict,
        collections.OrderedDict,
        datetime.datetime,
        datetime.date,
        datetime.time,
        datetime.timedelta,
        decimal.Decimal,
        fractions.Fraction,
        UUID,
        np.ndarray,
        np.generic,
        np.float64,
        np.int64,
        Row,
        Plain,
        *(kind for kind in PIECES if kind not in (*CHANGING, memoryview)),
    }
)
