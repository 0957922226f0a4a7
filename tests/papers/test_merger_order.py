"""Parallel equals sequential, values and order, and every item leaves at the first moment it can."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.papers.merging.merger import make_merger
from anabranch.papers.merging.ordering import Numbered, Strategy
from anabranch.papers.merging.punctuation import Punctuation
from anabranch.papers.streaming.channel import Channel
from anabranch.papers.streaming.splitter import Splitter
from tests.papers.merging_oracle import released_by_now
from tests.papers.merging_world import Burst, Jump, Network, Region, RunningSum, Stateless, cycle, sequential

WINDOW, FINAL, PULSE = Punctuation.WINDOW, Punctuation.FINAL, Punctuation.PULSE

VALUES = st.tuples(st.integers(0, 6), st.integers(0, 50))
ITEMS = st.one_of(VALUES, VALUES, VALUES, VALUES, st.just(WINDOW))
PICKS = st.lists(st.integers(0, 60), max_size=150)


@st.composite
def streams(draw: Any, max_size: int) -> list[Any]:
    stream = draw(st.lists(ITEMS, max_size=max_size))
    return [*stream, FINAL] if draw(st.booleans()) else stream


REGIONS = {
    "round-robin": lambda n: Region(Stateless, n, Strategy.ROUND_ROBIN, key=None),
    "sequence": lambda n: Region(RunningSum, n, Strategy.SEQUENCE),
    "sequence in turn": lambda n: Region(Stateless, n, Strategy.SEQUENCE, key=None),
    "strict": lambda n: Region(Jump, n, Strategy.STRICT),
    "strict, 1:1": lambda n: Region(RunningSum, n, Strategy.STRICT),
    "relaxed": lambda n: Region(Burst, n, Strategy.RELAXED),
    "relaxed, selective": lambda n: Region(lambda: Jump(every=5), n, Strategy.RELAXED),
    "indexed": lambda n: Region(Burst, n, Strategy.INDEXED, depth=1),
}


@pytest.mark.parametrize("name", REGIONS)
@settings(max_examples=60, deadline=None)
@given(stream=streams(60), channels=st.integers(1, 6), pulse_every=st.integers(1, 20), picks=PICKS)
def test_one_region_delivers_what_one_thread_delivers(name, stream, channels, pulse_every, picks):
    region = REGIONS[name](channels)
    network = Network([region], pulse_every=pulse_every if region.strategy.is_pulsed else None)
    assert network.run(stream, cycle(picks)) == sequential(stream, region.operator())
    statistics = network.mergers[0][0].statistics()
    assert statistics.held == 0
    assert statistics.released == len(network.out)


@pytest.mark.parametrize("name", REGIONS)
@settings(max_examples=60, deadline=None)
@given(
    stream=streams(14),
    channels=st.integers(1, 4),
    pulse_every=st.integers(1, 6),
    picks=PICKS,
    batch=st.integers(1, 3),
)
def test_every_item_leaves_as_early_as_the_history_permits(name, stream, channels, pulse_every, picks, batch):
    region = REGIONS[name](channels)
    arrivals = arrivals_of(region, stream, pulse_every)
    check_earliness(region, arrivals, picks, batch, make_merger)


def arrivals_of(region: Region, stream: list[Any], pulse_every: int) -> list[list[Any]]:
    """What each channel delivers to the merger, all in all."""
    splitter = Splitter(
        region.strategy,
        region.channels,
        route=region.route(),
        pulse_every=pulse_every if region.strategy.is_pulsed else None,
    )
    channels = [Channel(region.operator(), region.strategy, depth=region.depth) for _ in range(region.channels)]
    arrivals: list[list[Any]] = [[] for _ in channels]
    for value in stream:
        for channel, item in splitter.push(value):
            arrivals[channel] += channels[channel].push(item)
    return arrivals


def check_earliness(region: Region, arrivals: list[list[Any]], picks: list[int], batch: int, make: Any) -> None:
    merger = make(region.strategy, region.channels, depth=region.depth)
    history: list[list[Any]] = [[] for _ in arrivals]
    out: list[Any] = []
    schedule = cycle(picks)
    while True:
        ready = [c for c in range(len(arrivals)) if len(history[c]) < len(arrivals[c])]
        if not ready:
            break
        channel = ready[next(schedule) % len(ready)]
        start = len(history[channel])
        items = arrivals[channel][start : start + batch]
        history[channel] += items
        out += merger.push_many(channel, items) if batch > 1 else merger.push(channel, items[0])
        assert out == released_by_now(region.strategy, history)


@settings(max_examples=120, deadline=None)
@given(
    stream=streams(30),
    left=st.integers(1, 3),
    right=st.integers(1, 3),
    operators=st.sampled_from([(RunningSum, RunningSum), (Jump, RunningSum), (RunningSum, Jump), (Jump, Burst)]),
    pulse_every=st.integers(1, 9),
    picks=PICKS,
)
def test_a_shuffle_after_a_region_that_is_not_prolific(stream, left, right, operators, pulse_every, picks):
    first, second = operators
    last = Strategy.RELAXED if second is Burst else Strategy.STRICT
    network = Network(
        [
            Region(first, left, Strategy.STRICT),
            Region(lambda: second(key=1), right, last, key=1),
        ],
        pulse_every=pulse_every,
    )
    assert network.run(stream, cycle(picks)) == sequential(stream, first(), second(key=1))


@settings(max_examples=150, deadline=None)
@given(
    stream=streams(25),
    left=st.integers(1, 3),
    right=st.integers(1, 3),
    second=st.sampled_from([RunningSum, Jump, Burst]),
    pulse_every=st.integers(1, 9),
    picks=PICKS,
)
def test_a_shuffle_after_a_prolific_region_which_the_paper_forbids(stream, left, right, second, pulse_every, picks):
    network = Network(
        [
            Region(Burst, left, Strategy.INDEXED, depth=1),
            Region(lambda: second(key=1), right, Strategy.INDEXED, depth=1, key=1),
        ],
        pulse_every=pulse_every,
    )
    assert network.run(stream, cycle(picks)) == sequential(stream, Burst(), second(key=1))


@settings(max_examples=60, deadline=None)
@given(
    stream=streams(12),
    channels=st.tuples(*[st.integers(1, 3)] * 3),
    pulse_every=st.integers(1, 9),
    picks=PICKS,
)
def test_two_shuffles_after_prolific_regions(stream, channels, pulse_every, picks):
    network = Network(
        [
            Region(Burst, channels[0], Strategy.INDEXED, depth=1),
            Region(lambda: Burst(key=1), channels[1], Strategy.INDEXED, depth=2, key=1),
            Region(lambda: Burst(key=2), channels[2], Strategy.INDEXED, depth=2, key=2),
        ],
        pulse_every=pulse_every,
    )
    expected = sequential(stream, Burst(), Burst(key=1), Burst(key=2))
    assert network.run(stream, cycle(picks)) == expected


def test_a_shuffle_collapses_the_copies_of_a_pulse():
    left, right = 4, 3
    network = Network(
        [
            Region(RunningSum, left, Strategy.STRICT),
            Region(lambda: RunningSum(key=1), right, Strategy.STRICT, key=1),
        ],
        pulse_every=5,
    )
    stream = [(i, i * i) for i in range(50)]
    assert network.run(stream, cycle([])) == sequential(stream, RunningSum(), RunningSum(key=1))
    pulses = network.splitter.statistics().pulses
    assert pulses == 50 // 5 + 1
    final = network.mergers[-1][0].statistics()
    assert final.dropped == pulses * right  # not left * right: each right merger let one copy through
    for merger in network.mergers[0]:
        assert merger.statistics().dropped == pulses * (left - 1)


class WindowSums:
    """A partitioned aggregate: one sum per key and window, in the order in which the keys appeared."""

    def __init__(self) -> None:
        self.sums: dict[int, int] = {}
        self.first: dict[int, int] = {}

    def process(self, value: tuple[int, int, int]) -> list[Any]:
        position, key, number = value
        self.first.setdefault(key, position)
        self.sums[key] = self.sums.get(key, 0) + number
        return [("seen", position)] if number % 3 == 0 else []

    def flush(self, punctuation: Punctuation) -> list[Any]:
        out = [(self.first[key], (key, total)) for key, total in self.sums.items()]
        self.sums, self.first = {}, {}
        return out


@settings(max_examples=80, deadline=None)
@given(stream=streams(25), channels=st.integers(1, 4), pulse_every=st.integers(1, 9), picks=PICKS)
def test_windows_that_punctuations_end_in_every_channel_come_out_in_the_order_of_their_keys(
    stream, channels, pulse_every, picks
):
    stream = [v if isinstance(v, Punctuation) else (i, *v) for i, v in enumerate(stream)]
    one = WindowSums()
    expected: list[Any] = []
    for value in stream:
        if isinstance(value, Punctuation):
            expected += [out for _, out in one.flush(value)] + [value]
        else:
            expected += one.process(value)

    splitter = Splitter(Strategy.INDEXED, channels, route=lambda value: value[1] % channels, pulse_every=pulse_every)
    replicas = [WindowSums() for _ in range(channels)]
    lines = [Channel(r.process, Strategy.INDEXED, depth=1, flush=r.flush) for r in replicas]
    arrivals: list[list[Numbered]] = [[] for _ in lines]
    for value in stream:
        for channel, item in splitter.push(value):
            arrivals[channel] += lines[channel].push(item)
    check_earliness(Region(WindowSums, channels, Strategy.INDEXED, depth=1), arrivals, picks, 1, make_merger)
    merger = make_merger(Strategy.INDEXED, channels, depth=1)
    out: list[Any] = []
    for channel in range(channels):
        out += merger.push_many(channel, arrivals[channel])
    assert out + merger.finish() == expected
