"""What a user can say about elasticity: the options of a query, parsed and checked.

nothing said            automatic: the controller decides, between 1 and as many channels as tasks run at once
channels=n              pinned: n channels, for ever
minChannels, maxChannels, initialChannels
                        automatic within bounds, from a beginning of one's own
policy=paper            the controller of *Elastic* as printed instead of ours; with changeSensitivity and levels
maxExecutors, minExecutors, executorIdleTimeout
                        executors follow the channels, on a cluster; without maxExecutors their number is left alone
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.control.bounds import Bounds
from anabranch.control.controller import Policy
from anabranch.control.default_options import DefaultOptions
from anabranch.control.default_policy import DefaultPolicy
from anabranch.control.executor_planner import ExecutorBounds
from anabranch.control.levels import LEVEL_FUNCTIONS
from anabranch.control.paper_policy import PaperPolicy

CHANNELS_MAX = 4096
POLICIES = ("default", "paper")
EPOCH_SIZES = ("auto", "fixed")
# With a fixed cost of 0.3 s an epoch, 85 % of such an epoch is work, and three of them, an adaptation period, last 6 s.
EPOCH_S = 2.0
_UNITS_S: Mapping[str, float] = {
    unit: seconds
    for units, seconds in (("ms millisecond milliseconds", 0.001), ("s second seconds", 1.0), ("minute minutes", 60.0))
    for unit in units.split()
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\Z")


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
        """From a query's options, names in lower case. ValueError says which one is wrong, and what is expected."""
        given = {
            "channels": _channels(options, "channels"),
            "channels_min": _channels(options, "minChannels"),
            "channels_max": _channels(options, "maxChannels"),
            "channels_initial": _channels(options, "initialChannels"),
            "epoch_target_s": _seconds(options, "epochTarget"),
            "congestion_threshold": _share(options, "congestionThreshold"),
            "change_sensitivity": _sensitivity(options),
            "executors_max": _channels(options, "maxExecutors"),
            "executors_min": _channels(options, "minExecutors"),
            "executor_idle_s": _seconds(options, "executorIdleTimeout"),
            **_period(options),
        }
        policy = _one_of(options, "policy", POLICIES)
        levels = _one_of(options, "levels", tuple(LEVEL_FUNCTIONS))
        size = _one_of(options, "epochSize", EPOCH_SIZES)
        chosen = {name: value for name, value in given.items() if value is not None}
        parsed = cls(**chosen, policy=policy, levels=levels, epoch_size=size)  # type: ignore[arg-type]
        papers = [name for name in ("changeSensitivity", "levels") if name.lower() in options]
        if papers and policy != "paper":
            raise ValueError(f"option {papers[0]} has no effect without policy='paper'; give both, or neither")
        bounded = [name for name in ("minChannels", "maxChannels", "initialChannels") if name.lower() in options]
        if parsed.channels is not None and bounded:
            raise ValueError(
                f"option channels={parsed.channels} pins the number of channels, so {', '.join(bounded)} cannot be "
                "given beside it; leave one of them out"
            )
        if parsed.channels_max is not None and parsed.channels_min > parsed.channels_max:
            raise ValueError(f"option minChannels={parsed.channels_min} is more than maxChannels={parsed.channels_max}")
        initial = parsed.channels_initial
        if initial is not None and parsed.bounds(initial).clamp(initial) != initial:
            raise ValueError(f"option initialChannels={initial} is not between minChannels and maxChannels")
        idle = [name for name in ("minExecutors", "executorIdleTimeout") if name.lower() in options]
        if idle and parsed.executors_max is None:
            raise ValueError(f"option {idle[0]} has no effect without maxExecutors; give both, or neither")
        if parsed.executors_max is not None and parsed.executors_min > parsed.executors_max:
            raise ValueError(
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
        return DefaultPolicy(bounds, options)


def _channels(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.isdigit() or not 1 <= int(text) <= CHANNELS_MAX:
        raise ValueError(f"option {name}={text!r}: expected a whole number from 1 to {CHANNELS_MAX}")
    return int(text)


def seconds_of(text: str) -> float | None:
    """A duration such as ``2``, ``1.5 seconds``, ``500 ms``; None if it is none."""
    text = text.strip().lower()
    try:
        seconds = float(text)
    except ValueError:
        found = _DURATION.match(text)
        unit = _UNITS_S.get(found[2]) if found else None
        if found is None or unit is None:
            return None
        seconds = float(found[1]) * unit
    return seconds if 0 < seconds < float("inf") else None


def _seconds(options: Mapping[str, str], name: str) -> float | None:
    text = options.get(name.lower())
    if text is None:
        return None
    seconds = seconds_of(text)
    if seconds is None:
        raise ValueError(f"option {name}={text!r}: expected a time, such as '2 seconds' or '500 ms'")
    return seconds


def _period(options: Mapping[str, str]) -> dict[str, float | int]:
    text = options.get("adaptationperiod")
    if text is None:
        return {}
    epochs = re.match(r"(\d+)\s*epochs?\Z", text.strip().lower())
    if epochs and int(epochs[1]) >= 1:
        return {"period_epochs": int(epochs[1]), "period_s": 0.0}
    seconds = seconds_of(text)
    if seconds is None:
        raise ValueError(f"option adaptationPeriod={text!r}: expected such as '5 seconds' or '8 epochs'")
    return {"period_s": seconds}


def _one_of(options: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """What was chosen; the first of the choices if nothing was."""
    chosen = options.get(name.lower(), choices[0])
    if chosen not in choices:
        raise ValueError(f"option {name}={chosen!r}: expected one of {', '.join(choices)}")
    return chosen


def _sensitivity(options: Mapping[str, str]) -> float | None:
    text = options.get("changesensitivity")
    if text is None:
        return None
    try:
        sensitivity = float(text)
    except ValueError:
        sensitivity = -1.0
    if not 0 <= sensitivity <= 1:
        raise ValueError(f"option changeSensitivity={text!r}: expected a number from 0 to 1, such as 0.5")
    return sensitivity


def _share(options: Mapping[str, str], name: str) -> float | None:
    text = options.get(name.lower())
    if text is None:
        return None
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise ValueError(f"option {name}={text!r}: expected a number from 0 to below 1; 0.01 to 0.3 is good")
    return share
