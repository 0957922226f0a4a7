"""Watermarks on their way: advances, which travel between tuples as trails with a value.

    piece 1   ── t=10 ── t=25▲20 ── t=24 ──────────▲ its own largest times, in steps of 10
    piece 2   ── t=12▲10 ── t=31▲30 ─────── ...

Whoever has some of a stream's tuples, a piece of a source or a channel, cannot know how far the watermark was before
them. It sends what *its* tuples would make of the watermark with which the epoch began. Every true advance is among
these, and at each of these the watermark is at least that high. So whoever has those of all, in the order of trails,
leaves out what does not rise (`rising`) and has the watermark of one thread at every position, with no pass over the
tuples before. An advance goes to every channel, as a punctuation does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from anabranch.engine.worker.trails import Digits, Trails, joined, order_of
from anabranch.program.event_time import BEGINNING


@dataclasses.dataclass(frozen=True)
class EventTimes:
    """Watermarks as an epoch begins: part of what every task of it is told."""

    values: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Watermark → its value; for operators that wait for the clock, the time of the epoch before."""
    idle: frozenset[str] = frozenset()
    """The watermarks that hold nobody up until they are heard of."""
    ending: bool = False
    """The input has ended: in this epoch all time has come."""
    broadcasts: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    """Operator → its broadcast state; what its keys see is a function of the position, as a watermark is."""

    def value(self, name: str) -> int:
        """The watermark with a name."""
        return self.values.get(name, BEGINNING)


@dataclasses.dataclass(frozen=True)
class Advances:
    """Advances of one watermark: where they stand, and to what."""

    name: str
    trails: Trails
    values: np.ndarray

    def then(self, *digits: int) -> Advances:
        """With more digits, the same for all."""
        more = [np.full(len(self.values), digit, dtype=np.int64) for digit in digits]
        return dataclasses.replace(self, trails=[*self.trails, *more])


def at_the_start(tick: int, ways: Sequence[Digits], wanted: Digits) -> Trails:
    """Where an advance stands that a stream makes when an epoch begins, for whoever it comes to by several ways.

    It goes down the graph depth-first, so of the ways, which are told apart by the forks they took, the first counts.
    """
    starts = []
    for digits in ways:
        forks = [digits[at] if at < len(digits) else 0 for at, want in enumerate(wanted) if want is None]
        starts.append((tick, *(fork or 0 for fork in forks[1:])))
    return [np.full(1, digit) for digit in min(starts)]


def candidates(values: np.ndarray, start: int, heard: bool) -> np.ndarray:
    """Where the watermark rises for whoever has only these tuples: the places, for what each would make of it alone.

    With `heard` the first tuple counts in any case: it says that the stream is not idle.
    """
    highest = np.maximum.accumulate(values)
    before = np.concatenate([[start], np.maximum(highest[:-1], start)])
    rises = highest > before
    if heard and len(rises):
        rises[0] = True
    return np.flatnonzero(rises)


def rising(name: str, parts: Sequence[tuple[Trails, np.ndarray]], start: int, heard: bool) -> Advances:
    """The advances of a watermark, from what everybody sent: in order, without those that do not rise."""
    trails = joined([each for each, _ in parts])
    values = np.concatenate([each for _, each in parts])
    order = order_of(trails)
    values = values[order]
    places = candidates(values, start, heard)
    highest = np.maximum.accumulate(np.maximum(values, start))
    return Advances(name, [digit[order][places] for digit in trails], highest[places])
