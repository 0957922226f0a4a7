"""OpMon, the operational monitoring application of the *Elastic* paper (its Listing 1), on Anabranch.

Usage records of network traffic come in as files. For each application the flow is summed minute by minute;
sums above a threshold are alarms. The program is written as if for one thread. It runs on all cores, with as
many channels as you ask for, and its output is that of one thread, in the same order: the last line checks it.

    make demo                                  or: python examples/opmon.py --records 200000 --channels 4
"""

from __future__ import annotations

import random
from typing import Any

import anabranch as ab
from anabranch import agg, delta, tumbling

USAGE = {"usage": "time double, source int, destination int, app string, version int, flow double"}


def program(usage: ab.Stream, threshold: float = 25_000.0) -> ab.Stream:
    """Minute-by-minute data usage of each application, those above the threshold."""
    minutes = usage.aggregate(
        by="app", window=tumbling(delta("time", 60)), flow=agg.sum("flow"), time=agg.last("time"), name="minutes"
    )
    return minutes.filter(lambda t: t.flow > threshold, name="above")


def generate(count: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Usage records as a network tap would see them: a few applications have most of the traffic."""
    chance = random.Random(seed)
    applications = [f"app-{number:03d}" for number in range(200)]
    weights = [1 / (rank + 1) for rank in range(len(applications))]
    clock = 0.0
    rows = []
    for app in chance.choices(applications, weights, k=count):
        clock += chance.expovariate(100.0)
        rows.append(
            {
                "time": round(clock, 3),
                "source": chance.randrange(5000),
                "destination": chance.randrange(5000),
                "app": app,
                "version": chance.randrange(1, 4),
                "flow": round(chance.lognormvariate(3, 1.5), 2),
            }
        )
    return {"usage": rows}


def main() -> None:
    # Imported here: the workers of a test import this module, and do not find what lies beside it.
    from demonstration import demonstrate

    demonstrate(program, generate, USAGE, 120_000)


if __name__ == "__main__":
    main()
