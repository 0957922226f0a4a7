"""*Safe*, Figure 11: what punctuations cost, by how many there are."""

from __future__ import annotations

from experiments._streams import region, throughput, work
from experiments.reproduction import Line, Panel, Reproduction, Table
from experiments.statements import at_least, holds

CHANNELS = 32


def run(quick: bool) -> Reproduction:
    every = (1, 16, 256) if quick else (1, 2, 4, 8, 16, 32, 64, 128, 256)
    works = (1e2, 1e5) if quick else (1, 1e2, 1e4, 1e5, 1e6)
    found = {}
    plain = {}
    for multiplications in works:
        # A sequential program has punctuations as well.
        cost_s = work(multiplications)
        found[multiplications] = []
        for window in every:
            tuples = 2000 if window < 8 else 8000
            alone = throughput(region(cost_s, 1), window_every=window, tuples=2000)
            wide = throughput(region(cost_s, CHANNELS), window_every=window, tuples=tuples)
            found[multiplications].append(wide / alone)
        plain[multiplications] = throughput(region(cost_s, CHANNELS)) / throughput(region(cost_s, 1))
    cheap, dear = works[0], works[-1]
    statements = (
        holds(
            "with a punctuation per tuple there is nothing to gain, only overhead (speed-up below 1)",
            found[cheap][0] < 1,
            f"{found[cheap][0]:.2f}",
        ),
        holds(
            "but for the largest work, where their cost is negligible",
            found[dear][0] > 1,
            f"{found[dear][0]:.2f}",
        ),
        holds(
            "fewer punctuations, more speed-up",
            all(found[w][0] < found[w][-1] for w in works),
            ", ".join(f"{w:g}: {found[w][0]:.2f} → {found[w][-1]:.2f}" for w in works),
        ),
        at_least(
            "with few of them performance approaches that of the stateless benchmark: least share at 1 per 256",
            0.85,
            min(found[w][-1] / plain[w] for w in works),
            because="at 1 per 256 tuples the 32 copies of each still add an eighth to the cheapest stream's items",
        ),
    )
    return Reproduction(
        "punctuation overhead",
        f"simulated: stateless region, {CHANNELS} channels on 4 hosts; every punctuation goes to all channels",
        statements,
        (
            Table.of(
                "speed-up over one channel with the same punctuations",
                ("tuples per punctuation", *(f"{w:g} multiplications" for w in works)),
                [(n, *(found[w][i] for w in works)) for i, n in enumerate(every)],
            ),
        ),
        (
            Panel(
                "punctuations",
                "tuples per punctuation",
                "speed-up",
                {f"{w:g}": Line(every, found[w]) for w in works},
                x_log=True,
                y_log=True,
                level=1.0,
            ),
        ),
    )
