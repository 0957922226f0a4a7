"""Elastic accumulators in a channel for one epoch: their blocks, and the end of the input.

Nothing that happens between tuples matters to them but that all time has come. So the tuples up to there are folded in
long runs, by as many workers as pay off, however often the watermark rises between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.compiler.layout.stages import Step
from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.batches import BatchSteps, ElasticSteps
from anabranch.engine.worker.stage_flow import Arrival
from anabranch.engine.worker.timed_calls import TimedCalls
from anabranch.operators.accumulation import accumulation_of
from anabranch.program.event_time import END
from anabranch.program.graph import Node

RUN_ROWS = 32_768
"""Tuples of a run: so many at a time are there as rows."""


def is_elastic_accumulation(step: Step) -> bool:
    """Whether blocks of its tuples are worked on at once."""
    found = accumulation_of(step.node.logic)
    return found is not None and found.concurrency is not None


class AccumulatingCalls(TimedCalls):
    """What is folded, and what is told when the input has ended."""

    def __init__(self, elastic: ElasticSteps, step: Step, table: Any, epoch: int, *place: Any) -> None:
        super().__init__(step, table, epoch, *place)
        check = BatchSteps({}, epoch).checked
        self._fold_run: Callable[[Batch, Node], Batch] = elastic(step.node, epoch, check, table)
        self._folded = self._until = 0

    def take(self, arrival: Arrival) -> None:
        super().take(arrival)
        self._fold()

    def _line_up(self, arrival: Arrival) -> None:
        ((_, self._batch),) = arrival.batches.items()
        self._places = list(self._batch.positions)
        self._keys: list[Any] = []
        self._noted = 0
        self._table.load({()})

    def row_at(self, position: int) -> Any:
        return "the end of the input"

    def _take(self, start: int, stop: int) -> None:
        self._until = stop

    def _fire(self, position: int) -> None:
        if self.value < END:
            self._advances.append((position, self.value))
            return
        self._fold()
        self._note({()})
        super()._fire(position)

    def _fold(self) -> None:
        """Tuples up to the last that was to be taken."""
        for start in range(self._folded, self._until, RUN_ROWS):
            stop = min(start + RUN_ROWS, self._until)
            run = self._batch.part(start, stop).placed(self._places[start:stop])
            made = self._fold_run(run, self._node)
            self._outputs += made.rows
            self._positions += made.positions
            self._due += [0] * len(made)
            self._since += [self._never] * len(made)
            self._settle(self._live[()], self._places[stop - 1])
        self._folded = self._until
