"""*Elastic*, Figure 9: speed-up by the cost of a tuple, stateless."""

from __future__ import annotations

from experiments._elastic_micro import scalability
from experiments.reproduction import Reproduction


def run(quick: bool) -> Reproduction:
    return scalability(quick, stateful=False)
