"""Pulses bound what waits at a merger, and keep bounded buffers from locking each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.papers.merging.merger import make_merger
from anabranch.papers.merging.ordering import Strategy
from anabranch.papers.merging.punctuation import Punctuation
from anabranch.papers.streaming.channel import Channel
from anabranch.papers.streaming.splitter import Splitter
from tests.papers.merging_world import Burst, Jump, RunningSum, Stateless, cycle, sequential

KEYS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 50)), max_size=80)
PICKS = st.lists(st.integers(0, 60), max_size=150)


class Deaf:
    """Drops every tuple of the keys of channel 0: the channel lives, but only its pulses are heard."""

    def __init__(self, channels: int, fan_out: int = 1) -> None:
        self.channels = channels
        self.fan_out = fan_out

    def __call__(self, value: tuple[int, ...]) -> list[Any]:
        return [] if value[0] % self.channels == 0 else [(*value, i) for i in range(self.fan_out)]


class JammedError(Exception):
    """Nothing can move."""


def run_bounded(
    stream: list[Any],
    operator: Callable[[], Any],
    strategy: Strategy,
    channels: int,
    capacity: int,
    picks: list[int],
    *,
    depth: int = 0,
    pulse_every: int | None = None,
    pulses: bool = True,
) -> list[Any]:
    """A region in which every buffer is bounded: one item per pipe, `capacity` per queue of the merger.

    The splitter blocks on a full pipe as a sender on a socket does; a channel takes no tuple while what it
    emitted for the last one has not been sent.
    """
    route = None if strategy is Strategy.ROUND_ROBIN else lambda value: value[0] % channels
    splitter = Splitter(strategy, channels, route=route, pulse_every=pulse_every)
    lines = [Channel(operator(), strategy, depth=depth) for _ in range(channels)]
    merger = make_merger(strategy, channels, depth=depth, capacity=capacity)
    source = deque(stream)
    unsent: deque[tuple[int, Any]] = deque()
    pipes: list[deque[Any]] = [deque() for _ in range(channels)]
    emitted: list[deque[Any]] = [deque() for _ in range(channels)]
    out: list[Any] = []
    schedule = cycle(picks)

    def send() -> None:
        if not unsent:
            unsent.extend(splitter.push(source.popleft()) if source else splitter.finish())
            if not pulses:
                kept = [send for send in unsent if getattr(send[1], "value", None) is not Punctuation.PULSE]
                unsent.clear()
                unsent.extend(kept)
            return
        channel, item = unsent.popleft()
        pipes[channel].append(item)

    ended = False
    while True:
        moves: list[Callable[[], None]] = []
        if (source and not unsent) or (unsent and not pipes[unsent[0][0]]):
            moves.append(send)
        for c in range(channels):
            if pipes[c] and not emitted[c]:
                moves.append(lambda c=c: emitted[c].extend(lines[c].push(pipes[c].popleft())))
            if emitted[c] and merger.accepts(c):
                moves.append(lambda c=c: out.extend(merger.push(c, emitted[c].popleft())))
        if moves:
            moves[next(schedule) % len(moves)]()
        elif unsent or any(emitted):
            raise JammedError(merger.statistics())
        elif not ended:
            ended = True
            unsent.extend(splitter.finish() if pulses else [])
        else:
            break
    assert all(merger.statistics().queue_lengths[c] <= capacity for c in range(channels))
    return out + merger.finish()


@pytest.mark.parametrize(
    ("strategy", "operator", "fan_out"),
    [
        (Strategy.STRICT, Jump, 1),
        (Strategy.RELAXED, Burst, 3),
        (Strategy.INDEXED, Burst, 3),
    ],
)
@settings(max_examples=60, deadline=None)
@given(stream=KEYS, channels=st.integers(1, 4), pulse_every=st.integers(1, 8), picks=PICKS)
def test_queues_of_one_epoch_suffice(strategy, operator, fan_out, stream, channels, pulse_every, picks):
    out = run_bounded(
        stream,
        operator,
        strategy,
        channels,
        pulse_every * fan_out + 1,
        picks,
        depth=1 if strategy is Strategy.INDEXED else 0,
        pulse_every=pulse_every,
    )
    assert out == sequential(stream, operator())


@pytest.mark.parametrize(("strategy", "operator"), [(Strategy.ROUND_ROBIN, Stateless), (Strategy.SEQUENCE, RunningSum)])
@settings(max_examples=60, deadline=None)
@given(stream=KEYS, channels=st.integers(1, 4), windows=st.sets(st.integers(0, 80)), picks=PICKS)
def test_a_queue_of_one_suffices_where_every_tuple_comes(strategy, operator, stream, channels, windows, picks):
    punctuated = []
    for i, value in enumerate(stream):
        punctuated += [Punctuation.WINDOW, value] if i in windows else [value]
    out = run_bounded(punctuated, operator, strategy, channels, 1, picks)
    assert out == sequential(punctuated, operator())


def deaf_stream(tuples: int) -> list[tuple[int, int]]:
    return [(i % 2, i) for i in range(tuples)]


def test_without_pulses_the_same_queues_lock():
    arguments: Any = (deaf_stream(60), lambda: Deaf(2), Strategy.STRICT, 2, 5, [])
    assert run_bounded(*arguments, pulse_every=4) == sequential(deaf_stream(60), Deaf(2))
    with pytest.raises(JammedError):
        run_bounded(*arguments, pulse_every=4, pulses=False)


def test_queues_smaller_than_an_epoch_can_lock():
    with pytest.raises(JammedError):
        run_bounded(deaf_stream(60), lambda: Deaf(2), Strategy.STRICT, 2, 3, [], pulse_every=12)


@pytest.mark.parametrize("strategy", [Strategy.STRICT, Strategy.RELAXED, Strategy.INDEXED])
@settings(max_examples=40, deadline=None)
@given(
    keys=st.lists(st.integers(0, 20), max_size=120),
    channels=st.integers(2, 5),
    fan_out=st.integers(1, 3),
    pulse_every=st.integers(1, 15),
)
def test_channels_that_keep_up_leave_at_most_one_epoch_waiting(strategy, keys, channels, fan_out, pulse_every):
    fan_out = 1 if strategy is Strategy.STRICT else fan_out
    held = held_in_lockstep(strategy, [(k, 0) for k in keys], channels, fan_out, pulse_every)
    # One epoch of tuples, and the copies of the pulse that ends it while the last one is on its way.
    assert held <= pulse_every * fan_out + channels - 1


def test_the_bound_on_what_waits_is_reached():
    channels, pulse_every, fan_out = 4, 5, 3
    stream = [(1, 0)] * pulse_every  # channel 1 emits, the others are not heard before the pulse
    held = held_in_lockstep(Strategy.RELAXED, [(0, 0), *stream], channels, fan_out, pulse_every + 1)
    assert held == pulse_every * fan_out + channels - 1


def held_in_lockstep(
    strategy: Strategy,
    stream: list[Any],
    channels: int,
    fan_out: int,
    pulse_every: int,
    *,
    pulses: bool = True,
) -> int:
    """The peak when each tuple is through its channel before the next is split."""
    depth = 1 if strategy is Strategy.INDEXED else 0
    splitter = Splitter(strategy, channels, route=lambda value: value[0] % channels, pulse_every=pulse_every)
    lines = [Channel(Deaf(channels, fan_out), strategy, depth=depth) for _ in range(channels)]
    merger = make_merger(strategy, channels, depth=depth)
    for value in stream:
        for channel, item in splitter.push(value):
            if pulses or item.value is not Punctuation.PULSE:
                for out in lines[channel].push(item):
                    merger.push(channel, out)
    return merger.statistics().held_peak


def test_without_pulses_what_waits_grows_with_the_stream():
    stream = [(i % 2, i) for i in range(400)]
    assert held_in_lockstep(Strategy.STRICT, stream, 2, 1, 10) <= 10 + 1
    assert held_in_lockstep(Strategy.STRICT, stream, 2, 1, 10, pulses=False) >= 199
