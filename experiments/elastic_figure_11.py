"""*Elastic*, Figure 11: speed-up by the cost of a tuple, partitioned."""

from __future__ import annotations

from experiments._elastic_micro import scalability
from experiments.reproduction import Reproduction


def run(quick: bool) -> Reproduction:
    return scalability(quick, stateful=True)
