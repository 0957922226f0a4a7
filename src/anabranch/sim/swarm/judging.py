"""Run one world and ask all checkers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from anabranch.program.graph import Keyed, upstream
from anabranch.sim import checks
from anabranch.sim.load import Steps
from anabranch.sim.simulated_run import SimulatedEpoch, SimulatedRun
from anabranch.sim.simulation import Simulation
from anabranch.sim.swarm.worlds import SwarmWorld
from anabranch.state.codec import decode


def failures(world: SwarmWorld) -> list[str]:
    """Everything that is wrong with a run of this world, in words that begin with what was violated."""
    return judged(world)[0]


def judged(world: SwarmWorld) -> tuple[list[str], SimulatedRun | None]:
    """What is wrong with a world, and its run, if that came to an end."""
    simulation = Simulation(world.streams(), world.situation, fast=world.recipe is None)
    try:
        run = simulation.run()
        complaints = _complaints(world, simulation)
    except Exception as problem:  # whatever the product raises is what we are looking for
        return [f"raised: {type(problem).__name__}: {problem}"], None
    if world.settles:
        complaints += check_control(world, run)
    return complaints, run


def _complaints(world: SwarmWorld, simulation: Simulation) -> list[str]:
    ledger, files, situation = simulation.ledger, simulation.files, world.situation
    kept = max(2, situation.versions_kept)
    complaints = checks.check_manifests(ledger, None if simulation.is_fast else files, kept)
    complaints += checks.check_once(ledger)
    complaints += checks.check_bounds(ledger, situation.options.channels_min, situation.options.channels_max)
    complaints += checks.check_asked(ledger, simulation.asked)
    if simulation.is_fast or complaints:
        return complaints
    one_thread, by_epoch = checks.oracle(ledger, simulation.ends)
    complaints += checks.check_output(ledger, by_epoch)
    if not (situation.split_hot_keys and _has_parts(simulation)):
        complaints += checks.check_state(ledger, files, one_thread, simulation.ends)

    def routed_by(operator: str, hashed: int, key: Any) -> int:
        route = simulation.routes.get(operator)
        if route is None:
            return hashed
        values = [decode(key) if isinstance(key, bytes) else key]
        return int(route.route_hashes(np.array([hashed], dtype=np.uint64), lambda: values)[0])

    complaints += checks.check_owners(ledger, files, routed_by)
    simulation.restarted()
    return complaints + checks.check_leaks(ledger, files, kept)


def _has_parts(simulation: Simulation) -> bool:
    """Whether some state may be in parts of keys, which one thread does not have."""
    nodes = upstream(*simulation.ends)
    return any(isinstance(node.logic, Keyed) and node.logic.parts is not None for node in nodes)


# -- control --------------------------------------------------------------------------------------------------------


def check_control(world: SwarmWorld, run: SimulatedRun) -> list[str]:
    """Controllers that nothing disturbs: enough channels, not far too many, and at rest in the end."""
    load = world.situation.load
    if not isinstance(load, Steps):
        return _check_sizes(world, run)
    ((region, cost_s),) = world.regions
    complaints = []
    start_s = 0.0
    most_before = 0
    for rate, length_s in zip(load.rates, load.lengths_s, strict=True):
        late = [each for each in run.epochs if start_s + length_s * 0.6 <= each.started_s < start_s + length_s]
        start_s += length_s
        if len(late) < 3:
            complaints.append(f"control: {len(late)} epochs in the last part of a stretch of load")
            continue
        channels = [each.channels[region] for each in late]
        needed = rate * cost_s
        # An epoch that keeps up lasts as long as the interval, a second; what came during it is taken by the next.
        if median(each.latency_s for each in late) > 4.0:
            waited = f"rows wait {late[-1].latency_s:.1f} s"
            complaints.append(f"control: with {channels[-1]} channels {waited}, where {needed:.1f} could do the work")
        if channels[-1] > 3 * needed + 4:
            complaints.append(f"control: {channels[-1]} channels for what {needed:.1f} could do")
        if most_before and channels[-1] >= most_before:
            complaints.append(f"control: still {channels[-1]} channels for a seventh of the load")
        if _turns(channels) > 2:
            complaints.append(f"control: channels do not come to rest: {channels}")
        most_before = channels[-1]
    return complaints + _check_balance(late, region)


def _check_sizes(world: SwarmWorld, run: SimulatedRun) -> list[str]:
    """A source that always has more: epochs last about as long as the user wants."""
    target_s = world.situation.options.epoch_s(None)
    late = [each.duration_s for each in run.epochs[len(run.epochs) // 2 :]]
    if not late or not target_s / 2.5 < median(late) < 2.5 * target_s:
        return [f"control: epochs last {median(late or [0.0]):.1f} s where {target_s:.1f} s are wanted"]
    return []


def _turns(channels: Sequence[int]) -> int:
    """How often the number changed its direction."""
    steps = [after - before for before, after in pairwise(channels) if after != before]
    return sum(1 for before, after in pairwise(steps) if (before > 0) != (after > 0))


def _check_balance(epochs: Sequence[SimulatedEpoch], region: str) -> list[str]:
    """Keys are many and alike: no channel has much more to do than the others."""
    ratios = [max(tasks) * len(tasks) / sum(tasks) for each in epochs if (tasks := each.tasks_s.get(region))]
    if ratios and median(ratios) > 2.2:
        return [f"control: the busiest channel takes {median(ratios):.1f} times the mean"]
    return []
