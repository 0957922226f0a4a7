"""Objects of the library that are kept in one piece: random generators, arrays of numbers, texts being written."""

from __future__ import annotations

import array
import collections
import datetime
import itertools
import types
from collections.abc import Callable
from io import StringIO
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


# Kinds that are written as one piece: type → (name, to data); name → from data.
PIECES: dict[type, tuple[str, Callable[[Any], Any]]] = {
    bytearray: ("bytearray", bytes),
    array.array: ("array", lambda value: [value.typecode, value.tobytes()]),
    Random: ("random", _random_state),
    np.random.Generator: ("generator", lambda value: value.bit_generator.state),
    itertools.count: ("count", lambda value: list(value.__reduce__()[1])),
    StringIO: ("text", lambda value: [value.getvalue(), value.tell()]),
    type(datetime.date.min.isocalendar()): ("isocalendar", list),
}
RESTORED: dict[str, Callable[[Any], Any]] = {
    "bytearray": bytearray,
    "array": lambda contents: array.array(contents[0], contents[1]),
    "random": random_of,
    "generator": _generator_of,
    "count": lambda contents: itertools.count(*contents),
    "text": lambda contents: filled_text(StringIO(), contents),
    "isocalendar": lambda contents: datetime.date.fromisocalendar(*contents).isocalendar(),
}


def filled_text(value: StringIO, contents: list[Any]) -> StringIO:
    """The same text, at the same place in it."""
    value.seek(0)
    value.truncate()
    value.write(contents[0])
    value.seek(contents[1])
    return value


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
