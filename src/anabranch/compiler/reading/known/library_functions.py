"""Functions of Python and its standard library that do nothing but make a result from their arguments.

First those with something to say about each; then, for modules whose functions only compute, all the rest of
them; then the exceptions to that.
"""

from __future__ import annotations

import base64
import binascii
import bisect
import calendar
import cmath
import collections
import colorsys
import contextlib
import copy
import csv
import dataclasses
import decimal
import difflib
import fnmatch
import fractions
import functools
import hashlib
import heapq
import hmac
import html
import ipaddress
import itertools
import json
import math
import operator
import re
import statistics
import string
import struct
import textwrap
import types
import unicodedata
import zlib
from io import StringIO
from typing import Any
from urllib import parse

from anabranch.compiler.reading.known.effects import BOOL, FLOAT, INT, ITERATOR, STR, Effect, only
from anabranch.compiler.reading.values import PLAIN, NoneType

FUNCTIONS: dict[Any, Effect] = {
    len: Effect(INT),
    abs: Effect(PLAIN),
    round: Effect(only(int, float, decimal.Decimal, fractions.Fraction)),
    ord: Effect(INT),
    chr: Effect(STR),
    bin: Effect(STR),
    hex: Effect(STR),
    oct: Effect(STR),
    ascii: Effect(STR),
    divmod: Effect(only(tuple)),
    pow: Effect(PLAIN),
    callable: Effect(BOOL, text=False),
    isinstance: Effect(BOOL, text=False),
    issubclass: Effect(BOOL, text=False),
    any: Effect(BOOL, iterates=True),
    all: Effect(BOOL, iterates=True),
    sum: Effect(PLAIN, iterates=True),
    min: Effect(PLAIN, calls=("key",), aliases=True, iterates=True),
    max: Effect(PLAIN, calls=("key",), aliases=True, iterates=True),
    sorted: Effect(only(list), calls=("key",), aliases=True),
    reversed: Effect(ITERATOR, aliases=True, text=False),
    enumerate: Effect(ITERATOR, aliases=True, iterates=True, text=False),
    zip: Effect(ITERATOR, aliases=True, iterates=True, text=False),
    map: Effect(ITERATOR, calls=(0,), aliases=True, iterates=True, text=False),
    filter: Effect(ITERATOR, calls=(0,), aliases=True, iterates=True, text=False),
    next: Effect(PLAIN, mutates=(0,), aliases=True, text=False),
    slice: Effect(PLAIN, text=False),
    functools.reduce: Effect(PLAIN, calls=(0,), aliases=True, iterates=True, text=False),
    copy.copy: Effect(PLAIN, aliases=True, text=False),
    copy.deepcopy: Effect(PLAIN, text=False),
    json.loads: Effect(PLAIN, text=False),
    json.dumps: Effect(STR, calls=("default",)),
    re.compile: Effect(only(re.Pattern), text=False),
    heapq.heappush: Effect(only(NoneType), mutates=(0,)),
    heapq.heappop: Effect(PLAIN, mutates=(0,), aliases=True),
    heapq.heapify: Effect(only(NoneType), mutates=(0,)),
    heapq.heappushpop: Effect(PLAIN, mutates=(0,), aliases=True),
    heapq.heapreplace: Effect(PLAIN, mutates=(0,), aliases=True),
    heapq.nlargest: Effect(only(list), calls=("key", 2), aliases=True, iterates=True),
    heapq.nsmallest: Effect(only(list), calls=("key", 2), aliases=True, iterates=True),
    bisect.insort: Effect(only(NoneType), mutates=(0,), calls=("key",)),
    bisect.insort_left: Effect(only(NoneType), mutates=(0,), calls=("key",)),
    bisect.insort_right: Effect(only(NoneType), mutates=(0,), calls=("key",)),
    bisect.bisect: Effect(INT, calls=("key",)),
    bisect.bisect_left: Effect(INT, calls=("key",)),
    bisect.bisect_right: Effect(INT, calls=("key",)),
    itertools.groupby: Effect(ITERATOR, calls=("key", 1), aliases=True, iterates=True, text=False),
    itertools.takewhile: Effect(ITERATOR, calls=(0,), aliases=True, iterates=True, text=False),
    itertools.dropwhile: Effect(ITERATOR, calls=(0,), aliases=True, iterates=True, text=False),
    itertools.filterfalse: Effect(ITERATOR, calls=(0,), aliases=True, iterates=True, text=False),
    itertools.starmap: Effect(ITERATOR, calls=(0,), aliases=True, iterates=True, text=False),
    itertools.accumulate: Effect(ITERATOR, calls=(1, "func"), aliases=True, iterates=True, text=False),
    math.floor: Effect(INT),
    math.ceil: Effect(INT),
    math.trunc: Effect(INT),
    math.gcd: Effect(INT),
    math.isqrt: Effect(INT),
    math.isnan: Effect(BOOL),
    math.isinf: Effect(BOOL),
    math.isfinite: Effect(BOOL),
    math.isclose: Effect(BOOL),
    calendar.timegm: Effect(INT),
    calendar.monthrange: Effect(only(tuple)),
    calendar.isleap: Effect(BOOL),
    calendar.weekday: Effect(INT),
    csv.reader: Effect(ITERATOR, iterates=True, text=False),
    csv.writer: Effect(only(type(csv.writer(StringIO()))), aliases=True, text=False),
    zlib.crc32: Effect(INT),
    zlib.adler32: Effect(INT),
    binascii.crc32: Effect(INT),
    collections.namedtuple: Effect(None, text=False),
    contextlib.suppress: Effect(only(contextlib.suppress), text=False),
    dataclasses.asdict: Effect(only(dict), aliases=True, text=False),
    dataclasses.astuple: Effect(only(tuple), aliases=True, text=False),
    re.sub: Effect(STR, calls=(1, "repl")),
    re.subn: Effect(only(tuple), calls=(1, "repl")),
    operator.itemgetter: Effect(only(operator.itemgetter), text=False),
    operator.attrgetter: Effect(only(operator.attrgetter), text=False),
}
for _name in ("setitem", "delitem", "iadd", "ior", "iand", "isub", "imul", "iconcat", "ixor", "ifloordiv"):
    FUNCTIONS[getattr(operator, _name)] = Effect(PLAIN, mutates=(0,), aliases=True, text=False)
for _name in (
    "chain",
    "islice",
    "cycle",
    "repeat",
    "zip_longest",
    "product",
    "permutations",
    "combinations",
    "combinations_with_replacement",
    "compress",
    "pairwise",
    "count",
):
    FUNCTIONS[getattr(itertools, _name)] = Effect(ITERATOR, aliases=True, iterates=True, text=False)
FUNCTIONS[bisect.bisect] = FUNCTIONS[bisect.bisect_right] = Effect(INT, calls=("key",))

#: Every public function of these that is not above takes plain data, calls nothing back and changes nothing.
_PURE_MODULES: tuple[types.ModuleType, ...] = (
    math,
    cmath,
    statistics,
    unicodedata,
    zlib,
    binascii,
    base64,
    textwrap,
    html,
    parse,
    colorsys,
    hashlib,
    hmac,
    re,
    fnmatch,
    heapq,
    operator,
    struct,
    json,
    difflib,
    ipaddress,
    bisect,
    string,
)
_NOT_PURE = {
    operator.methodcaller,
    operator.attrgetter,
    operator.itemgetter,
    struct.pack_into,
    json.load,
    json.dump,
    re.purge,
    fnmatch.filter,
    hashlib.file_digest,
    hashlib.new,
    heapq.merge,
    math.fsum,
    statistics.NormalDist,
    struct.iter_unpack,
}
#: Their results can be changed, so no expression says for long what they are.
_GIVE_LISTS = {
    "findall",
    "split",
    "splitlines",
    "parse_qs",
    "parse_qsl",
    "wrap",
    "multimode",
    "quantiles",
    "get_close_matches",
}
for _module in _PURE_MODULES:
    for _name, _found in vars(_module).items():
        if (
            not _name.startswith("_")
            and isinstance(_found, (types.FunctionType, types.BuiltinFunctionType))
            and _found not in FUNCTIONS
            and _found not in _NOT_PURE
            and not _name.startswith(("i_", "length_hint"))
        ):
            FUNCTIONS[_found] = Effect(PLAIN, iterates=_module in (statistics,), text=_name not in _GIVE_LISTS)
for _name in ("md5", "sha1", "sha224", "sha256", "sha384", "sha512"):
    FUNCTIONS[getattr(hashlib, _name)] = Effect(only(type(hashlib.sha256())), text=False)
FUNCTIONS[hmac.new] = Effect(only(hmac.HMAC), text=False)
FUNCTIONS[math.fsum] = Effect(FLOAT)  # exact, whatever the order
FUNCTIONS[fnmatch.filter] = Effect(only(list), iterates=True)
for _name in ("lt", "le", "eq", "ne", "ge", "gt", "not_", "truth", "contains"):
    FUNCTIONS[getattr(operator, _name)] = Effect(BOOL)
for _name in ("getitem", "concat", "and_", "or_", "add", "mul", "itruediv", "ipow", "ilshift", "irshift"):
    _old = FUNCTIONS.get(getattr(operator, _name), Effect())
    FUNCTIONS[getattr(operator, _name)] = dataclasses.replace(
        _old, aliases=True, mutates=(0,) if _name.startswith("i") else ()
    )
for _name in ("imatmul", "imod"):
    FUNCTIONS[getattr(operator, _name)] = Effect(PLAIN, mutates=(0,), aliases=True)
for _name in ("is_", "is_not"):
    FUNCTIONS.pop(getattr(operator, _name), None)  # object identity differs from process to process
FUNCTIONS.pop(operator.call, None) if hasattr(operator, "call") else None
