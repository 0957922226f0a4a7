"""State values as bytes, exactly: what is read back equals what was written, type and all.

A value is one version byte (1) and a MessagePack object. Types MessagePack lacks are extension types,
numbered in `_EXTENSIONS`; numbers are never reused. Nothing is ever unpickled: a checkpoint is data, and
reading one runs no code of its writer. The format is described in docs/checkpoint.md.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import uuid
import zoneinfo
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgpack
import numpy as np

from anabranch.errors import StateError
from anabranch.program.object_graph import ObjectGraph, Reference
from anabranch.program.schema import Row, restored_row
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


def _order(value: np.ndarray) -> Literal["C", "F"]:
    """How the cells of an array lie: by rows, or by columns."""
    return "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"


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
        lambda v: [v.dtype.str, list(v.shape), v.tobytes(order=_order(v)), *([] if _order(v) == "C" else ["F"])],
        lambda p: np.frombuffer(p[2], dtype=np.dtype(p[0])).reshape(p[1], order=p[3] if p[3:] else "C").copy(order="A"),
    ),
    19: (np.generic, lambda v: [v.dtype.str, v.tobytes()], lambda p: np.frombuffer(p[1], np.dtype(p[0]))[0]),
    20: (Row, lambda v: [list(v._fields), list(v)], lambda p: restored_row(tuple(p[0]), tuple(p[1]))),
    21: (StateMap, StateMap.to_parts, StateMap.from_parts),
    22: (StateMaps, StateMaps.to_parts, StateMaps.from_parts),
    23: (ObjectGraph, ObjectGraph.to_parts, ObjectGraph),
    24: (Reference, lambda v: v.number, Reference),
    25: (UserObject, UserObject.to_parts, UserObject.from_parts),
}
_NUMBERS = {kind: number for number, (kind, _, _) in _EXTENSIONS.items()}


def _extend(value: Any, classes: UserClasses | None = None) -> msgpack.ExtType:
    number = _NUMBERS.get(type(value))
    if number is None:
        if isinstance(value, Row):
            number = 20
        elif isinstance(value, np.generic):
            number = 19
        elif classes is not None and (record := classes.of(value)) is not None:
            number, value = 25, record
        else:
            known = "None, bool, int, float, str, bytes, list, dict, " + ", ".join(
                kind.__name__ for kind, _, _ in _EXTENSIONS.values() if kind is not int
            )
            raise StateError(
                f"cannot keep a {type(value).__module__}.{type(value).__qualname__} as state "
                f"({value!r:.100}); keep its parts instead. Known types: {known}"
            )
    if number in (18, 19) and (value.dtype.hasobject or value.dtype.names is not None):
        raise StateError(f"cannot keep numpy values of the type {value.dtype} as state; keep a list")
    if number in (2, 3):  # sets: in one order, whatever theirs is
        return msgpack.ExtType(number, _pack(sorted(value, key=partial(_pack, classes=classes)), classes))
    return msgpack.ExtType(number, _pack(_EXTENSIONS[number][1](value), classes))


# MessagePack packs these itself, whatever we say, and gives something else back.
_DISGUISED = {bytearray, memoryview, msgpack.ExtType, msgpack.Timestamp}
_TO_LOOK_INTO = {*_DISGUISED, list, dict}


def _pack(value: Any, classes: UserClasses | None = None) -> bytes:
    value = _undisguised(value)
    extend = _extend if classes is None else partial(_extend, classes=classes)
    try:
        return msgpack.packb(value, default=extend, strict_types=True)
    except OverflowError:  # an int beyond 64 bits, somewhere inside
        return msgpack.packb(_without_big_ints(value), default=extend, strict_types=True)


def _undisguised(value: Any) -> Any:
    """The value with bytearrays as extensions. What is not a list or dict comes here again, by `_extend`."""
    kind = type(value)
    if kind in _DISGUISED:
        return _extend(value)
    if kind is list and not _TO_LOOK_INTO.isdisjoint(map(type, value)):
        return [_undisguised(item) for item in value]
    if kind is dict and not _TO_LOOK_INTO.isdisjoint(map(type, value.values())):
        return {key: _undisguised(item) for key, item in value.items()}
    return value


def _without_big_ints(value: Any) -> Any:
    kind = type(value)
    if kind is int and not -(2**63) <= value < 2**64:
        return msgpack.ExtType(4, _pack(str(value)))
    if kind is list:
        return [_without_big_ints(item) for item in value]
    if kind is dict:
        return {_without_big_ints(key): _without_big_ints(item) for key, item in value.items()}
    return value


def _restore(number: int, data: bytes, classes: UserClasses | None = None) -> Any:
    if number not in _EXTENSIONS:
        raise StateError(f"a state value has the extension type {number}, which this version does not know")
    found = _EXTENSIONS[number][2](_unpack(data, classes))
    return classes.made(found) if number == 25 and classes is not None else found


def _unpack(data: bytes, classes: UserClasses | None = None) -> Any:
    restore = _restore if classes is None else partial(_restore, classes=classes)
    return msgpack.unpackb(data, ext_hook=restore, strict_map_key=False)


def encode(value: Any, classes: UserClasses | None = None) -> bytes:
    """The bytes of a value; StateError if it has a type that cannot be kept. `classes`: whose objects can be."""
    try:
        return _PREFIX + _pack(value, classes)
    except (ValueError, RecursionError) as problem:
        raise StateError(f"cannot keep this value as state: {problem}") from None


def decode(data: bytes, classes: UserClasses | None = None) -> Any:
    """The value of bytes made by `encode`; without `classes` objects are `UserObject`."""
    if not data or data[0] != VERSION:
        found = data[0] if data else "nothing"
        raise StateError(f"a state value was written with codec version {found}; this version reads {VERSION}")
    try:
        return _unpack(data[1:], classes)
    except StateError:
        raise
    except Exception as problem:  # whatever constructors of ours and of others say to parts that are not theirs
        raise StateError(f"a state value is damaged: {problem!r}") from None
