"""The one interface to every channel controller: events in, a decision out.

    Observation ─┐                ┌─ pinned?  ─ the pinned number
    Pin, Unpin  ─┼─► handle() ────┼─ invalid? ─ nothing changes, nothing is learned
    Rescale     ─┘   (mutator)    └─ else     ─ the policy proposes, the bounds clamp

A policy (paper_policy.py, default_policy.py) knows only its algorithm. What every policy needs around it is
here once: pinning, rescaling by hand, bounds, skipped periods, the decision log, the state that lets a
restarted driver continue. One controller per region; controllers never talk to each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from anabranch.control.bounds import Bounds
from anabranch.control.decision import Decision, Proposal
from anabranch.control.observation import Observation

STATE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Pin:
    """The user fixes the number of channels (``channels=n``) until Unpin; bounds do not apply to it."""

    channels: int


@dataclass(frozen=True, slots=True)
class Unpin:
    """The controller decides again, from the number of channels there is."""


@dataclass(frozen=True, slots=True)
class Rescale:
    """The number of channels is set once, by the user (``query.rescale``); the controller goes on from there."""

    channels: int
    why: str | None = None
    """Said if it was not the user."""


Event = Observation | Pin | Unpin | Rescale


class Policy(Protocol):
    """An algorithm that answers an observation with a number of channels."""

    name: str
    bounds: Bounds

    def propose(self, observation: Observation) -> Proposal:
        """The only method that changes what the policy remembers."""

    def rebound(self, bounds: Bounds) -> None:
        """Take other bounds."""

    def to_dict(self) -> dict[str, Any]:
        """What it remembers, JSON-able: no NaN, no infinity."""

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `to_dict` gave; the options stay those of the constructor."""


@dataclass(frozen=True)
class ControllerMemory:
    """What a controller remembers, for a restarted driver."""

    policy: str
    """Whose state it is."""
    channels: int
    pinned: int | None
    """What the user had pinned the region to."""
    period: int
    state: Mapping[str, Any]
    """What the policy remembers, JSON-able, in its own form."""
    version: int = STATE_VERSION


class Controller:
    """Decides on the channels of one region.

    Examples
    --------
    >>> from anabranch.control import Bounds, Controller, DefaultPolicy, Observation
    >>> controller = Controller(DefaultPolicy(Bounds(1, 8)))
    >>> busy = Observation(period=1, channels=1, throughput=900.0, congestion=0.8, busy_share=1.0)
    >>> controller.handle(busy).channels
    2
    """

    def __init__(self, policy: Policy, channels: int | None = None, log_length: int = 1000) -> None:
        self._policy = policy
        self._channels = policy.bounds.clamp(channels if channels is not None else 1)
        self._pinned: int | None = None
        self._period = 0
        self._log: deque[Decision] = deque(maxlen=log_length)

    @property
    def channels(self) -> int:
        """Channels the region should have now."""
        return self._channels

    @property
    def pinned(self) -> bool:
        return self._pinned is not None

    @property
    def log(self) -> tuple[Decision, ...]:
        """The latest decisions, oldest first."""
        return tuple(self._log)

    def rebound(self, bounds: Bounds) -> None:
        """Other bounds from now on: machines came or went."""
        if bounds != self._policy.bounds:
            self._policy.rebound(bounds)

    def handle(self, event: Event) -> Decision:
        """Take one event and answer with the channels the region should have from now on."""
        before = self._channels
        observation: Observation | None = None
        match event:
            case Pin(channels=channels):
                self._pinned = _at_least_one(channels)
                proposal = Proposal(channels, "pinned", f"the user pinned the region to {channels} channels")
            case Unpin():
                self._pinned = None
                channels = self._policy.bounds.clamp(before)
                proposal = Proposal(channels, "unpinned", "the controller decides again")
            case Rescale(channels=channels, why=why):
                channels = self._policy.bounds.clamp(_at_least_one(channels))
                if self._pinned is not None:
                    self._pinned = channels
                branch = "by hand" if why is None else "slots"
                proposal = Proposal(channels, branch, why or f"the user asked for {channels} channels")
            case Observation():
                observation = event
                self._period = event.period
                proposal = self._judge(event)
            case _:
                raise TypeError(f"a controller takes Observation, Pin, Unpin or Rescale; got {type(event).__name__}")
        self._channels = proposal.channels
        decision = Decision(
            controller=self._policy.name,
            period=self._period,
            channels_before=observation.channels if observation is not None else before,
            channels=proposal.channels,
            branch=proposal.branch,
            reason=proposal.reason,
            observation=observation,
            remembered=self._policy.to_dict(),
        )
        self._log.append(decision)
        return decision

    def _judge(self, observation: Observation) -> Proposal:
        if self._pinned is not None:
            return Proposal(self._pinned, "pinned", f"the region is pinned to {self._pinned} channels")
        bounds = self._policy.bounds
        if not observation.valid:
            channels = bounds.clamp(observation.channels)
            return Proposal(channels, "skipped", "no tuples, warm-up or too few epochs: the period says nothing")
        proposal = self._policy.propose(observation)
        channels = bounds.clamp(proposal.channels)
        if channels == proposal.channels:
            return proposal
        reason = f"{proposal.reason}; kept within [{bounds.channels_min}, {bounds.channels_max}]"
        return Proposal(channels, proposal.branch, reason)

    def memory(self) -> ControllerMemory:
        """Everything a restarted driver needs to go on. The log is not part of it."""
        return ControllerMemory(self._policy.name, self._channels, self._pinned, self._period, self._policy.to_dict())

    def restore(self, memory: ControllerMemory) -> None:
        """Continue from the `memory` of an earlier driver.

        Bounds and options are those of this controller: the user may have changed them between the runs. A
        state of another policy keeps channels and pin, its memory means nothing here.
        """
        if memory.version != STATE_VERSION:
            raise ValueError(
                f"controller state has version {memory.version!r}, this release reads version "
                f"{STATE_VERSION}; delete the controller's state to start it afresh"
            )
        self._pinned = memory.pinned
        self._channels = memory.pinned or self._policy.bounds.clamp(memory.channels)
        self._period = memory.period
        if memory.policy == self._policy.name:
            self._policy.restore(dict(memory.state))


def _at_least_one(channels: int) -> int:
    if channels < 1:
        raise ValueError(f"a region needs at least 1 channel, got {channels}")
    return channels
