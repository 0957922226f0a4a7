"""*Elastic*, Figures 14 and 16: how much of a changing load is handled."""

from __future__ import annotations

from experiments._elastic import POLICIES
from experiments._elastic_load import followed, handled_panels, how, table
from experiments.reproduction import Reproduction
from experiments.statements import at_least, surpasses


def handled_figure(load: str, title: str, quick: bool) -> Reproduction:
    """The load that both controllers handle, beside what is there to be handled."""
    runs = {policy: followed(load, policy, cycles=1.0 if quick else 2.0) for policy in POLICIES}
    statements = [
        at_least(
            f"most of the time all of the available load is handled ({name}): share of periods",
            0.5,
            one.full,
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
        how(load),
        tuple(statements),
        (table(runs),),
        handled_panels(load, runs),
    )
