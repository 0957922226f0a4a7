"""*Elastic*, Figure 8: the Network Monitoring application, fixed and elastic."""

from __future__ import annotations

from experiments._elastic_kernels import reproduction, speeds, statements
from experiments._kernels import network
from experiments.reproduction import Reproduction
from experiments.statements import holds

FIXED, ELASTIC = 3.8, 2.8
"""The paper's best speed-ups."""


def run(quick: bool) -> Reproduction:
    kernel = network(FIXED)
    found = speeds(kernel, quick, hosts=5)
    compared = statements(kernel, found, FIXED, ELASTIC)
    lines, _, failures, logins = found.settled["ours"].channels
    compared += [
        holds("ParseLines settles on 4–8 channels (ours)", 4 <= lines <= 8, f"{lines:.1f}"),
        holds("ParseFailures on 2–4 (ours)", 2 <= failures <= 4, f"{failures:.1f}"),
        holds("Logins on a single channel (ours)", logins == 1, f"{logins:.1f}"),
    ]
    return reproduction("Network Monitoring", kernel, found, compared)
