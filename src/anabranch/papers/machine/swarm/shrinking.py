"""What makes a world of the papers' machine simpler, for shrinking one that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from anabranch.control.bounds import Bounds
from anabranch.papers.machine.costs import CostSpread
from anabranch.papers.machine.description import Cluster, Host, MachineRegion, WorldDescription
from anabranch.papers.machine.swarm.trial import failures
from anabranch.sim.load import Constant, Steps
from anabranch.sim.smallest import TRIALS_MAX, smallest


def shrink(
    description: WorldDescription,
    fails: Callable[[WorldDescription], list[str]] = failures,
    trials_max: int = TRIALS_MAX,
) -> tuple[WorldDescription, list[str]]:
    """The smallest world found, and what is wrong with it."""
    return smallest(description, fails, simpler, trials_max)


def simpler(world: WorldDescription) -> Iterator[WorldDescription]:
    """Worlds that are one step simpler, the boldest first."""
    source, cluster, regions = world.source, world.cluster, world.regions
    if source.tuples is not None:
        for tuples in (source.tuples // 4, source.tuples // 2, source.tuples * 3 // 4, source.tuples - 1):
            if 0 < tuples < source.tuples:
                yield replace(world, source=replace(source, tuples=tuples))
    for number in range(len(regions)):
        if len(regions) > 1:
            rest = [*regions[:number], *regions[number + 1 :]]
            rest[0] = replace(rest[0], shuffled=False)
            kept = tuple(
                replace(rescaling, region=rescaling.region - (rescaling.region > number))
                for rescaling in world.rescalings
                if rescaling.region != number
            )
            yield replace(world, regions=tuple(rest), rescalings=kept)
    for number in range(len(world.rescalings)):
        yield replace(world, rescalings=(*world.rescalings[:number], *world.rescalings[number + 1 :]))
    for plainer in _simpler_clusters(cluster):
        yield replace(world, cluster=plainer)
    for number, region in enumerate(regions):
        for easier in _simpler_regions(region):
            yield replace(world, regions=(*regions[:number], easier, *regions[number + 1 :]))
    for number, rescaling in enumerate(world.rescalings):
        if rescaling.channels > 1:
            fewer = replace(rescaling, channels=rescaling.channels - 1)
            yield replace(world, rescalings=(*world.rescalings[:number], fewer, *world.rescalings[number + 1 :]))
    plain = replace(source, window_every=None)
    for easier_source in (
        plain,
        replace(source, skew=0.0),
        replace(source, random_arrivals=False),
        *([] if isinstance(source.load, Steps) else [replace(source, load=Constant(float("inf")))]),
        replace(source, keys=max(1, source.keys // 2)),
    ):
        if easier_source != source:
            yield replace(world, source=easier_source)
    if isinstance(source.load, Steps) and len(source.load.rates) > 1:
        for rate, length_s in zip(source.load.rates, source.load.lengths_s, strict=True):
            yield replace(world, source=replace(source, load=Steps((rate,), (length_s,))))
    if world.seed != 0:
        yield replace(world, seed=0)


def _simpler_clusters(cluster: Cluster) -> Iterator[Cluster]:
    changes = [
        replace(cluster, jitter=0.0),
        replace(cluster, delay_s=0.0),
        replace(cluster, checkpoint_every=None),
        replace(cluster, packed=False),
        replace(cluster, barrier_s=0.0),
    ]
    for number, host in enumerate(cluster.hosts):
        if len(cluster.hosts) > 1:
            changes.append(replace(cluster, hosts=(*cluster.hosts[:number], *cluster.hosts[number + 1 :])))
        for plainer in (
            replace(host, stalls=()),
            replace(host, failures=()),
            replace(host, speed=1.0),
            replace(host, tenants=Constant(0.0)),
            replace(host, cores=Host().cores),
        ):
            changes.append(replace(cluster, hosts=(*cluster.hosts[:number], plainer, *cluster.hosts[number + 1 :])))
    for changed in changes:
        if changed != cluster:
            yield changed


def _simpler_regions(region: MachineRegion) -> Iterator[MachineRegion]:
    changes = [
        replace(region, channels=max(1, region.channels - 1)),
        replace(region, spread=CostSpread.CONSTANT),
        replace(region, split_cost_s=0.0, merge_cost_s=0.0),
        replace(region, merger_capacity=None),
        replace(region, pulse_every=None) if region.merger_capacity is None else region,
        replace(region, emits=None, selectivity=1.0) if region.merger_capacity is None else region,
        replace(region, queue=20),
        replace(region, shuffled=False),
        replace(region, group_bits=2),
        replace(region, key=None, planner=None),
        replace(region, planner=None),
        replace(region, policy=None),
        replace(region, bounds=Bounds()),
        replace(region, numbered=False),
    ]
    for changed in changes:
        if changed != region:
            yield changed
