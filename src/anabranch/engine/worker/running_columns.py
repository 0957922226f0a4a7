"""Running aggregates of all keys of a batch at once: see `operators/running_windows` for what they are.

    tuples by key   a a a │ b b │ c       each column of the results is one running sum, count or maximum over all
    counts          1 2 3 │ 8 9 │ 1       tuples, which begins anew, with what the state has, where a key begins

Everything is as if the tuples were taken one by one: what comes out, its order, the state. Where that is not sure (see
`key_slots`) they are. The state of a batch's keys is read and written once for each key, whatever the tuples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.key_slots import (
    KeySlots,
    Numbers,
    fits_sum,
    is_number,
    is_ordered,
    key_slots,
    numbers_of,
    running_maxima,
    running_sums,
    tests_of,
)
from anabranch.operators.aggregation import Aggregate, Shape
from anabranch.operators.running_windows import RunningWindow, is_same
from anabranch.program.graph import Keyed, Node
from anabranch.program.schema import Schema, to_values

Step = Callable[[Batch, Node], Batch]
_KINDS = ("count", "sum", "avg", "min", "max", "distinct")


def running_step(node: Node, table: Any, otherwise: Step) -> Step:
    """The step of a running aggregate; `otherwise` is what takes tuples one by one."""
    logic = node.logic
    assert isinstance(logic, Keyed)
    kind = type(logic.prototype)
    shape = getattr(kind, "shape", None)
    if shape is None or not isinstance(logic.prototype, Aggregate) or not _can(shape, node.inputs[0].schema):
        return otherwise
    return RunningStep(shape, kind, table, otherwise)


def _can(shape: Shape, schema: Schema) -> bool:
    if not isinstance(shape.window, RunningWindow) or shape.window.latest_of or not shape.is_plain or not shape.key:
        return False
    for name, attribute, _ in shape.measures:
        kind = None if attribute is None else schema.type_of(attribute)
        if name not in _KINDS or (name in ("sum", "avg") and not is_number(kind)):
            return False
        if name in ("min", "max", "distinct") and not is_ordered(kind):
            return False
    return True


@dataclasses.dataclass
class _Running:
    """A column of the results, for the tuples by slot, and what becomes of the state."""

    column: Callable[[np.ndarray], pa.Array]
    """The values of some of the tuples."""
    changes: np.ndarray
    """Where it is another than for the tuple before, whatever key that has."""
    state: dict[str, list[Any]]
    """Field → its value for each slot."""
    added: Sequence[tuple[int, Any]] = ()
    """What is added to sets: slot and value."""


class RunningStep:
    """Takes batches over columns, or as they are."""

    def __init__(self, shape: Shape, kind: type[Aggregate], table: Any, otherwise: Step) -> None:
        self._shape = shape
        self._kind = kind
        self._table = table
        self._otherwise = otherwise

    def __call__(self, batch: Batch, node: Node) -> Batch:
        found = self._taken(batch, node) if isinstance(batch, ColumnBatch) and len(batch) else None
        return self._otherwise(batch, node) if found is None else found

    def _taken(self, batch: ColumnBatch, node: Node) -> Batch | None:
        schema, shape = node.inputs[0].schema, self._shape
        slots = key_slots(batch, [schema.names.index(name) for name in shape.key])
        if slots is None:
            return None
        functions = [self._kind.functions[test][1] for _, _, test in shape.measures if test >= 0]
        masks = tests_of(functions, schema, batch)
        if masks is None:
            return None
        live = self._table.load(slots.keys)
        instances = [live[key] for key in slots.keys]
        waiting = iter(masks)
        made: list[_Running] = []
        for at, (name, attribute, test) in enumerate(shape.measures):
            array = None if attribute is None else batch.untouched(schema.names.index(attribute))
            if attribute is not None and array is None:
                return None
            mask = next(waiting)[slots.order] if test >= 0 else None
            found = _Folding(slots, instances, at, array, mask).of(name)
            if found is None:
                return None
            made.append(found)
        return self._told(batch, node, slots, instances, made)

    def _told(
        self, batch: ColumnBatch, node: Node, slots: KeySlots, instances: list[Any], made: Sequence[_Running]
    ) -> Batch:
        """The results that differ from those before; the state is changed."""
        changes = np.zeros(len(batch), dtype=bool)
        for each in made:
            changes |= each.changes
        firsts = list(zip(*(to_values(each.column(slots.starts)) for each in made), strict=True))
        changes[slots.starts] = [
            not instance.open or not is_same(results, instance.shown)
            for instance, results in zip(instances, firsts, strict=True)
        ]
        # What was shown last is what the last tuple gave, or what was shown before if that is the same.
        lasts = list(zip(*(to_values(each.column(slots.ends)) for each in made), strict=True))
        told = np.logical_or.reduceat(changes, slots.starts).tolist()
        for instance, results, is_told in zip(instances, lasts, told, strict=True):
            instance.open = True
            if is_told:
                instance.shown = results
        for each in made:
            for field, values in each.state.items():
                for instance, value in zip(instances, values, strict=True):
                    setattr(instance, field, value)
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
        positions = batch.positions
        chosen: Sequence[int] = positions if len(rows) == len(batch) else np.array(positions)[rows].tolist()
        return ColumnBatch(node.schema, chosen, arrays)


class _Folding:
    """One aggregation over a batch."""

    def __init__(
        self, slots: KeySlots, instances: list[Any], at: int, array: pa.Array | None, mask: np.ndarray | None
    ) -> None:
        self._slots = slots
        self._instances = instances
        self._first, self._second = f"a{at}", f"b{at}"
        self._array = array
        self._mask = mask  # by slot: which tuples are not left out

    def of(self, name: str) -> _Running | None:
        found: _Running | None = getattr(self, f"_{name}")()
        return found

    def _begun(self, field: str, fresh: Any) -> list[Any]:
        """What the state has, or what an aggregation begins with."""
        return [getattr(each, field) if each.open else fresh for each in self._instances]

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

    def _count(self) -> _Running | None:
        array = self._array
        valid = None
        if array is not None and array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
        counts = self._counts(self._present(valid), self._begun(self._first, 0))
        if counts is None:
            return None
        return _Running(lambda at: pa.array(counts[at]), _differs(counts), {self._first: self._lasts(counts)})

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

    def _sum(self) -> _Running | None:
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
        return _Running(column, _differs(sums) | _differs(missing), {self._first: lasts})

    def _avg(self) -> _Running | None:
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
        return _Running(column, _differs(means) | _differs(missing), state)

    def _max(self) -> _Running | None:
        return self._extreme(is_least=False)

    def _min(self) -> _Running | None:
        return self._extreme(is_least=True)

    def _extreme(self, is_least: bool) -> _Running | None:
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

        changes = _differs(np.where(missing, 0, best)) | _differs(missing)
        return _Running(column, changes, {self._first: to_values(column(self._slots.ends))})

    def _distinct(self) -> _Running | None:
        """A tuple whose value its key has not had before counts."""
        assert self._array is not None
        slots = self._slots
        encoded = self._array.dictionary_encode()
        words = to_values(encoded.dictionary)
        codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)[slots.order]
        valid = self._array.is_valid().to_numpy(zero_copy_only=False) if self._array.null_count else None
        present = self._present(valid)
        tuples = np.arange(len(codes)) if present is None else np.flatnonzero(present)
        pairs = slots.sorted[tuples] * max(1, len(words)) + codes[tuples]
        _, firsts = np.unique(pairs, return_index=True)
        tuples = tuples[np.sort(firsts)]
        sets = [getattr(each, self._first) if each.open else set() for each in self._instances]
        chosen = zip(slots.sorted[tuples].tolist(), codes[tuples].tolist(), tuples.tolist(), strict=True)
        new = [(slot, words[code], at) for slot, code, at in chosen if words[code] not in sets[slot]]
        fresh = np.zeros(len(codes), dtype=bool)
        fresh[[at for _, _, at in new]] = True
        counts = self._counts(fresh, [len(each) for each in sets])
        assert counts is not None, "nobody has so many values"
        for slot, word, _ in new:
            sets[slot].add(word)
        return _Running(lambda at: pa.array(counts[at]), _differs(counts), {self._first: sets})


def _differs(values: np.ndarray) -> np.ndarray:
    """Where a value is another than the one before it."""
    found = np.ones(len(values), dtype=bool)
    found[1:] = values[1:] != values[:-1]
    return found
