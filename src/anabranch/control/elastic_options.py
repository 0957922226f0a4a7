"""What a user can say about elasticity: the options of a query, parsed and checked.

nothing said            automatic: the controller decides, between 1 and as many channels as tasks run at once
channels=n              pinned: n channels, for ever
minChannels, maxChannels, initialChannels
                        automatic within bounds, from a beginning of one's own
bursts=mean             in bursts, channels for the mean of the load instead of for the bursts
policy=paper            the controller of *Elastic* as printed instead of ours; with changeSensitivity and levels
maxExecutors, minExecutors, executorIdleTimeout
                        executors follow the channels, on a cluster; without maxExecutors their number is left alone
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.control.bounds import Bounds
from anabranch.control.burst_rest import RestInBursts
from anabranch.control.controller import Policy
from anabranch.control.default_options import DefaultOptions
from anabranch.control.default_policy import DefaultPolicy
from anabranch.control.executor_planner import ExecutorBounds
from anabranch.control.levels import LEVEL_FUNCTIONS
from anabranch.control.levels_in_turn import LevelsInTurn
from anabranch.control.paper_policy import PaperPolicy
from anabranch.control.proven_number import BackToProven
from anabranch.errors import ProgramError
from anabranch.program.options import read_options

# With a fixed cost of 0.3 s an epoch, 85 % of such an epoch is work, and three of them, an adaptation period, last 6 s.
EPOCH_S = 2.0


@dataclass(frozen=True, slots=True)
class ElasticOptions:
    """How the regions of a query may be scaled. Options that were not given have the values below."""

    channels: int | None = None
    """Pinned to so many; None: the controllers decide."""
    channels_min: int = 1
    channels_max: int | None = None
    """None: as many as tasks run at once."""
    channels_initial: int | None = None
    """Channels of a region that has no history; None: as many as tasks run at once."""
    policy: str = "default"
    bursts: str = "peak"
    """Of our policy: what a load in bursts gets channels for (burst_rest.py)."""
    change_sensitivity: float | None = None
    """Of the paper's policy; None: its own."""
    levels: str = "paper"
    """Of the paper's policy: which numbers of channels it walks on (levels.py)."""
    period_s: float = 5.0
    """Shortest adaptation period."""
    period_epochs: int = 0
    """Fewest epochs of an adaptation period."""
    epoch_target_s: float | None = None
    """How long an epoch should last at most; None: the trigger's interval, or a second."""
    congestion_threshold: float | None = None
    """None: the policy's own."""
    epoch_size: str = "auto"
    """fixed: an epoch takes what Spark gives it; auto: where the source lets us, about what the target has time for."""
    executors_max: int | None = None
    """None: the number of executors is left alone."""
    executors_min: int = 1
    executor_idle_s: float = 60.0

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ElasticOptions:
        """From a query's options. ProgramError says which one is wrong, and what is expected."""
        said = read_options(options)
        period = said.get("adaptationPeriod")
        if period is not None:
            said.update(period_epochs=period.epochs, period_s=period.seconds)
        parsed = cls(**{field: said[name] for name, field in _FIELDS.items() if name in said})
        papers = [name for name in ("changeSensitivity", "levels") if name in said]
        if papers and parsed.policy != "paper":
            raise ProgramError(f"option {papers[0]} has no effect without policy='paper'; give both, or neither")
        if "bursts" in said and parsed.policy == "paper":
            raise ProgramError("option bursts has no effect with policy='paper'; leave one of them out")
        bounded = [name for name in ("minChannels", "maxChannels", "initialChannels") if name in said]
        if parsed.channels is not None and bounded:
            raise ProgramError(
                f"option channels={parsed.channels} pins the number of channels, so {', '.join(bounded)} cannot be "
                "given beside it; leave one of them out"
            )
        if parsed.channels_max is not None and parsed.channels_min > parsed.channels_max:
            raise ProgramError(
                f"option minChannels={parsed.channels_min} is more than maxChannels={parsed.channels_max}"
            )
        initial = parsed.channels_initial
        if initial is not None and parsed.bounds(initial).clamp(initial) != initial:
            raise ProgramError(f"option initialChannels={initial} is not between minChannels and maxChannels")
        idle = [name for name in ("minExecutors", "executorIdleTimeout") if name in said]
        if idle and parsed.executors_max is None:
            raise ProgramError(f"option {idle[0]} has no effect without maxExecutors; give both, or neither")
        if parsed.executors_max is not None and parsed.executors_min > parsed.executors_max:
            raise ProgramError(
                f"option minExecutors={parsed.executors_min} is more than maxExecutors={parsed.executors_max}"
            )
        return parsed

    @property
    def executor_bounds(self) -> ExecutorBounds | None:
        """What the user allows about executors; None: nothing."""
        if self.executors_max is None:
            return None
        return ExecutorBounds(self.executors_max, self.executors_min, self.executor_idle_s)

    def bounds(self, slots: int) -> Bounds:
        """The bounds, where so many tasks run at once."""
        most = self.channels_max if self.channels_max is not None else max(slots, self.channels_min)
        return Bounds(self.channels_min, most)

    def epoch_s(self, interval_s: float | None) -> float:
        """How long an epoch that cannot take all there is should last, with the trigger's interval, if it has one."""
        return self.epoch_target_s or interval_s or EPOCH_S

    def beginning(self, slots: int, known: int | None) -> int:
        """Channels of a region that starts, with those it had before, if there was a before."""
        if self.channels is not None:
            return self.channels
        if known is not None and self.channels_max is None:
            # More than there are slots may be the user's wish, or slots may come back: the controller will see.
            return max(self.channels_min, known)
        wanted = known if known is not None else self.channels_initial
        return self.bounds(slots).clamp(slots if wanted is None else wanted)

    def make_policy(self, bounds: Bounds) -> Policy:
        """A policy for one region."""
        threshold = self.congestion_threshold
        if self.policy == "paper":
            said = {"congestion_threshold": threshold, "change_sensitivity": self.change_sensitivity}
            given = {name: value for name, value in said.items() if value is not None}
            return PaperPolicy(bounds, level_function=LEVEL_FUNCTIONS[self.levels], **given)
        options = DefaultOptions() if threshold is None else DefaultOptions(congestion_threshold=threshold)
        proven = BackToProven(DefaultPolicy(bounds, options), options.congestion_floor)
        return RestInBursts(LevelsInTurn(proven), self.bursts, options.congestion_floor)


_FIELDS: Mapping[str, str] = {
    "channels": "channels",
    "minChannels": "channels_min",
    "maxChannels": "channels_max",
    "initialChannels": "channels_initial",
    "policy": "policy",
    "bursts": "bursts",
    "changeSensitivity": "change_sensitivity",
    "levels": "levels",
    "period_s": "period_s",
    "period_epochs": "period_epochs",
    "epochTarget": "epoch_target_s",
    "congestionThreshold": "congestion_threshold",
    "epochSize": "epoch_size",
    "maxExecutors": "executors_max",
    "minExecutors": "executors_min",
    "executorIdleTimeout": "executor_idle_s",
}
