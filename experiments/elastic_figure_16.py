"""*Elastic*, Figure 16: handled and available load, steps."""

from __future__ import annotations

from experiments._elastic_handled import handled_figure
from experiments.reproduction import Reproduction


def run(quick: bool) -> Reproduction:
    return handled_figure("step", "handled and available load, steps", quick)
