"""What the interpreter knows about Python itself: functions and methods, by identity, never by name.

A name can be rebound (``len = my_len``), so everything here is looked up with the object a name stands
for. What is in no table is unknown, and unknown is never safe.
"""

from __future__ import annotations

import array
import base64
import binascii
import bisect
import builtins
import calendar
import cmath
import collections
import colorsys
import contextlib
import copy
import dataclasses
import datetime
import decimal
import difflib
import enum
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
import numbers
import operator
import re
import statistics
import string
import struct
import textwrap
import types
import unicodedata
import urllib.parse
import uuid
import zlib
from typing import Any

import numpy as np

from anabranch.compiler.values import PLAIN, Iterator, NoneType, Types


@dataclasses.dataclass(frozen=True)
class Effect:
    """What a known function does.

    Attributes
    ----------
    result : frozenset of type
        The types its result may have.
    mutates : tuple of int
        The arguments it changes, by place.
    calls : tuple of (int or str)
        The arguments it calls, by place or keyword.
    aliases : bool
        The result may hold its arguments, or things out of them.
    iterates : bool
        It goes through its arguments in their order: matters for sets and iterators.
    text : bool
        The same arguments always give the same result, so a key may be made with it.
    """

    result: Types = PLAIN
    mutates: tuple[int, ...] = ()
    calls: tuple[int | str, ...] = ()
    aliases: bool = False
    iterates: bool = False
    text: bool = True


def _only(*kinds: type) -> Types:
    return frozenset(kinds)


_INT, _FLOAT, _STR, _BOOL, _BYTES = _only(int), _only(float), _only(str), _only(bool), _only(bytes)
_ITERATOR = _only(Iterator)

FUNCTIONS: dict[Any, Effect] = {
    len: Effect(_INT),
    abs: Effect(PLAIN),
    round: Effect(_only(int, float, decimal.Decimal, fractions.Fraction)),
    ord: Effect(_INT),
    chr: Effect(_STR),
    bin: Effect(_STR),
    hex: Effect(_STR),
    oct: Effect(_STR),
    ascii: Effect(_STR),
    divmod: Effect(_only(tuple)),
    pow: Effect(PLAIN),
    callable: Effect(_BOOL, text=False),
    isinstance: Effect(_BOOL, text=False),
    issubclass: Effect(_BOOL, text=False),
    any: Effect(_BOOL, iterates=True),
    all: Effect(_BOOL, iterates=True),
    sum: Effect(PLAIN, iterates=True),
    min: Effect(PLAIN, calls=("key",), aliases=True, iterates=True),
    max: Effect(PLAIN, calls=("key",), aliases=True, iterates=True),
    sorted: Effect(_only(list), calls=("key",), aliases=True),
    reversed: Effect(_ITERATOR, aliases=True, text=False),
    enumerate: Effect(_ITERATOR, aliases=True, iterates=True, text=False),
    zip: Effect(_ITERATOR, aliases=True, iterates=True, text=False),
    map: Effect(_ITERATOR, calls=(0,), aliases=True, iterates=True, text=False),
    filter: Effect(_ITERATOR, calls=(0,), aliases=True, iterates=True, text=False),
    next: Effect(PLAIN, mutates=(0,), aliases=True, text=False),
    slice: Effect(PLAIN, text=False),
    functools.reduce: Effect(PLAIN, calls=(0,), aliases=True, iterates=True, text=False),
    copy.copy: Effect(PLAIN, aliases=True, text=False),
    copy.deepcopy: Effect(PLAIN, text=False),
    json.loads: Effect(PLAIN),
    re.compile: Effect(_only(re.Pattern), text=False),
    heapq.heappush: Effect(_only(NoneType), mutates=(0,)),
    heapq.heappop: Effect(PLAIN, mutates=(0,), aliases=True),
    heapq.heapify: Effect(_only(NoneType), mutates=(0,)),
    heapq.heappushpop: Effect(PLAIN, mutates=(0,), aliases=True),
    heapq.heapreplace: Effect(PLAIN, mutates=(0,), aliases=True),
    heapq.nlargest: Effect(_only(list), calls=("key", 2), aliases=True, iterates=True),
    heapq.nsmallest: Effect(_only(list), calls=("key", 2), aliases=True, iterates=True),
    bisect.insort: Effect(_only(NoneType), mutates=(0,), calls=("key",)),
    bisect.insort_left: Effect(_only(NoneType), mutates=(0,), calls=("key",)),
    bisect.insort_right: Effect(_only(NoneType), mutates=(0,), calls=("key",)),
    bisect.bisect: Effect(_INT, calls=("key",)),
    bisect.bisect_left: Effect(_INT, calls=("key",)),
    bisect.bisect_right: Effect(_INT, calls=("key",)),
    itertools.groupby: Effect(_ITERATOR, calls=("key", 1), aliases=True, iterates=True, text=False),
    itertools.takewhile: Effect(_ITERATOR, calls=(0,), aliases=True, iterates=True, text=False),
    itertools.dropwhile: Effect(_ITERATOR, calls=(0,), aliases=True, iterates=True, text=False),
    itertools.filterfalse: Effect(_ITERATOR, calls=(0,), aliases=True, iterates=True, text=False),
    itertools.starmap: Effect(_ITERATOR, calls=(0,), aliases=True, iterates=True, text=False),
    itertools.accumulate: Effect(_ITERATOR, calls=(1, "func"), aliases=True, iterates=True, text=False),
    math.floor: Effect(_INT),
    math.ceil: Effect(_INT),
    math.trunc: Effect(_INT),
    math.gcd: Effect(_INT),
    math.isqrt: Effect(_INT),
    math.isnan: Effect(_BOOL),
    math.isinf: Effect(_BOOL),
    math.isfinite: Effect(_BOOL),
    math.isclose: Effect(_BOOL),
    zlib.crc32: Effect(_INT),
    zlib.adler32: Effect(_INT),
    binascii.crc32: Effect(_INT),
    collections.namedtuple: Effect(None, text=False),
    contextlib.suppress: Effect(_only(contextlib.suppress), text=False),
    dataclasses.asdict: Effect(_only(dict), aliases=True, text=False),
    dataclasses.astuple: Effect(_only(tuple), aliases=True, text=False),
    re.sub: Effect(_STR, calls=(1, "repl")),
    re.subn: Effect(_only(tuple), calls=(1, "repl")),
    operator.itemgetter: Effect(_only(operator.itemgetter), text=False),
    operator.attrgetter: Effect(_only(operator.attrgetter), text=False),
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
    "tee",
    "count",
):
    FUNCTIONS[getattr(itertools, _name)] = Effect(_ITERATOR, aliases=True, iterates=True, text=False)
FUNCTIONS[bisect.bisect] = FUNCTIONS[bisect.bisect_right] = Effect(_INT, calls=("key",))

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
    urllib.parse,
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
    urllib.parse.quote_via if hasattr(urllib.parse, "quote_via") else None,
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
            FUNCTIONS[_found] = Effect(PLAIN, iterates=_module in (statistics,))
FUNCTIONS[math.fsum] = Effect(_FLOAT)  # exact, whatever the order
FUNCTIONS[fnmatch.filter] = Effect(_only(list), iterates=True)
for _name in ("lt", "le", "eq", "ne", "ge", "gt", "not_", "truth", "contains"):
    FUNCTIONS[getattr(operator, _name)] = Effect(_BOOL)
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

# numpy: functions that return new arrays. Arguments named `out` are refused where they are called.
for _name in (
    "array",
    "asarray",
    "zeros",
    "ones",
    "full",
    "arange",
    "linspace",
    "dot",
    "mean",
    "median",
    "std",
    "var",
    "sum",
    "prod",
    "min",
    "max",
    "argmin",
    "argmax",
    "argsort",
    "sort",
    "clip",
    "where",
    "concatenate",
    "stack",
    "cumsum",
    "cumprod",
    "diff",
    "percentile",
    "quantile",
    "round",
    "abs",
    "unique",
    "interp",
    "histogram",
    "polyfit",
    "polyval",
    "outer",
    "inner",
    "cross",
    "isclose",
    "allclose",
    "any",
    "all",
    "searchsorted",
    "digitize",
    "count_nonzero",
    "average",
    "corrcoef",
    "cov",
    "convolve",
    "zeros_like",
    "ones_like",
    "empty_like",
    "isin",
    "ptp",
    "nanmean",
    "nansum",
    "nanmax",
    "nanmin",
    "trapezoid",
    "real",
    "imag",
    "angle",
):
    if hasattr(np, _name):
        FUNCTIONS[getattr(np, _name)] = Effect(PLAIN, aliases=True, iterates=True, text=False)
for _name in ("fft", "ifft", "rfft", "irfft"):
    FUNCTIONS[getattr(np.fft, _name)] = Effect(PLAIN)
FUNCTIONS[np.linalg.norm] = FUNCTIONS[np.linalg.det] = Effect(PLAIN)

#: Classes whose call makes a new value and nothing else.
TYPES: dict[type, Effect] = {
    int: Effect(_INT),
    float: Effect(_FLOAT),
    str: Effect(_STR),
    bool: Effect(_BOOL),
    bytes: Effect(_BYTES),
    complex: Effect(_only(complex)),
    bytearray: Effect(_only(bytearray), text=False),
    range: Effect(_only(range), text=False),
    tuple: Effect(_only(tuple), aliases=True, iterates=True),
    list: Effect(_only(list), aliases=True, iterates=True, text=False),
    dict: Effect(_only(dict), aliases=True, iterates=True, text=False),
    set: Effect(_only(set), aliases=True, text=False),
    frozenset: Effect(_only(frozenset), aliases=True, text=False),
    collections.deque: Effect(_only(collections.deque), aliases=True, iterates=True, text=False),
    collections.Counter: Effect(_only(collections.Counter), aliases=True, iterates=True, text=False),
    collections.OrderedDict: Effect(_only(collections.OrderedDict), aliases=True, iterates=True, text=False),
    collections.defaultdict: Effect(
        _only(collections.defaultdict), calls=(0,), aliases=True, iterates=True, text=False
    ),
    array.array: Effect(_only(array.array), aliases=True, iterates=True, text=False),
    datetime.datetime: Effect(_only(datetime.datetime)),
    datetime.date: Effect(_only(datetime.date)),
    datetime.time: Effect(_only(datetime.time)),
    datetime.timedelta: Effect(_only(datetime.timedelta)),
    datetime.timezone: Effect(_only(datetime.timezone)),
    decimal.Decimal: Effect(_only(decimal.Decimal)),
    fractions.Fraction: Effect(_only(fractions.Fraction)),
    uuid.UUID: Effect(_only(uuid.UUID)),
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
    (datetime.datetime, "fromisoformat"): Effect(_only(datetime.datetime)),
    (datetime.datetime, "strptime"): Effect(_only(datetime.datetime)),
    (datetime.datetime, "combine"): Effect(_only(datetime.datetime)),
    (datetime.datetime, "fromordinal"): Effect(_only(datetime.datetime)),
    (datetime.date, "fromisoformat"): Effect(_only(datetime.date)),
    (datetime.date, "fromordinal"): Effect(_only(datetime.date)),
    (datetime.date, "fromisocalendar"): Effect(_only(datetime.date)),
    (dict, "fromkeys"): Effect(_only(dict), aliases=True, iterates=True, text=False),
    (bytes, "fromhex"): Effect(_BYTES),
    (int, "from_bytes"): Effect(_INT),
    (float, "fromhex"): Effect(_FLOAT),
    (str, "maketrans"): Effect(_only(dict), text=False),
    (itertools.chain, "from_iterable"): Effect(_ITERATOR, aliases=True, iterates=True, text=False),
    (decimal.Decimal, "from_float"): Effect(_only(decimal.Decimal)),
}

#: Functions that do something a tuple's value does not decide, and what that is.
IMPURE_MODULES: dict[str, str] = {
    "time": "reads the clock",
    "random": "draws a random number from a generator that all calls share",
    "secrets": "draws a random number",
    "numpy.random": "draws a random number from a generator that all calls share",
    "os": "uses the operating system",
    "sys": "uses the interpreter's own state",
    "io": "does input or output",
    "socket": "does input or output",
    "subprocess": "starts a process",
    "threading": "uses threads",
    "_thread": "uses threads",
    "concurrent.futures": "uses threads",
    "multiprocessing": "uses processes",
    "asyncio": "uses an event loop",
    "requests": "does input or output",
    "urllib.request": "does input or output",
    "http.client": "does input or output",
    "shutil": "does input or output",
    "pathlib": "does input or output",
    "sqlite3": "does input or output",
    "tempfile": "does input or output",
    "gc": "uses the interpreter's own state",
    "inspect": "looks at the running program",
    "contextvars": "uses state of the thread",
    "locale": "uses state of the process",
}
IMPURE: dict[Any, str] = {
    open: "does input or output",
    input: "does input or output",
    id: "uses the address of an object, which differs from process to process",
    hash: "uses hash(), which for strings differs from process to process",
    uuid.uuid1: "draws a random number",
    uuid.uuid4: "draws a random number",
    calendar.timegm: "",
    globals: "reaches every global by name",
    locals: "reaches every local by name",
    vars: "reaches every attribute by name",
    eval: "runs code that is not in the source",
    exec: "runs code that is not in the source",
    compile: "runs code that is not in the source",
    __import__: "imports a module by name",
    dir: "reaches every attribute by name",
    object.__setattr__: "sets attributes by name",
    builtins.breakpoint: "stops the program",
}
IMPURE_METHODS: dict[tuple[type, str], str] = {
    (datetime.datetime, "now"): "reads the clock",
    (datetime.datetime, "utcnow"): "reads the clock",
    (datetime.datetime, "today"): "reads the clock",
    (datetime.date, "today"): "reads the clock",
    (datetime.datetime, "fromtimestamp"): "uses the machine's time zone",
    (datetime.date, "fromtimestamp"): "uses the machine's time zone",
}
FUNCTIONS[calendar.timegm] = Effect(_INT)
del IMPURE[calendar.timegm]

# -- methods of values ------------------------------------------------------------------------------------

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
            NoneType,
            bool,
            int,
            float,
            complex,
            str,
            bytes,
            range,
            datetime.datetime,
            datetime.date,
            datetime.time,
            datetime.timedelta,
            datetime.timezone,
            decimal.Decimal,
            fractions.Fraction,
            uuid.UUID,
            ipaddress.IPv4Address,
            ipaddress.IPv6Address,
            statistics.NormalDist,
            type(...),
        )
    },
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
        (str, name): _BOOL
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
    **{(str, name): _INT for name in ("find", "rfind", "index", "rindex", "count")},
    **{(str, name): _only(list) for name in ("split", "rsplit", "splitlines")},
    (str, "partition"): _only(tuple),
    (str, "rpartition"): _only(tuple),
    (str, "encode"): _BYTES,
    (bytes, "decode"): _STR,
    (bytes, "hex"): _STR,
    (int, "bit_length"): _INT,
    (float, "is_integer"): _BOOL,
    (datetime.datetime, "date"): _only(datetime.date),
    (datetime.datetime, "time"): _only(datetime.time),
    (datetime.datetime, "timestamp"): _FLOAT,
    **{
        (kind, name): _INT
        for kind in (datetime.datetime, datetime.date)
        for name in ("weekday", "isoweekday", "toordinal")
    },
    **{(kind, name): _STR for kind in (datetime.datetime, datetime.date) for name in ("isoformat", "strftime")},
    (datetime.timedelta, "total_seconds"): _FLOAT,
    (list, "index"): _INT,
    (list, "count"): _INT,
    (tuple, "index"): _INT,
    (tuple, "count"): _INT,
}
_ATTRIBUTE_RESULTS: dict[tuple[type, str], Types] = {
    **{
        (kind, name): _INT
        for kind in (datetime.datetime, datetime.date, datetime.time)
        for name in ("year", "month", "day", "hour", "minute", "second", "microsecond")
    },
    (datetime.timedelta, "days"): _INT,
    (datetime.timedelta, "seconds"): _INT,
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
EXCEPTIONS = tuple(
    kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)
)
NUMBER = numbers.Number
ENUM = enum.Enum


def method_result(kind: type, name: str) -> Types:
    """The types a method of a built-in type returns."""
    if name in _SAME_TYPE.get(kind, ()):
        return frozenset({kind})
    return _METHOD_RESULTS.get((kind, name), PLAIN)


def attribute_result(kind: type, name: str) -> Types:
    return _ATTRIBUTE_RESULTS.get((kind, name), PLAIN)


#: Kinds of callables whose hash and equality are Python's own: user code never runs in a lookup.
_PYTHON_OWN = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    type(np.mean),
    np.ufunc,
    type,
)


def impurity_of(function: Any) -> str | None:
    """What makes a library function's result depend on more than its arguments, if it is known for that."""
    if isinstance(function, _PYTHON_OWN) and function in IMPURE:
        return IMPURE[function]
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type):
        for base in owner.__mro__:
            found = IMPURE_METHODS.get((base, getattr(function, "__name__", "")))
            if found is not None:
                return found
    module = getattr(function, "__module__", None) or type(owner).__module__
    if isinstance(function, type):
        module = function.__module__
    if not isinstance(module, str):
        return None
    return impurity_of_module(module)


@functools.lru_cache(maxsize=4096)
def impurity_of_module(module: str) -> str | None:
    """What the functions of a module do that a tuple's value does not decide."""
    for name, why in IMPURE_MODULES.items():
        if module == name or module == f"_{name}" or module.startswith(name + "."):
            return why
    return IMPURE_MODULES["os"] if module in ("posix", "nt") else None


def effect_of(function: Any) -> Effect | None:
    """What a library function or class does, if it is in the tables."""
    if type(function) in _PYTHON_OWN or isinstance(function, type):
        found = FUNCTIONS.get(function)
        if found is None and isinstance(function, type):
            found = TYPES.get(function)
        if found is not None:
            return found
    if isinstance(function, np.ufunc):
        return Effect(PLAIN, text=False)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and isinstance(function, (types.BuiltinMethodType, types.MethodType)):
        for base in owner.__mro__:
            found = CLASS_METHODS.get((base, function.__name__))
            # A subclass may override what the class method calls.
            if found is not None and base is owner:
                return found
    return None
