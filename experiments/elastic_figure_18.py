"""*Elastic*, Figure 18: a congestion threshold of 0.9, which takes congestion for noise."""

from __future__ import annotations

from experiments._elastic import POLICIES
from experiments._elastic_load import channel_panels, followed, handled_panels, how, table
from experiments.reproduction import Reproduction
from experiments.statements import at_least, at_most, surpasses


def run(quick: bool) -> Reproduction:
    runs = {policy: followed("sine", policy, 0.9, 1.0 if quick else 2.0) for policy in POLICIES}
    paper, ours = runs["paper"], runs["ours"]
    statements = (
        at_least("paper's controller: channels do not reach the required level: levels missing", 1, paper.undershoot),
        at_most("paper's controller: the load is often not handled: share handled", 0.9, paper.handled),
        surpasses(
            "0.9 is too high a threshold (ours: a threshold only delays, because congestion adds up)",
            ours.handled >= 0.9,
            f"{ours.handled:.1%} handled",
            paper=f"{paper.handled:.1%} (here)",
        ),
    )
    return Reproduction(
        "adaptation with a congestion threshold of 0.9",
        how("sine", "0.9"),
        statements,
        (table(runs),),
        (*channel_panels("sine", runs), *handled_panels("sine", {"paper, handled": paper})),
    )
