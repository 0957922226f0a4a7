"""Try a program on a cluster before paying for it.

The plan of the *Safe* paper says which operators form regions, how they are joined and what they are partitioned by.
What it cannot know, the caller says: what a tuple costs in each operator, how many pass, how the keys are
spread. The rest is the world of this package, with the real controllers, planners and mergers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from anabranch.compiler.layout.plan import Plan
from anabranch.control.bounds import Bounds
from anabranch.control.default_policy import DefaultPolicy
from anabranch.control.paper_policy import PaperPolicy
from anabranch.papers.machine.description import (
    Cluster,
    Host,
    MachineRegion,
    MachineSource,
    PolicyMaker,
    Rescaling,
    WorldDescription,
)
from anabranch.papers.machine.result import Result
from anabranch.papers.machine.world import World
from anabranch.papers.safe_plan import Joint, SafeOperator, safe_plan
from anabranch.papers.safe_regions import Rules
from anabranch.partitioning.placing.planner import PlannerSettings
from anabranch.program.model import Selectivity
from anabranch.sim.load import Constant, Curve

POLICIES: dict[str, PolicyMaker | None] = {"default": DefaultPolicy, "paper": PaperPolicy, "fixed": None}
COST_S = 20e-6
"""Of an operator whose cost nobody has told."""
SELECTIVITY = {Selectivity.ONE: 1.0, Selectivity.AT_MOST_ONE: 0.5, Selectivity.ANY: 1.0}
"""Of an operator of which nobody has told how many pass."""
TUPLES_MAX = 200_000


@runtime_checkable
class Planned(Protocol):
    """A program that can be compiled: a stream of `anabranch`."""

    def plan(self) -> Plan: ...


Program = Planned | Plan | MachineRegion | Sequence[MachineRegion]


@dataclass(frozen=True)
class OperatorCosts:
    """What is known about the operators of a plan: seconds per tuple, and tuples out per tuple in, by name."""

    costs: Mapping[str, float]
    selectivities: Mapping[str, float]

    def check(self, operators: Sequence[SafeOperator]) -> None:
        names = {operator.name for operator in operators}
        for name in (*self.costs, *self.selectivities):
            if name not in names:
                raise ValueError(f"the program has no operator {name!r}; it has {', '.join(sorted(names))}")

    def cost_s(self, operators: Sequence[SafeOperator]) -> float:
        """Of a tuple that enters these operators, on average."""
        seconds, arriving = 0.0, 1.0
        for operator in operators:
            seconds += arriving * self.costs.get(operator.name, COST_S)
            arriving *= self.selectivity(operator)
        return seconds

    def selectivity(self, operator: SafeOperator) -> float:
        return self.selectivities.get(operator.name, SELECTIVITY[operator.model.selectivity.value])


def simulate(
    program: Program,
    *,
    load: Curve | float = math.inf,
    seconds: float = 60.0,
    hosts: int | Sequence[Host] = 1,
    cores: int = 4,
    policy: str | PolicyMaker | None = "default",
    channels: int = 1,
    channels_max: int | None = None,
    costs: Mapping[str, float] | None = None,
    selectivities: Mapping[str, float] | None = None,
    keys: int = 10_000,
    skew: float = 0.0,
    key_bytes: float = 100.0,
    rebalance: bool = True,
    stored: bool = True,
    period_s: float = 5.0,
    rescalings: Sequence[Rescaling] = (),
    cluster: Cluster | None = None,
    grain: int | None = None,
    seed: int = 0,
) -> Result:
    """Run a program in virtual time.

    Parameters
    ----------
    program
        A stream (its plan is compiled), a plan, or regions described by hand (sim.Region).
    load
        Tuples per second: a number, or a curve of `anabranch.papers.machine`; infinite: as many as are taken.
    seconds
        Virtual time.
    hosts, cores
        So many hosts of so many cores; or hosts described one by one.
    policy
        "default", "paper", "fixed", or what makes a policy from bounds. For regions described by hand it is used
        where they have none of their own; "fixed" leaves them as they are.
    channels, channels_max
        Channels of every region at the start and at most; at most all cores, by default.
    costs, selectivities
        By operator: seconds of one core per tuple, and tuples emitted per tuple.
    keys, skew
        Number of keys, and the exponent of their Zipf distribution.
    key_bytes
        State of one key.
    rebalance
        Whether partitioning functions are changed for balance also while the number of channels stays.
    stored
        Whether the source keeps what cannot be taken yet; else it is held back.
    cluster
        Delay, jitter, speed of migration and so on; its hosts are replaced unless `hosts` is 1.
    grain
        One simulated tuple stands for so many. By default chosen so that a run takes seconds.

    Examples
    --------
    >>> from anabranch.papers import machine as sim
    >>> region = sim.Region("parse", cost_s=0.001)
    >>> result = sim.simulate(region, load=3000, seconds=60, hosts=2, cores=4)
    >>> result.channels()[-1] >= 3
    True
    """
    curve = load if callable(load) else Constant(float(load))
    machines = tuple(hosts) if not isinstance(hosts, int) else tuple(Host(cores=cores) for _ in range(hosts))
    network = cluster or Cluster(delay_s=0.0005)
    if cluster is None or hosts != 1:
        network = replace(network, hosts=machines)
    most = channels_max or sum(host.cores for host in network.hosts)
    maker = POLICIES[policy] if isinstance(policy, str) else policy
    bounds = Bounds(1, max(most, channels))
    if isinstance(program, MachineRegion):
        regions = [program]
    elif isinstance(program, Planned | Plan):
        plan = program if isinstance(program, Plan) else program.plan()
        regions = regions_of(plan, OperatorCosts(costs or {}, selectivities or {}))
        regions = [region if region.bounds.channels_max == 1 else replace(region, channels=channels, bounds=bounds,
                   key_bytes=key_bytes) for region in regions]  # fmt: skip
    else:
        regions = list(program)
    if maker is not None:
        regions = [
            region
            if region.policy is not None or region.bounds.channels_max == 1
            else replace(region, policy=maker, bounds=bounds if region.bounds == Bounds() else region.bounds)
            for region in regions
        ]
    if rebalance:
        regions = [
            replace(region, planner=PlannerSettings()) if region.key is not None and region.planner is None else region
            for region in regions
        ]
    grain = grain or _grain(curve, seconds, regions, network)
    coarse = [
        replace(
            region,
            cost_s=region.cost_s * grain,
            split_cost_s=region.split_cost_s * grain,
            merge_cost_s=region.merge_cost_s * grain,
        )
        for region in regions
    ]
    description = WorldDescription(
        MachineSource(load=lambda at: curve(at) / grain, keys=keys, skew=skew, stored=stored),
        tuple(coarse),
        network,
        tuple(rescalings),
        period_s,
        seed,
    )
    return World(description).run(seconds).scaled(grain)


def regions_of(program: Plan, knowledge: OperatorCosts) -> list[MachineRegion]:
    """The regions that *Safe* finds in a program, sequential parts among them, as a world describes them.

    Raises
    ------
    ValueError
        If the operators do not form a line, or something is told about an operator that is not there.
    """
    ends = [program.operator(name).node for name in program.outputs]
    plan = safe_plan(ends, Rules(emission_index=True, fans=True))
    knowledge.check(plan.operators)
    for before, after in zip(plan.operators, plan.operators[1:], strict=False):
        if [source.name for source in after.node.inputs] != [before.name]:
            raise ValueError(
                f"the operators must form a line to be simulated, but {after.name} does not read {before.name} alone; "
                "describe the regions by hand: simulate([MachineRegion(…), MachineRegion(…)])"
            )
    found: list[MachineRegion] = []
    key_texts: list[str] = []
    for process in plan.processes:
        operators = [plan.operator(name) for name in process.operators if plan.operator(name).node.inputs]
        if not operators:
            continue  # the source
        emits = Selectivity.ONE
        selectivity = 1.0
        for operator in operators:
            emits = emits.then(operator.model.selectivity.value)
            selectivity *= knowledge.selectivity(operator)
        region = MachineRegion(
            name="+".join(operator.name for operator in operators),
            cost_s=knowledge.cost_s(operators),
            selectivity=1.0 if emits is Selectivity.ONE else selectivity,
            emits=emits,
        )
        if process.region is None:
            # One thread, so one channel that nobody may change.
            found.append(replace(region, bounds=Bounds(1, 1), numbered=True))
            continue
        planned = plan.regions[process.region]
        key = None
        if not planned.stateless:
            if planned.key_text not in key_texts:
                key_texts.append(planned.key_text)
            key = key_texts.index(planned.key_text) % 2
        found.append(replace(region, key=key, shuffled=planned.first is Joint.SHUFFLE and bool(found)))
    return found


def _grain(curve: Curve, seconds: float, regions: Sequence[MachineRegion], cluster: Cluster) -> int:
    """How many tuples one must stand for, so that there are at most TUPLES_MAX."""
    moments = [curve(seconds * i / 200) for i in range(200)]
    rate = sum(moments) / len(moments)
    dearest = max(region.cost_s for region in regions)
    if not math.isfinite(rate):
        cores = sum(host.cores for host in cluster.hosts)
        rate = cores / dearest if dearest > 0 else TUPLES_MAX / seconds
    return max(1, math.ceil(rate * seconds / TUPLES_MAX))
