"""What adaptation remembers between two drivers: a part of the facts of a manifest (manifest_facts.py).

scaling     how many channels each region should have: what the controllers learned
balancing   which keys are frequent and dear, by region
sizing      how many files an epoch takes
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anabranch.partitioning.counting.knowledge import KnownKeys
from anabranch.partitioning.placing.planner import PlannerMemory

if TYPE_CHECKING:  # tasks load this file, and have nothing to decide
    from anabranch.control.controller import ControllerMemory
    from anabranch.control.epoch_size import EpochSizeMemory


def _no_size() -> EpochSizeMemory:
    from anabranch.control.epoch_size import EpochSizeMemory

    return EpochSizeMemory()


@dataclasses.dataclass(frozen=True)
class ScalingFacts:
    """What the controllers learned."""

    period: int = 0
    """How many adaptation periods there were."""
    controllers: Mapping[str, ControllerMemory] = dataclasses.field(default_factory=dict)
    """Region → what its controller remembers."""

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> ScalingFacts:
        from anabranch.control.controller import ControllerMemory

        controllers = fields.get("controllers", {})
        return cls(fields.get("period", 0), {name: ControllerMemory(**each) for name, each in controllers.items()})


@dataclasses.dataclass(frozen=True)
class BalancingFacts:
    """What is known of the keys of a region."""

    known: KnownKeys | None = None
    """None: nothing was counted yet."""
    planner: PlannerMemory = dataclasses.field(default_factory=PlannerMemory)
    ways: tuple[tuple[int, int], ...] = ()
    """Keys in parts: hash, and in how many."""

    def to_fields(self) -> dict[str, Any]:
        known = {} if self.known is None else vars(self.known)
        return {"known": known, "planner": vars(self.planner), "ways": [list(each) for each in self.ways]}

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> BalancingFacts:
        known = KnownKeys(**fields["known"]) if fields["known"] else None
        return cls(known, PlannerMemory(**fields["planner"]), tuple((key, count) for key, count in fields["ways"]))


@dataclasses.dataclass(frozen=True)
class SizingFacts:
    """How much an epoch takes of each source."""

    size: EpochSizeMemory = dataclasses.field(default_factory=_no_size)
    newest_ms: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Source → the time of the newest file that was taken of it."""

    def to_fields(self) -> dict[str, Any]:
        return {**vars(self.size), "newest_ms": self.newest_ms}

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> SizingFacts:
        from anabranch.control.epoch_size import EpochSizeMemory

        rest = dict(fields)
        newest_ms = rest.pop("newest_ms", {})
        return cls(EpochSizeMemory(**rest), newest_ms)


@dataclasses.dataclass(frozen=True)
class AdaptationFacts:
    """All of it."""

    scaling: ScalingFacts = dataclasses.field(default_factory=ScalingFacts)
    balancing: Mapping[str, BalancingFacts] = dataclasses.field(default_factory=dict)
    """By region."""
    sizing: SizingFacts | None = None
    """None: epochs take what Spark and the user's options say."""

    def to_fields(self) -> dict[str, Any]:
        controllers = {region: vars(each) for region, each in self.scaling.controllers.items()}
        return {
            "scaling": {"period": self.scaling.period, "controllers": controllers},
            "balancing": {region: each.to_fields() for region, each in self.balancing.items()},
            "sizing": {} if self.sizing is None else self.sizing.to_fields(),
        }

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> AdaptationFacts:
        return cls(
            ScalingFacts.of_fields(fields["scaling"]),
            {region: BalancingFacts.of_fields(each) for region, each in fields["balancing"].items()},
            SizingFacts.of_fields(fields["sizing"]) if fields["sizing"] else None,
        )
