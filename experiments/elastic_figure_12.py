"""*Elastic*, Figure 12: channels by the cost of a tuple, partitioned."""

from __future__ import annotations

from experiments._elastic_micro import channels
from experiments.reproduction import Reproduction


def run(quick: bool) -> Reproduction:
    return channels(quick, stateful=True)
