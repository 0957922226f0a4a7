"""*Elastic*, Figure 5: the Finance application, fixed and elastic."""

from __future__ import annotations

from experiments._elastic_kernels import reproduction, speeds, statements
from experiments._kernels import finance
from experiments.reproduction import Reproduction
from experiments.statements import holds

FIXED, ELASTIC = 3.1, 3.6
"""The paper's best speed-ups."""


def run(quick: bool) -> Reproduction:
    kernel = finance(FIXED)
    found = speeds(kernel, quick, hosts=4)
    compared = statements(kernel, found, FIXED, ELASTIC)
    bargains = found.settled["ours"].channels[-1]
    compared.append(
        holds("one of the parallel regions is not profitable (Bargains; ours)", bargains < 2, f"{bargains:.1f}")
    )
    return reproduction("Finance", kernel, found, compared)
