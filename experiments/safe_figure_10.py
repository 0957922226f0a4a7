"""*Safe*, Figure 10: a hundred channels on 14 machines."""

from __future__ import annotations

from experiments._streams import region, throughput, work
from experiments.reproduction import Line, Panel, Reproduction, Table
from experiments.statements import holds, near

HOSTS = 13
"""Of the 14, one has the source and the sink."""


def run(quick: bool) -> Reproduction:
    works = (1e6,) if quick else (1e3, 1e4, 1e5, 1e6, 1e7)
    per_channel = 300 if quick else 1000
    stateful, shuffle = [], []
    for multiplications in works:
        cost_s = work(multiplications, keyed=True)
        size = per_channel if multiplications >= 1e6 else per_channel // 3
        alone = throughput(region(cost_s, 1, key=0), hosts=HOSTS)
        stateful.append(throughput(region(cost_s, 100, key=0), hosts=HOSTS, tuples=100 * size) / alone)
        pair = throughput(region(cost_s, 1, key=0), region(cost_s, 1, key=1, shuffled=True), hosts=HOSTS)
        both = region(cost_s, 50, key=0), region(cost_s, 50, key=1, shuffled=True)
        shuffle.append(throughput(*both, hosts=HOSTS, tuples=50 * size) / pair)
    statements = (
        near("stateful: near linear, 93 × with 100 channels", 93, max(stateful), better="higher"),
        near("shuffle: 42 × with 50 channels", 42, max(shuffle), better="higher"),
        holds(
            "shuffle cannot scale as high as stateful",
            max(shuffle) < max(stateful),
            f"{max(shuffle):.1f} and {max(stateful):.1f}",
        ),
    )
    return Reproduction(
        "large-scale scalability",
        f"simulated: {HOSTS} hosts for the channels, the network's delay 50 µs, {per_channel} tuples per channel",
        statements,
        (
            Table.of(
                "speed-up",
                ("multiplications", "stateful, 100 channels", "shuffle, 2 × 50 channels"),
                [(f"{w:g}", a, b) for w, a, b in zip(works, stateful, shuffle, strict=True)],
            ),
        ),
        (
            Panel(
                "large scale",
                "multiplications per tuple",
                "speed-up",
                {"stateful, 100 channels": Line(works, stateful), "shuffle, 50 channels": Line(works, shuffle)},
                x_log=True,
            ),
        ),
    )
