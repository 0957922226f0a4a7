"""The keys of a batch as dense numbers, and what aggregations need of its columns as numbers.

    keys    b a b c a        slots   1 0 1 2 0        order   0 1 0 …   the tuples of each slot, one behind the other

What is computed for all keys at once must be what is computed for each on its own. So only types are taken here whose
values numpy and Arrow compare, add and tell apart as Python does: whole numbers of 64 bits, with a look at whether a
sum could leave them; texts; times. For all else `None` says that tuples are taken one by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.compiler.rewriting.conditions import condition_of
from anabranch.compiler.rewriting.over_columns import over_columns
from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.condition_columns import held
from anabranch.operators.epoch_context import count_anomaly
from anabranch.operators.library_operator import NULL_KEY, Guard
from anabranch.program.schema import Schema, to_values

INT_LIMIT = 2**62
_TIMES = (pa.timestamp("us"), pa.timestamp("us", tz="UTC"))


def is_number(kind: pa.DataType) -> bool:
    """Whether values are whole numbers of at most 64 bits."""
    return pa.types.is_signed_integer(kind)


def is_ordered(kind: pa.DataType) -> bool:
    """Whether values can be put in order as numbers: by what they are, or by their ranks."""
    return is_number(kind) or kind in _TIMES or pa.types.is_string(kind) or pa.types.is_date32(kind)


def is_key(kind: pa.DataType) -> bool:
    """Whether values that Arrow takes for one key are one for Python."""
    return is_ordered(kind) or pa.types.is_boolean(kind)


@dataclasses.dataclass
class KeySlots:
    """The keys of some tuples.

    Attributes
    ----------
    keys : list
        The distinct keys, as tables have them.
    of : numpy array
        The slot of each tuple.
    order : numpy array
        The tuples by slot, those of a slot in their order.
    sorted : numpy array
        Their slots.
    starts : numpy array
        Where each slot begins.
    """

    keys: list[Any]
    of: np.ndarray
    order: np.ndarray
    sorted: np.ndarray
    starts: np.ndarray

    @property
    def ends(self) -> np.ndarray:
        """The last of each slot."""
        return np.append(self.starts[1:], len(self.order)) - 1


def key_slots(batch: Batch, places: Sequence[int], *, with_nulls: bool = False) -> KeySlots | None:
    """The keys of a batch; None if they are of other types, or null where null is no key like others."""
    if not isinstance(batch, ColumnBatch) or not len(batch):
        return None
    return slots_of_columns([batch.untouched(place) for place in places], len(batch), with_nulls)


def group_slots(batch: Batch, places: Sequence[int], null_key: str) -> KeySlots | None:
    """The keys that an aggregation groups by: null is one of them, unless such tuples are dropped or refused."""
    return key_slots(batch, places, with_nulls=null_key in ("keep", "seen"))


def note_null_keys(operator: str, batch: ColumnBatch, places: Sequence[int], null_key: str) -> None:
    """Count keys that are null, as an aggregation does that keeps them."""
    count = sum(batch.array(place).null_count for place in places) if null_key == "keep" else 0
    if count:
        count_anomaly(operator, NULL_KEY, count)


def note_null_tuples(operator: str, batch: ColumnBatch, guard: Guard) -> None:
    """Count tuples with a null in their key, as an operator does that looks at each and keeps them."""
    arrays = [batch.array(place) for place, _ in guard.keys] if guard.null_key == "keep" else []
    if any(array.null_count for array in arrays):
        is_null = np.logical_or.reduce([array.is_null().to_numpy(zero_copy_only=False) for array in arrays])
        count_anomaly(operator, NULL_KEY, int(is_null.sum()))


def slots_of_columns(columns: Sequence[pa.Array | None], length: int, with_nulls: bool = False) -> KeySlots | None:
    """The same of the columns of keys, all of one length; None in place of one whose values somebody was given."""
    codes = np.zeros(length, dtype=np.int64)
    arrays: list[pa.Array] = []
    size = 1
    for array in columns:
        if array is None or (array.null_count and not with_nulls) or not is_key(array.type):
            return None
        encoded = pc.dictionary_encode(array, null_encoding="encode")
        count = max(1, len(encoded.dictionary))
        if size * count > INT_LIMIT:
            return None
        codes = codes * count + encoded.indices.to_numpy(zero_copy_only=False)
        size *= count
        arrays.append(array)
    return slots_of(codes, size, lambda firsts: _keys(arrays, firsts))


def slots_of(codes: np.ndarray, size: int, keys: Callable[[np.ndarray], list[Any]]) -> KeySlots:
    """Slots for codes from 0 to a size; `keys` gives the keys of some places."""
    if size <= 4 * len(codes) + 1024:  # few enough to count them
        present = np.zeros(size, dtype=bool)
        present[codes] = True
        slots = (np.cumsum(present) - 1)[codes]
    else:
        _, slots = np.unique(codes, return_inverse=True)
        slots = slots.reshape(-1)
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return KeySlots(keys(order[starts]), slots, order, ordered, starts)


def _keys(arrays: Sequence[pa.Array], firsts: np.ndarray) -> list[Any]:
    taken = pa.array(firsts)
    columns = [to_values(array.take(taken)) for array in arrays]
    if not columns:
        return [()] * len(firsts)
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def tests_of(functions: Sequence[Callable[..., Any]], schema: Schema, batch: ColumnBatch) -> list[np.ndarray] | None:
    """For which tuples each predicate holds; None if one must be called with tuples, or raises."""
    found: dict[Any, np.ndarray] = {}
    made: list[np.ndarray] = []
    for function in functions:
        # The same code with the same surroundings says the same: predicates are found to have no state of their own.
        same: Any = function
        if hasattr(function, "__code__") and not function.__closure__ and not function.__defaults__:
            same = (function.__code__, id(function.__globals__))
        if same not in found:
            mask = _mask(function, schema, batch)
            if mask is None:
                return None
            found[same] = mask
        made.append(found[same])
    return made


def _mask(function: Callable[..., Any], schema: Schema, batch: ColumnBatch) -> np.ndarray | None:
    condition = condition_of(function, schema)
    if not isinstance(condition, str):
        mask = held(condition, batch)
        if mask is not None:
            return mask
    code = over_columns(function, schema, None, with_fields=False)
    bound = None if code is None else code.bound(function)
    if code is None or bound is None or not code.reads or any(read.path or read.is_null for read in code.reads):
        return None
    if any(pa.types.is_nested(schema.arrow.field(read.column).type) for read in code.reads):
        return None
    try:
        return np.fromiter(map(bound, *(batch.values(read.column) for read in code.reads)), bool, len(batch))
    except Exception:  # the call with the tuple tells it better
        return None


# -- columns as numbers ---------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Numbers:
    """A column as whole numbers in the order of its values, and back; `valid` is None if none is null."""

    values: np.ndarray
    valid: np.ndarray | None
    kind: pa.DataType
    words: pa.Array | None = None  # what the numbers stand for, if they are ranks

    def column(self, values: np.ndarray, missing: np.ndarray | None) -> pa.Array:
        """Such numbers as the column has them."""
        mask = None if missing is None or not missing.any() else missing
        if self.words is not None:
            places = pa.array(np.where(missing, 0, values) if missing is not None else values, mask=mask)
            return self.words.take(places)
        return (
            pa.array(values, mask=mask).cast(pa.int32() if pa.types.is_date(self.kind) else pa.int64()).cast(self.kind)
        )


def numbers_of(array: pa.Array | None, more: Sequence[Any] = ()) -> tuple[Numbers, list[int | None]] | None:
    """A column as numbers, and some values of its type, which may be None, as numbers of the same kind."""
    if array is None or not is_ordered(array.type):
        return None
    valid = None if not array.null_count else array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_string(array.type):
        encoded = array.dictionary_encode()
        words = to_values(encoded.dictionary)
        ranked = sorted({*words, *(each for each in more if each is not None)})
        ranks = {word: rank for rank, word in enumerate(ranked)}
        places = np.array([ranks[word] for word in words] or [0], dtype=np.int64)
        codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        given = [None if each is None else ranks[each] for each in more]
        return Numbers(places[codes], valid, array.type, pa.array(ranked, array.type)), given
    plain = array.cast(pa.int32()) if pa.types.is_date(array.type) else array
    values = plain.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_integer(array.type):
        return Numbers(values, valid, array.type), list(more)
    others = pa.array(list(more), array.type)
    others = others.cast(pa.int32()) if pa.types.is_date(array.type) else others
    return Numbers(values, valid, array.type), others.cast(pa.int64()).to_pylist()


# -- folds over slots -------------------------------------------------------------------------------------------------


def fits_sum(values: np.ndarray, begun: Sequence[int]) -> bool:
    """Whether no sum of some of these numbers, whatever they are added to, leaves 64 bits."""
    most = max(abs(int(values.min())), abs(int(values.max()))) * len(values) if len(values) else 0
    return most + max(abs(min(begun, default=0)), abs(max(begun, default=0))) < INT_LIMIT


def running_sums(slots: np.ndarray, starts: np.ndarray, values: np.ndarray, begun: np.ndarray) -> np.ndarray:
    """Behind each tuple, the sum of its slot so far; tuples stand by slot, `begun` is what each slot had before."""
    sums = np.cumsum(values)
    before = begun - (sums[starts] - values[starts])
    return sums + before[slots]


def running_maxima(
    slots: np.ndarray,
    starts: np.ndarray,
    values: np.ndarray,
    present: np.ndarray | None = None,
    begun: Sequence[int | None] = (),
) -> tuple[np.ndarray, np.ndarray]:
    """Behind each tuple, the largest number of its slot so far, and where there is none yet.

    `begun` is what each slot had before; empty: none had anything.
    """
    known = [each for each in begun if each is not None]
    low = min([int(values.min()), *known]) if len(values) else min(known, default=0)
    high = max([int(values.max()), *known]) if len(values) else max(known, default=0)
    span = high - low + 2
    back = None
    if len(starts) * span < INT_LIMIT and low > -INT_LIMIT and high < INT_LIMIT:
        numbers = values - low + 1
        first = [0 if each is None else each - low + 1 for each in begun]
    else:
        back = np.unique(np.concatenate([values, np.array(known, dtype=np.int64)]))
        span = len(back) + 1
        numbers = np.searchsorted(back, values) + 1
        first = [0 if each is None else int(np.searchsorted(back, each)) + 1 for each in begun]
    numbers = numbers.astype(np.int64, copy=True)
    if present is not None:
        numbers[~present] = 0
    if first:
        numbers[starts] = np.maximum(numbers[starts], np.array(first, dtype=np.int64))
    above = slots * span
    found = np.maximum.accumulate(numbers + above) - above
    missing = found == 0
    if back is None:
        return found + (low - 1), missing
    return back[np.maximum(found - 1, 0)], missing


def starting(slots: np.ndarray) -> np.ndarray:
    """Where, among rows by slot, another slot begins."""
    return np.concatenate([[True], slots[1:] != slots[:-1]]) if len(slots) else np.empty(0, dtype=bool)
