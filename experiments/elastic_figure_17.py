"""*Elastic*, Figure 17: a congestion threshold of 0, which takes noise for congestion."""

from __future__ import annotations

from experiments._elastic import POLICIES
from experiments._elastic_load import channel_panels, followed, handled_panels, how, table
from experiments.reproduction import Reproduction
from experiments.statements import at_least, holds, surpasses


def run(quick: bool) -> Reproduction:
    cycles = 1.0 if quick else 2.0
    runs = {policy: followed("sine", policy, 0.0, cycles) for policy in POLICIES}
    usual = {policy: followed("sine", policy, cycles=cycles) for policy in POLICIES}
    paper, ours = runs["paper"], runs["ours"]
    least_needed = 3
    statements = (
        at_least("paper's controller: the load is handled: share", 0.95, paper.handled),
        at_least("paper's controller: it overshoots: levels above what is needed", 2, paper.overshoot),
        at_least(
            "paper's controller: it keeps more channels than with a proper threshold: ratio of the means",
            1.2,
            paper.mean_channels / usual["paper"].mean_channels,
        ),
        holds(
            "paper's controller: it never reduces the number of channels",
            paper.least >= paper.most,
            f"between {paper.least} and {paper.most}, where {least_needed} would do at the lowest load",
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
        how("sine", "0"),
        statements,
        (table(runs),),
        (*channel_panels("sine", runs), *handled_panels("sine", {"paper, handled": paper})),
    )
