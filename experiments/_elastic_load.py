"""Figures 13 to 18 of *Elastic*: a load that changes, and a controller that follows it.

One tuple of the simulation stands for 40 of the paper's: loads are a fortieth and a tuple takes 40 times as long,
so that a channel handles 1000 of the paper's tuples per second. Periods are the paper's 5 s. Tuples come at
random moments (a Poisson process) and, as in the paper, are held back at the source, not stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from anabranch.control.levels import level_of
from anabranch.papers.machine.costs import Spread
from anabranch.papers.machine.description import Region
from anabranch.papers.machine.result import Result
from anabranch.sim.load import Curve, Sine, Steps
from experiments._elastic import THRESHOLD, controlled
from experiments.reproduction import Line, Panel, Table

SCALE = 40
CHANNEL_RATE = 1000.0
PERIOD_S = 5.0
SINE = Sine(5000.0 / SCALE, 2500.0 / SCALE, 500.0)
STEP = Steps((5000.0 / SCALE, 10_000.0 / SCALE, 2000.0 / SCALE), (250.0, 100.0, 150.0))
CURVES = {"sine": SINE, "step": STEP}
QUEUE = 4
"""Short, and tuples vary in cost: blocking now and then, without being overloaded, is the noise of a real system."""
FULL_SHARE = 0.9
"""A period's load is known to 4 %: some 600 tuples, at random moments."""
GRACE_S = 3 * PERIOD_S
RECENT_S = 20 * PERIOD_S
"""Giving channels back is allowed some patience: overshoot is judged against the load of the latest 20 periods."""


@dataclass(frozen=True)
class Followed:
    """How a controller followed a load."""

    result: Result
    handled: float
    """Tuples handled over tuples available, without three periods after the start and after each step."""
    full: float
    """Share of those periods in which nearly all of the load was handled."""
    overshoot: int
    """Levels above what the highest load of the last 20 periods needs; the worst of the run."""
    undershoot: int
    """Levels below what the load needs; the worst but for the grace periods."""
    correlation: float
    """Between the load and the number of channels two periods later."""
    least: int
    most: int

    @property
    def mean_channels(self) -> float:
        """Over the whole run."""
        channels = self.result.channels()
        return sum(channels) / len(channels)


@cache
def followed(curve: str, policy: str, threshold: float = THRESHOLD, cycles: float = 2.0) -> Followed:
    """Run a controller under a curve."""
    load = CURVES[curve]
    region = Region(cost_s=SCALE / CHANNEL_RATE, spread=Spread.EXPONENTIAL, queue=QUEUE)
    periods = int(cycles * 500.0 / PERIOD_S)
    settled = controlled(
        [region],
        [True],
        policy,
        period_s=PERIOD_S,
        periods=periods,
        load=load,
        threshold=threshold,
        random_arrivals=True,
        cores=32,
    )
    return _judged(settled.result, load)


def _judged(result: Result, load: Curve) -> Followed:
    available = handled = 0.0
    counted = full = 0
    overshoot = undershoot = 0
    channels = result.channels()
    loads = []
    for i, sample in enumerate(result.samples):
        start = sample.at_s - PERIOD_S
        mean = sum(load(start + PERIOD_S * k / 10) for k in range(10)) / 10
        loads.append(mean)
        recent = max(load(max(0.0, start - RECENT_S * k / 40)) for k in range(41))
        overshoot = max(overshoot, level_of(channels[i]) - _level_needed(max(recent, mean)))
        if start < GRACE_S or _stepped(load, start):
            continue
        available += mean
        handled += sample.taken
        counted += 1
        full += sample.taken >= FULL_SHARE * mean
        undershoot = max(undershoot, _level_needed(mean) - level_of(channels[i]))
    return Followed(
        result,
        min(1.0, handled / available),
        full / counted,
        overshoot,
        undershoot,
        _correlation(loads[:-2], list(channels[2:])),
        min(channels[4:]),
        max(channels),
    )


def _stepped(load: Curve, at_s: float) -> bool:
    """Whether there was a step within the grace before this moment."""
    now = load(at_s + PERIOD_S)
    return any(abs(load(max(0.0, at_s - GRACE_S * k / 6)) - now) > 0.3 * now for k in range(7))


def _level_needed(load: float) -> int:
    return level_of(max(1, -(-int(load * SCALE) // int(CHANNEL_RATE))))


def _correlation(xs: list[float], ys: list[int]) -> float:
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    spread_x = sum((x - mean_x) ** 2 for x in xs) ** 0.5
    spread_y = sum((y - mean_y) ** 2 for y in ys) ** 0.5
    return covariance / (spread_x * spread_y) if spread_x and spread_y else 0.0


def channel_panels(curve: str, runs: dict[str, Followed]) -> tuple[Panel, ...]:
    """Available load on the left, channels on the right."""
    load = CURVES[curve]
    return tuple(
        Panel(
            name,
            "seconds",
            "tuples/s",
            {
                "available": Line(*_curve(load, run.result)),
                "channels": Line(
                    [sample.at_s for sample in run.result.samples], run.result.channels(), stepped=True, right=True
                ),
            },
            y_right="channels",
        )
        for name, run in runs.items()
    )


def handled_panels(curve: str, runs: dict[str, Followed]) -> tuple[Panel, ...]:
    """Available and handled load."""
    load = CURVES[curve]
    return tuple(
        Panel(
            name,
            "seconds",
            "tuples/s",
            {
                "available": Line(*_curve(load, run.result), dashed=True),
                "handled": Line(
                    [sample.at_s - PERIOD_S / 2 for sample in run.result.samples],
                    [sample.taken * SCALE for sample in run.result.samples],
                ),
            },
        )
        for name, run in runs.items()
    )


def how(curve: str, thresholds: str = "0.2") -> str:
    """Say what was run."""
    return (
        f"simulated: two cycles of the {curve} load, a stateless region, 1000 tuples/s per channel, at most 32 "
        f"channels, periods of 5 s, congestion threshold {thresholds}; tuples come at random and vary in "
        "cost, and queues hold 4: chosen after a first run, without noise, in which a threshold of 0 did no harm"
    )


def _curve(load: Curve, result: Result) -> tuple[list[float], list[float]]:
    seconds = [sample.at_s for sample in result.samples]
    return seconds, [load(max(0.0, at - PERIOD_S / 2)) * SCALE for at in seconds]


def table(runs: dict[str, Followed]) -> Table:
    """SASO in numbers."""
    return Table.of(
        "In numbers",
        (
            "controller",
            "handled",
            "periods with ≥ 90 %",
            "overshoot, levels",
            "undershoot, levels",
            "fewest channels",
            "most",
            "changes",
        ),
        [
            (
                name,
                f"{run.handled:.1%}",
                f"{run.full:.1%}",
                run.overshoot,
                run.undershoot,
                run.least,
                run.most,
                len(run.result.migrations),
            )
            for name, run in runs.items()
        ],
    )
