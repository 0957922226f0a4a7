"""A query that splits hot keys only from the moment it has one.

Aggregations in two steps (`compiler/layout/hot_key_split.py`) cost a shuffle more in every epoch, whether a key is
split or not. So a query begins with the program as it was written, and goes over to the one in two steps when a key
turns out to have more than a channel can do (`Balancing.wants_split`):

    epoch 7, as written ─► manifest ─► epoch 8, in two steps, from the state of epoch 7 ─► …

Going over is what a restarted driver does, with another program: the second step has the name and the state of the
whole, and takes what partial windows hand over as if it were tuples, so windows that are open stay open. There is no
way back: partial windows hold what only they know. A restarted query goes on with the program its checkpoint has.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from anabranch.control import Decision
from anabranch.engine.driver.runner import EpochRunner, describe_program
from anabranch.engine.driver.scaling import RegionStatus
from anabranch.engine.worker.tasks import Program
from anabranch.errors import AnabranchError, EpochTaken
from anabranch.faults import reach
from anabranch.state.checkpoint import Checkpoint

_log = logging.getLogger("anabranch")


def begins_split(plain: Program, split: Program | None, held: Checkpoint) -> bool:
    """Whether a checkpoint was written by a program in two steps."""
    if split is None:
        return False
    added = {step.node.name for step in split.layout.steps} - {step.node.name for step in plain.layout.steps}
    return bool(added & held.operators())


class SwitchingRunner:
    """Runs epochs, with the program as written or with the one in two steps.

    Parameters
    ----------
    make : callable
        Makes the runner of a program, from the checkpoint as it is.
    program : Program
        What is run at first.
    split : Program or None
        What is run once a key is too hot; None: never.
    """

    def __init__(
        self, make: Callable[[Program], EpochRunner], program: Program, split: Program | None, held: Checkpoint
    ) -> None:
        self._make = make
        self._split = split
        self._held = held
        self._lock = threading.Lock()
        self._program = program
        self._current = make(program)
        self.has_switched = False

    def __call__(self, batch: Any, number: int) -> None:
        """Run Spark's micro-batch with this number."""
        with self._lock:
            try:
                self._current(batch, number)
            except EpochTaken as other:
                self._go_on_from(other)
                self._current(batch, number)
            self._switch()

    def drain(self) -> bool:
        """Run an epoch for what was fed back, if anything was; whether one was run."""
        with self._lock:
            try:
                ran = self._current.drain()
            except EpochTaken as other:
                self._go_on_from(other)
                ran = True
            self._switch()
            return ran

    def _go_on_from(self, other: EpochTaken) -> None:
        """A driver that was fenced woke up and committed the very epoch that this one ran: take it as it is."""
        _log.warning("%s Going on from there.", other)
        self._current = self._make(self._program)

    def _switch(self) -> None:
        split, why = self._split, self._current.adaptation.balancing.wants_split
        if split is None or not why:
            return
        before = {each.name: each.channels for each in self._current.status()}
        self._held.bind(describe_program(split))
        reach("program replaced", epoch=self._current.epochs_done)
        self._program, self._split, self.has_switched = split, None, True
        self._current = self._make(split)
        self._current.adaptation.take_over(before, why)
        _log.info("aggregations run in two steps from now on: %s", why)

    @property
    def regions(self) -> list[RegionStatus]:
        """All stages that are entered through a shuffle."""
        return self._current.regions

    def status(self) -> list[RegionStatus]:
        """The regions whose number of channels can change, as they are now."""
        return self._current.status()

    def rescale(self, region: str, channels: int) -> None:
        """Ask for a number of channels by hand, from the next epoch on. May be called from any thread."""
        self._current.rescale(region, channels)

    def decisions(self, region: str) -> tuple[Decision, ...]:
        """The latest decisions about a region, oldest first."""
        return self._current.decisions(region)

    @property
    def current(self) -> EpochRunner:
        """The runner of now."""
        return self._current

    @property
    def failure(self) -> AnabranchError | None:
        """What made an epoch fail."""
        return self._current.failure

    @property
    def in_flight(self) -> int:
        """How many tuples were fed back and wait for the next epoch."""
        return self._current.in_flight

    @property
    def epochs_done(self) -> int:
        """How many epochs are committed."""
        return self._current.epochs_done
