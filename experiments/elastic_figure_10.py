"""*Elastic*, Figure 10: channels by the cost of a tuple, stateless."""

from __future__ import annotations

from experiments._elastic_micro import channels
from experiments.reproduction import Reproduction


def run(quick: bool) -> Reproduction:
    return channels(quick, stateful=False)
