"""Earliness from first principles: every small world, every history.

A world is everything that channels will ever deliver. A merger that has seen a history cannot tell the worlds
that begin with it apart, so what it may release is the longest output common to all of them, up to the first
item it has not got. These tests enumerate all worlds of a small size and compare with that, for every
history; no rule about numbers, gaps or duplicates is stated here but the contract of each strategy.

Worlds are a little larger (one more duplicate, one more emission) than the histories compared, so that the
edge of the enumeration proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from anabranch.papers.merging.merger import make_merger
from anabranch.papers.merging.ordering import Numbered, Strategy
from anabranch.papers.merging.punctuation import Punctuation

WINDOW, PULSE = Punctuation.WINDOW, Punctuation.PULSE

World = tuple[tuple[tuple[Any, ...], ...], tuple[Any, ...]]
"""What each channel delivers, and the output."""


def compare_all(strategy: Strategy, worlds: list[World], length_max: int, may_compare: Callable[[Any], bool]) -> int:
    certain: dict[Any, list[Any]] = {}
    for channels, output in worlds:
        for lengths in product(*(range(min(length_max, len(items)) + 1) for items in channels)):
            history = tuple(items[:length] for items, length in zip(channels, lengths, strict=True))
            known = certain.get(history)
            if known is None:
                certain[history] = list(output)
                continue
            common = 0
            for a, b in zip(known, output, strict=False):
                if a != b:
                    break
                common += 1
            del known[common:]
    compared = 0
    for history, common in certain.items():
        items = [item for channel in history for item in channel]
        if not all(may_compare(item) for item in items):
            continue
        here = {named(strategy, channel, i) for channel in history for i in range(len(channel))}
        expected = []
        for value in common:
            if value not in here:
                break
            expected.append(WINDOW if value[0] == "window" else value)
        depth = 1 if strategy is Strategy.INDEXED else 0
        for order in (range(len(history)), reversed(range(len(history)))):
            merger = make_merger(strategy, len(history), depth=depth)
            out = [value for c in order for item in history[c] for value in merger.push(c, item)]
            assert out == expected, history
        compared += 1
    return compared


def named(strategy: Strategy, channel: tuple[Any, ...], i: int) -> Any:
    """An item as worlds name it in their output: a punctuation by its number, else by its rank."""
    item = channel[i]
    if strategy is Strategy.ROUND_ROBIN:
        return ("window", channel[:i].count(WINDOW)) if item is WINDOW else item
    return ("window", item.sequence) if item.value is WINDOW else item.value


def numbered_worlds(channels: int, numbers: int, copies_max: int, *, gaps: bool) -> Iterator[World]:
    fates: list[Any] = [WINDOW, PULSE, *product(range(channels), range(1, copies_max + 1))]
    if gaps:
        fates.append(None)
    for world in product(fates, repeat=numbers):
        lines: list[list[Any]] = [[] for _ in range(channels)]
        output: list[Any] = []
        for number, fate in enumerate(world):
            if isinstance(fate, Punctuation):
                for line in lines:
                    line.append(Numbered(number, fate))
                if fate is WINDOW:
                    output.append(("window", number))
            elif fate is not None:
                channel, copies = fate
                lines[channel] += [Numbered(number, (number, i)) for i in range(copies)]
                output += [(number, i) for i in range(copies)]
        yield tuple(tuple(line) for line in lines), tuple(output)


@pytest.mark.parametrize(
    ("strategy", "channels", "numbers", "copies_max", "histories"),
    [
        (Strategy.SEQUENCE, 2, 4, 1, 1707),
        (Strategy.SEQUENCE, 3, 3, 1, 1518),
        (Strategy.STRICT, 2, 4, 1, 2101),
        (Strategy.STRICT, 3, 3, 1, 1578),
        (Strategy.RELAXED, 2, 3, 3, 747),
        (Strategy.RELAXED, 3, 3, 2, 1578),
    ],
)
def test_numbered_mergers_release_all_that_is_certain(strategy, channels, numbers, copies_max, histories):
    worlds = list(numbered_worlds(channels, numbers, copies_max, gaps=strategy is not Strategy.SEQUENCE))

    def may_compare(item: Numbered) -> bool:
        # A history that shows the last copy a world can have would know that no more follow.
        return isinstance(item.value, Punctuation) or copies_max == 1 or item.value[1] < copies_max - 1

    assert compare_all(strategy, worlds, 4, may_compare) == histories


def indexed_worlds() -> Iterator[World]:
    """Two channels. Number 0 may emit three tuples, each on any channel, once or twice; number 1 two."""
    twice = [None, (0, 1), (1, 1), (0, 2), (1, 2)]
    once = [None, (0, 1), (1, 1)]
    first = [*product((None, WINDOW), product(twice, twice, once)), (PULSE, ())]
    second = [*product((None, WINDOW), product(twice, once)), (PULSE, ())]
    for world in product(first, second):
        lines: list[list[Any]] = [[], []]
        output: list[Any] = []
        for number, (punctuation, emissions) in enumerate(world):
            for index, fate in enumerate(emissions):
                if fate is not None:
                    channel, copies = fate
                    lines[channel] += [Numbered(number, (number, index, i), (index,)) for i in range(copies)]
                    output += [(number, index, i) for i in range(copies)]
            if punctuation is not None:
                for line in lines:
                    line.append(Numbered(number, punctuation))
                if punctuation is WINDOW:
                    output.append(("window", number))
        yield tuple(tuple(line) for line in lines), tuple(output)


def test_the_indexed_merger_releases_all_that_is_certain():
    def may_compare(item: Numbered) -> bool:
        if isinstance(item.value, Punctuation):
            return item.sequence == 0 or item.value is PULSE
        number, index, copy = item.value
        return copy == 0 and index <= (1 if number == 0 else 0)

    assert compare_all(Strategy.INDEXED, list(indexed_worlds()), 3, may_compare) == 164


@pytest.mark.parametrize(("channels", "histories"), [(2, 123), (3, 826)])
def test_the_round_robin_merger_releases_all_that_is_certain(channels, histories):
    worlds: list[World] = []
    for kinds in product("tw", repeat=11):
        lines: list[list[Any]] = [[] for _ in range(channels)]
        output: list[Any] = []
        position = 0
        for i, kind in enumerate(kinds):
            if kind == "w":
                for line in lines:
                    line.append(WINDOW)
                output.append(("window", kinds[:i].count("w")))
            else:
                lines[position % channels].append(("tuple", position))
                output.append(("tuple", position))
                position += 1
        worlds.append((tuple(tuple(line) for line in lines), tuple(output)))
    assert compare_all(Strategy.ROUND_ROBIN, worlds, 3, lambda item: True) == histories
