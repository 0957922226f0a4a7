"""State values as bytes, exactly: what is read back equals what was written, type and all.

A value is one version byte (1) and a MessagePack object. Types MessagePack lacks are extension types,
numbered in `_EXTENSIONS`; numbers are never reused. Nothing is ever unpickled: a checkpoint is data, and
reading one runs no code of its writer. The format is described in docs/checkpoint.md.

Sets come back in their order (`program/set_tables.py`), and a NaN as the same object wherever it was one, because
Python looks for members by identity first. `comparable` gives bytes that do not tell such things: the same for equal
values.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import re
import struct
import uuid
import zoneinfo
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Literal

import msgpack
import numpy as np

from anabranch.errors import StateError
from anabranch.program.array_types import is_kept_type, type_of_text, type_text
from anabranch.program.not_a_number import NanNumbers, NumberedNans
from anabranch.program.object_filling import Reference
from anabranch.program.object_graph import ObjectGraph
from anabranch.program.object_pieces import PIECES, RESTORED
from anabranch.program.schema import Row, restored_row
from anabranch.program.set_tables import SetTable, fill, frozen, table_of
from anabranch.program.showing import shown
from anabranch.state.maps import StateMap, StateMaps
from anabranch.state.user_objects import UserClasses, UserObject

VERSION = 1
_PREFIX = bytes([VERSION])

_FACTORIES: dict[str, Callable[[], Any]] = {
    "list": list,
    "int": int,
    "float": float,
    "dict": dict,
    "set": set,
    "str": str,
    "bool": bool,
    "tuple": tuple,
}
_FACTORY_NAMES = {factory: name for name, factory in _FACTORIES.items()}


def _zone(value: datetime.datetime | datetime.time) -> Any:
    """None, the name of a zone, or the arguments of a fixed offset: [seconds] or [seconds, name]."""
    zone = value.tzinfo
    if zone is None:
        return None
    if type(zone) is datetime.timezone:
        # The only way to learn whether a name was given: tzname() makes one up.
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
        return [offset.total_seconds(), *name]
    if type(zone) is zoneinfo.ZoneInfo and zone.key is not None:
        return zone.key
    raise StateError(
        f"cannot keep a time in the zone {zone!r} as state: only datetime.timezone and zoneinfo.ZoneInfo are known"
    )


def _with_zone(zone: Any) -> datetime.tzinfo | None:
    if zone is None:
        return None
    if isinstance(zone, str):
        return zoneinfo.ZoneInfo(zone)
    seconds, *name = zone
    return datetime.timezone(datetime.timedelta(seconds=seconds), *name)


def _default_dict(parts: list[Any]) -> Any:
    name, items = parts
    return collections.defaultdict(_FACTORIES[name] if name is not None else None, dict(items))


def _pack_default_dict(value: Any) -> Any:
    factory = value.default_factory
    if factory is not None and factory not in _FACTORY_NAMES:
        raise StateError(
            f"cannot keep a defaultdict with the factory {factory!r} as state: only its name could be kept, and "
            f"only these are known: {', '.join(_FACTORIES)}"
        )
    return [None if factory is None else _FACTORY_NAMES[factory], [list(item) for item in value.items()]]


def _array_notes(value: np.ndarray) -> list[str]:
    """What is not as usual: that its cells lie by columns, that it cannot be changed."""
    return [_order(value), "fixed"] if not value.flags.writeable else ["F"] if _order(value) == "F" else []


def _array(kind: str, shape: list[int], cells: bytes, order: Literal["C", "F"] = "C", fixed: str = "") -> np.ndarray:
    made = np.frombuffer(cells, dtype=type_of_text(kind)).reshape(shape, order=order).copy(order="A")
    made.flags.writeable = not fixed
    return made


def _order(value: np.ndarray) -> Literal["C", "F"]:
    """How the cells of an array lie: by rows, or by columns."""
    return "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"


class Together:
    """A field that is kept in one graph with others (`shared_fields.py`)."""

    __slots__ = ("name", "parts")

    def __init__(self, name: str, parts: list[Any]) -> None:
        self.name = name
        self.parts = parts

    def __repr__(self) -> str:
        return repr(ObjectGraph(self.parts).view()[self.name])


# number: (type, value → packable parts, parts → value). Parts are lists of packable values.
_EXTENSIONS: dict[int, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    1: (tuple, list, tuple),
    2: (set, list, set),
    3: (frozenset, list, frozenset),
    4: (int, str, int),  # beyond 64 bits
    5: (
        datetime.datetime,
        lambda v: [v.replace(tzinfo=None).isoformat(), _zone(v), v.fold],
        lambda p: datetime.datetime.fromisoformat(p[0]).replace(tzinfo=_with_zone(p[1]), fold=p[2]),
    ),
    6: (datetime.date, lambda v: v.toordinal(), datetime.date.fromordinal),
    7: (
        datetime.time,
        lambda v: [v.replace(tzinfo=None).isoformat(), _zone(v), v.fold],
        lambda p: datetime.time.fromisoformat(p[0]).replace(tzinfo=_with_zone(p[1]), fold=p[2]),
    ),
    8: (
        datetime.timedelta,
        lambda v: [v.days, v.seconds, v.microseconds],
        lambda p: datetime.timedelta(*p),
    ),
    9: (decimal.Decimal, str, decimal.Decimal),
    10: (complex, lambda v: [v.real, v.imag], lambda p: complex(*p)),
    11: (collections.deque, lambda v: [v.maxlen, list(v)], lambda p: collections.deque(p[1], p[0])),
    12: (
        collections.Counter,
        lambda v: [list(item) for item in v.items()],
        lambda p: collections.Counter(dict(p)),
    ),
    13: (collections.defaultdict, _pack_default_dict, _default_dict),
    14: (
        collections.OrderedDict,
        lambda v: [list(item) for item in v.items()],
        lambda p: collections.OrderedDict(p),
    ),
    15: (uuid.UUID, lambda v: v.bytes, lambda p: uuid.UUID(bytes=p)),
    16: (bytearray, bytes, bytearray),
    17: (fractions.Fraction, lambda v: [v.numerator, v.denominator], lambda p: fractions.Fraction(*p)),
    18: (
        np.ndarray,
        lambda v: [type_text(v.dtype), list(v.shape), v.tobytes(order=_order(v)), *_array_notes(v)],
        lambda p: _array(*p),
    ),
    19: (np.generic, lambda v: [v.dtype.str, v.tobytes()], lambda p: np.frombuffer(p[1], np.dtype(p[0]))[0]),
    20: (Row, lambda v: [list(v._fields), list(v)], lambda p: restored_row(tuple(p[0]), tuple(p[1]))),
    21: (StateMap, StateMap.to_parts, StateMap.from_parts),
    22: (StateMaps, StateMaps.to_parts, StateMaps.from_parts),
    23: (ObjectGraph, ObjectGraph.to_parts, ObjectGraph),
    24: (Reference, lambda v: v.number, Reference),
    25: (UserObject, UserObject.to_parts, UserObject.from_parts),
    29: (Together, lambda v: [v.name, v.parts], lambda p: Together(*p)),
}
_PIECE = 28
# Times in UTC, which are most of those in state: microseconds since 1970.
_INSTANT = 30
_MICROSECONDS = struct.Struct(">q")
_MICROSECOND = datetime.timedelta(microseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NUMBERS = dict.fromkeys(PIECES, _PIECE) | {kind: number for number, (kind, _, _) in _EXTENSIONS.items()}


class _Packer:
    """Packs one value. Within it a NaN is known by its identity."""

    __slots__ = ("_classes", "_is_exact", "_nans")

    def __init__(self, classes: UserClasses | None, is_exact: bool) -> None:
        self._classes = classes
        self._is_exact = is_exact
        self._nans = NanNumbers()

    def pack(self, value: Any) -> bytes:
        value = self._undisguised(value)
        try:
            found = self._packed(value)
        except OverflowError:  # an int beyond 64 bits, somewhere inside
            value = self._replaced(value, _is_big)
            found = self._packed(value)
        if self._is_exact and _MAYBE_NAN.search(found) is not None and _has_nan(value):
            return msgpack.packb(
                self._replaced(value, _is_big_or_nan),
                default=self._extend,
                strict_types=True,
                unicode_errors="surrogatepass",
            )
        return found

    def _packed(self, value: Any) -> bytes:
        # Python's texts may hold lone surrogates, which UTF-8 has not.
        return msgpack.packb(value, default=self._extend, strict_types=True, unicode_errors="surrogatepass")

    def _extend(self, value: Any) -> msgpack.ExtType:
        kind = type(value)
        if kind is datetime.datetime and value.tzinfo is datetime.UTC and not value.fold:
            return msgpack.ExtType(_INSTANT, _MICROSECONDS.pack((value - _EPOCH) // _MICROSECOND))
        number = _NUMBERS.get(kind)
        if number is None:
            if isinstance(value, Row):
                number = 20
            elif isinstance(value, np.generic):
                number = 19
            elif self._classes is not None and (record := self._classes.of(value)) is not None:
                number, value = 25, record
            else:
                raise _unknown(value)
        elif number == _PIECE:
            name, parts = PIECES[type(value)]
            return msgpack.ExtType(_PIECE, self.pack([name, parts(value)]))
        if (number == 18 and not is_kept_type(value.dtype)) or (number == 19 and value.dtype.kind in "OV"):
            raise StateError(f"cannot keep numpy values of the type {value.dtype} as state; keep a list")
        if number in (2, 3):
            return self._set(number, value)
        return msgpack.ExtType(number, self.pack(_EXTENSIONS[number][1](value)))

    def _set(self, number: int, value: Any) -> msgpack.ExtType:
        if self._classes is not None and self._classes.sets_in_any_order and self._is_exact:
            return msgpack.ExtType(number, self.pack(list(value)))
        if not self._is_exact:  # in one order, whatever theirs is
            return msgpack.ExtType(number, self.pack(sorted(value, key=self.pack)))
        table = table_of(value)
        if table is None:
            return msgpack.ExtType(number, self.pack(list(value)))
        return msgpack.ExtType(_WITH_TABLE, self.pack([number, list(value), *table]))

    def _undisguised(self, value: Any) -> Any:
        """The value with bytearrays as extensions. What is not a list or dict comes here again, by `_extend`."""
        kind = type(value)
        if kind in _DISGUISED:
            return self._extend(value)
        if kind is list and not _TO_LOOK_INTO.isdisjoint(map(type, value)):
            return [self._undisguised(item) for item in value]
        if kind is dict and not _TO_LOOK_INTO.isdisjoint(map(type, chain(value, value.values()))):
            return {self._undisguised(key): self._undisguised(item) for key, item in value.items()}
        return value

    def _replaced(self, value: Any, is_wanted: Callable[[Any], bool]) -> Any:
        """The value with numbers that MessagePack has not as extensions."""
        kind = type(value)
        if kind is list:
            return [self._replaced(item, is_wanted) for item in value]
        if kind is dict:
            return {self._replaced(key, is_wanted): self._replaced(item, is_wanted) for key, item in value.items()}
        if not is_wanted(value):
            return value
        if kind is int:
            return msgpack.ExtType(4, self.pack(str(value)))
        return msgpack.ExtType(_NAN, msgpack.packb(self._nans.number_of(value)))


def _unknown(value: Any) -> StateError:
    known = "None, bool, int, float, str, bytes, list, dict, " + ", ".join(
        kind.__name__ for kind in _NUMBERS if kind not in (int, Reference, ObjectGraph, UserObject, Together)
    )
    return StateError(
        f"cannot keep a {type(value).__module__}.{type(value).__qualname__} as state "
        f"({shown(value):.100}); keep its parts instead. Known types: {known}"
    )


# MessagePack packs these itself, whatever we say, and gives something else back.
_DISGUISED = {bytearray, memoryview, msgpack.ExtType, msgpack.Timestamp}
_TO_LOOK_INTO = {*_DISGUISED, list, dict}
# The beginning of a float that is no number, or infinite; other bytes may look like it.
_MAYBE_NAN = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]", re.DOTALL)
_WITH_TABLE, _NAN = 26, 27
_FLAT = frozenset({type(None), bool, int, float, str, bytes})


def _is_big(value: Any) -> bool:
    return type(value) is int and not -(2**63) <= value < 2**64


def _has_nan(value: Any) -> bool:
    """Whether a NaN is among what MessagePack packs itself: bytes that look like one are in every large list."""
    kind = type(value)
    if kind is list:
        if _FLAT.issuperset(map(type, value)):
            return bool([item for item in value if item != item])
        return any(map(_has_nan, value))
    if kind is dict:
        return any(map(_has_nan, chain(value, value.values())))
    return kind is float and value != value


def _is_big_or_nan(value: Any) -> bool:
    return value != value if type(value) is float else _is_big(value)


class _Unpacker:
    """Unpacks one value."""

    __slots__ = ("_classes", "_nans")

    def __init__(self, classes: UserClasses | None) -> None:
        self._classes = classes
        self._nans = NumberedNans()

    def unpack(self, data: bytes) -> Any:
        return msgpack.unpackb(data, ext_hook=self._restore, strict_map_key=False, unicode_errors="surrogatepass")

    def _restore(self, number: int, data: bytes) -> Any:
        if number == _INSTANT:
            return _EPOCH + datetime.timedelta(0, 0, *_MICROSECONDS.unpack(data))
        if number not in _EXTENSIONS and number not in (_NAN, _WITH_TABLE, _PIECE):
            raise StateError(f"a state value has the extension type {number}, which this version does not know")
        parts = self.unpack(data)
        if number == _NAN:
            return self._nans.nan(parts)
        if number == _WITH_TABLE:
            return _with_table(parts)
        if number == _PIECE:
            return RESTORED[parts[0]](parts[1])
        found = _EXTENSIONS[number][2](parts)
        return self._classes.made(found) if number == 25 and self._classes is not None else found


def _with_table(parts: list[Any]) -> Any:
    number, members, *table = parts
    if number == 3:
        return frozen(members, SetTable(*table))
    made: set[Any] = set()
    fill(made, members, SetTable(*table))
    return made


def encode(value: Any, classes: UserClasses | None = None) -> bytes:
    """The bytes of a value; StateError if it has a type that cannot be kept. `classes`: whose objects can be."""
    return _encoded(value, classes, is_exact=True)


def encode_flat(values: Iterable[Any]) -> bytes:
    """What `encode` makes of a list of None, bool, int, float, str, bytes and nothing else; three times as fast."""
    values = list(values)
    try:
        found = msgpack.packb(values, strict_types=True, unicode_errors="surrogatepass")
    except OverflowError:
        return encode(values)
    return encode(values) if _MAYBE_NAN.search(found) is not None else _PREFIX + found


def comparable(value: Any, classes: UserClasses | None = None) -> bytes:
    """Bytes that are the same for equal values, whatever the order of their sets; not to be read back."""
    return _encoded(value, classes, is_exact=False)


def _encoded(value: Any, classes: UserClasses | None, is_exact: bool) -> bytes:
    try:
        return _PREFIX + _Packer(classes, is_exact).pack(value)
    except (ValueError, RecursionError) as problem:
        raise StateError(f"cannot keep this value as state: {problem}") from None


def decode(data: bytes, classes: UserClasses | None = None) -> Any:
    """The value of bytes made by `encode`; without `classes` objects are `UserObject`."""
    if not data or data[0] != VERSION:
        found = data[0] if data else "nothing"
        raise StateError(f"a state value was written with codec version {found}; this version reads {VERSION}")
    try:
        return _Unpacker(classes).unpack(data[1:])
    except StateError:
        raise
    except Exception as problem:  # whatever constructors of ours and of others say to parts that are not theirs
        raise StateError(f"a state value is damaged: {problem!r}") from None
