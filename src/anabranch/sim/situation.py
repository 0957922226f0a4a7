"""The situation that a program is run in: load, hosts, costs, what the user set, and what goes wrong. Frozen data.

A simulated run is its program, its situation and the commit: everything random in it comes from the situation's seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.control.elastic_options import ElasticOptions
from anabranch.engine.driver.balancing import BalancingSettings
from anabranch.faults import POINTS
from anabranch.sim.hosts import SimulatedHost
from anabranch.sim.load import Constant, Curve
from anabranch.sim.work_costs import WorkCosts


@dataclass(frozen=True)
class Crash:
    """The driver dies; at a point inside a task, one attempt of it."""

    point: str
    """One of `anabranch.faults.POINTS`."""
    time: int = 1
    """Not before it is reached for the n-th time."""

    def __post_init__(self) -> None:
        if self.point not in POINTS:
            raise ValueError(f"no crash point {self.point!r}; there are: {', '.join(POINTS)}")


@dataclass(frozen=True)
class AskedChannels:
    """A rescaling by hand, before an epoch."""

    epoch: int
    region: int
    """Its place among the regions that can be rescaled; counted round, so that any number is one."""
    channels: int


@dataclass(frozen=True)
class Keys:
    """The keys of a region, where no tuples are run: the n-th of them has a share of the tuples ~ n ** -skew."""

    count: int = 10_000
    skew: float = 0.0
    state_bytes: int = 64
    """Of the state of a key."""
    slow: tuple[tuple[int, float], ...] = ()
    """Key → how many times as long as others its tuples take."""


ALWAYS_MORE = Constant(math.inf)


@dataclass(frozen=True)
class Situation:
    """Everything about a simulated run but its program."""

    load: Curve = ALWAYS_MORE
    """Tuples per second of every source."""
    rows_per_file: int | None = None
    """Of the sources' files; None: one file for each epoch that a source was given."""
    seconds: float = math.inf
    """Virtual time after which no epoch begins any more."""
    epochs_max: int = 10_000
    """Epochs that are run at most."""
    hosts: tuple[SimulatedHost, ...] = field(default_factory=lambda: (SimulatedHost(),))
    costs: WorkCosts = field(default_factory=WorkCosts)
    options: ElasticOptions = field(default_factory=ElasticOptions)
    files_per_epoch: int | None = None
    """As maxFilesPerTrigger; None: all that is there, or with option epochSize = auto what the epoch has time for."""
    interval_s: float | None = None
    """The trigger's interval; None: an epoch follows the other."""
    balancing: BalancingSettings = field(default_factory=BalancingSettings)
    split_hot_keys: bool | str = False
    """As the option splitHotKeys: True, False or "auto"."""
    spread_gain_s: float | None = None
    """How much shorter an epoch must be for what has no state to get channels of its own; None: it never does."""
    snapshot_epochs: int | None = None
    """As the option snapshotInterval."""
    versions_kept: int = 10
    asked: tuple[AskedChannels, ...] = ()
    crashes: tuple[Crash, ...] = ()
    executors_absent_s: float = 30.0
    """How long an executor that was asked for (option maxExecutors) takes to come; it is like the first host."""
    straggler_share: float = 0.0
    """Of the tasks."""
    straggler_factor: float = 4.0
    """How many times as long a straggler takes."""
    noise: float = 0.0
    """Relative standard deviation of what tasks take."""
    keys: Mapping[str, Keys] = field(default_factory=dict)
    """Where no tuples are run: region → its keys."""
    keys_default: Keys = field(default_factory=Keys)
    selectivities: Mapping[str, float] = field(default_factory=dict)
    """Where no tuples are run: operator → tuples out for a tuple in; 1 by default."""
    row_bytes: int = 100
    """Where no tuples are run: of a tuple in a shuffle."""
    seed: int = 0
