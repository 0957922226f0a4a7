"""Figures of *Safe* and *Elastic* measured on Spark, beside the simulated ones: `python -m experiments --spark`.

What the papers say is judged here too, on the paper's controller where there is one; ours beside it. The machine is
another (an epoch has a fixed cost, operators sleep), so statements that hang on 32 cores are not asked.
"""

from __future__ import annotations

import itertools
import statistics
from functools import cache

from anabranch.control.levels import level_of
from anabranch.sim.load import Curve, Sine, Steps
from benchmarks import migration
from experiments.on_spark import (
    COUNTS,
    KERNELS,
    POLICIES,
    Followed,
    Speeds,
    compare,
    costs,
    follow,
    kernel,
    region,
    room,
)
from experiments.reproduction import Figures, Line, Panel, Reproduction, Table
from experiments.statements import Statement, at_least, compares, holds, near

HOW = (
    "measured on Spark, local with 12 slots on two cores, operators that sleep; whole epochs, Spark's fixed cost "
    "included; medians of epochs in turn within one query"
)
EPOCH_S = 5.0
"""Work of an epoch for one channel: fixed costs of half a second are then half of the time with 8 channels."""


# -- Safe -------------------------------------------------------------------------------------------------------------

TABLE_2 = ("Network monitoring", "PageRank", "Twitter NLP", "Twitter CEP", "Finance")


def table_02(quick: bool) -> Reproduction:
    """*Safe*, Table 2, on Spark: what a tuple takes in the parallel operators of the kernels, as they are."""
    found: dict[str, dict[str, float]] = {}
    with room() as (session, root):
        for name in TABLE_2:
            found[name] = costs(KERNELS[name], session, root, 0.2 if quick else 5.0)
            print(f"    {name}: {found[name]}", flush=True)
    cep, finance = found["Twitter CEP"], found["Finance"]
    dearest = {name: max(each.values()) for name, each in found.items()}
    statements = (
        compares(
            "PageRank's tuples, blocks of a matrix, take longest of all",
            [(dearest["PageRank"], ">", dearest[name]) for name in TABLE_2 if name != "PageRank"],
            ", ".join(f"{name} {value:,.1f} µs" for name, value in dearest.items()),
        ),
        compares(
            "Twitter CEP: matching takes longer than parsing (25 ×)",
            [(cep["match"], ">", cep["spread"])],
            f"match {cep['match']:.1f} µs, parse {cep['spread']:.1f} µs",
            because="the paper's tweets make nearly every tuple a partial match; generated ones do not",
        ),
        compares(
            "Finance: what is done per symbol costs more than what is done per line",
            [(finance["bargains"], ">", min(finance["spread"], finance["spread-2"]))],
            ", ".join(f"{name} {value:.1f} µs" for name, value in finance.items()),
            because="the paper's Vwap and Bargains are one operator here, a sum over 20 trades",
        ),
    )
    rows = [(name, region_name, f"{value:.1f}") for name, each in found.items() for region_name, value in each.items()]
    return Reproduction(
        "average processing time per tuple",
        "measured on Spark: the kernels of `examples/` as they are, in Python, one channel a region; busy time of a "
        "region over its tuples, median of epochs. What has no state has channels of its own (`spread`)",
        statements,
        (Table.of("µs per tuple", ("kernel", "region", "µs"), rows),),
    )


def figure_13(quick: bool) -> Reproduction:
    """*Safe*, Figure 13, on Spark: the kernels with the same number of channels in all regions."""
    found = {name: kernel_speeds(name, quick, controlled=False).fixed() for name in TABLE_2}
    least = {name: min(speed / n for n, speed in found[name].items()) for name in TABLE_2}
    others = [name for name in TABLE_2 if name != "Finance"]
    statements = (
        at_least(
            "near-perfect scaling up to 8 channels for all but Finance: least share of linear",
            0.8,
            min(least[name] for name in others),
            because="an epoch's fixed cost does not shrink with the channels; the shares are "
            + ", ".join(f"{name} {least[name]:.2f}" for name in others),
        ),
        holds(
            "every kernel is faster with every doubling up to 8 channels",
            all(found[name][a] < found[name][b] for name in others for a, b in itertools.pairwise(COUNTS)),
            ", ".join(f"{name} {found[name][COUNTS[-1]]:.1f}" for name in others) + " at 8",
        ),
    )
    return Reproduction(
        "performance of the application kernels",
        f"{HOW}. The kernels of `examples/` themselves; operators of Table 2 also sleep as long as the table says, "
        "times a scale that makes sleeping exact. The table has no time for Finance's Combine, which ends its scaling "
        "in the paper: it costs here what our code costs",
        statements,
        (_speed_table(found),),
        (_speed_panel(found),),
    )


def _speed_table(found: dict[str, dict[int, float]]) -> Table:
    rows = [(n, *(speeds[n] for speeds in found.values())) for n in COUNTS]
    return Table.of("speed-up over one channel per region", ("channels", *found), rows)


def _speed_panel(found: dict[str, dict[int, float]]) -> Panel:
    lines = {name: Line(list(speeds), list(speeds.values())) for name, speeds in found.items()}
    return Panel("on Spark", "channels", "speed-up", {"linear": Line(COUNTS, COUNTS, dashed=True), **lines})


# -- Elastic, Figures 5 to 8 ------------------------------------------------------------------------------------------

PAPER = {"Finance": (3.1, 3.6), "Twitter NLP": (12.0, 10.0), "PageRank": (6.5, 5.0), "Network": (3.8, 2.8)}
"""Best fixed, elastic."""


@cache
def kernel_speeds(name: str, quick: bool, controlled: bool) -> Speeds:
    """A kernel with fixed numbers of channels, and, if asked, with both controllers."""
    with room() as (session, root):
        case = kernel(session, root, KERNELS[name], 60, 0.05 if quick else 0.7)
        return compare(case, root, quick, POLICIES if controlled else {})


def _kernel(name: str, quick: bool, title: str) -> Reproduction:
    found = kernel_speeds(name, quick, controlled=True)
    fixed, elastic = PAPER[name]
    shares = {policy: found.share(policy) for policy in POLICIES}
    statements: list[Statement] = [
        near(
            f"elastic ÷ best fixed: {elastic:g} / {fixed:g} (the paper's controller)",
            elastic / fixed,
            shares["paper"],
            better="higher",
        ),
        at_least("elastic ÷ best fixed, ours", 0.9, shares["ours"], ours=True),
    ]
    if name == "Network":
        ways = found.ways["ours"]
        statements.append(
            holds(
                "the region that parses lines gets more channels than that of the logins (ours)",
                ways["spread"][-1] > ways["suspects"][-1],
                f"{ways['spread'][-1]} and {ways['suspects'][-1]}",
                ours=True,
            )
        )
    rows = [(f"fixed, {n}", value, str(n)) for n, value in found.fixed().items()]
    rows += [
        (f"elastic, {policy}", found.elastic(policy), "+".join(map(str, found.rests[policy]))) for policy in POLICIES
    ]
    ways_lines = {
        f"{region_name}, {policy}": Line(list(range(len(way))), way, stepped=True, dashed=policy == "paper")
        for policy, regions in found.ways.items()
        for region_name, way in regions.items()
    }
    return Reproduction(
        f"performance of the {title} application",
        f"{HOW}. Sleeps as in Table 2 of *Safe*, scaled; adaptation periods of two epochs, from one channel on, until "
        "nothing has changed for three periods, at most 10",
        tuple(statements),
        (Table.of("speed-up over one channel per region", ("", "speed-up", "channels"), rows),),
        (
            _speed_panel({name: found.fixed()}),
            Panel("channels found", "adaptation period", "channels", ways_lines),
        ),
    )


def figure_05(quick: bool) -> Reproduction:
    """*Elastic*, Figure 5, on Spark: the Finance application, fixed and elastic."""
    return _kernel("Finance", quick, "Finance")


def figure_06(quick: bool) -> Reproduction:
    """*Elastic*, Figure 6, on Spark: the Twitter application, fixed and elastic."""
    return _kernel("Twitter NLP", quick, "Twitter")


def figure_07(quick: bool) -> Reproduction:
    """*Elastic*, Figure 7, on Spark: the PageRank application, fixed and elastic."""
    return _kernel("PageRank", quick, "PageRank")


def figure_08(quick: bool) -> Reproduction:
    """*Elastic*, Figure 8, on Spark: the Network Monitoring application, fixed and elastic."""
    return _kernel("Network", quick, "Network Monitoring")


# -- Elastic, Figures 9 to 12 -----------------------------------------------------------------------------------------


@cache
def region_speeds(kind: str, quick: bool) -> dict[float, Speeds]:
    """Speeds by the cost of a tuple."""
    with room() as (session, root):
        return {
            cost_s: compare(region(session, root, kind, cost_s, 0.4 if quick else EPOCH_S, 60), root, quick)
            for cost_s in ((2e-4, 5e-3) if quick else (2e-4, 1e-3, 5e-3))
        }


def _micro_speed(kind: str, quick: bool) -> Reproduction:
    found = region_speeds(kind, quick)
    dear, cheap = found[max(found)], found[min(found)]
    statements = [
        at_least(
            f"elastic close to the best fixed number for high costs ({policy}): share of it",
            0.9,
            dear.share(policy),
            ours=policy == "ours",
        )
        for policy in POLICIES
    ]
    statements += [
        at_least("linear for high costs: speed-up of 8 channels", 7.2, dear.fixed()[8], because="of fixed costs"),
        compares(
            "less to gain where a tuple costs little: best speed-up",
            [(max(cheap.fixed().values()), "<", max(dear.fixed().values()))],
            f"{max(cheap.fixed().values()):.1f} and {max(dear.fixed().values()):.1f}",
        ),
    ]
    by_cost = {f"{cost_s * 1e3:g} ms": speeds.fixed() for cost_s, speeds in found.items()}
    rows = [
        (f"{cost_s * 1e3:g} ms", *speeds.fixed().values(), *(speeds.elastic(policy) for policy in POLICIES))
        for cost_s, speeds in found.items()
    ]
    head = ("work per tuple", *(f"{n}" for n in COUNTS), *(f"elastic, {policy}" for policy in POLICIES))
    return Reproduction(
        f"speed-up with increasing tuple cost, {kind}",
        f"{HOW}. One region, {kind}; speed-up over one channel",
        tuple(statements),
        (Table.of("speed-up", head, rows),),
        (_speed_panel(by_cost),),
    )


def _micro_channels(kind: str, quick: bool) -> Reproduction:
    found = region_speeds(kind, quick)
    most, least = found[max(found)].rests, found[min(found)].rests
    statements = [
        holds(
            f"more channels for higher costs ({policy})",
            most[policy] > least[policy],
            f"{least[policy][0]} and {most[policy][0]}",
            ours=policy == "ours",
        )
        for policy in POLICIES
    ]
    rows = [
        (f"{cost_s * 1e3:g} ms", *(speeds.rests[policy][0] for policy in POLICIES)) for cost_s, speeds in found.items()
    ]
    return Reproduction(
        f"number of channels with increasing tuple cost, {kind}",
        f"{HOW}. Where the runs of the figure before came to rest",
        tuple(statements),
        (Table.of("channels", ("work per tuple", *POLICIES), rows),),
    )


def figure_09(quick: bool) -> Reproduction:
    """*Elastic*, Figure 9, on Spark: speed-up by cost per tuple, stateless."""
    return _micro_speed("stateless", quick)


def figure_10(quick: bool) -> Reproduction:
    """*Elastic*, Figure 10, on Spark: channels by cost per tuple, stateless."""
    return _micro_channels("stateless", quick)


def figure_11(quick: bool) -> Reproduction:
    """*Elastic*, Figure 11, on Spark: speed-up by cost per tuple, stateful."""
    return _micro_speed("stateful", quick)


def figure_12(quick: bool) -> Reproduction:
    """*Elastic*, Figure 12, on Spark: channels by cost per tuple, stateful."""
    return _micro_channels("stateful", quick)


# -- Elastic, Figures 13 to 16 ----------------------------------------------------------------------------------------

COST_S = 0.02
RATE = 1 / COST_S
MOST = 12
CURVES: dict[str, Curve] = {
    "sine": Sine(5 * RATE, 2.5 * RATE, 100.0),
    "step": Steps((5 * RATE, 10 * RATE, 2 * RATE), (50.0, 20.0, 30.0)),
}
SECONDS = 110.0
GRACE_S = 12.0


@cache
def followed(curve: str, policy: str, quick: bool) -> Followed:
    with room() as (session, root):
        return follow(session, root, CURVES[curve], policy, cost_s=COST_S, seconds=6.0 if quick else SECONDS, most=MOST)


def handled(run: Followed) -> float:
    """Tuples handled over tuples that came, once the controller has had time; what waits is handled later."""
    since = [i for i, at in enumerate(run.at_s) if at > min(GRACE_S, run.at_s[-1] / 2)]
    spans = [run.at_s[i] - run.at_s[i - 1] if i else run.at_s[0] for i in since]
    came = sum(run.load[i] * span for i, span in zip(since, spans, strict=True))
    return min(1.0, sum(run.delivered[i] * span for i, span in zip(since, spans, strict=True)) / came)


def _channels_follow(curve: str, quick: bool) -> Reproduction:
    runs = {policy: followed(curve, policy, quick) for policy in POLICIES}
    statements = []
    for policy, run in runs.items():
        mine = policy == "ours"
        early = [n for n, load in zip(run.channels, run.load, strict=True) if load <= statistics.median(run.load)]
        late = [n for n, load in zip(run.channels, run.load, strict=True) if load > statistics.median(run.load)]
        most = max(level_of(max(1, round(load / RATE + 0.499))) for load in run.load)
        statements += [
            compares(
                f"the number of channels follows the load ({policy}): mean at high and at low load",
                [(statistics.fmean(late or [0]), ">", statistics.fmean(early or [0]))],
                f"{statistics.fmean(late or [0]):.1f} and {statistics.fmean(early or [0]):.1f}",
                because="the curve takes a fifth of the paper's time, a period of two epochs half of the paper's 5 s: "
                "channels are there when the load they were for has gone",
                ours=mine,
            ),
            holds(
                f"no overshoot: at most two levels above what the highest load needs ({policy})",
                level_of(max(run.channels)) <= most + 2,
                f"{max(run.channels)} channels for at most {max(run.load) / RATE:.1f}",
                ours=mine,
            ),
        ]
    return Reproduction(
        f"number of channels under a {curve} load",
        _load_how(),
        tuple(statements),
        (),
        tuple(_load_panel(policy, run, "channels") for policy, run in runs.items()),
    )


def _load_how() -> str:
    return (
        f"measured on Spark, local with 12 slots on two cores, a stateful operator that sleeps {COST_S * 1e3:g} ms a "
        f"tuple; the paper's load curve with loads a twentieth and times a fifth, {SECONDS:g} s; epochs of at least a "
        "second, adaptation periods of two. Tuples that are not handled wait in files, the paper's are held back"
    )


def _load_handled(curve: str, quick: bool) -> Reproduction:
    runs = {policy: followed(curve, policy, quick) for policy in POLICIES}
    statements = [
        at_least(
            f"handled of what was available, from the {GRACE_S:g}th second on ({policy})",
            0.95,
            handled(run),
            ours=policy == "ours",
        )
        for policy, run in runs.items()
    ]
    return Reproduction(
        f"handled and available load, {curve}",
        _load_how(),
        tuple(statements),
        (),
        tuple(_load_panel(policy, run, "handled") for policy, run in runs.items()),
    )


def _load_panel(policy: str, run: Followed, what: str) -> Panel:
    lines = {"available": Line(run.at_s, run.load)}
    if what == "channels":
        lines["channels"] = Line(run.at_s, run.channels, stepped=True, right=True)
        return Panel(policy, "seconds", "tuples/s", lines, y_right="channels")
    return Panel(policy, "seconds", "tuples/s", {**lines, "handled": Line(run.at_s, run.delivered)})


def figure_13_elastic(quick: bool) -> Reproduction:
    """*Elastic*, Figure 13, on Spark: channels under a sine load."""
    return _channels_follow("sine", quick)


def figure_14(quick: bool) -> Reproduction:
    """*Elastic*, Figure 14, on Spark: handled and available load, sine."""
    return _load_handled("sine", quick)


def figure_15(quick: bool) -> Reproduction:
    """*Elastic*, Figure 15, on Spark: channels under a step load."""
    return _channels_follow("step", quick)


def figure_16(quick: bool) -> Reproduction:
    """*Elastic*, Figure 16, on Spark: handled and available load, steps."""
    return _load_handled("step", quick)


# -- Elastic, Figure 19 -----------------------------------------------------------------------------------------------


def figure_19(quick: bool) -> Reproduction:
    """*Elastic*, Figure 19, on Spark: how long a migration takes, by number of channels and of keys."""
    keys = (1000, 5000) if quick else (20_000, 200_000, 1_000_000)
    steps = (3, 4) if quick else (3, 4, 8, 9)
    rounds = migration.Rounds(steps=steps, ordinary=2 if quick else 5, after=1)
    found: dict[int, list[migration.Rescaling]] = {}
    with room() as (session, root):
        migration.seed_ours(session, root)
        # The first time that so many channels run Spark starts Python workers for them: that is no migration.
        list(migration.rescale_ours(session, root, keys[0] // 10, rounds))
        for count in keys:
            found[count] = list(migration.rescale_ours(session, root, count, rounds))
            migration.show("ours", count, found[count])
    mean = {count: statistics.fmean(each.pause_s for each in found[count]) for count in keys}
    one_more = [[each for each in found[count] if each.after == each.before + 1] for count in keys]
    statements = (
        compares(
            "migration time grows with the number of keys",
            [(mean[keys[0]], "<", mean[keys[-1]])],
            ", ".join(f"{count:,}: {mean[count] * 1e3:.0f} ms" for count in keys),
            because="nothing is copied when keys change their channel: new owners read the segments that are there",
        ),
        compares(
            "it decreases with the number of channels (one channel more, most keys)",
            [(one_more[-1][0].pause_s, ">", one_more[-1][-1].pause_s)],
            ", ".join(f"{each.before} → {each.after}: {each.pause_s * 1e3:.0f} ms" for each in one_more[-1]),
            because="nothing is copied: what a rescaling costs is finding the rows of other owners' segments",
        ),
        holds(
            "most data can remain where it was: keys moved over the fewest that must (ours, within 10 %)",
            all(each.moved is not None and each.moved < 1.1 for some in one_more for each in some),
            ", ".join(f"{each.moved:.2f}" for each in one_more[-1]),
            ours=True,
        ),
    )
    rows = [
        (f"{each.before} → {each.after}", *(f"{found[count][i].pause_s * 1e3:.0f}" for count in keys))
        for i, each in enumerate(found[keys[0]])
    ]
    return Reproduction(
        "migration cost",
        "measured on Spark: what a rescaling adds to two epochs (see `benchmarks migration`), a count and a sum per "
        "key; 2,000 tuples an epoch",
        statements,
        (Table.of("added milliseconds", ("channels", *(f"{count:,} keys" for count in keys)), rows),),
        (
            Panel(
                "migration",
                "keys",
                "seconds added",
                {
                    f"{each.before} → {each.after}": Line(keys, [found[count][i].pause_s for count in keys])
                    for i, each in enumerate(found[keys[0]])
                },
                x_log=True,
            ),
        ),
    )


FIGURES: Figures = {
    "safe_table_02_spark": table_02,
    "safe_figure_13_spark": figure_13,
    "elastic_figure_05_spark": figure_05,
    "elastic_figure_06_spark": figure_06,
    "elastic_figure_07_spark": figure_07,
    "elastic_figure_08_spark": figure_08,
    "elastic_figure_09_spark": figure_09,
    "elastic_figure_10_spark": figure_10,
    "elastic_figure_11_spark": figure_11,
    "elastic_figure_12_spark": figure_12,
    "elastic_figure_13_spark": figure_13_elastic,
    "elastic_figure_14_spark": figure_14,
    "elastic_figure_15_spark": figure_15,
    "elastic_figure_16_spark": figure_16,
    "elastic_figure_19_spark": figure_19,
}
