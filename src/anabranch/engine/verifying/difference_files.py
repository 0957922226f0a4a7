"""A difference as a file: what people want to read, and all that running it again needs.

JSON with texts for people, and ``sample``: the events and states of the operator in that epoch, as the tasks took them
down. `anabranch.testing.replay` runs them through the operator of a program; ``anabranch difference FILE`` shows it.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

from anabranch.engine.verifying.comparing import Difference, OperatorSample
from anabranch.engine.verifying.plain_operators import PlainCode
from anabranch.engine.worker.samples import BROADCAST, PUNCTUATION, TICK, TIME, Event, Events, StepSample
from anabranch.errors import StateError

_SHOWN_TUPLES = 1000
_VERSION = 3


@dataclasses.dataclass(frozen=True)
class DifferenceRecord:
    """A difference with all that belongs to it; texts are as Python writes values."""

    operator: str
    title: str
    """The operator, with the line that put it into the program."""
    epoch: int
    clock_ms: int
    kind: str
    key: str
    row: str
    """For an output: the tuple that it was made of."""
    tasks: str
    """What the tasks did."""
    one_thread: str
    """What one thread does."""
    tuples: tuple[str, ...]
    """The tuples of the epoch for that key, in order; of all keys that were taken if it is no key's."""
    state_before: str
    state_after: str
    """As the tasks left it."""
    sample: str
    """All that was taken of the operator, to run it again."""

    @classmethod
    def of(
        cls, code: PlainCode, sample: OperatorSample, found: Difference, epoch: int, clock_ms: int
    ) -> DifferenceRecord:
        """A difference that was found in an epoch."""
        of_key = found.key is not None or found.key in sample.states
        events = [e for e in sample.events if e.place >= 0 and (not of_key or e.key == found.key)]
        rows = [_shown_row(code, event) for event in events[:_SHOWN_TUPLES]]
        states = sample.states.get(found.key) if of_key else None
        before, after = ("", "") if states is None else (_shown_state(code, each) for each in states)
        return cls(
            operator=sample.operator,
            title=code.node.title,
            epoch=epoch,
            clock_ms=clock_ms,
            kind=found.kind,
            key=repr(found.key) if of_key else "",
            row="" if found.at is None else _shown_row(code, sample.events[found.at]),
            tasks=_text(found.tasks),
            one_thread=_text(found.one_thread),
            tuples=tuple(rows),
            state_before=before,
            state_after=after,
            sample=base64.b64encode(_packed(sample)).decode(),
        )

    def to_json(self) -> bytes:
        """As a file has it."""
        return json.dumps({"version": _VERSION, **dataclasses.asdict(self)}, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes) -> DifferenceRecord:
        """What a file has; StateError if it is no such file."""
        try:
            fields = json.loads(data)
            version = fields.pop("version")
            if version != _VERSION:
                raise StateError(f"it was written in version {version}; this version reads {_VERSION}")
            return cls(**{**fields, "tuples": tuple(fields["tuples"])})
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise StateError(f"this is no file of a difference: {problem}") from None

    def operator_sample(self) -> OperatorSample:
        """What was taken, to run it again."""
        taken = StepSample.from_bytes(base64.b64decode(self.sample))
        made: dict[Any, dict[Any, Any]] = {}
        for event in taken.events:
            if event.place < 0 and event.outputs is not None:
                made.setdefault((event.place, event.trail), {}).setdefault(event.key, []).extend(event.outputs)
        timeline = Events(event for event in taken.events if event.place >= 0 or event.outputs is None)
        return OperatorSample(self.operator, timeline, made, taken.states, taken.broadcast)

    def text(self, tuples: int = 20) -> str:
        """For people."""
        whose = f"key {self.key}" if self.key else "of no key"
        lines = [f"operator {self.title}, epoch {self.epoch}: the tasks did not do what one thread does ({self.kind})"]
        lines.append(f"{whose}{f', the tuple {self.row}' if self.row else ''}")
        lines.append(f"  the tasks:   {self.tasks}")
        lines.append(f"  one thread:  {self.one_thread}")
        if self.state_before:
            lines.append(f"  its state before the epoch:  {self.state_before}")
            lines.append(f"  … and after it, by the tasks: {self.state_after}")
        lines.append(f"  tuples of the epoch ({len(self.tuples)}):")
        lines += [f"    {row}" for row in self.tuples[:tuples]]
        if len(self.tuples) > tuples:
            lines.append(f"    … and {len(self.tuples) - tuples} more")
        return "\n".join(lines)


def _packed(sample: OperatorSample) -> bytes:
    # What happened between tuples has no outputs of its own; what keys made of it comes behind.
    events = [dataclasses.replace(e, outputs=None) if e.place < 0 else e for e in sample.events]
    for (place, trail), by_key in sample.made_between.items():
        events += [Event(place, key, None, trail, outputs) for key, outputs in by_key.items()]
    return StepSample(sample.operator, True, Events(events), dict(sample.states), sample.broadcast).to_bytes()


def _shown_row(code: PlainCode, event: Event) -> str:
    if event.place == BROADCAST and event.row is not None:
        return f"the broadcast {code.node.inputs[-1].schema.row_class(event.row)!r}"
    if event.place < 0 or event.row is None:
        what = {PUNCTUATION: "a punctuation", TICK: "the start of the epoch", TIME: "time has come to"}[event.place]
        return f"{what} {event.row[0]}" if event.row else what
    return repr(code.node.inputs[event.place].schema.row_class(event.row))


def _shown_state(code: PlainCode, state: bytes) -> str:
    return _text(dict(code.shown(state)))


def _text(value: Any) -> str:
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 4000 else shown[:3999] + "…"
