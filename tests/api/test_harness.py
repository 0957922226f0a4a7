"""Operators by themselves: called in a unit test, and in the harness that plays their program."""

from typing import NamedTuple

import pytest

import anabranch as ab
from anabranch.errors import OperatorError, ProgramError
from anabranch.testing import Harness, run_parallel


class Reading(NamedTuple):
    sensor: str
    value: float


class Jump(ab.Operator):
    threshold: float = 5.0
    stored: float = ab.state(default=0.0)
    seen: list = ab.state(factory=list)

    def process(self, t):
        self.seen.append(t.value)
        if abs(t.value - self.stored) > self.threshold:
            self.stored = t.value
            yield t


def test_an_operator_can_be_called_alone():
    jump, other = Jump(), Jump(threshold=1.0)
    assert list(jump.process(Reading("a", 9.0))) == [("a", 9.0)]
    assert list(jump.process(Reading("a", 10.0))) == []
    assert (jump.stored, jump.seen, other.seen) == (9.0, [9.0, 10.0], [])
    # What it holds then is no part of a program.
    stream = ab.from_rows([("a", 9.0)], Reading).process(jump, by="sensor", schema=Reading)
    assert run_parallel(stream) == stream.run_sequential() == [("a", 9.0)]


def test_tuples_and_state_by_key():
    alone = Harness(Jump(), Reading, by="sensor", schema=Reading)
    assert alone.feed(("a", 9.0), ("b", 1.0), ("a", 10.0)) == [("a", 9.0)]
    assert alone.feed(("b", 7.0)) == [("b", 7.0)]
    assert alone.state("a") == {"stored": 9.0, "seen": [9.0, 10.0]}
    assert alone.state("never seen") == {"stored": 0.0, "seen": []}


class Waits(ab.Operator):
    n: int = ab.state(default=0)

    def process(self, t):
        self.n += 1
        self.timers.after(10)

    def on_timer(self, time):
        yield (self.n, self.timers.pending == [])


def test_timers_by_the_clock():
    alone = Harness(Waits(), "k string", by="k", schema="n long, last boolean")
    alone.clock(100)
    assert alone.feed(("a",), ("a",)) == []
    assert alone.clock(109) == []
    assert alone.clock(110) == [(2, True)]


class Marks(ab.Operator):
    n: int = ab.state(default=0)

    def process(self, t):
        self.n += 1

    def on_punctuation(self):
        yield (self.n,)


def test_punctuations_and_the_end():
    alone = Harness(Marks(), "k string", by="k", schema="n long")
    alone.feed(("a",), ("b",), ("a",))
    assert alone.punctuate() == [(2,), (1,)]
    assert alone.punctuate() == []
    alone.feed(("b",))
    assert alone.end() == [(2,)]


def test_errors_are_those_of_a_program():
    alone = Harness(lambda t: (1 // t.x,), "x long", schema="y long")
    assert alone.feed((1,)) == [(1,)]
    with pytest.raises(OperatorError, match="ZeroDivisionError"):
        alone.feed((0,))
    with pytest.raises(ProgramError, match="no event time"):
        alone.advance(3)
    with pytest.raises(ProgramError, match="no state by key"):
        alone.state("a")


def test_rows_have_what_the_annotated_class_has():
    def louder(t: Reading) -> Reading:
        return t._replace(value=t._asdict()["value"] * 2)

    stream = ab.from_rows([("a", 1.0), ("b", 2.0)], Reading).map(louder)
    assert run_parallel(stream) == stream.run_sequential() == [("a", 2.0), ("b", 4.0)]
    assert stream.plan().operator("map").model.forwards("sensor") == "sensor"


class Odd(Waits):
    def on_timer(self):
        yield (1,)


def test_what_needs_time_says_how_to_give_it():
    with pytest.raises(ProgramError, match=r"Waits is called by itself, where no time passes: .*Harness"):
        list(Waits().process(Reading("a", 1.0)))
    with pytest.raises(ProgramError, match=r"Odd.on_timer is called as on_timer\(self, time\): too many"):
        Harness(Odd(), Reading, by="sensor", schema="x long")
