"""What a world is made of: frozen data, nothing runs here.

    Source ─► Region ─► Region ═► Region ─► … ─► sink          ─► merge and split   ═► shuffle
               │           │         │
               └───────────┴─────────┴── channels placed on the Hosts of the Cluster

Regions that shuffles join form a *flow*: one splitter before it, one merger behind it. Between two flows
stands a bounded queue.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from anabranch.control.bounds import Bounds
from anabranch.control.controller import Policy
from anabranch.papers.machine.costs import CostSpread, finite
from anabranch.papers.merging.ordering import Strategy
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.placing.planner import PlannerSettings
from anabranch.partitioning.resources import Resources
from anabranch.program.hashing import GROUP_BITS
from anabranch.program.model import Selectivity
from anabranch.sim.load import Constant, Curve

_ALWAYS_MORE = Constant(math.inf)
_NOBODY = Constant(0.0)
_BOUNDS = Bounds()
_RESOURCES = Resources.of("CCL")

PolicyMaker = Callable[[Bounds], Policy]


@dataclass(frozen=True)
class MachineSource:
    """Where tuples come from.

    A tuple is ⟨position, first key, second key, payload⟩.
    """

    load: Curve = _ALWAYS_MORE
    """Tuples per second at a moment; infinite: there is always one more."""
    tuples: int | None = None
    """How many there are; None: as many as the time allows."""
    stored: bool = True
    """Whether tuples that cannot be taken yet are kept (as in Kafka). If not, the source itself is held back:
    it has its next tuple only after the last one was taken, as in the papers."""
    random_arrivals: bool = False
    """Whether arrivals form a Poisson process; else they are evenly spaced."""
    keys: int = 1000
    """Size of the domain of each key."""
    skew: float = 0.0
    """Exponent of the Zipf distribution of the keys."""
    window_every: int | None = None
    """A window punctuation after so many tuples."""

    def __post_init__(self) -> None:
        finite("skew", self.skew)
        if self.keys < 1 or (self.tuples is not None and self.tuples < 0):
            raise ValueError(f"a source has at least 1 key and no negative tuples, found {self.keys}, {self.tuples}")


@dataclass(frozen=True)
class MachineRegion:
    """A region, and how it is run."""

    name: str = "region"
    cost_s: float = 1e-3
    """Mean seconds of one core that a tuple takes in a channel."""
    spread: CostSpread = CostSpread.CONSTANT
    key: int | None = None
    """Which key of the tuple (0 or 1) the state is partitioned by; None: stateless."""
    selectivity: float = 1.0
    """Tuples emitted per tuple, on average."""
    emits: Selectivity | None = None
    """What is declared about it; None: the narrowest that fits `selectivity`."""
    shuffled: bool = False
    """Whether the region before hands its tuples over directly, instead of through a merger and a splitter."""
    channels: int = 1
    """Channels at the start."""
    bounds: Bounds = _BOUNDS
    policy: PolicyMaker | None = None
    """Makes the policy of the controller; None: the number of channels is fixed."""
    planner: PlannerSettings | None = None
    """How the partitioning function is built and when it is changed; None: the defaults, and it is changed only
    with the number of channels."""
    function: PartitioningFunction | None = None
    """The partitioning function at the start, such as one an earlier run ended with; None: an even ring."""
    resources: Resources = _RESOURCES
    """How state and cost of a key grow with its frequency."""
    key_bytes: float = 100.0
    """Mean bytes of state per key."""
    group_bits: int = GROUP_BITS
    numbered: bool = False
    """Whether to use sequence numbers even where round-robin would do."""
    pulse_every: int | None = None
    """Tuples between pulses; None: ten per channel."""
    queue: int = 32
    """Items that fit in the queue of a channel, and in each link to a merger."""
    merger_capacity: int | None = None
    """Items that may wait per channel in the merger at the end of a flow; None: as many as come."""
    split_cost_s: float = 0.0
    """Seconds the splitter takes per item it sends: tuples, and copies of punctuations and pulses."""
    merge_cost_s: float = 0.0
    """Seconds the merger takes per item it takes in."""

    def __post_init__(self) -> None:
        for name in ("cost_s", "selectivity", "key_bytes", "split_cost_s", "merge_cost_s"):
            finite(f"{name} of {self.name}", getattr(self, name))
        if self.channels < 1 or self.queue < 1:
            raise ValueError(f"{self.name}: channels and queue are at least 1, found {self.channels}, {self.queue}")
        if self.key not in (None, 0, 1):
            raise ValueError(f"{self.name}: key is 0, 1 or None, found {self.key}")
        if self.function is not None and self.function.channels != self.channels:
            raise ValueError(f"{self.name}: {self.channels} channels, but a function for {self.function.channels}")
        allowed = {Selectivity.ONE: self.selectivity == 1, Selectivity.AT_MOST_ONE: self.selectivity <= 1}
        if self.emits is not None and not allowed.get(self.emits, True):
            raise ValueError(f"{self.name}: {self.selectivity} tuples per tuple do not fit {self.emits.value}")

    @property
    def declared(self) -> Selectivity:
        """What the merger is told about the operators."""
        if self.emits is not None:
            return self.emits
        if self.selectivity == 1:
            return Selectivity.ONE
        return Selectivity.AT_MOST_ONE if self.selectivity < 1 else Selectivity.ANY


@dataclass(frozen=True)
class Fault:
    """Something that happens to a host at a moment and lasts for a while."""

    at_s: float
    length_s: float


@dataclass(frozen=True)
class Host:
    """A machine."""

    cores: int = 4
    speed: float = 1.0
    """Below 1: a slow host, on which everything takes 1 / speed as long."""
    tenants: Curve = _NOBODY
    """Cores that others use, at a moment."""
    stalls: tuple[Fault, ...] = ()
    """Times in which nothing moves on it (a garbage collection, a frozen machine), and then goes on."""
    failures: tuple[Fault, ...] = ()
    """Times in which it is gone: state and tuples on it are lost."""

    def __post_init__(self) -> None:
        if self.cores < 1 or self.speed <= 0:
            raise ValueError(f"a host has at least 1 core and a speed above 0, found {self.cores}, {self.speed}")


@dataclass(frozen=True)
class Cluster:
    """The hosts, the network between them, and what reconfiguring costs."""

    hosts: tuple[Host, ...] = (Host(),)
    packed: bool = False
    """Whether channels fill the cores of one host before the next is used; else hosts take turns."""
    delay_s: float = 0.0
    """Network delay of one hop: splitter to channel, channel to merger, flow to flow."""
    jitter: float = 0.0
    """Mean of the random part of the delay, as a multiple of it. Links keep their order."""
    migration_bytes_per_s: float = 100e6
    """At which a channel packs its donations, and unpacks what it collects."""
    barrier_s: float = 0.001
    """What a barrier costs, vertical or horizontal."""
    restore_s: float = 0.1
    """From the loss of a host to the start of the restoring of state."""
    checkpoint_every: int | None = None
    """Tuples of a flow between two checkpoints; None: only when a flow is reconfigured."""

    def __post_init__(self) -> None:
        if not self.hosts:
            raise ValueError("a cluster needs at least one host")
        for name in ("delay_s", "jitter", "barrier_s", "restore_s"):
            finite(name, getattr(self, name))


@dataclass(frozen=True)
class Rescaling:
    """A rescale by hand at a moment."""

    at_s: float
    region: int
    channels: int


@dataclass(frozen=True)
class WorldDescription:
    """Everything that decides a run, with its seed."""

    source: MachineSource
    regions: tuple[MachineRegion, ...]
    cluster: Cluster = Cluster()
    rescalings: tuple[Rescaling, ...] = ()
    period_s: float = 5.0
    """Adaptation period."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.regions or self.regions[0].shuffled:
            raise ValueError("a world needs at least one region, and the first has none before it to shuffle with")
        if self.period_s <= 0:
            raise ValueError(f"an adaptation period must be longer than 0 s, found {self.period_s}")

    @property
    def resolution_s(self) -> float:
        """For so long a load curve is taken to be constant; odd, so as not to fall in step with its period."""
        return self.period_s / 161.8

    def flows(self) -> list[list[int]]:
        """The numbers of the regions of each flow."""
        found: list[list[int]] = []
        for number, region in enumerate(self.regions):
            if region.shuffled:
                found[-1].append(number)
            else:
                found.append([number])
        return found


@dataclass(frozen=True)
class MachineJoint:
    """What stands behind a region: the strategy of its merger or mergers, and their depth."""

    strategy: Strategy
    depth: int


def joints(regions: list[MachineRegion]) -> list[MachineJoint]:
    """The joints of a flow, by the table and the three rules of docs/ordering.md."""
    found = []
    depth = 0
    so_far = Selectivity.ONE
    for number, region in enumerate(regions):
        into_shuffle = number + 1 < len(regions)
        so_far = so_far.then(region.declared)
        if into_shuffle and region.declared is Selectivity.ANY:
            depth += 1
        if depth:
            strategy = Strategy.INDEXED
        elif so_far is Selectivity.ANY:
            strategy = Strategy.RELAXED
        elif so_far is Selectivity.AT_MOST_ONE or len(regions) > 1:
            strategy = Strategy.STRICT  # inside a shuffle numbers are missing, whatever the operators do
        elif region.key is None and not region.numbered:
            strategy = Strategy.ROUND_ROBIN
        else:
            strategy = Strategy.SEQUENCE
        found.append(MachineJoint(strategy, depth if strategy is Strategy.INDEXED else 0))
    return found
