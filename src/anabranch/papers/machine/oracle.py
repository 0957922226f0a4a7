"""What one thread would have done: the definition of correct.

A loop and a dict. It knows the programs (operators.py) and the order of the regions, and nothing of
splitters, channels, mergers, partitioning or time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from anabranch.papers.machine.description import WorldDescription
from anabranch.papers.machine.machine_operators import emitter, result_of, step
from anabranch.papers.merging.punctuation import Punctuation


@dataclass(frozen=True)
class Sequential:
    """The outcome of a run on one thread."""

    delivered: list[Any]
    states: list[dict[int, int]]
    """Of every region: key to state; empty for a stateless one."""
    taken: list[int]
    """Tuples that every region took."""


def sequential(description: WorldDescription, stream: Iterable[Any]) -> Sequential:
    """Run a stream of tuples and punctuations through the regions, one tuple at a time."""
    regions = description.regions
    emitters = [emitter(region, description.source.keys) for region in regions]
    states: list[dict[int, int]] = [{} for _ in regions]
    taken = [0] * len(regions)
    delivered: list[Any] = []
    for entering in stream:
        if isinstance(entering, Punctuation):
            delivered.append(entering)
            continue
        values = [entering]
        for number, region in enumerate(regions):
            emitted = []
            for value in values:
                taken[number] += 1
                state = 0
                if region.key is not None:
                    key = value[1 + region.key]
                    state = states[number][key] = step(states[number].get(key, 0), value[3])
                emitted += emitters[number](value, result_of(value[3], state))
            values = emitted
        delivered += values
    return Sequential(delivered, states, taken)
