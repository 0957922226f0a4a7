"""Running aggregates of all keys of a batch at once: see `operators/running_windows` for what they are.

    tuples by key   a a a │ b b │ c       each column of the results is one running sum, count or maximum over all
    counts          1 2 3 │ 8 9 │ 1       tuples, which begins anew, with what the state has, where a key begins

Everything is as if the tuples were taken one by one: what comes out, its order, the state. Where that is not sure (see
`key_slots`) they are. The state of a batch's keys is columns, too (`state/state_columns`): sets of distinct values are
lists of one column.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.key_slots import (
    KeySlots,
    Numbers,
    fits_sum,
    group_slots,
    is_number,
    is_ordered,
    note_null_keys,
    numbers_of,
    running_maxima,
    running_sums,
    tests_of,
)
from anabranch.engine.worker.timing import Stopwatch
from anabranch.operators.aggregation import Aggregate, Shape
from anabranch.operators.running_windows import RunningWindow
from anabranch.program.graph import Keyed, Node
from anabranch.program.schema import Schema, to_values
from anabranch.state import state_columns
from anabranch.state.state_columns import ColumnForm, StateBlock, StateColumns, lengths_of, lists

Step = Callable[[Batch, Node], Batch]
_KINDS = ("count", "sum", "avg", "min", "max", "distinct")


def running_step(node: Node, table: Any, otherwise: Step, watch: Stopwatch | None = None) -> Step:
    """The step of a running aggregate; `otherwise` is what takes tuples one by one."""
    logic = node.logic
    assert isinstance(logic, Keyed)
    kind = type(logic.prototype)
    shape = getattr(kind, "shape", None)
    schema = node.inputs[0].schema
    if shape is None or not isinstance(logic.prototype, Aggregate) or not _can(shape, schema):
        return otherwise
    forms = forms_of(shape.measures, schema)
    names = [field.name for field in logic.fields]
    if logic.time_to_live_ms is not None or not set(names) <= set(forms):
        return otherwise
    return RunningStep(shape, kind, {name: forms[name] for name in names}, table, otherwise, watch)


def _can(shape: Shape, schema: Schema) -> bool:
    if not isinstance(shape.window, RunningWindow) or shape.window.latest_of or not shape.is_plain or not shape.key:
        return False
    return is_foldable(shape.measures, schema)


def is_foldable(measures: Sequence[Any], schema: Schema) -> bool:
    """Whether aggregations are sums, counts, extremes or distinct values, of types that are computed with here."""
    for name, attribute, _ in measures:
        kind = None if attribute is None else schema.type_of(attribute)
        if name not in _KINDS or (name in ("sum", "avg") and not is_number(kind)):
            return False
        if name in ("min", "max", "distinct") and not is_ordered(kind):
            return False
    return True


def forms_of(measures: Sequence[Any], schema: Schema) -> dict[str, ColumnForm]:
    """How the state is columns: the fields of each aggregation, and its result, which was shown."""
    forms = {"open": state_columns.plain(pa.bool_())}
    shown: list[pa.DataType] = []
    for at, (name, attribute, _) in enumerate(measures):
        own = pa.int64() if attribute is None or name not in ("min", "max", "distinct") else schema.type_of(attribute)
        forms[f"a{at}"] = state_columns.a_set(own) if name == "distinct" else state_columns.plain(own)
        forms[f"b{at}"] = state_columns.plain(pa.int64())
        shown.append(pa.float64() if name == "avg" else own if name in ("min", "max") else pa.int64())
    return forms | {"shown": state_columns.one_tuple(shown)}


@dataclasses.dataclass
class RunningColumn:
    """A column of the results, for the tuples by slot, and what becomes of the state."""

    column: Callable[[np.ndarray], pa.Array]
    """The values of some of the tuples."""
    changes: np.ndarray
    """Where it is another than for the tuple before, whatever key that has."""
    state: dict[str, list[Any] | pa.Array]
    """Field → its value for each slot."""


class RunningStep:
    """Takes batches over columns, or as they are."""

    def __init__(
        self,
        shape: Shape,
        kind: type[Aggregate],
        forms: dict[str, ColumnForm],
        table: Any,
        otherwise: Step,
        watch: Stopwatch | None = None,
    ) -> None:
        self._shape = shape
        self._kind = kind
        self._forms = forms
        self._table = table
        self._otherwise = otherwise
        self._watch = watch

    def __call__(self, batch: Batch, node: Node) -> Batch:
        begun = self._watch.clock() if self._watch is not None else 0.0
        found = self._taken(batch, node) if isinstance(batch, ColumnBatch) and len(batch) else None
        if found is None:
            return self._otherwise(batch, node)
        if self._watch is not None:
            self._watch.share(self._watch.clock() - begun, len(batch))
        return found

    def _taken(self, batch: ColumnBatch, node: Node) -> Batch | None:
        schema, shape = node.inputs[0].schema, self._shape
        keys = [schema.names.index(name) for name in shape.key]
        slots = group_slots(batch, keys, shape.null_key)
        if slots is None:
            return None
        functions = [self._kind.functions[test].function for _, _, test in shape.measures if test >= 0]
        masks = tests_of(functions, schema, batch)
        places = [None if name is None else schema.names.index(name) for _, name, _ in shape.measures]
        arrays = [None if place is None else batch.untouched(place) for place in places]
        if masks is None or any(
            array is None for array, place in zip(arrays, places, strict=True) if place is not None
        ):
            return None
        state = self._table.columns(slots.keys, self._forms)
        if state is None:
            return None
        is_open = pc.fill_null(state.arrays["open"], False).to_numpy(zero_copy_only=False)
        made = self._made(batch, slots, state, is_open, arrays, masks)
        if made is None:
            self._table.put(StateBlock(slots.keys, self._forms, state.arrays, ~state.found).kept(state.moved))
            return None
        note_null_keys(self._kind.operator_name, batch, keys, shape.null_key)
        return self._told(batch, node, slots, state, is_open, made)

    def _made(
        self,
        batch: ColumnBatch,
        slots: KeySlots,
        state: StateColumns,
        is_open: np.ndarray,
        arrays: Sequence[pa.Array | None],
        masks: Sequence[np.ndarray],
    ) -> list[RunningColumn] | None:
        """The column of each aggregation; None if tuples must be taken one by one."""
        made: list[RunningColumn] = []
        waiting = iter(masks)
        for at, ((name, _, test), array) in enumerate(zip(self._shape.measures, arrays, strict=True)):
            mask = next(waiting)[slots.order] if test >= 0 else None
            found = Folding(slots, state, is_open, at, array, mask).of(name)
            if found is None:
                return None
            made.append(found)
        return made

    def _told(
        self,
        batch: ColumnBatch,
        node: Node,
        slots: KeySlots,
        state: StateColumns,
        is_open: np.ndarray,
        made: Sequence[RunningColumn],
    ) -> Batch:
        """The results that differ from those before; the state is changed."""
        changes = np.zeros(len(batch), dtype=bool)
        for each in made:
            changes |= each.changes
        changes[slots.starts] = ~is_open
        for each, shown in zip(made, state.arrays["shown"].flatten(), strict=True):
            changes[slots.starts] |= is_open & ~_are_same(each.column(slots.starts).cast(shown.type), shown)
        # What was shown last is what the last tuple gave: if nothing changed, that is what was shown before.
        kinds = [field.type for field in self._forms["shown"].kind]
        lasts = [each.column(slots.ends).cast(kind) for each, kind in zip(made, kinds, strict=True)]
        new: dict[str, Any] = {
            "open": pa.array(np.ones(len(slots.keys), dtype=bool)),
            "shown": pa.StructArray.from_arrays(lasts, fields=list(self._forms["shown"].kind)),
        }
        for each in made:
            new |= each.state
        columns = {
            name: new[name] if isinstance(new[name], pa.Array) else form.array(new[name])
            for name, form in self._forms.items()
        }
        self._table.put(StateBlock(slots.keys, self._forms, columns, np.zeros(len(slots.keys), dtype=bool)))
        # Back into the order in which the tuples came.
        place = np.empty(len(batch), dtype=np.int64)
        place[slots.order] = np.arange(len(batch))
        changes = changes[place]
        rows, places = np.flatnonzero(changes), place[changes]
        names = node.inputs[0].schema.names
        keys = [batch.untouched(names.index(name)) for name in self._shape.key]
        arrays = [array.take(pa.array(rows)) for array in keys if array is not None]
        arrays += [each.column(places) for each in made]
        kinds = [field.type for field in node.schema.arrow]
        arrays = [array.cast(kind) for array, kind in zip(arrays, kinds, strict=True)]
        chosen = batch.any_positions if len(rows) == len(batch) else batch.position_array[rows]
        return ColumnBatch(node.schema, chosen, arrays)


class Folding:
    """One aggregation over a batch."""

    def __init__(
        self,
        slots: KeySlots,
        state: StateColumns,
        is_open: np.ndarray,
        at: int,
        array: pa.Array | None,
        mask: np.ndarray | None,
    ) -> None:
        self._slots = slots
        self._state = state
        self._is_open = is_open
        self._first, self._second = f"a{at}", f"b{at}"
        self._array = array
        self._mask = mask  # by slot: which tuples are not left out

    def of(self, name: str) -> RunningColumn | None:
        found: RunningColumn | None = getattr(self, f"_{name}")()
        return found

    def _begun(self, field: str, fresh: Any) -> list[Any]:
        """What the state has, or what an aggregation begins with."""
        values = to_values(self._state.arrays[field])
        return [value if known else fresh for value, known in zip(values, self._is_open.tolist(), strict=True)]

    def _present(self, valid: np.ndarray | None) -> np.ndarray | None:
        """By slot: which tuples count; None: all."""
        if valid is None:
            return self._mask
        valid = valid[self._slots.order]
        return valid if self._mask is None else valid & self._mask

    def _sums(self, values: np.ndarray, begun: Sequence[int]) -> np.ndarray | None:
        if not fits_sum(values, begun):
            return None
        return running_sums(self._slots.sorted, self._slots.starts, values, np.array(begun, dtype=np.int64))

    def _counts(self, present: np.ndarray | None, begun: Sequence[int]) -> np.ndarray | None:
        ones = np.ones(len(self._slots.order), dtype=np.int64) if present is None else present.astype(np.int64)
        return self._sums(ones, begun)

    def _count(self) -> RunningColumn | None:
        array = self._array
        valid = None
        if array is not None and array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
        counts = self._counts(self._present(valid), self._begun(self._first, 0))
        if counts is None:
            return None
        return RunningColumn(lambda at: pa.array(counts[at]), differs(counts), {self._first: self._lasts(counts)})

    def _lasts(self, values: np.ndarray) -> list[Any]:
        found: list[Any] = values[self._slots.ends].tolist()
        return found

    def _numbers(self, more: Sequence[Any] = ()) -> tuple[Numbers, list[int | None]] | None:
        return numbers_of(self._array, more)

    def _added(self) -> tuple[np.ndarray, np.ndarray | None] | None:
        """By slot: the numbers that are added, 0 for what is left out, and which are not."""
        found = self._numbers()
        if found is None:
            return None
        present = self._present(found[0].valid)
        values = found[0].values[self._slots.order]
        return (values if present is None else np.where(present, values, 0)), present

    def _sum(self) -> RunningColumn | None:
        added = self._added()
        if added is None:
            return None
        values, present = added
        before = self._begun(self._first, None)
        sums = self._sums(values, [each or 0 for each in before])
        some = self._counts(present, [int(each is not None) for each in before])
        if sums is None or some is None:
            return None
        missing = some == 0

        def column(at: np.ndarray) -> pa.Array:
            return pa.array(sums[at], mask=missing[at])

        lasts = [None if none else value for value, none in zip(self._lasts(sums), self._lasts(missing), strict=True)]
        return RunningColumn(column, differs(sums) | differs(missing), {self._first: lasts})

    def _avg(self) -> RunningColumn | None:
        added = self._added()
        if added is None:
            return None
        values, present = added
        sums = self._sums(values, self._begun(self._first, 0))
        counts = self._counts(present, self._begun(self._second, 0))
        if sums is None or counts is None:
            return None
        # A whole number becomes a float as Python has it: the nearest, of two the even.
        means, missing = sums.astype(np.float64) / np.maximum(counts, 1), counts == 0

        def column(at: np.ndarray) -> pa.Array:
            return pa.array(means[at], mask=missing[at])

        state = {self._first: self._lasts(sums), self._second: self._lasts(counts)}
        return RunningColumn(column, differs(means) | differs(missing), state)

    def _max(self) -> RunningColumn | None:
        return self._extreme(is_least=False)

    def _min(self) -> RunningColumn | None:
        return self._extreme(is_least=True)

    def _extreme(self, is_least: bool) -> RunningColumn | None:
        found = self._numbers(self._begun(self._first, None))
        if found is None:
            return None
        numbers, begun = found
        values = numbers.values[self._slots.order]
        if is_least:  # -1 - value, which turns the order round for all numbers of 64 bits
            values, begun = ~values, [None if each is None else ~each for each in begun]
        best, missing = running_maxima(
            self._slots.sorted, self._slots.starts, values, self._present(numbers.valid), begun
        )
        best = ~best if is_least else best

        def column(at: np.ndarray) -> pa.Array:
            return numbers.column(best[at], missing[at])

        changes = differs(np.where(missing, 0, best)) | differs(missing)
        return RunningColumn(column, changes, {self._first: column(self._slots.ends)})

    def _distinct(self) -> RunningColumn | None:
        """A tuple whose value its key has not had before counts."""
        assert self._array is not None
        slots = self._slots
        held = self._state.arrays[self._first]
        if not self._is_open.all():  # a window that was closed leaves what it had
            held = pc.if_else(pa.array(self._is_open), held, pa.scalar(None, held.type))
        had = np.repeat(np.arange(len(held)), lengths_of(held))
        values = pa.concat_arrays([held.flatten(), self._array])
        encoded = values.dictionary_encode()
        codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        valid = self._array.is_valid().to_numpy(zero_copy_only=False) if self._array.null_count else None
        present = self._present(valid)
        tuples = np.arange(len(slots.order)) if present is None else np.flatnonzero(present)
        rows = np.concatenate([np.arange(len(had)), len(had) + slots.order[tuples]])
        keys = np.concatenate([had, slots.sorted[tuples]])
        # What keys had before stands first, so of each pair of a key and a value the first that came is new.
        pairs = pa.array(keys * max(1, len(encoded.dictionary)) + codes[rows])
        numbers = pairs.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        is_new = numbers > np.concatenate([[-1], np.maximum.accumulate(numbers)[:-1]])
        fresh = np.zeros(len(slots.order), dtype=bool)
        fresh[tuples[is_new[len(had) :]]] = True
        counts = self._counts(fresh, np.bincount(had, minlength=len(held)).tolist())
        assert counts is not None, "nobody has so many values"
        order = np.argsort(keys[is_new], kind="stable")
        sets = lists(np.bincount(keys[is_new], minlength=len(held)), values.take(pa.array(rows[is_new][order])))
        return RunningColumn(lambda at: pa.array(counts[at]), differs(counts), {self._first: sets})


def _are_same(one: pa.Array, other: pa.Array) -> np.ndarray:
    """Where two columns have one value; null is null."""
    same = pc.fill_null(pc.equal(one, other), False)
    found: np.ndarray = pc.or_(same, pc.and_(one.is_null(), other.is_null())).to_numpy(zero_copy_only=False)
    return found


def differs(values: np.ndarray) -> np.ndarray:
    """Where a value is another than the one before it."""
    found = np.ones(len(values), dtype=bool)
    found[1:] = values[1:] != values[:-1]
    return found
