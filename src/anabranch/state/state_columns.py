"""State as columns: what operators that compute all keys at once hold, without a Python object of any key.

    key    left                                      timer_due
    a      [{1, "x", met, 7}, {2, "y", not met, 9}]  7            what a join holds: a list of structs
    b      []                                        null

A form says which Arrow column holds a field, and how that gives the exact Python values back: whoever takes tuples one
by one reads the same segments. Operators that compute with columns are given these, and give the new ones back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import StateError
from anabranch.program.schema import to_values

ARROW_TYPES: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
}
"""Python types whose values a column of the Arrow type gives back."""

PLAIN = b"plain"
_TUPLE = b"tuple"
_TUPLES = b"tuples"
_NUMBERS = b"numbers"
_HELD = b"held "
_SET = b"set"
_LISTS = b"lists"
_DICT = b"dict"
_MAPPING = b"mapping "
_VALUES_MAX = 2**31 - 1  # of a column of lists: Arrow counts them with 32 bits


class UnfitError(Exception):
    """State that does not fit the form of its column."""


@dataclasses.dataclass(frozen=True)
class ColumnForm:
    """How a field's values are a column: what the segment's metadata says, and the type."""

    encoding: bytes
    kind: pa.DataType

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Python values as the column; UnfitError if they are others."""
        try:
            return self._array(values)
        except (pa.ArrowException, OverflowError, TypeError, ValueError, IndexError) as problem:
            raise UnfitError(str(problem)) from None

    def _array(self, values: Sequence[Any]) -> pa.Array:
        if self.encoding == PLAIN:
            return pa.array(values, self.kind)
        if self.encoding == _TUPLE:
            mask = [value is None for value in values]
            width = self.kind.num_fields
            rows = [(None,) * width if value is None else value for value in values]
            return pa.StructArray.from_arrays(_children(rows, self.kind), fields=list(self.kind), mask=pa.array(mask))
        listed: Iterable[Iterable[Any]] = (value for value in values if value is not None)
        if self.encoding == _DICT:
            listed = ([(name, *row) for name, row in value.items()] for value in values if value is not None)
        elif self.encoding.startswith(_MAPPING):
            listed = ([(*name, *row) for name, row in value.items()] for value in values if value is not None)
        flat = list(chain.from_iterable(listed))
        if not pa.types.is_struct(self.kind.value_type):
            inner = pa.array(flat, self.kind.value_type)
        else:
            if self.encoding.startswith(_HELD):
                flat = [(*held[0], *held[1:]) for held in flat]
            inner = pa.StructArray.from_arrays(_children(flat, self.kind.value_type), fields=list(self.kind.value_type))
        lengths = np.array([0 if value is None else len(value) for value in values], dtype=np.int64)
        missing = np.array([value is None for value in values], dtype=bool)
        return lists(lengths, inner, missing if missing.any() else None)


def _children(rows: Sequence[Sequence[Any]], kind: pa.StructType) -> list[pa.Array]:
    columns = list(zip(*rows, strict=True)) if rows else [()] * kind.num_fields
    if len(columns) != kind.num_fields:
        raise UnfitError(f"{len(columns)} values for {kind}")
    return [pa.array(column, field.type) for column, field in zip(columns, kind, strict=True)]


def plain(kind: pa.DataType) -> ColumnForm:
    """Values of a type that Arrow and Python share."""
    return ColumnForm(PLAIN, kind)


def one_tuple(kinds: Sequence[pa.DataType]) -> ColumnForm:
    """A tuple of values, or None."""
    return ColumnForm(_TUPLE, _struct(kinds))


def tuples(kinds: Sequence[pa.DataType]) -> ColumnForm:
    """A list of tuples."""
    return ColumnForm(_TUPLES, pa.list_(_struct(kinds)))


def held(kinds: Sequence[pa.DataType], more: Sequence[pa.DataType]) -> ColumnForm:
    """A list of lists: a tuple, and something more."""
    return ColumnForm(_HELD + str(len(kinds)).encode(), pa.list_(_struct([*kinds, *more])))


def lists_of(kinds: Sequence[pa.DataType]) -> ColumnForm:
    """A list of lists of values."""
    return ColumnForm(_LISTS, pa.list_(_struct(kinds)))


def a_dict(name: pa.DataType, kinds: Sequence[pa.DataType]) -> ColumnForm:
    """A dict of lists of values, in its order."""
    return ColumnForm(_DICT, pa.list_(_struct([name, *kinds])))


def mapping(names: Sequence[pa.DataType], kinds: Sequence[pa.DataType]) -> ColumnForm:
    """A dict of tuples by tuples, in its order."""
    return ColumnForm(_MAPPING + str(len(names)).encode(), pa.list_(_struct([*names, *kinds])))


def numbers() -> ColumnForm:
    """A tuple of whole numbers, however many, or None."""
    return ColumnForm(_NUMBERS, pa.list_(pa.int64()))


def a_set(kind: pa.DataType) -> ColumnForm:
    """A set of values, or None."""
    return ColumnForm(_SET, pa.list_(kind))


def _struct(kinds: Sequence[pa.DataType]) -> pa.StructType:
    return pa.struct([pa.field(f"c{at}", kind) for at, kind in enumerate(kinds)])


def key_column(keys: Sequence[Any]) -> tuple[pa.Array, bytes] | None:
    """Keys of several columns as a column, and its encoding; None if one has values of several types, or floats."""
    if not keys or set(map(type, keys)) != {tuple} or len(set(map(len, keys))) > 1 or not keys[0]:
        return None
    kinds = [set(map(type, column)) for column in zip(*keys, strict=True)]
    if any(len(found) > 1 or not found < set(ARROW_TYPES) or found == {float} for found in kinds):
        return None
    form = one_tuple([ARROW_TYPES[kind] for found in kinds for kind in found])
    try:
        return form.array(keys), form.encoding
    except UnfitError:  # an int beyond 64 bits, a lone surrogate
        return None


def lists(lengths: np.ndarray, values: pa.Array, missing: np.ndarray | None = None) -> pa.ListArray:
    """A column of lists, which stand one behind the other in `values`."""
    ends = np.cumsum(lengths, dtype=np.int64)
    if len(ends) and int(ends[-1]) > _VALUES_MAX:
        raise StateError(
            f"the keys of one channel hold {int(ends[-1])} values in a field, and {_VALUES_MAX} is the most that fit; "
            "run with more channels (option channels), or keep less for each key"
        )
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    mask = None if missing is None else pa.array(missing)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)


def struct_of(form: ColumnForm, columns: Sequence[pa.Array]) -> pa.StructArray:
    """The columns of tuples as what a column of lists of them has."""
    return pa.StructArray.from_arrays(list(columns), fields=list(form.kind.value_type))


def lengths_of(column: pa.ListArray) -> np.ndarray:
    """How many values each list has."""
    found: np.ndarray = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def decoded(column: pa.Array, encoding: bytes) -> list[Any]:
    """The exact Python values of a column that has a form."""
    if encoding == PLAIN or not len(column):
        return to_values(column)
    if encoding == _TUPLE:
        rows: Iterable[Any] = zip(*map(to_values, column.flatten()), strict=True)
        if not column.null_count:
            return list(rows)
        return [row if has else None for row, has in zip(rows, column.is_valid().to_pylist(), strict=True)]
    inner = column.flatten()
    made: Callable[[Iterator[Any]], Any] = list
    if encoding in (_NUMBERS, _SET):
        flat: Iterator[Any] = iter(to_values(inner))
        made = tuple if encoding == _NUMBERS else set
    else:
        parts = [to_values(child) for child in inner.flatten()]
        flat = zip(*parts, strict=True)
        if encoding == _LISTS:
            flat = map(list, flat)
        elif encoding == _DICT:
            flat, made = ((name, row) for name, *row in flat), dict
        elif encoding.startswith(_MAPPING):
            count = int(encoding[len(_MAPPING) :])
            flat, made = ((row[:count], row[count:]) for row in flat), dict
        elif encoding != _TUPLES:
            count = int(encoding[len(_HELD) :])
            flat = ([row[:count], *row[count:]] for row in flat)
    lengths = pc.list_value_length(column).to_pylist()
    return [None if length is None else made(islice(flat, length)) for length in lengths]


@dataclasses.dataclass
class StateColumns:
    """The state of some keys: which have any, and a column for each field; what those that have none have, is null.

    What is `moved` is nowhere else, and must be put back, changed or not.
    """

    found: np.ndarray
    moved: np.ndarray
    arrays: dict[str, pa.Array]


@dataclasses.dataclass
class StateBlock:
    """State of some keys that was computed as columns in this epoch.

    Attributes
    ----------
    keys : list
    forms : dict
        Field → its form.
    arrays : dict
        Field → its column.
    ended : numpy array
        Which keys have nothing any more.
    """

    keys: list[Any]
    forms: dict[str, ColumnForm]
    arrays: dict[str, pa.Array]
    ended: np.ndarray
    rows: dict[Any, int] | None = None
    """Key → where it is; what somebody took over again is not in it."""

    def places(self) -> dict[Any, int]:
        """The same, made when it is first asked for."""
        if self.rows is None:
            self.rows = {key: at for at, key in enumerate(self.keys)}
        return self.rows

    def bytes_of(self, key: Any) -> int:
        """How much a key has, about."""
        at = self.places().get(key)
        return 0 if at is None else sum(array.slice(at, 1).nbytes for array in self.arrays.values())

    def kept(self, wanted: np.ndarray) -> StateBlock:
        """Some of the keys."""
        places = np.flatnonzero(wanted)
        keys = [self.keys[at] for at in places.tolist()]
        chosen = pa.array(places)
        return StateBlock(
            keys, self.forms, {name: each.take(chosen) for name, each in self.arrays.items()}, self.ended[places]
        )

    def left(self) -> StateBlock:
        """Without what was taken over."""
        if self.rows is None or len(self.rows) == len(self.keys):
            return self
        mask = np.zeros(len(self.keys), dtype=bool)
        mask[list(self.rows.values())] = True
        return self.kept(mask)


def joined(blocks: Sequence[StateBlock]) -> StateBlock:
    """Several blocks, of other keys each, as one."""
    if len(blocks) == 1:
        return blocks[0]
    first = blocks[0]
    arrays = {name: pa.concat_arrays([block.arrays[name] for block in blocks]) for name in first.arrays}
    keys = [key for block in blocks for key in block.keys]
    return StateBlock(keys, first.forms, arrays, np.concatenate([block.ended for block in blocks]))


def with_values(
    block: StateBlock, keys: list[Any], columns: Sequence[Sequence[Any]], ended: np.ndarray | None
) -> StateBlock | None:
    """State that is Python values beside what is columns already; None if it does not fit these."""
    if not keys:
        return block
    try:
        pairs = zip(block.forms.items(), columns, strict=True)
        arrays = {name: form.array(values) for (name, form), values in pairs}
    except UnfitError:
        return None
    gone = np.zeros(len(keys), dtype=bool) if ended is None else ended
    return joined([block, StateBlock(keys, block.forms, arrays, gone)])


def all_values(
    block: StateBlock, keys: list[Any], columns: Sequence[Sequence[Any]], ended: np.ndarray | None
) -> tuple[list[Any], list[Sequence[Any]], np.ndarray]:
    """The other way round: what is columns beside state that is Python values."""
    more = [decoded(array, block.forms[name].encoding) for name, array in block.arrays.items()]
    gone = np.zeros(len(keys), dtype=bool) if ended is None else ended
    together: list[Sequence[Any]] = [[*values, *others] for values, others in zip(columns, more, strict=True)]
    return [*keys, *block.keys], together, np.concatenate([gone, block.ended])
