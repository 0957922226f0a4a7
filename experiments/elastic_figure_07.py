"""*Elastic*, Figure 7: the PageRank application, fixed and elastic."""

from __future__ import annotations

from experiments._elastic_kernels import reproduction, speeds, statements
from experiments._kernels import page_rank
from experiments.reproduction import Reproduction

FIXED, ELASTIC = 6.5, 5
"""The paper's best speed-ups."""


def run(quick: bool) -> Reproduction:
    kernel = page_rank(FIXED)
    found = speeds(kernel, quick, hosts=8)
    compared = statements(kernel, found, FIXED, ELASTIC)
    return reproduction("PageRank", kernel, found, compared)
