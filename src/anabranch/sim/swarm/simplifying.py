"""Worlds that are one step simpler than another: for shrinking one that fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anabranch.sim.hosts import SimulatedHost
from anabranch.sim.load import Constant, Steps
from anabranch.sim.situation import Situation
from anabranch.sim.swarm.random_programs import Recipe
from anabranch.sim.swarm.worlds import SwarmWorld


def simpler(world: SwarmWorld) -> Iterator[SwarmWorld]:
    """Worlds that are one step simpler, the boldest first."""
    for situation in _simpler_situations(world.situation):
        yield replace(world, situation=situation)
    if world.recipe is not None:
        for recipe in _simpler_recipes(world.recipe):
            yield replace(world, recipe=recipe, rows=world.rows[: recipe.sources])
        for source, count in enumerate(world.rows):
            for fewer in (count // 2, count - 1):
                if 0 < fewer < count:  # a source without rows has no tasks
                    yield replace(world, rows=(*world.rows[:source], fewer, *world.rows[source + 1 :]))
        for files in (world.files // 2, world.files - 1):
            if 1 <= files < world.files:
                yield replace(world, files=files)
    for number in range(len(world.regions)):
        if len(world.regions) > 1:
            yield replace(world, regions=(*world.regions[:number], *world.regions[number + 1 :]))
    if world.spread:
        yield replace(world, spread=False)


def _simpler_recipes(recipe: Recipe) -> Iterator[Recipe]:
    """Without a step, without an output, without the loop; what read what is gone reads something else then."""
    steps, outputs = recipe.steps, recipe.outputs
    for number in range(len(steps)):
        yield replace(recipe, steps=(*steps[:number], *steps[number + 1 :]))
    for number in range(len(outputs)):
        if len(outputs) > 1:
            yield replace(recipe, outputs=(*outputs[:number], *outputs[number + 1 :]))
    if recipe.loop:
        yield replace(recipe, loop=False)
    if recipe.sources > 1:
        yield replace(recipe, sources=recipe.sources - 1)


def _simpler_situations(situation: Situation) -> Iterator[Situation]:
    plain = Situation()
    for number in range(len(situation.crashes)):
        yield replace(situation, crashes=(*situation.crashes[:number], *situation.crashes[number + 1 :]))
    for number in range(len(situation.asked)):
        yield replace(situation, asked=(*situation.asked[:number], *situation.asked[number + 1 :]))
    if situation.hosts != plain.hosts and situation.hosts != (SimulatedHost(slots=12),):
        yield replace(situation, hosts=plain.hosts)
    for name in (
        "straggler_share",
        "snapshot_epochs",
        "versions_kept",
        "split_hot_keys",
        "spread_gain_s",
    ):
        if getattr(situation, name) != getattr(plain, name):
            yield replace(situation, **{name: getattr(plain, name)})
    if situation.balancing.enabled:
        yield replace(situation, balancing=replace(situation.balancing, enabled=False))
    if not isinstance(situation.load, (Constant, Steps)):
        yield replace(situation, load=Constant(float("inf")))
    if isinstance(situation.load, Steps) and len(situation.load.rates) > 1:
        rate, length_s = situation.load.rates[0], situation.load.lengths_s[0]
        yield replace(situation, load=Steps((rate,), (length_s,)), seconds=length_s)
    options = situation.options
    for changed in (
        replace(options, epoch_size="fixed"),
        replace(options, policy="default"),
        replace(options, channels_initial=1),
    ):
        if changed != options:
            yield replace(situation, options=changed)
    for at, crash in enumerate(situation.crashes):
        if crash.time > 1:
            earlier = replace(crash, time=crash.time - 1)
            yield replace(situation, crashes=(*situation.crashes[:at], earlier, *situation.crashes[at + 1 :]))
    if situation.epochs_max < plain.epochs_max and situation.epochs_max > 2:
        yield replace(situation, epochs_max=situation.epochs_max - 1)
    if situation.seed:
        yield replace(situation, seed=0)
