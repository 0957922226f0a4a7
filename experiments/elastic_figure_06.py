"""*Elastic*, Figure 6: the Twitter application, fixed and elastic."""

from __future__ import annotations

from experiments._elastic_kernels import reproduction, speeds, statements
from experiments._kernels import twitter
from experiments.reproduction import Reproduction
from experiments.statements import near

FIXED, ELASTIC = 12, 10
"""The paper's best speed-ups."""


def run(quick: bool) -> Reproduction:
    kernel = twitter(FIXED)
    found = speeds(kernel, quick, hosts=4)
    compared = statements(kernel, found, FIXED, ELASTIC)
    channels = found.settled["ours"].channels[0]
    compared.append(near("elastic uses about 22 channels (ours)", 22, channels, within=0.2, better="lower"))
    return reproduction("Twitter", kernel, found, compared)
