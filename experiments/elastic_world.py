"""What the figures of *Elastic* share: regions under a controller, in virtual time.

Two controllers run wherever one is shown: `paper`, the algorithm as printed (threshold 0.2, sensitivity 0.5), and
`ours`, the default of the system with all that a query wraps around it. Adaptation periods are shortened (the paper's
are 5 s) so that a period has some thousand tuples; a controller does not know how long its period is.

A host has 8 cores, of which transport threads, source and sink take 3 when all are busy: the paper's own 21 × for 32
channels on 4 hosts "because the machines are fully utilized". Up to 20 channels have a core of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from anabranch.control.bounds import Bounds
from anabranch.control.controller import Policy
from anabranch.control.elastic_options import ElasticOptions
from anabranch.papers.machine.description import Cluster, Host, MachineRegion, MachineSource, WorldDescription
from anabranch.papers.machine.result import Result
from anabranch.papers.machine.world import World
from anabranch.sim.load import Constant, Curve

BOUNDS = Bounds(1, 32)
HOSTS = 4
CORES = 5
QUEUE = 64
THRESHOLD = 0.2
BARRIER_S = 1e-4
PERIODS = 18

POLICIES: dict[str, Callable[[float], Callable[[Bounds], Policy]]] = {
    "paper": lambda threshold: ElasticOptions(policy="paper", congestion_threshold=threshold).make_policy,
    "ours": lambda threshold: ElasticOptions(congestion_threshold=threshold).make_policy,
}
SEEDS = 5
"""As many runs of everything that is left to chance; the papers have 3 or 5."""


def seeds_of(quick: bool) -> range:
    """The seeds of a figure."""
    return range(1 if quick else SEEDS)


@dataclass(frozen=True)
class Settled:
    """Where a controlled run came to rest."""

    throughput: float
    """Tuples per second that were delivered, over the last third: what fills queues does not count."""
    channels: tuple[float, ...]
    """Of every region, mean over the last third."""
    result: Result


def fixed(
    regions: Sequence[MachineRegion], channels: int, parallel: Sequence[bool], tuples: int, seed: int = 0, **world
) -> float:
    """Return the throughput with the same number of channels in all parallel regions."""
    chosen = tuple(
        replace(one, channels=channels if wide else 1, policy=None) for one, wide in zip(regions, parallel, strict=True)
    )
    source = MachineSource(tuples=tuples, keys=world.pop("keys", 1000))
    description = replace(_description(chosen, source, period_s=1e6, **world), seed=seed)
    return World(description).run().throughput


def controlled(
    regions: Sequence[MachineRegion],
    parallel: Sequence[bool],
    policy: str,
    *,
    period_s: float,
    periods: int,
    load: Curve | None = None,
    threshold: float = THRESHOLD,
    seed: int = 0,
    **world,
) -> Settled:
    """Let a controller per parallel region find the number of channels, from one on."""
    make = POLICIES[policy](threshold)
    chosen = tuple(
        replace(one, channels=1, bounds=BOUNDS, policy=make if wide else None)
        for one, wide in zip(regions, parallel, strict=True)
    )
    source = MachineSource(
        load=load or Constant(float("inf")),
        keys=world.pop("keys", 1000),
        stored=False,
        random_arrivals=world.pop("random_arrivals", False),
    )
    description = replace(_description(chosen, source, period_s=period_s, **world), seed=seed)
    result = World(description).run(until_s=period_s * periods)
    late = [sample for sample in result.samples if sample.at_s > period_s * periods * 2 / 3]
    return Settled(
        throughput=sum(sample.delivered for sample in late) / len(late),
        channels=tuple(sum(sample.regions[i].channels for sample in late) / len(late) for i in range(len(regions))),
        result=result,
    )


def _description(
    regions: tuple[MachineRegion, ...],
    source: MachineSource,
    *,
    period_s: float,
    hosts: int = HOSTS,
) -> WorldDescription:
    cluster = Cluster(
        tuple(Host(CORES) for _ in range(hosts)),
        delay_s=20e-6,
        barrier_s=BARRIER_S,
    )
    return WorldDescription(source, regions, cluster, period_s=period_s)


# ---- the microbenchmark of Figures 9 to 12 ----

GENERATE_S = 1e-6
SEND_S = 2e-6
RECEIVE_S = 2e-6
STATE_S = 4e-6
"""Finding and updating the state of a key in a map."""


def sequential(work_s: float, stateful: bool) -> float:
    """Return the throughput of the program as one process: generate and work, nothing is sent."""
    return 1 / (GENERATE_S + work_s + (STATE_S if stateful else 0.0))


def micro(work_s: float, stateful: bool) -> MachineRegion:
    """Return the one region of the microbenchmark."""
    return MachineRegion(
        cost_s=RECEIVE_S + work_s + (STATE_S if stateful else 0.0) + SEND_S,
        key=0 if stateful else None,
        queue=QUEUE,
        split_cost_s=GENERATE_S + SEND_S,
        merge_cost_s=RECEIVE_S,
    )


def micro_period_s(work_s: float) -> float:
    """Return a period in which one channel handles 200 tuples, or the splitter 4000 cheap ones."""
    return max(200 * work_s, 4000 * (GENERATE_S + SEND_S))


@cache
def micro_fixed(work_s: float, channels: int, stateful: bool, seed: int) -> float:
    """Return the speed-up of a fixed number of channels over the sequential program."""
    found = fixed([micro(work_s, stateful)], channels, [True], max(3000, 400 * channels), seed)
    return found / sequential(work_s, stateful)


@cache
def micro_elastic(work_s: float, policy: str, stateful: bool, seed: int) -> tuple[float, float]:
    """Return the speed-up of a controlled region, and its channels."""
    region = micro(work_s, stateful)
    settled = controlled([region], [True], policy, period_s=micro_period_s(work_s), periods=PERIODS, seed=seed)
    return settled.throughput / sequential(work_s, stateful), settled.channels[0]
