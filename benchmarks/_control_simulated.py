"""Controllers in the product's simulator: the driver loop of Spark in virtual time, under ten kinds of trouble.

Judged by rows that were taken and committed, against the same world under the paper's controller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anabranch as ab
from anabranch.sim import Bursts, Constant, Keys, SimulatedHost, SimulatedRun, Sine, Steps, simulate

SLOTS = 16
COST_S = 0.01  # of a tuple, in a region: a channel handles a hundred per second
SECONDS = 240.0
LONGER = {"stragglers": 960.0}
"""Where what happens is rare. Twelve periods of 240 seconds have a few stragglers each, or none: rows of the paper's
own policy then differ by 9 % between seeds (standard deviation), with 960 seconds by 3 %, of the others by 1 %."""
EPOCH_S = 3  # longer epochs are fewer: what a run costs
Situation = Mapping[str, Any]


class _Total(ab.Operator):
    total: int = ab.state(default=0)

    def process(self, t: Any) -> Any:
        self.total += t.x
        yield t.k, self.total


def _program(*regions: str) -> ab.Stream:
    stream = ab.from_rows([], "k long, x long")
    for name in regions:
        stream = stream.process(_Total(), by="k", schema="k long, x long", name=name)
    return stream


def _halved() -> list[SimulatedHost]:
    """Half of the slots are lost for a while: other tenants."""
    return [SimulatedHost(SLOTS // 2), SimulatedHost(SLOTS // 2, absent_s=((80.0, 160.0),))]


FAMILIES: dict[str, Callable[[], Situation]] = {
    "constant": lambda: {"load": Constant(600.0)},
    "always more": lambda: {"load": Constant(1e5)},
    "step × 4": lambda: {"load": Steps((200.0, 800.0), (80.0, 160.0))},
    "step × 0.25": lambda: {"load": Steps((800.0, 200.0), (80.0, 160.0))},
    "sine": lambda: {"load": Sine(600.0, 400.0, 120.0)},
    "bursts": lambda: {"load": Bursts(200.0, 1000.0, 40.0, 20.0)},
    "noise 20 %": lambda: {"load": Constant(600.0), "noise": 0.2},
    "stragglers": lambda: {"load": Constant(600.0), "straggler_share": 0.05},
    "half of the slots away": lambda: {"load": Constant(600.0), "hosts": _halved()},
    "two regions, skewed keys": lambda: {"load": Constant(500.0), "keys": Keys(2000, 0.8)},
}


def seconds_of(family: str) -> float:
    """How long a run of a family lasts."""
    return LONGER.get(family, SECONDS)


def run(family: str, policy: str, seed: int, seconds: float) -> SimulatedRun:
    """One world under one policy."""
    situation = dict(FAMILIES[family]())
    regions = ("first", "second") if family.startswith("two regions") else ("work",)
    situation.setdefault("keys", Keys(2000))
    if "hosts" not in situation:
        situation["slots"] = SLOTS
    situation.setdefault("noise", 0.05)
    return simulate(
        _program(*regions),
        rows_per_file=100,
        seconds=seconds,
        costs=dict.fromkeys(regions, COST_S),
        initialChannels=1,
        maxChannels=SLOTS,
        policy=policy,
        epochTarget=f"{EPOCH_S} seconds",
        adaptationPeriod=f"{EPOCH_S} seconds",
        seed=seed,
        **situation,
    )
