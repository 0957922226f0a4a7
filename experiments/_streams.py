"""The machines of *Safe* in virtual time: what a tuple costs, where channels run, how fast a graph is.

The parts are the system's own (splitters, channels, mergers, partitioning functions); the simulator adds time:

    one send, one receive    2 µs each: a splitter sends, a merger receives, a channel does both
    a multiplication         1 ns, the papers' unit of work per tuple
    an aggregation           2 µs on top, for finding and updating its state

The sequential case is the same graph with one channel per region, as in the paper: source, worker and sink are
processes of their own, so it has pipeline parallelism.

A host has 8 cores with hyper-threading. It counts as 11 cores: the paper's 22.6 × for 64 busy processes on 32 cores
and a pipeline of two (at most 16 × on 32 plain cores) says that two threads are worth 1.4 cores.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from anabranch.papers.machine.costs import key_hashes, zipf
from anabranch.papers.machine.description import Cluster, Host, Region, Source, WorldDescription
from anabranch.papers.machine.world import World
from anabranch.partitioning.counting.workload import Workload
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.placing.construct import ConstructionSettings, construct
from anabranch.partitioning.resources import Resources

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


def region(cost_s: float, channels: int, *, key: int | None = None, skew: float = 0.0, **more) -> Region:
    """Return a region whose partitioning function, if it has one, knows the frequencies of the keys."""
    function = None
    if key is not None and channels > 1 and "function" not in more:
        function = balanced(channels, key, KEYS, skew)
    return replace(
        Region(
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


def throughput(*regions: Region, hosts: int = 4, tuples: int | None = None, seed: int = 0, **source) -> float:
    """Return tuples per second that a chain of regions takes from a source that always has more."""
    most = max(r.channels for r in regions)
    tuples = tuples or max(3000, 500 * most)
    cluster = Cluster(tuple(Host(CORES) for _ in range(hosts)), delay_s=50e-6)
    stream = Source(tuples=tuples, **{"keys": KEYS, **source})
    return World(WorldDescription(stream, regions, cluster, seed=seed)).run().throughput
