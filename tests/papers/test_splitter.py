"""Splitters and channels: routing, numbers, pulses, punctuations, and the promises operators make."""

from __future__ import annotations

import pytest

from anabranch.papers.merging.ordering import Numbered, OrderViolation, Strategy
from anabranch.papers.merging.punctuation import OutputPort, Punctuation
from anabranch.papers.streaming.channel import Channel
from anabranch.papers.streaming.splitter import ShuffleSplitter, Splitter

WINDOW, FINAL, PULSE = Punctuation.WINDOW, Punctuation.FINAL, Punctuation.PULSE


def send_all(splitter, stream):
    return [send for value in stream for send in splitter.push(value)]


def test_round_robin_deals_bare_values_in_turn():
    sends = send_all(Splitter(Strategy.ROUND_ROBIN, 3), ["a", "b", WINDOW, "c", "d"])
    assert sends == [(0, "a"), (1, "b"), (0, WINDOW), (1, WINDOW), (2, WINDOW), (2, "c"), (0, "d")]


def test_tuples_go_where_the_function_says_with_dense_numbers():
    splitter = Splitter(Strategy.SEQUENCE, 2, route=len)
    assert send_all(splitter, ["", "x", WINDOW, ""]) == [
        (0, Numbered(0, "")),
        (1, Numbered(1, "x")),
        (0, Numbered(2, WINDOW)),
        (1, Numbered(2, WINDOW)),
        (0, Numbered(3, "")),
    ]


def test_a_pulse_follows_every_k_tuples_and_a_window_starts_the_count_afresh():
    splitter = Splitter(Strategy.STRICT, 2, pulse_every=3)
    kinds = [item.value for channel, item in send_all(splitter, ["a", "b", "c", "d", WINDOW, "e", "f", "g"])]
    assert kinds == ["a", "b", "c", PULSE, PULSE, "d", WINDOW, WINDOW, "e", "f", "g", PULSE, PULSE]
    numbers = [item.sequence for _, item in send_all(Splitter(Strategy.STRICT, 2, pulse_every=2), "abcd")]
    assert numbers == [0, 1, 2, 2, 3, 4, 5, 5]
    statistics = splitter.statistics()
    assert (statistics.sent, statistics.punctuations, statistics.pulses) == ((4, 3), 1, 2)


def test_ten_tuples_per_channel_make_an_epoch_by_default():
    splitter = Splitter(Strategy.RELAXED, 4)
    send_all(splitter, range(81))
    assert splitter.statistics().pulses == 2


@pytest.mark.parametrize("strategy", [Strategy.ROUND_ROBIN, Strategy.SEQUENCE])
def test_strategies_that_miss_no_tuple_make_no_pulses(strategy):
    splitter = Splitter(strategy, 2)
    send_all(splitter, range(100))
    assert splitter.pulse() == []
    assert splitter.finish() == []


def test_the_end_sends_a_last_pulse_unless_the_final_punctuation_did_its_work():
    splitter = Splitter(Strategy.STRICT, 2)
    splitter.push("a")
    assert splitter.finish() == [(0, Numbered(1, PULSE)), (1, Numbered(1, PULSE))]
    splitter = Splitter(Strategy.STRICT, 2)
    assert splitter.push(FINAL) == [(0, Numbered(0, FINAL)), (1, Numbered(0, FINAL))]
    assert splitter.finish() == []


@pytest.mark.parametrize("late", ["a", WINDOW, FINAL])
def test_nothing_may_follow_the_final_punctuation(late):
    splitter = Splitter(Strategy.STRICT, 2)
    splitter.push(FINAL)
    with pytest.raises(OrderViolation, match="after the final"):
        splitter.push(late)


def test_a_pulse_from_outside_raises():
    with pytest.raises(OrderViolation, match="ShuffleSplitter"):
        Splitter(Strategy.STRICT, 2).push(PULSE)


@pytest.mark.parametrize("answer", [-1, 2])
def test_a_route_to_no_channel_raises(answer):
    with pytest.raises(OrderViolation, match="routing function"):
        Splitter(Strategy.SEQUENCE, 2, route=lambda value: answer).push("a")
    with pytest.raises(OrderViolation, match="routing function"):
        ShuffleSplitter(2, lambda value: answer).push(Numbered(0, "a"))


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": Strategy.ROUND_ROBIN, "channels": 2, "route": len},
        {"strategy": Strategy.SEQUENCE, "channels": 2, "pulse_every": 5},
        {"strategy": Strategy.STRICT, "channels": 2, "pulse_every": 0},
        {"strategy": Strategy.STRICT, "channels": 0},
    ],
)
def test_a_splitter_that_cannot_work_is_not_made(options):
    with pytest.raises(ValueError, match=r"round-robin|pulse_every|channel"):
        Splitter(**options)


def test_a_shuffle_splitter_keeps_numbers_and_copies_punctuations():
    splitter = ShuffleSplitter(2, lambda value: value % 2)
    item = Numbered(4, 7, (1,))
    assert splitter.push(item) == [(1, item)]
    assert splitter.push(Numbered(5, PULSE)) == [(0, Numbered(5, PULSE)), (1, Numbered(5, PULSE))]


@pytest.mark.parametrize(
    ("strategy", "count"),
    [(Strategy.ROUND_ROBIN, 0), (Strategy.ROUND_ROBIN, 2), (Strategy.SEQUENCE, 0), (Strategy.STRICT, 2)],
)
def test_an_operator_that_breaks_its_selectivity_raises(strategy, count):
    channel = Channel(lambda value: [value] * count, strategy)
    item = "a" if strategy is Strategy.ROUND_ROBIN else Numbered(0, "a")
    with pytest.raises(OrderViolation, match=f"emitted {count} tuples for 'a'"):
        channel.push(item)


def test_a_removed_window_punctuation_leaves_its_number_behind():
    channel = Channel(lambda value: [value], Strategy.SEQUENCE, port=OutputPort.REMOVING)
    assert channel.push(Numbered(3, WINDOW)) == [Numbered(3, PULSE)]
    assert channel.push(Numbered(4, FINAL)) == [Numbered(4, FINAL)]
    assert Channel(lambda v: [v], Strategy.ROUND_ROBIN, port=OutputPort.REMOVING).push(WINDOW) == []


def test_a_channel_appends_one_emission_index_per_prolific_region():
    twice = Channel(lambda value: [value, value], Strategy.INDEXED, depth=2)
    assert [item.emission for item in twice.push(Numbered(0, "a", (7,)))] == [(7, 0), (7, 1)]
    assert [item.emission for item in twice.push(Numbered(0, "a", (7, 4)))] == [(7, 4), (7, 4)]
    with pytest.raises(OrderViolation, match="emission"):
        twice.push(Numbered(0, "a"))


def test_only_indexed_channels_may_emit_on_punctuations():
    with pytest.raises(ValueError, match="INDEXED"):
        Channel(lambda value: [], Strategy.RELAXED, flush=lambda punctuation: [])
    channel = Channel(lambda value: [], Strategy.INDEXED, depth=2, flush=lambda punctuation: [(5, "sum")])
    assert channel.push(Numbered(3, WINDOW)) == [Numbered(3, "sum", (5, 0)), Numbered(3, WINDOW)]
    assert channel.push(Numbered(4, PULSE)) == [Numbered(4, PULSE)]
