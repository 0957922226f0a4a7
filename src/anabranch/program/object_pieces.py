"""Objects of the library that are kept in one piece: random generators, arrays of numbers, patterns, paths, zones.

One table for all ways of keeping: the codec has them as one extension type, an object graph as nodes without parts.
"""

from __future__ import annotations

import array
import collections
import datetime
import ipaddress
import itertools
import math
import operator
import re
import types
import zoneinfo
from collections.abc import Callable, Sequence
from io import BytesIO, StringIO
from pathlib import PurePosixPath, PureWindowsPath
from random import Random
from typing import Any

import numpy as np

from anabranch.errors import StateError
from anabranch.program.kept_cache import KeptCache


def _random_state(value: Random) -> list[Any]:
    version, numbers, gauss = value.getstate()
    return [version, list(numbers), gauss]


def random_of(contents: list[Any]) -> Random:
    """A generator of random numbers in the state that was written."""
    made = Random(0)
    made.setstate((contents[0], tuple(contents[1]), contents[2]))
    return made


def _generator_of(contents: Any) -> np.random.Generator:
    kind = getattr(np.random, contents["bit_generator"])
    if not (isinstance(kind, type) and issubclass(kind, np.random.BitGenerator)):
        raise StateError("a state value is damaged: no such generator of random numbers")
    bits = kind(0)
    bits.state = contents
    return np.random.Generator(bits)


def whole_of_view(value: memoryview) -> Any:
    """What a memoryview shows, all of it; StateError if it shows a part, or something else than bytes."""
    whole = value.obj
    if type(whole) not in (bytes, bytearray) or value.format != "B" or value.shape != (len(whole),):  # type: ignore[arg-type]
        raise StateError("cannot keep a memoryview of a part, or of something else than bytes: keep what it shows")
    return whole


def _view_parts(value: memoryview) -> bytes:
    whole = whole_of_view(value)
    if type(whole) is bytearray:
        raise StateError("cannot keep a memoryview of a bytearray as state: keep the bytearray")
    return bytes(whole)


def _slice_parts(value: slice) -> list[int | None]:
    parts = [value.start, value.stop, value.step]
    if not {type(each) for each in parts} <= {int, type(None)}:
        raise StateError(f"cannot keep {value!r} as state: only slices with whole numbers are known")
    return parts


def _zone_key(value: zoneinfo.ZoneInfo) -> str:
    if value.key is None:
        raise StateError("cannot keep a ZoneInfo that was read from a file as state: it has no name")
    return value.key


def _offset_parts(value: datetime.timezone) -> list[Any]:
    # The only way to learn whether a name was given: tzname() makes one up.
    offset, *name = value.__getinitargs__()  # type: ignore[attr-defined]
    return [offset.total_seconds(), *name]


def _offset_of(parts: list[Any]) -> datetime.timezone:
    seconds, *name = parts
    offset = datetime.timedelta(seconds=seconds)
    return datetime.UTC if not (offset or name) else datetime.timezone(offset, *name)


def iso_calendar_of(parts: Sequence[int]) -> Any:
    """The year, week and day of a date, as `isocalendar` gives them."""
    return datetime.date.fromisocalendar(*parts).isocalendar()


ISO_CALENDAR: type = type(datetime.date.min.isocalendar())
STRUCT_TIME: Any = type(datetime.date.min.timetuple())


_PATHS = (PurePosixPath, PureWindowsPath)
_ADDRESSES = (
    *(ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network),
    *(ipaddress.IPv4Interface, ipaddress.IPv6Interface),
)


def _match_parts(value: re.Match[Any]) -> list[Any]:
    parts = [
        value.re.pattern,
        value.re.flags,
        value.string,
        value.pos,
        value.endpos,
        [list(each) for each in value.regs],
    ]
    _match_of(parts)
    return parts


def _match_of(parts: list[Any]) -> re.Match[Any]:
    """A match is found once more: by whichever way finds the same."""
    pattern, flags, text, begin, end, groups = parts
    compiled = re.compile(pattern, flags)
    for found in (way(text, begin, end) for way in (compiled.search, compiled.match, compiled.fullmatch)):
        if found is not None and [list(each) for each in found.regs] == groups:
            return found
    raise StateError("cannot keep a match of finditer() as state: keep its groups")


#: Functions of Python's own that may be kept as values: they do nothing but give a result.
_FUNCTIONS = (
    *(abs, all, any, ascii, bin, callable, chr, divmod, format, hex, isinstance, issubclass, iter, len, max, min, next),
    *(oct, ord, pow, repr, round, sorted, sum),
    *(each for module in (math, operator) for each in vars(module).values() if callable(each)),
)
FUNCTIONS: dict[str, Any] = {
    f"{each.__module__}.{each.__qualname__}": each for each in _FUNCTIONS if isinstance(each, types.BuiltinFunctionType)
}
FUNCTION_NAMES = {id(each): name for name, each in FUNCTIONS.items()}

# Kinds that are written as one piece: type → (name, to data); name → from data.
PIECES: dict[type, tuple[str, Callable[[Any], Any]]] = {
    range: ("range", lambda value: [value.start, value.stop, value.step]),
    slice: ("slice", _slice_parts),
    type(...): ("constant", repr),
    type(NotImplemented): ("constant", repr),
    memoryview: ("view of bytes", _view_parts),
    datetime.timezone: ("offset", _offset_parts),
    zoneinfo.ZoneInfo: ("zone", _zone_key),
    ISO_CALENDAR: ("iso calendar", list),
    STRUCT_TIME: ("struct time", lambda value: [list(value.__reduce__()[1][0]), value.__reduce__()[1][1]]),
    re.Match: ("match", _match_parts),
    re.Pattern: ("pattern", lambda value: [value.pattern, value.flags]),
    **{kind: (kind.__name__, str) for kind in (*_PATHS, *_ADDRESSES)},
    BytesIO: ("bytes being written", lambda value: [value.getvalue(), value.tell()]),
    bytearray: ("bytearray", bytes),
    array.array: ("array", lambda value: [value.typecode, value.tobytes()]),
    Random: ("random", _random_state),
    np.random.Generator: ("generator", lambda value: value.bit_generator.state),
    itertools.count: ("count", lambda value: list(value.__reduce__()[1])),
    StringIO: ("text", lambda value: [value.getvalue(), value.tell()]),
}
RESTORED: dict[str, Callable[[Any], Any]] = {
    "range": lambda contents: range(*contents),
    "slice": lambda contents: slice(*contents),
    "constant": {"Ellipsis": ..., "NotImplemented": NotImplemented}.__getitem__,
    "view of bytes": memoryview,
    "offset": _offset_of,
    "zone": zoneinfo.ZoneInfo,
    "iso calendar": iso_calendar_of,
    "struct time": lambda contents: STRUCT_TIME(tuple(contents[0]), contents[1]),
    "match": _match_of,
    "pattern": lambda contents: re.compile(*contents),
    "built-in function": FUNCTIONS.__getitem__,
    **{kind.__name__: kind for kind in (*_PATHS, *_ADDRESSES)},
    "bytes being written": lambda contents: filled_bytes(BytesIO(), contents),
    "bytearray": bytearray,
    "array": lambda contents: array.array(contents[0], contents[1]),
    "random": random_of,
    "generator": _generator_of,
    "count": lambda contents: itertools.count(*contents),
    "text": lambda contents: filled_text(StringIO(), contents),
}


def filled_text(value: StringIO, contents: list[Any]) -> StringIO:
    """The same text, at the same place in it."""
    value.seek(0)
    value.truncate()
    value.write(contents[0])
    value.seek(contents[1])
    return value


def filled_bytes(value: BytesIO, contents: list[Any]) -> BytesIO:
    """The same for bytes."""
    value.seek(0)
    value.truncate()
    value.write(contents[0])
    value.seek(contents[1])
    return value


# Pieces that can change: one that is in two places is one object.
CHANGING = (
    bytearray,
    array.array,
    Random,
    np.random.Generator,
    itertools.count,
    StringIO,
    BytesIO,
)


# Classes that may be kept as values, a factory of a defaultdict for one, though no code of the user's names them.
LIBRARY_CLASSES: dict[str, type] = {
    f"{kind.__module__}.{kind.__qualname__}": kind
    for kind in (
        *(bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, object),
        *(collections.defaultdict, collections.Counter, collections.OrderedDict, collections.deque, KeptCache),
    )
}


def code_name(code: types.CodeType) -> str:
    """The same in every process that has the same source: where the code is in it."""
    *_, last = code.co_positions()
    return f"{code.co_qualname} {code.co_firstlineno} {last[0]} {last[2]}"
