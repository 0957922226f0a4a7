"""What a task takes down of the keys that are to be run again: their tuples, what was made of them, their state.

    sampled keys ─ before a step ─► their state      ─┐
                 ─ after it ──────► tuples, outputs   ├─ StepSample ═ with the results ═► driver: `engine/verifying`
                 ─ at the end ────► their state again ┘

Which keys that are is a function of key and epoch alone, so every task of every attempt takes the same. Operators
without state have no keys: of their tuples some that stand together are taken. Nothing here changes what a step does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from anabranch.compiler.layout.stages import Layout, Stage, Step
from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.batches import keys_of
from anabranch.engine.worker.samples import BROADCAST, TIME, Event, StepSample
from anabranch.errors import ProgramError, StateError
from anabranch.operators.combining import Salt
from anabranch.program.calling import emitted
from anabranch.program.graph import Filter, FlatMap, Keyed, Map, Node, Punctuate, Route
from anabranch.program.hashing import with_part
from anabranch.state.shared_fields import encode_state

if TYPE_CHECKING:
    from anabranch.engine.worker.stage_flow import Arrival, Flow
    from anabranch.state.table import Table

_GOLDEN = (math.sqrt(5) - 1) / 2
_SAMPLED = (Filter, Map, FlatMap, Keyed, Route, Punctuate)


def not_sampled(node: Node) -> str:
    """Why an operator is never run again; empty if it is."""
    logic = node.logic
    if not isinstance(logic, _SAMPLED):
        return f"a {node.kind} has no code of the user's"
    if isinstance(logic, Map) and isinstance(logic.function, Salt):
        return "it deals tuples out as they come"
    if node.on_error != "fail":
        return "calls of it that fail are undone"
    if isinstance(logic, Keyed) and logic.per_input:
        return "each of its inputs has a time of its own"
    return ""


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Which keys of an epoch are taken: a share of them."""

    epoch: int
    share: float

    @classmethod
    def of_epoch(cls, epoch: int, chance: float) -> Sampling | None:
        """Every key has this chance in every epoch: some epochs, evenly spaced, and of each some keys.

        Keys that are taken together can be seen to influence each other; so it is better to take many at a time, and
        cheaper to take none at others.

        Examples
        --------
        >>> [each.epoch for n in range(40) if (each := Sampling.of_epoch(n, 0.01)) is not None]
        [0, 13, 21, 34]
        """
        share = math.sqrt(chance)
        return cls(epoch, share) if share and (epoch * _GOLDEN) % 1 < share else None

    def takes(self, hashes: np.ndarray) -> np.ndarray:
        """Which keys are taken, by their hashes, as a mask."""
        if self.share >= 1:
            return np.ones(len(hashes), dtype=bool)
        return with_part(hashes, self.epoch) < np.uint64(self.share * 2**64)


def _outputs_of(
    positions: np.ndarray, made_at: np.ndarray, made: list[tuple[Any, ...]]
) -> list[list[tuple[Any, ...]] | None]:
    """What was made of each tuple, by its position; None: it goes with the next."""
    if len(made) == len(positions) and (made_at == positions).all() and (positions[1:] != positions[:-1]).all():
        return [[output] for output in made]
    outputs: dict[int, list[tuple[Any, ...]]] = {}
    for position, output in zip(made_at.tolist(), made, strict=True):
        outputs.setdefault(position, []).append(output)
    places = positions.tolist()
    # What several tuples with one position became cannot be told apart: it goes with the last of them.
    lasts = [place != after for place, after in zip(places, [*places[1:], None], strict=True)]
    return [outputs.get(place, []) if is_last else None for place, is_last in zip(places, lasts, strict=True)]


class StageSampler:
    """Takes down what the steps of a stage do in one task."""

    def __init__(self, layout: Layout, stage: Stage, tables: Mapping[str, Table], sampling: Sampling) -> None:
        edges = layout.inputs_of(stage)
        # Where numbers count from the start of a piece, or are not sent, nobody can tell what came first.
        ordered = not stage.is_at_source and all(edge.ordered for edge in edges)
        self._steps = {
            number: StepSampler(layout.steps[number], tables, sampling, ordered, stage.kind == "single")
            for number in stage.steps
            if not not_sampled(layout.steps[number].node)
        }

    def step(self, number: int) -> StepSampler | None:
        """What takes down a step; None: there is nothing of the user's in it."""
        return self._steps.get(number)

    def samples(self) -> list[StepSample]:
        """What was taken, once all steps are done."""
        return [sample for each in self._steps.values() if (sample := each.finished()) is not None]


class StepSampler:
    """Takes down what a step does in one task."""

    def __init__(
        self, step: Step, tables: Mapping[str, Table], sampling: Sampling, ordered: bool, is_single: bool
    ) -> None:
        self._step = step
        self._node: Node = step.node
        self._sampling = sampling
        self._is_single = is_single
        self._keyed = isinstance(self._node.logic, Keyed)
        self._table = tables[self._node.name] if self._keyed else None
        self._trails: Any = []
        self._arrived: list[Any] = []  # the keys of the batch that is at work
        self._taken: dict[Any, bool] = {}  # keys that were met, and whether they are taken
        self._before: dict[Any, bytes] = {}
        self._batches = 0
        self._sample = StepSample(self._node.name, ordered)

    # -- steps over a batch ---------------------------------------------------------------------------------

    def before(self, arrived: Flow) -> np.ndarray:
        """Which tuples of a batch are taken; the state of their keys is taken down."""
        batch = arrived.batch
        if not self._keyed:
            return self._some(batch)
        keys = self._arrived = self._keys(batch, 0)
        if not keys:
            return np.empty(0, dtype=np.int64)
        # All at once, and nothing is kept of keys that are not taken: most are not.
        chosen = np.flatnonzero(self._judged(keys, batch, keys))
        self._take_down(list({keys[at] for at in chosen.tolist()} - self._before.keys()))
        return chosen

    def after(self, arrived: Flow, chosen: np.ndarray, out: Flow) -> None:
        """Take down what a batch became."""
        if not len(chosen):
            return
        batch = arrived.batch
        positions = batch.position_array[chosen]
        made_at = out.batch.position_array
        theirs = np.flatnonzero(np.isin(made_at, positions))
        if isinstance(self._node.logic, (Route, Punctuate)):
            made = [(int(out.batch.ways[at]),) for at in theirs.tolist()]
        else:
            made = out.batch.picked(theirs.tolist())
        numbers = chosen.tolist()
        self._sample.events.extend(
            [0] * len(numbers),
            [self._arrived[number] for number in numbers] if self._keyed else [None] * len(numbers),
            batch.picked(numbers),
            list(zip(*(digit[positions].tolist() for digit in arrived.trails), strict=True)),
            _outputs_of(positions, made_at[theirs], made),
        )

    def _some(self, batch: Batch) -> np.ndarray:
        """Tuples that stand together, with all that share a position with them."""
        count, share = len(batch), self._sampling.share
        self._batches += 1
        numbers = np.random.default_rng([self._sampling.epoch, self._step.number, self._batches])
        size = min(count, int(count * share + numbers.random()))
        if size == count:
            return np.arange(count)
        start = int(numbers.integers(0, count - size + 1))
        if batch.are_numbered:
            return np.arange(start, start + size)
        positions = batch.position_array
        return np.flatnonzero(np.isin(positions, positions[start : start + size]))

    # -- steps that are called tuple by tuple ---------------------------------------------------------------

    def arrived(self, arrival: Arrival) -> None:
        """Take down the state of the keys that a step is about to meet, and what happens between their tuples."""
        assert isinstance(self._node.logic, Keyed) and self._table is not None
        self._trails = arrival.trails
        for place, batch in arrival.batches.items():
            if self._node.is_broadcast(place):
                for position, row in zip(batch.positions, batch.rows, strict=True):
                    self.happened(BROADCAST, position, *tuple.__iter__(row))
            else:
                self._meet(self._keys(batch, place), batch)
        waits = self._step.waits and bool(self._node.logic.waiting)
        if waits and (len(arrival.marks) or arrival.tick is not None):
            self._meet(list(self._table.load_waiting(self._node.logic.waiting)), None)

    def shared(self, before: bytes, after: bytes) -> None:
        """Take down the broadcast state, before and after the epoch."""
        self._sample.broadcast = before, after

    def due(self, keys: Iterable[Any], value: int) -> None:
        """Keys that may be called without a tuple, and how far time had come when the epoch began."""
        self._meet(list(keys), None)
        self._sample.events.add(Event(TIME, None, (value,), (), None))

    def happened(self, place: int, position: int, *arguments: Any) -> None:
        """A punctuation, a tick, an advance of time, a tuple for all, with its arguments, whatever keys make of it."""
        self._sample.events.add(Event(place, None, arguments, self._trail(position), None))

    def around(self, method: Callable[..., Any], place: int, position: int, key: Any, row: Any) -> Callable[..., Any]:
        """A method that takes down what it emits; the method itself for a key that is not taken."""
        if not self._taken.get(key, False):
            return method
        outputs: list[tuple[Any, ...]] = []
        tuple_row = None if row is None else tuple(tuple.__iter__(row))
        self._sample.events.add(Event(place, key, tuple_row, self._trail(position), outputs))

        def called(*arguments: Any) -> Iterator[Any]:
            for output in emitted(method(*arguments)):
                outputs.append(tuple(self._node.schema.exact_row(self._node.schema.unpack(output))))
                yield output

        return called

    def _trail(self, position: int) -> tuple[int, ...]:
        return tuple(int(digit[position]) for digit in self._trails)

    # -- keys -----------------------------------------------------------------------------------------------

    def _keys(self, batch: Batch, place: int) -> list[Any]:
        names = batch.schema.names
        return keys_of(batch, tuple(names.index(name) for name in self._node.key_of(place)))

    def _meet(self, keys: list[Any], batch: Batch | None) -> None:
        """Decide about keys that were not met before, and take down the state of those that are taken."""
        assert self._table is not None
        new = [key for key in set(keys) if key not in self._taken]
        if not new:
            return
        taken = self._judged(new, batch, keys).tolist()
        self._taken.update(zip(new, taken, strict=True))
        self._take_down([key for key, is_taken in zip(new, taken, strict=True) if is_taken])

    def _judged(self, keys: list[Any], batch: Batch | None, of_tuples: list[Any]) -> np.ndarray:
        """Which keys are taken, as a mask; ProgramError for keys that another channel owns."""
        assert self._table is not None
        hashes, strange = self._table.routes(keys)
        if strange is not None:
            row = "" if batch is None else f"\nfor the tuple {batch.rows[of_tuples.index(strange)]!r}"
            raise ProgramError(
                f"operator {self._node.title}: it was given the key {strange!r}, which another channel owns: an "
                f"operator before it does not pass on the key's column unchanged, though that was declared or found. "
                f"Correct forwards in its declaration.{row}"
            )
        return self._sampling.takes(np.zeros(len(keys), dtype=np.uint64) if self._is_single else hashes)

    def _take_down(self, keys: list[Any]) -> None:
        """The state of keys that are taken, before anything happens to it."""
        assert self._table is not None
        live, values = self._table.load(keys), self._table.instances.values
        try:
            self._before.update((key, self._encoded(values(live[key]))) for key in keys)
        except StateError as problem:
            raise StateError(f"operator {self._node.title}: {problem}") from None

    def _encoded(self, values: tuple[Any, ...]) -> bytes:
        assert self._table is not None
        return encode_state(self._table.instances.names, values, self._table.classes)

    def finished(self) -> StepSample | None:
        """What was taken; None: nothing."""
        if isinstance(self._node.logic, Keyed) and (self._node.logic.timed or self._node.logic.broadcast is not None):
            # What happened between tuples was taken down behind them.
            self._sample.events = self._sample.events.in_order_of_trails()
        if self._table is not None:
            # What was computed over columns is no instance any more.
            live, values = self._table.load(list(self._before)), self._table.instances.values
            for key, before in self._before.items():
                self._sample.states[key] = (before, self._encoded(values(live[key])))
        return self._sample if len(self._sample.events) or self._sample.states else None
