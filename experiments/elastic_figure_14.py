"""*Elastic*, Figure 14: handled and available load, sine."""

from __future__ import annotations

from experiments._elastic_handled import handled_figure
from experiments.reproduction import Reproduction


def run(quick: bool) -> Reproduction:
    return handled_figure("sine", "handled and available load, sine", quick)
