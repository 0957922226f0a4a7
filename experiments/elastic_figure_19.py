"""*Elastic*, Figure 19: how long a migration takes, by number of channels and of keys."""

from __future__ import annotations

import numpy as np

from anabranch.papers.machine.description import Cluster, Host, Region, Rescaling, Source, WorldDescription
from anabranch.papers.machine.world import World
from anabranch.partitioning.placing.construct import Construction, ConstructionSettings
from anabranch.partitioning.placing.planner import PlannerSettings
from anabranch.sim.load import Steps
from experiments.reproduction import Line, Panel, Reproduction, Table
from experiments.statements import at_least, holds

KEY_BYTES = 1000.0
BYTES_PER_S = 10e6
BARRIER_S = 0.005


def run(quick: bool) -> Reproduction:
    channels = (1, 2, 4, 8, 16) if quick else (1, 2, 3, 4, 6, 8, 12, 16, 24, 31)
    keys = (500, 2000, 4000) if quick else (500, 2000, 8000)
    found = {n: [_migration(n, before) for before in channels] for n in keys}
    seconds = {n: [one[0] for one in line] for n, line in found.items()}
    large, small = keys[-1], keys[0]
    slopes = [float(np.corrcoef(keys, [seconds[n][i] for n in keys])[0, 1]) for i in range(len(channels))]
    falls = seconds[large]
    statements = (
        at_least("migration time is linear in the number of keys: least correlation", 0.99, min(slopes)),
        holds(
            "it decreases with the number of channels",
            falls[0] > falls[len(falls) // 2] > falls[-1],
            f"{falls[0]:.2f} s from 1 to 2 channels, {falls[-1]:.2f} s from {channels[-1]} to {channels[-1] + 1}",
        ),
        holds(
            "most data can remain where it was: keys moved are close to M / N (within 50 %)",
            all(
                abs(one[1] * (before + 1) / n - 1) < 0.5
                for n in keys
                for before, one in zip(channels, found[n], strict=True)
            ),
            ", ".join(f"{one[1] / large:.1%}" for one in found[large]) + f" of {large:,} keys",
        ),
        holds(
            "eventually the time flattens, the protocol dominates (fewest keys: below 2 × the barriers' cost)",
            seconds[small][-1] < 2 * _barriers_s(),
            f"{seconds[small][-1] * 1e3:.1f} ms, of which {_barriers_s() * 1e3:.0f} ms are barriers",
        ),
    )
    return Reproduction(
        "migration cost",
        "simulated: one channel more, consistent hash, 1000 bytes per key, packed and unpacked at 10 MB/s per channel, "
        "barriers of 5 ms; the time between the last tuple before and the first after",
        statements,
        (
            Table.of(
                "milliseconds (keys moved)",
                ("channels before", *(f"{n:,} keys" for n in keys)),
                [
                    (str(before), *(f"{found[n][i][0] * 1e3:.1f} ({found[n][i][1]:,})" for n in keys))
                    for i, before in enumerate(channels)
                ],
            ),
        ),
        (
            Panel(
                "migration",
                "channels before, one is added",
                "seconds",
                {f"{n:,} keys": Line(channels, seconds[n]) for n in keys},
                y_log=True,
            ),
        ),
    )


def _barriers_s() -> float:
    """Two vertical barriers and the horizontal one."""
    return 3 * BARRIER_S


def _migration(keys: int, before: int) -> tuple[float, int]:
    """Return seconds and keys moved when a channel is added."""
    planner = PlannerSettings(ConstructionSettings(construction=Construction.CONSISTENT))
    region = Region(cost_s=1e-6, key=0, channels=before, key_bytes=KEY_BYTES, planner=planner)
    # Three tuples per key before the change, so that nearly every key has state; then just enough to go on.
    load = Steps((10.0 * keys, 20.0), (0.3, 1e6))
    world = World(
        WorldDescription(
            Source(load=load, keys=keys),
            (region,),
            Cluster((Host(64),), migration_bytes_per_s=BYTES_PER_S, barrier_s=BARRIER_S),
            rescalings=(Rescaling(0.6, 0, before + 1),),
            period_s=1000.0,
        )
    )
    (record,) = world.run(until_s=30.0).migrations
    return record.migration_s, record.keys
