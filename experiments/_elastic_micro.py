"""Figures 9 to 12 of *Elastic*: one region, by the cost of a tuple, fixed and elastic."""

from __future__ import annotations

from itertools import pairwise

from experiments._elastic import BOUNDS, POLICIES, micro_elastic, micro_fixed
from experiments.reproduction import Line, Panel, Reproduction, Table
from experiments.statements import Statement, at_least, at_most, holds, surpasses

COUNTS = (1, 2, 4, 8, 16, 32)


def costs(quick: bool) -> tuple[float, ...]:
    """Return the seconds of work per tuple."""
    return (1e-7, 1e-5, 1e-3) if quick else (1e-7, 1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 1e-3)


def how(stateful: bool) -> str:
    keyed = "partitioned by 1000 keys" if stateful else "stateless"
    return (
        f"simulated: one region, {keyed}, 4 hosts; the sequential program is one process that sends nothing; fixed "
        "numbers of channels use a consistent hash, as in the paper. The paper's 21 × for 32 channels is no statement: "
        "how many cores the channels get was set from it"
    )


def scalability(quick: bool, stateful: bool) -> Reproduction:
    """Speed-up by cost per tuple: Figure 9 (stateless) or 11 (stateful)."""
    works = costs(quick)
    counts = (1, 4, 16, 32) if quick else COUNTS
    found = {f"{n}": [micro_fixed(w, n, stateful) for w in works] for n in counts}
    for policy in POLICIES:
        found[f"elastic, {policy}"] = [micro_elastic(w, policy, stateful)[0] for w in works]
    dear = {name: line[-1] for name, line in found.items()}
    cheap = {name: line[0] for name, line in found.items()}
    best = [max(found[f"{n}"][i] for n in counts) for i in range(len(works))]
    shares = {policy: [found[f"elastic, {policy}"][i] / best[i] for i in range(len(works))] for policy in POLICIES}
    statements: list[Statement] = [
        holds(
            "elastic close to the best fixed number for high costs (at least 90 %): paper's controller, ours",
            all(shares[policy][-1] >= 0.9 for policy in POLICIES),
            ", ".join(f"{policy} {shares[policy][-1]:.0%}" for policy in POLICIES),
        ),
    ]
    if not stateful:
        statements += [
            at_least("linear up to 16 channels for high costs: speed-up of 16", 14.4, dear["16"]),
            at_most("low costs: overhead over the sequential case: largest speed-up", 1.0, max(cheap.values())),
            at_least(
                "low costs: elastic has less overhead than 32 channels: speed-up ÷ that of 32 channels (ours)",
                0.99,
                cheap["elastic, ours"] / cheap["32"],
            ),
        ]
    else:
        parallel = [line[i] for name, line in found.items() if name != "1" for i in range(len(works))]
        statements += [
            at_least("more than one channel and elastic: above 1 × for all costs: least", 1.0, min(parallel)),
            at_least(
                "elastic slightly worse than the best fixed number: least share over all costs (ours)",
                0.9,
                min(shares["ours"]),
            ),
            surpasses(
                "elastic is slightly worse than the best fixed number (ours is better for high costs: it also weighs "
                "the keys)",
                shares["ours"][-1] > 1,
                f"{shares['ours'][-1]:.2f} × the best fixed",
                paper="< 1",
            ),
        ]
    return Reproduction(
        f"speed-up with increasing tuple cost, {'stateful' if stateful else 'stateless'}",
        how(stateful),
        tuple(statements),
        (
            Table.of(
                "speed-up over the sequential program",
                ("work per tuple", *found),
                [(f"{w * 1e6:g} µs", *(line[i] for line in found.values())) for i, w in enumerate(works)],
            ),
        ),
        (
            Panel(
                "speed-up",
                "work per tuple, µs",
                "speed-up",
                {name: Line([w * 1e6 for w in works], line) for name, line in found.items()},
                x_log=True,
                y_log=True,
                level=1.0,
            ),
        ),
    )


def channels(quick: bool, stateful: bool) -> Reproduction:
    """Channels by cost per tuple: Figure 10 (stateless) or 12 (stateful)."""
    works = costs(quick)
    found = {policy: [micro_elastic(w, policy, stateful)[1] for w in works] for policy in POLICIES}
    statements: list[Statement] = []
    for policy, line in found.items():
        rising = all(later >= earlier - 1 for earlier, later in pairwise(line))
        statements.append(
            holds(
                f"few channels for low costs, then more, then flat at the most there are ({policy})",
                rising and line[0] <= 6 and line[-1] >= 0.7 * BOUNDS.channels_max,
                " → ".join(f"{value:.0f}" for value in line),
                because="up to 20 channels have a core of their own here, and beyond them the speed-up hardly grows "
                "(the figure before this one): it stops where channels stop paying",
            )
        )
    if stateful:
        lowest = {policy: (line[0], micro_elastic(works[0], policy, False)[1]) for policy, line in found.items()}
        statements.append(
            holds(
                "starts from a higher value than for stateless",
                all(stateful_n >= stateless_n for stateful_n, stateless_n in lowest.values())
                and any(stateful_n > stateless_n for stateful_n, stateless_n in lowest.values()),
                ", ".join(f"{policy} {a:.0f}, stateless {b:.0f}" for policy, (a, b) in lowest.items()),
            )
        )
    return Reproduction(
        f"number of channels with increasing tuple cost, {'stateful' if stateful else 'stateless'}",
        how(stateful),
        tuple(statements),
        (
            Table.of(
                "channels, mean over the last third of the run",
                ("work per tuple", *found),
                [(f"{w * 1e6:g} µs", *(line[i] for line in found.values())) for i, w in enumerate(works)],
            ),
        ),
        (
            Panel(
                "channels",
                "work per tuple, µs",
                "channels",
                {name: Line([w * 1e6 for w in works], line) for name, line in found.items()},
                x_log=True,
            ),
        ),
    )
