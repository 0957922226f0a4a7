"""From a seed to a random world.

Nine of ten are about order, state and migration: few tuples, small queues, everything that can go wrong at
once, channels changed by hand, by planners and by controllers. The tenth is about control: a load that a
controller has to follow, in a world without other trouble, so that it is known what it should do.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from anabranch.control.bounds import Bounds
from anabranch.control.default_policy import DefaultPolicy
from anabranch.control.paper_policy import PaperPolicy
from anabranch.papers.machine.costs import CostSpread
from anabranch.papers.machine.description import (
    Cluster,
    Fault,
    Host,
    MachineRegion,
    MachineSource,
    Rescaling,
    WorldDescription,
    joints,
)
from anabranch.partitioning.placing.construct import Construction, ConstructionSettings
from anabranch.partitioning.placing.planner import PlannerSettings
from anabranch.partitioning.resources import Resources
from anabranch.program.model import Selectivity
from anabranch.sim.load import Bursts, Constant, Curve, Sine, Steps

CONTROL_EVERY = 10
COST_S = 0.001
PERIODS = 26  # of each stretch of constant load in a world about control


def random_world(seed: int) -> WorldDescription:
    """The world of a seed."""
    return control_world(seed) if seed % CONTROL_EVERY == 0 else flow_world(seed)


def flow_world(seed: int) -> WorldDescription:
    """A world about order, state, migration and recovery."""
    draw = Random(seed)
    tuples = draw.choice([20, 60, 120, 200])
    count = draw.choice([1, 1, 1, 2, 2, 3])
    regions = [_region(draw, number) for number in range(count)]
    # Only there do the bounds of docs/ordering.md say what suffices.
    regions = [_with_capacity(draw, regions, number) for number in range(count)]
    # About how long the run will take, so that things happen during it.
    length_s = sum(tuples * region.cost_s / region.channels for region in regions) + 0.01
    source = MachineSource(
        load=_load(draw, tuples / length_s, length_s),
        tuples=tuples,
        stored=draw.random() < 0.7,
        random_arrivals=draw.random() < 0.5,
        keys=draw.choice([1, 3, 10, 40]),
        skew=draw.choice([0.0, 0.0, 0.8, 1.5]),
        window_every=draw.choice([None, None, 7, 30]),
    )
    rescalings = tuple(
        Rescaling(draw.random() * length_s, draw.randrange(count), draw.randint(1, 5))
        for _ in range(draw.choice([0, 1, 1, 2, 3]))
    )
    return WorldDescription(
        source,
        tuple(regions),
        _cluster(draw, tuples, length_s),
        rescalings,
        period_s=length_s * draw.choice([0.3, 1, 3]),
        seed=seed,
    )


def _region(draw: Random, number: int) -> MachineRegion:
    emits = draw.choice(list(Selectivity))
    selectivity = {Selectivity.ONE: 1.0, Selectivity.AT_MOST_ONE: draw.choice([0.1, 0.5]), Selectivity.ANY: 1.5}[emits]
    key = draw.choice([None, 0, 0, 1])
    planner = None
    if key is not None:
        # `weigh` takes ten times as long as all the rest of a small world.
        others = [Construction.CONSISTENT, Construction.SCAN, Construction.REDIST, Construction.READJ]
        construction = Construction.WEIGH if draw.random() < 0.15 else draw.choice(others)
        patience = draw.choice([1, 1000, 1000])
        planner = PlannerSettings(
            ConstructionSettings(construction=construction), patience_periods=patience, migration_periods=0.0
        )
    return MachineRegion(
        name=f"region-{number}",
        cost_s=COST_S,
        spread=draw.choice(list(CostSpread)),
        key=key,
        selectivity=selectivity,
        emits=emits,
        shuffled=number > 0 and draw.random() < 0.5,
        channels=draw.randint(1, 5),
        bounds=Bounds(1, 6),
        policy=draw.choice([None, None, None, DefaultPolicy, PaperPolicy]),
        planner=planner,
        resources=Resources.of(draw.choice(["CCL", "LCL", "LLL"])),
        group_bits=draw.choice([2, 4, 6]),
        numbered=draw.random() < 0.5,
        pulse_every=draw.choice([None, 3, 11]),
        queue=draw.choice([1, 2, 5, 20]),
        split_cost_s=draw.choice([0.0, 0.0, COST_S / 10]),
        merge_cost_s=draw.choice([0.0, 0.0, COST_S / 10]),
    )


def _with_capacity(draw: Random, regions: list[MachineRegion], number: int) -> MachineRegion:
    region = regions[number]
    alone = not region.shuffled and (number + 1 == len(regions) or not regions[number + 1].shuffled)
    if not alone or draw.random() < 0.6:
        return region
    (joint,) = joints([region])
    if not joint.strategy.is_pulsed:
        return replace(region, merger_capacity=1)
    pulse_every = region.pulse_every or 5
    most = 3 if region.declared is Selectivity.ANY else 1
    return replace(region, pulse_every=pulse_every, merger_capacity=pulse_every * most + 1)


def _load(draw: Random, rate: float, length_s: float) -> Constant | Sine | Steps | Bursts:
    match draw.randrange(5):
        case 0:
            return Constant(rate)
        case 1:
            return Sine(rate, rate, length_s / 2)
        case 2:
            return Steps((rate / 2, rate * 3), (length_s / 4,))
        case 3:
            return Bursts(rate / 2, rate * 10, length_s / 3, length_s / 20)
        case _:
            return Constant(float("inf"))


def _cluster(draw: Random, tuples: int, length_s: float) -> Cluster:
    def faults(share: float, longest_s: float) -> tuple[Fault, ...]:
        if draw.random() > share:
            return ()
        return (Fault(draw.random() * length_s, draw.random() * longest_s),)

    failing = draw.random() < 0.3
    tenants: list[Curve] = [Constant(0.0), Constant(0.0), Sine(1.0, 1.0, length_s)]
    hosts = tuple(
        Host(
            cores=draw.randint(1, 4),
            speed=draw.choice([1.0, 1.0, 0.3]),
            tenants=draw.choice(tenants),
            stalls=faults(0.2, length_s / 4),
            failures=faults(0.5 if failing else 0.0, length_s / 2),
        )
        for _ in range(draw.randint(1, 3))
    )
    return Cluster(
        hosts=hosts,
        packed=draw.random() < 0.5,
        delay_s=draw.choice([0.0, COST_S / 10, 3 * COST_S]),
        jitter=draw.choice([0.0, 0.5, 3.0]),
        migration_bytes_per_s=draw.choice([1e4, 1e6]),
        barrier_s=draw.choice([0.0, COST_S]),
        restore_s=length_s / 20,
        checkpoint_every=draw.choice([None, None, 15, 50]),
    )


def control_world(seed: int) -> WorldDescription:
    """A world about control: one or two stretches of constant load, enough cores, no faults, no skew."""
    draw = Random(seed)
    cost_s = 0.05
    period_s = 1.0
    rates = tuple(draw.choice([0.4, 1.5, 3.4, 5.2]) / cost_s for _ in range(draw.choice([1, 2])))
    most = draw.choice([4, 8, 12])
    # A backlog that can only grow would be there for long after the load has gone.
    stored = draw.random() < 0.7 and max(rates) * cost_s < most
    region = MachineRegion(
        name="controlled",
        cost_s=cost_s,
        spread=CostSpread.CONSTANT,
        key=None,
        numbered=draw.random() < 0.5,
        channels=draw.choice([1, 1, 4]),
        bounds=Bounds(1, most),
        policy=DefaultPolicy,
        queue=draw.choice([2, 5]),
    )
    return WorldDescription(
        MachineSource(load=Steps(rates, (PERIODS * period_s,)), stored=stored),
        (region,),
        Cluster(hosts=(Host(cores=64),), delay_s=draw.choice([0.0, 0.001])),
        period_s=period_s,
        seed=seed,
    )
