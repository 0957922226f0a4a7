"""The log entry a controller leaves for every period: why a region has the channels it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from anabranch.control.observation import Observation


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a policy wants, before pinning and bounds have their say."""

    channels: int
    branch: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """One answer of a controller: the next number of channels and everything it was based on."""

    controller: str
    """Name of the policy: "default" or "paper"."""
    period: int
    """Adaptation period that was judged; for a command by hand, the last period seen."""
    channels_before: int
    channels: int
    """The instruction: channels from the next epoch on."""
    branch: str
    """Which rule decided, one short word: expand, contract, remote, hold, pinned, ..."""
    reason: str
    """The same in a sentence with its numbers."""
    observation: Observation | None
    """The inputs; None for a command by hand."""
    remembered: dict[str, Any] = field(default_factory=dict)
    """What the policy remembered when it had decided (JSON-able): levels, evidence, limits."""

    @property
    def changed(self) -> bool:
        return self.channels != self.channels_before

    def to_dict(self) -> dict[str, Any]:
        return {
            "controller": self.controller,
            "period": self.period,
            "channels_before": self.channels_before,
            "channels": self.channels,
            "branch": self.branch,
            "reason": self.reason,
            "observation": self.observation.to_dict() if self.observation is not None else None,
            "remembered": self.remembered,
        }

    def describe(self) -> str:
        """One line for people."""
        arrow = f"{self.channels_before} -> {self.channels}" if self.changed else f"stays at {self.channels}"
        return f"period {self.period}: {arrow} [{self.branch}] {self.reason}"
