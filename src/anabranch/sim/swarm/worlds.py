"""From a seed to a random world: a program, its data, and a situation with everything that can go wrong in it.

    of 20 worlds   13  programs    random programs over real tuples; rescalings, crashes, lost hosts, stragglers
                    6  regions     larger regions without tuples: keys are counted, balanced and moved, epochs are sized
                    1  control     a load that controllers have to follow, in a world without trouble

All are small, about ten epochs, so that many can be run; control needs more epochs to settle.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import anabranch as ab
from anabranch.control.elastic_options import ElasticOptions
from anabranch.engine.driver.balancing import BalancingSettings
from anabranch.faults import POINTS
from anabranch.sim.hosts import SimulatedHost
from anabranch.sim.load import Bursts, Constant, Curve, Sine, Steps
from anabranch.sim.situation import AskedChannels, Crash, Keys, Situation
from anabranch.sim.swarm.random_programs import COLUMNS, Recipe, build, random_recipe
from anabranch.sim.work_costs import WorkCosts

KINDS = ("programs",) * 13 + ("regions",) * 6 + ("control",)


@dataclass(frozen=True)
class SwarmWorld:
    """A world."""

    situation: Situation
    recipe: Recipe | None = None
    """The program; None: regions whose tuples are not run."""
    rows: tuple[int, ...] = ()
    """Of every source."""
    files: int = 1
    """That the rows of a source come in."""
    data: int = 0
    """The seed of the rows."""
    regions: tuple[tuple[str, float], ...] = ()
    """Without a recipe: name and seconds a tuple of each region, one behind the other."""
    spread: bool = False
    """The first region has no key."""
    settles: bool = False
    """Nothing disturbs it: controllers must come to rest where the load wants them."""

    def streams(self) -> list[ab.Stream]:
        """The program."""
        if self.recipe is not None:
            return build(self.recipe, [self._epochs(number) for number in range(self.recipe.sources)])
        stream = ab.from_rows([], "k long", name="in")
        for number, (name, _) in enumerate(self.regions):
            if number == 0 and self.spread:
                stream = stream.spread(name=name)
            else:
                stream = stream.process(TimesSeen(), by="k", schema="k long", name=name)
        return [stream]

    def _epochs(self, source: int) -> list[list[Any]]:
        """The files of a source."""
        chance = Random(f"{self.data}/{source}")
        count = self.rows[source]
        rows = [_row(chance) for _ in range(count)]
        cuts = sorted(chance.randrange(count + 1) for _ in range(self.files - 1))
        return [rows[start:stop] for start, stop in zip([0, *cuts], [*cuts, count], strict=True)]


class TimesSeen(ab.Operator):
    """What regions without tuples would run."""

    seen: int = ab.state(default=0)

    def process(self, t):  # type: ignore[no-untyped-def]
        self.seen += 1
        return t


def _row(chance: Random) -> tuple[Any, ...]:
    key = None if chance.random() < 0.04 else int(chance.paretovariate(0.7)) % 9
    name = chance.choice(["a", "a", "b", "", None, "a longer name than eight bytes"])
    number = None if chance.random() < 0.08 else chance.choice([float(chance.randrange(-4, 9)), chance.uniform(-5, 5)])
    return key, name, number


def random_world(seed: int) -> SwarmWorld:
    """The world of a seed."""
    chance = Random(seed)
    kind = chance.choice(KINDS)
    return {"programs": _program_world, "regions": _region_world, "control": _control_world}[kind](chance, seed)


def _program_world(chance: Random, seed: int) -> SwarmWorld:
    recipe = random_recipe(chance, steps_max=3)
    files = chance.randint(10, 13)
    cost = chance.choice([0.001, 0.01, 0.05])
    most = chance.choice([2, 3, 4, 6])
    splits: list[bool | str] = [False, False, True, "auto", "auto"]
    options = ElasticOptions(
        channels_max=most,
        channels_initial=chance.randint(1, min(3, most)),
        policy=chance.choice(["default", "default", "paper"]),
        period_s=chance.choice([0.2, 1.0]),
        epoch_target_s=chance.choice([0.05, 0.5]),
        epoch_size=chance.choice(["fixed", "fixed", "auto"]),
    )
    return SwarmWorld(
        recipe=recipe,
        rows=tuple(chance.choice([60, 100, 160]) for _ in range(recipe.sources)),
        files=files,
        data=seed,
        situation=Situation(
            load=_load(chance, 20.0),
            hosts=_hosts(chance, 12.0),
            costs=WorkCosts(tuple_s=cost, restart_s=1.0),
            options=options,
            files_per_epoch=chance.choice([None, 1, 1, 1]) if options.epoch_size == "fixed" else None,
            balancing=BalancingSettings(
                chance.random() < 0.8, (chance.choice([1.05, 1.2]),) * 3, split_gain_seconds=0.0005
            ),
            split_hot_keys=chance.choice(splits),
            spread_gain_s=0.0001 if seed % 2 else None,
            snapshot_epochs=chance.choice([None, None, 1, 3]),
            versions_kept=chance.choice([2, 3, 10]),
            asked=_asked(chance, files, most),
            crashes=_crashes(chance, files, in_tasks=True),
            straggler_share=chance.choice([0.0, 0.1]),
            seed=seed,
        ),
    )


def _region_world(chance: Random, seed: int) -> SwarmWorld:
    regions = tuple((f"region{at}", chance.choice([0.0005, 0.005])) for at in range(chance.choice([1, 1, 2])))
    epochs = chance.randint(10, 14)
    most = chance.choice([3, 6, 12])
    return SwarmWorld(
        regions=regions,
        spread=chance.random() < 0.2,
        situation=Situation(
            load=_load(chance, 2000.0),
            rows_per_file=200,
            seconds=1000.0,
            epochs_max=epochs,
            hosts=_hosts(chance, 20.0),
            costs=WorkCosts(operators=dict(regions), restart_s=1.0),
            options=ElasticOptions(
                channels_max=most,
                channels_initial=chance.randint(1, min(4, most)),
                policy=chance.choice(["default", "default", "paper"]),
                period_s=chance.choice([0.2, 1.0]),
            ),
            balancing=BalancingSettings(tolerances=(chance.choice([1.05, 1.2]),) * 3),
            snapshot_epochs=chance.choice([None, 3]),
            versions_kept=chance.choice([2, 10]),
            asked=_asked(chance, epochs, most),
            crashes=_crashes(chance, epochs, in_tasks=False),
            straggler_share=chance.choice([0.0, 0.1]),
            keys_default=Keys(chance.choice([3, 50, 500]), chance.choice([0.0, 0.8, 1.4])),
            seed=seed,
        ),
    )


def _control_world(chance: Random, seed: int) -> SwarmWorld:
    """Load that takes some channels, then perhaps much less: enough slots, many keys, no trouble."""
    cost_s = 0.01
    if chance.random() < 0.3:
        return _sized_world(chance, seed)
    busy = chance.choice([1.5, 3.0])
    goes_down = chance.random() < 0.5
    rates = (busy / cost_s, 0.15 * busy / cost_s) if goes_down else (busy / cost_s,)
    length_s = 60.0
    return SwarmWorld(
        regions=(("region0", cost_s),),
        settles=True,
        situation=Situation(
            load=Steps(rates, (length_s,)),
            rows_per_file=20,
            seconds=length_s * len(rates),
            hosts=(SimulatedHost(slots=12),),
            costs=WorkCosts(operators={"region0": cost_s}),
            options=ElasticOptions(channels_max=12, channels_initial=chance.choice([1, 2]), period_s=2.0),
            interval_s=1.0,
            keys_default=Keys(500),
            seed=seed,
        ),
    )


def _sized_world(chance: Random, seed: int) -> SwarmWorld:
    """A source that always has more, of files of some size."""
    cost_s = chance.choice([0.0005, 0.01])
    return SwarmWorld(
        regions=(("region0", cost_s),),
        settles=True,
        situation=Situation(
            rows_per_file=chance.choice([50, 400]),
            epochs_max=30,
            hosts=(SimulatedHost(slots=12),),
            costs=WorkCosts(operators={"region0": cost_s}),
            options=ElasticOptions(channels_max=12, channels_initial=chance.choice([1, 4]), period_s=2.0),
            keys_default=Keys(500),
            seed=seed,
        ),
    )


def _load(chance: Random, rate: float) -> Curve:
    curves: list[Curve] = [
        Constant(rate),
        Constant(float("inf")),
        Sine(rate, 0.7 * rate, 4.0),
        Bursts(0.5 * rate, 4 * rate, 5.0, 0.5),
    ]
    return chance.choice(curves)


def _hosts(chance: Random, length_s: float) -> tuple[SimulatedHost, ...]:
    def host() -> SimulatedHost:
        lost = chance.uniform(0, length_s)
        absent = ((lost, lost + chance.uniform(0.5, 5.0)),) if chance.random() < 0.25 else ()
        return SimulatedHost(chance.randint(1, 4), chance.choice([1.0, 1.0, 0.3]), absent)

    return tuple(host() for _ in range(chance.randint(1, 3)))


def _asked(chance: Random, epochs: int, most: int) -> tuple[AskedChannels, ...]:
    count = chance.choice([0, 1, 1, 2, 3])
    return tuple(
        AskedChannels(chance.randrange(epochs - 1), chance.randrange(3), chance.randint(1, most)) for _ in range(count)
    )


def _crashes(chance: Random, epochs: int, in_tasks: bool) -> tuple[Crash, ...]:
    points = [point for point in POINTS if in_tasks or point != "segment written"]
    points += [point for point in points if "replaced" not in point]
    crashes = []
    for _ in range(chance.choice([0, 1, 1, 2, 2, 3])):
        point = chance.choice(points)
        # Functions are replaced now and then, programs once; all other points are reached in every epoch.
        latest = 2 if "replaced" in point else epochs
        crashes.append(Crash(point, chance.randint(1, latest)))
    return tuple(crashes)


__all__ = ["COLUMNS", "SwarmWorld", "random_world"]
