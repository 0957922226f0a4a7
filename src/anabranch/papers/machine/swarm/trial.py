"""Run one world and ask all checkers."""

from __future__ import annotations

import math

from anabranch.papers.machine.checkers import Recorder, check_run, check_saso
from anabranch.papers.machine.description import WorldDescription
from anabranch.papers.machine.world import StandStill, World
from anabranch.sim.load import Steps

EVENTS_MAX = 300_000
"""A small world takes some thousands."""


def failures(description: WorldDescription) -> list[str]:
    """Everything that is wrong with a run of this world, in words that begin with what was violated."""
    recorder = Recorder()
    load = description.source.load
    endless = description.source.tuples is None
    until_s = sum(load.lengths_s) if endless and isinstance(load, Steps) else math.inf
    try:
        # Samples are only looked at where there is control.
        world = World(description, recorder, sample_s=None if endless else 100 * description.period_s)
        result = world.run(until_s, EVENTS_MAX)
    except StandStill as still:
        return [*recorder.complaints, f"progress: {still}"]
    except Exception as problem:  # whatever a component raises is what we are looking for
        return [*recorder.complaints, f"raised: {type(problem).__name__}: {problem}"]
    complaints = check_run(world, recorder, ended=not endless)
    if endless and isinstance(load, Steps):
        start = 0.0
        for rate, length_s in zip(load.rates, load.lengths_s, strict=True):
            for number, region in enumerate(description.regions):
                if region.policy is not None:
                    within = [sample for sample in result.samples if sample.at_s <= start + length_s]
                    complaints += check_saso(description, within, number, start, rate)
            start += length_s
    return complaints
