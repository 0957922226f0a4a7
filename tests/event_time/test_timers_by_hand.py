"""Timers against a plain computation of what docs/time.md says, with nothing of the library."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.testing import run_parallel
from tests.event_time.test_watermarks import EXAMPLES, source
from tests.event_time.timed_programs import cuts, rows

EMITTED = "at long, n long, now long"


class Restless(ab.Operator):
    """Sets timers in the past and the future, several at once, again when called, and takes some back."""

    calls: int = ab.state(default=0)

    def process(self, t):
        for each in range(t.x):
            self.timers.at(t.at - 4 + 3 * each)
        if t.x < 0:
            for time in self.timers.pending[:2]:
                self.timers.cancel(time)
        yield (t.at, len(self.timers.pending), self.timers.now)

    def on_timer(self, time):
        self.calls += 1
        yield (time, len(self.timers.pending), self.timers.now)
        if self.calls % 3 == 0:
            self.timers.at(time + 2)
        elif self.calls % 3 == 1 and self.timers.pending:
            self.timers.cancel(min(self.timers.pending))
        elif self.calls % 4 == 2:
            self.timers.at(time - 1)


class Pending(dict):
    """The timers of a key: the time of each, and the time that it waits for."""

    since = None
    calls = 0

    def set(self, asked, reached, called=None):
        if reached == math.inf or asked in self:
            return
        if reached is None or asked > reached:
            self[asked] = asked
        elif called is not None and asked > called[0]:
            self[asked] = max(asked, called[1])
        else:
            self[asked] = reached + 1

    def in_order(self):
        return sorted(self, key=lambda asked: (self[asked], asked))

    def settle(self, order):
        self.since = None if not self else self.since if self.since is not None else order


def expected(tuples, lateness, ends):
    """By hand: what `Restless` emits."""
    keys, found, reached, largest, order = {}, [], None, -math.inf, 0

    def advance():
        nonlocal order
        while due := [
            (waits, timers.since, asked, timers)
            for timers in keys.values()
            for asked, waits in timers.items()
            if waits <= reached
        ]:
            waits, _, asked, timers = min(due, key=lambda each: each[:3])
            del timers[asked]
            timers.calls += 1
            found.append((asked, len(timers), 2**61 if reached == math.inf else reached))
            if timers.calls % 3 == 0:
                timers.set(asked + 2, reached, (asked, waits))
            elif timers.calls % 3 == 1 and timers:
                del timers[min(timers)]
            elif timers.calls % 4 == 2:
                timers.set(asked - 1, reached, (asked, waits))
            timers.settle(order := order + 1)

    for k, at, x in tuples:
        timers = keys.setdefault(k, Pending())
        for each in range(x):
            timers.set(at - 4 + 3 * each, reached)
        for asked in timers.in_order()[:2] if x < 0 else ():
            del timers[asked]
        timers.settle(order := order + 1)
        found.append((at, len(timers), reached))
        largest = max(largest, at)
        if reached is None or largest - lateness > reached:
            reached = largest - lateness
            advance()
    if ends:
        reached = math.inf
        advance()
    return found


@settings(max_examples=EXAMPLES, deadline=None, print_blob=True)
@given(data=st.data(), lateness=st.integers(0, 5), ends=st.booleans(), channels=st.integers(1, 8))
def test_timers_are_called_as_a_plain_computation_says(data, lateness, ends, channels):
    tuples = data.draw(rows(25))
    restless = source([tuples], lateness=lateness).process(Restless(), by="k", schema=EMITTED)
    wanted = expected(tuples, lateness, ends)
    assert restless.run_sequential(ends=ends) == wanted
    cut = source(data.draw(cuts(tuples)), lateness=lateness).process(Restless(), by="k", schema=EMITTED)
    assert run_parallel(cut, channels=channels, ends=ends) == wanted


class Odd(ab.Operator):
    calls: int = ab.state(default=0)

    def process(self, t):
        self.timers.at(t.at - 2)
        return []

    def on_timer(self, time):
        if time == 1:
            raise ValueError("not this one")
        yield (time, len(self.timers.pending), self.timers.now)


ODD = [(1, 5, 0), (1, 4, 0), (1, 3, 0), (1, 9, 0)]  # two of its timers have passed, when 5 has come


@pytest.mark.parametrize("channels", [1, 3])
def test_a_timer_that_fails_takes_no_other_along(channels):
    told = source([ODD]).process(Odd(), by="k", schema=EMITTED, on_error="skip")
    assert told.run_sequential() == [(3, 0, 5), (2, 1, 9), (7, 0, 9)]
    assert run_parallel(told, channels=channels) == told.run_sequential()


class Even(Odd):
    def on_timer(self, time):
        yield (time, -1 - len(self.timers.pending), self.timers.now)


def test_operators_that_share_are_called_for_each_timer_by_itself():
    one, other = source([ODD]), source([[(1, 5, 0), (1, 1, 0), (1, 2, 0)]])
    shared = ab.share((one, Even(), EMITTED), (other, Even(), EMITTED), by="k")
    first, second = ([tuple(row) for row in each.run_sequential(ends=True)] for each in shared)
    assert first == [(1, -4, 5), (2, -3, 5), (3, -2, 5), (7, -1, 2**61)]
    assert second == [(3, -1, 5), (-1, -2, 2**61), (0, -1, 2**61)]  # the last two had passed when they were set
    assert [run_parallel(each, channels=3, ends=True) for each in shared] == [first, second]
