"""Figures 13 to 18 of *Elastic*: a load that changes, and a controller that follows it.

One tuple of the simulation stands for 40 of the paper's: loads are a fortieth and a tuple takes 40 times as long,
so that a channel handles 1000 of the paper's tuples per second. Periods are the paper's 5 s. Tuples come at
random moments (a Poisson process) and, as in the paper, are held back at the source, not stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import fmean

from anabranch.control.levels import level_of
from anabranch.papers.machine.costs import CostSpread
from anabranch.papers.machine.description import MachineRegion
from anabranch.papers.machine.result import Result
from anabranch.sim.load import Curve, Sine, Steps
from experiments.elastic_world import POLICIES, THRESHOLD, controlled, seeds_of
from experiments.reproduction import Figures, Line, Panel, Reproduction, Table
from experiments.statements import Statement, at_least, at_most, compares, holds, surpasses

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


@dataclass(frozen=True)
class Several:
    """The same controller under the same curve, once for each seed: means, and the worst of what should not happen."""

    runs: tuple[Followed, ...]

    @property
    def first(self) -> Followed:
        """What pictures show."""
        return self.runs[0]

    @property
    def handled(self) -> float:
        return fmean(run.handled for run in self.runs)

    @property
    def full(self) -> float:
        return fmean(run.full for run in self.runs)

    @property
    def correlation(self) -> float:
        return fmean(run.correlation for run in self.runs)

    @property
    def mean_channels(self) -> float:
        return fmean(run.mean_channels for run in self.runs)

    @property
    def overshoot(self) -> int:
        return max(run.overshoot for run in self.runs)

    @property
    def undershoot(self) -> int:
        return max(run.undershoot for run in self.runs)


def several(curve: str, policy: str, quick: bool, threshold: float = THRESHOLD, cycles: float = 2.0) -> Several:
    """Run a controller under a curve, for every seed."""
    cycles = 1.0 if quick else cycles
    return Several(tuple(followed(curve, policy, threshold, cycles, seed) for seed in seeds_of(quick)))


@cache
def followed(curve: str, policy: str, threshold: float, cycles: float, seed: int) -> Followed:
    """Run a controller under a curve."""
    load = CURVES[curve]
    region = MachineRegion(cost_s=SCALE / CHANNEL_RATE, spread=CostSpread.EXPONENTIAL, queue=QUEUE)
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
        seed=seed,
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
        handled += sample.delivered
        counted += 1
        full += sample.delivered >= FULL_SHARE * mean
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


def channel_panels(curve: str, runs: dict[str, Several]) -> tuple[Panel, ...]:
    """Available load on the left, channels on the right."""
    load = CURVES[curve]
    return tuple(
        Panel(
            name,
            "seconds",
            "tuples/s",
            {
                "available": Line(*_curve(load, run.first.result)),
                "channels": Line(
                    [sample.at_s for sample in run.first.result.samples],
                    run.first.result.channels(),
                    stepped=True,
                    right=True,
                ),
            },
            y_right="channels",
        )
        for name, run in runs.items()
    )


def handled_panels(curve: str, runs: dict[str, Several]) -> tuple[Panel, ...]:
    """Available and handled load."""
    load = CURVES[curve]
    return tuple(
        Panel(
            name,
            "seconds",
            "tuples/s",
            {
                "available": Line(*_curve(load, run.first.result), dashed=True),
                "handled": Line(
                    [sample.at_s - PERIOD_S / 2 for sample in run.first.result.samples],
                    [sample.delivered * SCALE for sample in run.first.result.samples],
                ),
            },
        )
        for name, run in runs.items()
    )


def how(curve: str, quick: bool, thresholds: str = "0.2") -> str:
    """Say what was run."""
    return (
        f"simulated: two cycles of the {curve} load, a stateless region, 1000 tuples/s per channel, at most 32 "
        f"channels, periods of 5 s, congestion threshold {thresholds}; {len(seeds_of(quick))} seeds: means, but the "
        "worst of them for levels too many and missing; pictures show the first; tuples come at random and vary in "
        "cost, and queues hold 4: chosen after a first run, without noise, in which a threshold of 0 did no harm"
    )


def _curve(load: Curve, result: Result) -> tuple[list[float], list[float]]:
    seconds = [sample.at_s for sample in result.samples]
    return seconds, [load(max(0.0, at - PERIOD_S / 2)) * SCALE for at in seconds]


def table(runs: dict[str, Several]) -> Table:
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
                min(one.least for one in run.runs),
                max(one.most for one in run.runs),
                f"{fmean(len(one.result.migrations) for one in run.runs):.0f}",
            )
            for name, run in runs.items()
        ],
    )


def channels_figure(load: str, quick: bool) -> Reproduction:
    """How many channels both controllers give a load that changes."""
    runs = {policy: several(load, policy, quick) for policy in POLICIES}
    statements = []
    for name, one in runs.items():
        statements += [
            at_least(
                f"channels follow the load ({name}): correlation, two periods later",
                0.8,
                one.correlation,
                ours=name == "ours",
            ),
            at_most(
                f"no overshoot ({name}): levels above what the highest load of the last 20 periods needs",
                2,
                one.overshoot,
                because="tuples vary in cost and queues are short, so a channel more than the mean load needs pays",
                ours=name == "ours",
            ),
        ]
    return Reproduction(
        f"number of channels under a {load} load",
        how(load, quick),
        tuple(statements),
        (table(runs),),
        channel_panels(load, runs),
    )


def handled_figure(load: str, title: str, quick: bool) -> Reproduction:
    """The load that both controllers handle, beside what is there to be handled."""
    runs = {policy: several(load, policy, quick) for policy in POLICIES}
    statements = [
        at_least(
            f"most of the time all of the available load is handled ({name}): share of periods",
            0.5,
            one.full,
            ours=name == "ours",
        )
        for name, one in runs.items()
    ]
    ours, paper = runs["ours"], runs["paper"]
    statements.append(
        surpasses(
            "some load is not handled at start-up and during adaptation (handled otherwise: ours, against the paper's "
            "controller here)",
            ours.handled >= paper.handled and ours.handled >= 0.95,
            f"{ours.handled:.1%}",
            paper=f"{paper.handled:.1%} (here)",
        )
    )
    return Reproduction(
        title,
        how(load, quick),
        tuple(statements),
        (table(runs),),
        handled_panels(load, runs),
    )


def figure_13(quick: bool) -> Reproduction:
    """*Elastic*, Figure 13: number of channels under a sine load."""
    return channels_figure("sine", quick)


def figure_14(quick: bool) -> Reproduction:
    """*Elastic*, Figure 14: handled and available load, sine."""
    return handled_figure("sine", "handled and available load, sine", quick)


def figure_15(quick: bool) -> Reproduction:
    """*Elastic*, Figure 15: number of channels under a step load."""
    return channels_figure("step", quick)


def figure_16(quick: bool) -> Reproduction:
    """*Elastic*, Figure 16: handled and available load, steps."""
    return handled_figure("step", "handled and available load, steps", quick)


def figure_17(quick: bool) -> Reproduction:
    """*Elastic*, Figure 17: a congestion threshold of 0, which takes noise for congestion."""
    runs = {policy: several("sine", policy, quick, 0.0) for policy in POLICIES}
    usual = {policy: several("sine", policy, quick) for policy in POLICIES}
    paper, ours = runs["paper"], runs["ours"]
    least_needed = 3
    statements = (
        at_least("paper's controller: the load is handled: share", 0.95, paper.handled),
        at_least(
            "paper's controller: it overshoots, with every seed: levels above what is needed",
            2,
            min(run.overshoot for run in paper.runs),
        ),
        at_least(
            "paper's controller: it keeps more channels than with a proper threshold: ratio of the means",
            1.2,
            paper.mean_channels / usual["paper"].mean_channels,
        ),
        holds(
            "paper's controller: it never reduces the number of channels",
            all(run.least >= run.most for run in paper.runs),
            f"between {min(run.least for run in paper.runs)} and {max(run.most for run in paper.runs)}, where "
            f"{least_needed} would do at the lowest load",
            because="in the trough of the sine some periods have no blocked send at all, and a congestion of exactly 0 "
            "is not above 0; it then steps down, and up again at the next blocked send",
        ),
        surpasses(
            "0 is too low a threshold (ours: it works all the same, overshoot in levels)",
            ours.overshoot <= 2 and ours.handled >= 0.95,
            f"{ours.overshoot}, {ours.handled:.1%} handled",
            paper="overshoots",
        ),
    )
    return Reproduction(
        "adaptation with a congestion threshold of 0",
        how("sine", quick, "0"),
        statements,
        (table(runs),),
        (*channel_panels("sine", runs), *handled_panels("sine", {"paper, handled": paper})),
    )


THRESHOLDS = (0.01, 0.1, 0.3)
HANDLED_SHARE = 0.9


def any_threshold(quick: bool) -> list[Statement]:
    """Appendix B.3: any threshold between 0.01 and 0.3 does; means over seeds, the worst threshold counts."""
    found = []
    for policy in POLICIES:
        runs = {t: several("sine", policy, quick, t, 1.0) for t in THRESHOLDS}
        handled = {t: some.handled for t, some in runs.items()}
        overshoot = {t: some.overshoot for t, some in runs.items()}
        shown = ", ".join(f"{t:g}: {handled[t]:.1%}, {overshoot[t]} levels too many" for t in THRESHOLDS)
        found.append(
            compares(
                f"B.3: a threshold anywhere in 0.01 … 0.3 works ({policy}): at least {HANDLED_SHARE:.0%} handled, mean "
                f"over {len(seeds_of(quick))} seeds, and at most 2 levels too many",
                [(handled[t], "≥", HANDLED_SHARE) for t in THRESHOLDS] + [(overshoot[t], "≤", 2) for t in THRESHOLDS],
                shown,
                because="tuples vary in cost and queues are short here, so some sends block without overload: a low "
                "threshold takes that for congestion, and a high one waits until a third of the time is blocked",
                ours=policy == "ours",
            )
        )
    return found


def figure_18(quick: bool) -> Reproduction:
    """*Elastic*, Figure 18: a congestion threshold of 0.9, which takes congestion for noise."""
    runs = {policy: several("sine", policy, quick, 0.9) for policy in POLICIES}
    paper, ours = runs["paper"], runs["ours"]
    statements = (
        at_least(
            "paper's controller: channels do not reach the required level, with any seed: levels missing",
            1,
            min(run.undershoot for run in paper.runs),
        ),
        at_most("paper's controller: the load is often not handled: share handled", 0.9, paper.handled),
        surpasses(
            "0.9 is too high a threshold (ours: a threshold only delays, because congestion adds up)",
            ours.handled >= 0.9,
            f"{ours.handled:.1%} handled",
            paper=f"{paper.handled:.1%} (here)",
        ),
        *any_threshold(quick),
    )
    return Reproduction(
        "adaptation with a congestion threshold of 0.9, and of anything from 0.01 to 0.3",
        how("sine", quick, "0.9; and one cycle with 0.01, 0.1 and 0.3"),
        statements,
        (table(runs),),
        (*channel_panels("sine", runs), *handled_panels("sine", {"paper, handled": paper})),
    )


FIGURES: Figures = {
    "elastic_figure_13": figure_13,
    "elastic_figure_14": figure_14,
    "elastic_figure_15": figure_15,
    "elastic_figure_16": figure_16,
    "elastic_figure_17": figure_17,
    "elastic_figure_18": figure_18,
}
