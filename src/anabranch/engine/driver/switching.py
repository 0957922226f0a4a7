"""A query that goes over to another form of its program when that pays.

A program can run in several forms that give the same output and keep the same state under the same names:

    split hot keys    aggregations in two steps (`compiler/layout/hot_key_split.py`), so that several channels work on a
                      key that is too hot for one; a shuffle more in every epoch
    spread sources    what has no state runs in channels of its own, not where its source is read
                      (`compiler/layout/source_spread.py`); a shuffle more as well

A query begins with the program as it was written and goes over between two epochs, when what was measured says that a
form is worth its shuffle (`Balancing.wants_split`, `control/source_spreading.py`):

    epoch 7, as written ─► manifest ─► epoch 8, in another form, from the state of epoch 7 ─► …

Going over is what a restarted driver does, with another program. Operators with state have the same name and the same
route in all forms, so their state is where it was; in two steps the second has the name and the state of the whole, and
takes what partial windows hand over as if it were tuples, so windows that are open stay open. From spread sources there
is a way back. From two steps there is none: partial windows hold what only they know. The checkpoint is tied to the
form before its first epoch, so a restarted query, wherever it died, goes on with the form its checkpoint has. A form
that the program cannot have is not taken, whatever it would gain: the query stays in the one it runs in.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from anabranch.control import Decision
from anabranch.control.source_spreading import SourceSpreading, SourceWork, SpreadSettings
from anabranch.engine.driver.adaptation import EpochFacts
from anabranch.engine.driver.program_description import describe_program
from anabranch.engine.driver.runner import EpochRunner
from anabranch.engine.driver.scaling import RegionStatus
from anabranch.engine.reports import ChannelReport, SplitReport
from anabranch.engine.worker.tasks import Program
from anabranch.errors import AnabranchError, EpochTaken
from anabranch.faults import reach
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.program_changes import new_names

_log = logging.getLogger("anabranch")


@dataclasses.dataclass(frozen=True)
class Form:
    """One of the forms of a program."""

    split_hot_keys: bool = False
    spread: frozenset[str] = frozenset()
    """Sources whose operators have channels of their own."""


class Forms:
    """The forms a query may take, made when they are wanted.

    Parameters
    ----------
    make : callable
        Makes the program in a form.
    split_hot_keys : {"auto", "on", "off"}
        Go over when a key is too hot; begin so; never.
    spread_names : mapping
        Source → the name of what deals its tuples out, for sources that may be; empty: none.
    """

    def __init__(
        self,
        make: Callable[[Form], Program],
        split_hot_keys: str = "off",
        spread_names: Mapping[str, str] | None = None,
        settings: SpreadSettings | None = None,
    ) -> None:
        self._make = make
        self._made: dict[Form, Program] = {}
        self._impossible: set[Form] = set()
        self.split_hot_keys = split_hot_keys
        self.spread_names = dict(spread_names or {})
        self.settings = settings or SpreadSettings()

    def program(self, form: Form) -> Program:
        """The program in a form."""
        if form not in self._made:
            self._made[form] = self._make(form)
        return self._made[form]

    def other(self, form: Form, why: str) -> Program | None:
        """The program in a form that it need not have; None if it cannot, for whatever reason: a query that runs goes
        on as it is. It is tried, and complained of, once."""
        if form in self._impossible:
            return None
        try:
            return self.program(form)
        except Exception as problem:
            self._impossible.add(form)
            _log.warning("the query stays as it is, though it should change (%s): %s", why, problem)
            return None

    def first(self, held: Checkpoint) -> Form:
        """The form that a query begins with: that of its checkpoint, if it has one."""
        before = held.operators()
        spread = frozenset(source for source, name in self.spread_names.items() if name in before)
        if self.split_hot_keys == "auto" and before:
            divided = self.other(Form(split_hot_keys=True), "its checkpoint may have aggregations in two steps")
            split = set() if divided is None else _names(divided) - _names(self.program(Form()))
            names = {} if divided is None else new_names(describe_program(divided).operators, before)
            return Form(bool(split & {names.get(name, name) for name in before}), spread)
        return Form(self.split_hot_keys == "on", spread)


class SwitchingRunner:
    """Runs epochs, with the program in the form that suits it.

    Parameters
    ----------
    make : callable
        Makes the runner of a program, from the checkpoint as it is.
    """

    def __init__(self, make: Callable[[Program], EpochRunner], forms: Forms, held: Checkpoint) -> None:
        self._make = make
        self._forms = forms
        self._held = held
        self._lock = threading.Lock()
        self._spreading = SourceSpreading(forms.settings)
        self._judged = -1
        self.form = forms.first(held)
        self._current = make(forms.program(self.form))
        if self.form.spread:
            self._current.adaptation.spread_because = "the query began with channels for what needs no state"

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

    def end(self) -> bool:
        """Run the epoch in which all time has come, if it was not run before; whether it was run now."""
        with self._lock:
            try:
                return self._current.end()
            except EpochTaken as other:
                self._go_on_from(other)
                return self._current.end()

    def _go_on_from(self, other: EpochTaken) -> None:
        """A driver that was fenced woke up and committed the very epoch that this one ran: take it as it is."""
        _log.warning("%s Going on from there.", other)
        self._current = self._make(self._forms.program(self.form))

    def _switch(self) -> None:
        split_because = ""
        wanted = self.form
        if self._forms.split_hot_keys == "auto" and not self.form.split_hot_keys:
            split_because = self._current.adaptation.balancing.wants_split
            wanted = dataclasses.replace(wanted, split_hot_keys=bool(split_because))
        spread, spread_because = self._judge_sources()
        wanted = dataclasses.replace(wanted, spread=spread)
        if wanted != self.form:
            self._go_over(wanted, split_because, spread_because)

    def _judge_sources(self) -> tuple[frozenset[str], str]:
        """The sources that should be spread from now on; and why they are others than now."""
        found = set(self.form.spread)
        facts = self._current.last
        if facts is None or facts.epoch == self._judged:
            return self.form.spread, ""
        self._judged = facts.epoch
        reasons = []
        slots = self._current.slots_now
        for source, name in self._forms.spread_names.items():
            work = _work_of(facts, source, name if source in found else "")
            verdict = self._spreading.judge(source, work, slots, source in found)
            if verdict is not None:
                reasons.append(verdict.reason)
                found = found | {source} if verdict.spread else found - {source}
        return frozenset(found), "; ".join(reasons)

    def _go_over(self, form: Form, split_because: str, spread_because: str) -> None:
        before = {each.name: each.channels for each in self._current.status()}
        earlier = self._current.adaptation
        program = self._forms.other(form, "; ".join(filter(None, (split_because, spread_because))))
        if program is None:
            return
        self._held.bind(describe_program(program))
        reach("program replaced", epoch=self._current.epochs_done)
        self._current, self.form = self._make(program), form
        self._current.adaptation.take_over(
            before,
            (split_because or earlier.balancing.split_because) if form.split_hot_keys else "",
            (spread_because or earlier.spread_because) if form.spread else "",
        )
        if split_because:
            _log.info("aggregations run in two steps from now on: %s", split_because)
        if spread_because:
            _log.info("what needs no state runs in other places from now on: %s", spread_because)

    @property
    def regions(self) -> list[RegionStatus]:
        """All stages with channels."""
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


def _names(program: Program) -> set[str]:
    return {step.node.name for step in program.layout.steps}


def _work_of(facts: EpochFacts, source: str, spread: str) -> SourceWork:
    """What a source's operators did in an epoch: where it was read, or in the channels of this name."""
    rows = [report.sources.get(source, 0) for report in facts.reports if isinstance(report, SplitReport)]
    if spread:
        found = (r.busy_seconds for r in facts.reports if isinstance(r, ChannelReport) and r.name == spread)
    else:
        found = (r.busy_seconds.get(source, 0.0) for r in facts.reports if isinstance(r, SplitReport))
    return SourceWork(sum(found), rows)
