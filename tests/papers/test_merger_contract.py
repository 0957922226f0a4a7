"""What a merger reports, and how it fails when a channel breaks the contract."""

from __future__ import annotations

import dataclasses

import pytest

from anabranch.papers.merging.merger import make_merger
from anabranch.papers.merging.ordering import Numbered, OrderViolation, Strategy
from anabranch.papers.merging.punctuation import Punctuation

WINDOW, FINAL, PULSE = Punctuation.WINDOW, Punctuation.FINAL, Punctuation.PULSE
NUMBERED = [Strategy.SEQUENCE, Strategy.STRICT, Strategy.RELAXED, Strategy.INDEXED]


def make(strategy, channels, **options):
    return make_merger(strategy, channels, depth=1 if strategy is Strategy.INDEXED else 0, **options)


def item(strategy, sequence, value):
    is_indexed = strategy is Strategy.INDEXED and not isinstance(value, Punctuation)
    return Numbered(sequence, value, (0,) if is_indexed else ())


def test_statistics_tell_what_waits_and_for_whom():
    merger = make(Strategy.STRICT, 3)
    merger.push(0, Numbered(0, "a"))
    merger.push(0, Numbered(4, "e"))
    merger.push(1, Numbered(5, "f"))
    merger.push(1, Numbered(6, PULSE))
    statistics = merger.statistics()
    assert statistics.received == (2, 2, 0)
    assert statistics.queue_lengths == (1, 2, 0)
    assert statistics.held == statistics.held_peak == 3
    assert statistics.blocked == (1, 2, 0)
    assert statistics.waiting_for == (2,)
    assert (statistics.released, statistics.dropped) == (1, 0)
    assert merger.push(2, Numbered(6, PULSE)) == ["e", "f"]
    statistics = merger.statistics()
    assert (statistics.released, statistics.dropped, statistics.held, statistics.held_peak) == (3, 2, 0, 3)
    assert statistics.waiting_for == ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        statistics.released = 0


def test_the_examples_of_figure_5():
    sequence = make(Strategy.SEQUENCE, 3)
    for number in range(5):
        sequence.push(0, Numbered(number, number))
    assert sequence.push(0, Numbered(6, 6)) == []
    assert sequence.push(2, Numbered(7, 7)) == []
    assert sequence.push(1, Numbered(5, 5)) == [5, 6, 7]

    strict = make(Strategy.STRICT, 3)
    for number in range(5):
        strict.push(0, Numbered(number, number))
    assert strict.push(0, Numbered(6, 6)) == []
    assert strict.push(0, Numbered(10, 10)) == []
    assert strict.push(2, Numbered(11, 11)) == []
    assert strict.push(1, Numbered(8, 8)) == [6, 8]

    relaxed = make(Strategy.RELAXED, 3)  # nothing was heard from channel 1 yet
    for number in range(5):
        relaxed.push(0, Numbered(number, number))
    assert relaxed.push(2, Numbered(5, 5)) == []
    assert relaxed.statistics().waiting_for == (0,)
    assert relaxed.push(0, Numbered(7, 7)) == [5]
    assert relaxed.push(2, Numbered(5, "5 again")) == ["5 again"]


@pytest.mark.parametrize("strategy", NUMBERED)
def test_a_number_that_goes_backwards_on_its_channel_raises(strategy):
    merger = make(strategy, 2)
    merger.push(0, item(strategy, 3, "d"))
    with pytest.raises(OrderViolation, match=r"channel 0.*below [3(4]") as raised:
        merger.push(0, item(strategy, 2, "c"))
    assert raised.value.channel == 0
    assert raised.value.item.value == "c"
    assert raised.value.state.queue_lengths == (1, 0)


@pytest.mark.parametrize("strategy", NUMBERED)
def test_one_number_on_two_channels_raises(strategy):
    merger = make(strategy, 2)
    merger.push(0, item(strategy, 0, "a"))
    with pytest.raises(OrderViolation, match="left"):
        merger.push(1, item(strategy, 0, "b"))
        merger.push(0, item(strategy, 1, PULSE))
        merger.push(1, item(strategy, 1, PULSE))


@pytest.mark.parametrize("strategy", NUMBERED)
def test_nothing_may_follow_the_end(strategy):
    merger = make(strategy, 2)
    assert merger.push(0, item(strategy, 0, FINAL)) == ([] if strategy is Strategy.INDEXED else [FINAL])
    with pytest.raises(OrderViolation, match="after the final"):
        merger.push(0, item(strategy, 1, "a"))
    merger.push(1, item(strategy, 0, FINAL))
    assert merger.finish() == []
    with pytest.raises(OrderViolation, match="finish"):
        merger.push(1, item(strategy, 1, "a"))


def test_a_lost_number_raises_as_soon_as_it_is_certain():
    merger = make(Strategy.SEQUENCE, 2)
    merger.push(0, Numbered(2, "c"))
    with pytest.raises(OrderViolation, match="number 0 can no longer come"):
        merger.push(1, Numbered(1, "b"))


def test_a_number_lost_at_the_end_raises():
    merger = make(Strategy.SEQUENCE, 2)
    merger.push(0, Numbered(1, "b"))
    with pytest.raises(OrderViolation, match="number 0"):
        merger.finish()


@pytest.mark.parametrize("strategy", [Strategy.STRICT, Strategy.RELAXED, Strategy.INDEXED])
def test_finish_releases_what_only_the_end_can_prove(strategy):
    merger = make(strategy, 3)
    assert merger.push(0, item(strategy, 7, "h")) == []
    assert merger.push(1, item(strategy, 5, "f")) == []
    assert merger.push(0, item(strategy, 9, WINDOW)) == []
    assert merger.finish() == ["f", "h", WINDOW]
    assert merger.finish() == []


def test_round_robin_notices_a_lost_punctuation_and_a_lost_tuple():
    merger = make(Strategy.ROUND_ROBIN, 2)
    assert merger.push(0, WINDOW) == [WINDOW]
    assert merger.push(0, "a") == ["a"]
    with pytest.raises(OrderViolation, match="copy of a punctuation"):
        merger.push(1, "b")

    merger = make(Strategy.ROUND_ROBIN, 2)
    merger.push(1, "b")
    with pytest.raises(OrderViolation, match="never came"):
        merger.finish()

    merger = make(Strategy.ROUND_ROBIN, 2)
    merger.push(0, FINAL)
    with pytest.raises(OrderViolation, match="copies of a punctuation are missing"):
        merger.finish()

    merger = make(Strategy.ROUND_ROBIN, 2)
    merger.push(0, WINDOW)
    with pytest.raises(OrderViolation, match="where the copy of"):
        merger.push(1, FINAL)

    merger = make(Strategy.ROUND_ROBIN, 2)
    with pytest.raises(OrderViolation, match="pulse"):
        merger.push(0, PULSE)


def test_a_full_channel_is_not_accepted_and_a_push_to_it_raises():
    merger = make(Strategy.STRICT, 2, capacity=1)
    merger.push(0, Numbered(3, "d"))
    assert not merger.accepts(0)
    assert merger.accepts(1)
    with pytest.raises(OrderViolation, match=r"accepts\(\)"):
        merger.push(0, Numbered(4, "e"))


def test_an_emission_of_the_wrong_depth_raises():
    merger = make(Strategy.INDEXED, 2)
    with pytest.raises(OrderViolation, match="length is not 1"):
        merger.push(0, Numbered(0, "a", (0, 0)))


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        (Strategy.SEQUENCE, {"in_shuffle": True}),
        (Strategy.ROUND_ROBIN, {"in_shuffle": True}),
        (Strategy.STRICT, {"depth": 1}),
        (Strategy.INDEXED, {}),
        (Strategy.STRICT, {"capacity": 0}),
        (Strategy.STRICT, {"channels": 0}),
    ],
)
def test_a_merger_that_cannot_work_is_not_made(strategy, options):
    with pytest.raises(ValueError, match=r"shuffle|depth|capacity|channel"):
        make_merger(strategy, **{"channels": 2, **options})


def test_a_merger_in_a_shuffle_keeps_numbers_and_lets_one_pulse_through():
    merger = make(Strategy.STRICT, 2, in_shuffle=True)
    a, pulse = Numbered(0, "a"), Numbered(1, PULSE)
    assert merger.push(1, a) == [a]
    assert merger.push(0, pulse) == [pulse]
    assert merger.push(1, pulse) == []
