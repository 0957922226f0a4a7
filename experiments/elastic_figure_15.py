"""*Elastic*, Figure 15: number of channels under a step load."""

from __future__ import annotations

from experiments._elastic import POLICIES
from experiments._elastic_load import channel_panels, followed, how, table
from experiments.reproduction import Reproduction
from experiments.statements import at_least, at_most


def run(quick: bool) -> Reproduction:
    runs = {policy: followed("step", policy, cycles=1.0 if quick else 2.0) for policy in POLICIES}
    statements = []
    for name, one in runs.items():
        statements += [
            at_least(f"channels follow the load ({name}): correlation, two periods later", 0.8, one.correlation),
            at_most(
                f"no overshoot ({name}): levels above what the highest load of the last 20 periods needs",
                2,
                one.overshoot,
                because="tuples vary in cost and queues are short, so a channel more than the mean load needs pays",
            ),
        ]
    return Reproduction(
        "number of channels under a step load",
        how("step"),
        tuple(statements),
        (table(runs),),
        channel_panels("step", runs),
    )
