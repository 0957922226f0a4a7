"""The machines of *Safe* in virtual time: what a tuple costs, where channels run, how fast a graph is.

The parts are the system's own (splitters, channels, mergers, partitioning functions); the simulator adds time:

    one send, one receive    2 µs each: a splitter sends, a merger receives, a channel does both
    a multiplication         1 ns, the papers' unit of work per tuple
    an aggregation           2 µs on top, for finding and updating its state

The sequential case is the same graph with one channel per region, as in the paper: source, worker and sink are
processes of their own, so it has pipeline parallelism.

A host has 8 cores with hyper-threading. It counts as 11 cores: the paper's 22.6 × for 64 busy processes on 32 cores
and a pipeline of two (at most 16 × on 32 plain cores) says that two threads are worth 1.4 cores.

The application kernels of *Safe* and *Elastic* are chains of regions. Seconds per tuple are those of *Safe*, Table 2.
What the papers do not give is the cost of the sequential parts that end the scaling; each is set once, from the
speed-up at which the paper says they do (`ceiling`). So the height of the ceiling is the paper's; that it is reached,
with how many channels, and what a controller makes of it, is measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from anabranch.papers.machine.costs import key_hashes, zipf
from anabranch.papers.machine.description import Cluster, Host, MachineRegion, MachineSource, WorldDescription
from anabranch.papers.machine.world import World
from anabranch.partitioning.counting.workload import Workload
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.placing.construct import ConstructionSettings, construct
from anabranch.partitioning.resources import Resources
from anabranch.program.model import Selectivity

SEND_S = 2e-6
RECEIVE_S = 2e-6
MULTIPLICATION_S = 1e-9
AGGREGATION_S = 2e-6
CORES = 11
KEYS = 20_000
QUEUE = 128
TOLERANCE = 1.05


def work(multiplications: float, *, keyed: bool = False, selectivity: float = 1.0) -> float:
    """Return the seconds of a channel per tuple: receive, work, aggregate, send."""
    return RECEIVE_S + multiplications * MULTIPLICATION_S + (AGGREGATION_S if keyed else 0.0) + SEND_S * selectivity


def region(cost_s: float, channels: int, *, key: int | None = None, skew: float = 0.0, **more) -> MachineRegion:
    """Return a region whose partitioning function, if it has one, knows the frequencies of the keys."""
    function = None
    if key is not None and channels > 1 and "function" not in more:
        function = balanced(channels, key, KEYS, skew)
    return replace(
        MachineRegion(
            cost_s=cost_s,
            key=key,
            channels=channels,
            queue=QUEUE,
            split_cost_s=SEND_S,
            merge_cost_s=RECEIVE_S,
            function=function,
        ),
        **more,
    )


@cache
def balanced(channels: int, key: int, keys: int, skew: float) -> PartitioningFunction:
    """Return what the default construction builds once the planner has counted the keys."""
    return _constructed(channels, key, keys, skew)


def even(channels: int) -> PartitioningFunction:
    """Return a consistent hash that knows nothing of the keys."""
    return PartitioningFunction.even(channels)


def _constructed(channels: int, key: int, keys: int, skew: float) -> PartitioningFunction:
    function = PartitioningFunction.even(channels)
    hashes, frequencies = key_hashes(keys, key), zipf(keys, skew)
    groups = np.bincount(function.group_of(hashes), weights=frequencies, minlength=function.groups)
    hot = min(keys, 500) if skew else 0
    workload = Workload(hashes[:hot], frequencies[:hot], domain=keys, group_frequencies=groups)
    settings = ConstructionSettings(resources=Resources.of("LLL", TOLERANCE))
    return construct(function, workload, channels, settings).function


def throughput(*regions: MachineRegion, hosts: int = 4, tuples: int | None = None, seed: int = 0, **source) -> float:
    """Return tuples per second that a chain of regions takes from a source that always has more."""
    most = max(r.channels for r in regions)
    tuples = tuples or max(3000, 500 * most)
    cluster = Cluster(tuple(Host(CORES) for _ in range(hosts)), delay_s=50e-6)
    stream = MachineSource(tuples=tuples, **{"keys": KEYS, **source})
    return World(WorldDescription(stream, regions, cluster, seed=seed)).run().throughput


TRANSPORT_S = RECEIVE_S + SEND_S
KERNEL_QUEUE = 16
"""Short, because adaptation periods are: a queue is worked off before a change of channels."""


@dataclass(frozen=True)
class Kernel:
    """A chain; `parallel` says which of its regions may be replicated."""

    name: str
    regions: tuple[MachineRegion, ...]
    parallel: tuple[bool, ...]
    period_s: float = 0.02
    """An adaptation period of some hundred tuples of the slowest part."""


def finance(ceiling: float) -> Kernel:
    """Project, Vwap per symbol, Combine (two streams in timestamp order: sequential), Bargains."""
    vwap_s = 81e-6 + TRANSPORT_S
    regions = (
        _region("Project", 26e-6),
        _region("Vwap", 81e-6, key=0),
        _sequential("Combine", vwap_s / ceiling),
        _region("Bargains", 2.5e-6),
    )
    return Kernel("Finance", regions, (True, True, False, True))


def twitter(ceiling: float | None) -> Kernel:
    """One stateless region with a prolific operator; the source's I/O is the ceiling."""
    nlp = _region("NLP", 133e-6, emits=Selectivity.ANY, **_source(133e-6, ceiling))
    return Kernel("Twitter NLP", (nlp,), (True,))


def page_rank(ceiling: float | None) -> Kernel:
    """MulAdd in parallel, Add in sequence. A tuple takes 11 s."""
    regions = [_region("MulAdd", 11.0, key=0)]
    if ceiling is not None:
        regions.append(_sequential("Add", 11.0 / ceiling))
    return Kernel("PageRank", tuple(regions), (True, False)[: len(regions)], period_s=2000.0)


def network(ceiling: float) -> Kernel:
    """ParseLines, DupSplit (sequential), ParseFailures per host, Logins (cheap: few tuples take that path)."""
    regions = (
        _region("ParseLines", 33e-6),
        _sequential("DupSplit", (33e-6 + TRANSPORT_S) / ceiling),
        _region("ParseFailures", 23e-6, key=0),
        _region("Logins", 0.5e-6),
    )
    return Kernel("Network", regions, (True, False, True, True), period_s=0.01)


def network_shuffled() -> Kernel:
    """*Safe*'s: filters per server, a shuffle, filters per user."""
    regions = (_region("Left", 33e-6, key=0), _region("Right", 23e-6, key=1, shuffled=True))
    return Kernel("Network monitoring", regions, (True, True))


def twitter_cep() -> Kernel:
    """Parse, a shuffle by author, Match."""
    regions = (_region("Parse", 140e-6), _region("Match", 3.5e-3, key=1, shuffled=True))
    return Kernel("Twitter CEP", regions, (True, True))


def _region(name: str, seconds: float, **more) -> MachineRegion:
    costs = {"split_cost_s": SEND_S, "merge_cost_s": RECEIVE_S, **more}
    return MachineRegion(name, cost_s=seconds + TRANSPORT_S, queue=KERNEL_QUEUE, **costs)


def _sequential(name: str, cost_s: float) -> MachineRegion:
    return MachineRegion(name, cost_s=cost_s, queue=KERNEL_QUEUE)


def _source(work_s: float, ceiling: float | None) -> dict[str, float]:
    return {} if ceiling is None else {"split_cost_s": (work_s + TRANSPORT_S) / ceiling}
