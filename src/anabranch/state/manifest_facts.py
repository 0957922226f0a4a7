"""What a manifest keeps beside segments: all that a driver that starts needs to go on where another one stopped.

It is a dict only in the manifest (`to_fields`, `of_fields`): docs/checkpoint.md has the form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from anabranch.state.adaptation_facts import AdaptationFacts
from anabranch.state.key_owners import KeyOwners


@dataclasses.dataclass(frozen=True)
class FedBack:
    """Tuples that a loop fed back in an epoch: read by the next one."""

    name: str
    """Their file, below the checkpoint's directory."""
    rows: int
    bytes: int = 0
    """Of the file; 0: nothing was fed back, and there is none."""
    checksum: int = 0
    """CRC-32 of the whole file."""


@dataclasses.dataclass(frozen=True)
class TableFact:
    """The version of a changing table that an epoch has."""

    name: str
    """Its file, below the checkpoint's directory."""
    rows: int
    bytes: int
    checksum: int
    """CRC-32 of the whole file."""


@dataclasses.dataclass(frozen=True)
class WatermarkFacts:
    """How far event time has come."""

    values: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Watermark → its value; of operators that wait for the clock, the epoch's time."""
    heard_ms: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Watermark of a stream → the time of the last epoch in which the stream had a tuple."""
    ended: bool = False
    """The input has ended: all time has come, and nothing may follow."""


@dataclasses.dataclass(frozen=True)
class ManifestFacts:
    """What an epoch was run with, and what the next one needs."""

    batch: int = -1
    """The last micro-batch of Spark's that is in the state."""
    clock_ms: int = 0
    """The epoch's time."""
    owners: KeyOwners = dataclasses.field(default_factory=KeyOwners)
    """Who owns which keys, now and when segments were written."""
    feedback: Mapping[str, FedBack] = dataclasses.field(default_factory=dict)
    """Loop → what it fed back."""
    adaptation: AdaptationFacts = dataclasses.field(default_factory=AdaptationFacts)
    batch_digest: str | None = None
    """What tells the input of that micro-batch from any other; None if Spark has no note of it."""
    watermarks: WatermarkFacts = dataclasses.field(default_factory=WatermarkFacts)
    broadcasts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Operator → its broadcast state, as the codec writes it, in base 64."""
    tables: Mapping[str, TableFact] = dataclasses.field(default_factory=dict)
    """Operator → the version of its table."""

    @property
    def in_flight(self) -> int:
        """How many tuples were fed back and wait for the next epoch."""
        return sum(each.rows for each in self.feedback.values())

    def to_fields(self) -> dict[str, Any]:
        """As a dict of plain values."""
        return {
            "batch": self.batch,
            "batch_digest": self.batch_digest,
            "clock_ms": self.clock_ms,
            "feedback": {loop: vars(each) for loop, each in self.feedback.items()},
            "adaptation": self.adaptation.to_fields(),
            "watermarks": vars(self.watermarks),
            "broadcasts": dict(self.broadcasts),
            **({"tables": tables_to_fields(self.tables)} if self.tables else {}),
            **self.owners.to_facts(),
        }

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> ManifestFacts:
        """From what `to_fields` gave. TypeError, KeyError or CheckpointError for anything else."""
        return cls(
            fields["batch"],
            fields["clock_ms"],
            KeyOwners.from_facts(fields),
            {loop: FedBack(**each) for loop, each in fields["feedback"].items()},
            AdaptationFacts.of_fields(fields["adaptation"]),
            fields["batch_digest"],
            WatermarkFacts(**fields["watermarks"]),
            fields.get("broadcasts", {}),  # there was none before this version
            tables_of_fields(fields.get("tables", {})),
        )


def tables_to_fields(tables: Mapping[str, TableFact]) -> dict[str, Any]:
    """Versions of tables as plain values."""
    return {operator: vars(fact) for operator, fact in tables.items()}


def tables_of_fields(fields: Mapping[str, Any]) -> dict[str, TableFact]:
    """From what `tables_to_fields` gave."""
    return {operator: TableFact(**fact) for operator, fact in fields.items()}
