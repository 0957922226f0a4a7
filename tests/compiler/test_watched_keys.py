"""Under a declared key, and in functions that the library calls, what cannot be followed is watched where it runs."""

import functools
import itertools
import random
import time
from typing import Any, ClassVar

import pytest

import anabranch as ab
from anabranch.errors import ProgramError
from anabranch.testing import ParallelRun
from tests.compiler.product_path import compare, parallel

ROWS = [(n, "abc"[n % 3]) for n in range(24)]
SCHEMA = "x long, k string"
_ids = itertools.count()
_generator = random.Random(3)
_table = {"a": 1, "b": 2, "c": 3}


class Total:
    """A descriptor that keeps one number for all."""

    n = 0

    def __get__(self, instance, owner=None):
        Total.n += 1
        return Total.n


class Holder:
    total = Total()


_holder = Holder()


def number(each):
    return _holder.total


class NumberedKeys(ab.Operator):
    number = ab.state(factory=_ids.__next__)

    def process(self, t):
        yield t.x, self.number


class SharedGenerator(ab.Operator):
    n = ab.state(0)

    def process(self, t):
        self.n += _generator.randrange(9)
        yield t.x, self.n


class BehindADescriptor(ab.Operator):
    n = ab.state(0)

    def process(self, t):
        self.n += _holder.total
        yield t.x, self.n


class WithATable(ab.Operator):
    """Cannot be followed (`vars`), and keeps nothing."""

    n = ab.state(0)

    def process(self, t):
        self.n += _table[t.k] + len(vars(_holder))
        yield t.x, self.n


class WithTheClock(ab.Operator):
    n = ab.state(0)

    def process(self, t):
        self.n += time.time() > 0
        yield t.x, self.n


class ThroughGlobals(ab.Operator):
    n = ab.state(0)

    def process(self, t):
        globals()["_seen"] = self.n = globals().get("_seen", 0) + 1
        yield t.x, self.n


@ab.model(state="partitioned", key="k")
class Declared(BehindADescriptor):
    pass


def stream():
    return ab.from_rows(ROWS, SCHEMA, rows_per_epoch=7)


def keyed(operator):
    return stream().process(operator(), by="k", schema="x long, n long")


@pytest.mark.parametrize("operator", [NumberedKeys, SharedGenerator, BehindADescriptor, ThroughGlobals])
def test_what_all_keys_share_is_refused_under_a_key(operator):
    found = compare(keyed(operator))
    assert found.verdict in ("refused", "stopped"), found.difference
    text = found.parallel[-1].refused or found.parallel[-1].error
    assert "test_watched_keys.py" in text and ("ab.state(" in text or "attributes of self" in text), text


def test_who_asks_the_clock_must_say_that_any_value_will_do():
    found = compare(keyed(WithTheClock))
    assert found.verdict == "refused"
    assert "test_watched_keys.py" in found.parallel[-1].refused
    declared = ab.model(state="partitioned", key="k")(type("Declared", (WithTheClock,), {}))
    assert compare(keyed(declared)).verdict == "equal"


def test_what_keeps_nothing_runs_in_channels():
    program = keyed(WithATable)
    assert [each.model.state.value.value for each in program.plan().operators][-1] == "partitioned"
    assert compare(program).verdict == "equal"


def test_the_author_may_declare_it():
    assert not keyed(Declared).plan().operators[-1].model.unfollowed
    assert keyed(BehindADescriptor).plan().operators[-1].model.unfollowed


class Reminders(ab.Operator):
    """Does with timers what can be done with them."""

    known: list = ab.state(factory=list)

    def process(self, t):
        if t.at not in self.timers.pending and (self.timers.now or t.at) < t.at:
            self.timers.at(t.at)
            self.timers.after(3)
        self.timers.cancel(t.at)
        self.known.append(t.x)

    def on_timer(self, time):
        yield len(self.known), time.second


class ByADescriptor(Reminders):
    """Sets timers by what all keys share."""

    def process(self, t):
        self.timers.at(_holder.total)


def test_timers_are_followed_and_what_they_are_given_is_not_believed():
    def unfollowed(operator):
        timed = ab.from_rows([], f"{SCHEMA}, at timestamp").event_time("at")
        stream = timed.process(operator(), by="k", schema="x long, n long")
        return stream.plan().layout.steps[-1].node.unfollowed

    assert unfollowed(Reminders) == ""
    assert "a value of unknown type" in unfollowed(ByADescriptor)


def test_the_watch_can_be_switched_off():
    assert parallel([keyed(BehindADescriptor)]).error
    assert not parallel([keyed(BehindADescriptor)], watch="off").error


@pytest.mark.parametrize(
    "program",
    [
        lambda: stream().split(lambda t: _generator.random() < 0.5)[0],
        lambda: stream().split(lambda t: number(t) % 2)[0],
        lambda: stream().match(by="k", pattern=[ab.step("a", lambda t: number(t) % 2), ab.step("b", lambda t: True)]),
    ],
)
def test_conditions_that_remember_are_refused(program):
    found = compare(program())
    assert found.verdict in ("refused", "stopped"), found.difference


def test_the_error_names_what_was_changed_and_the_tuples(tmp_path):
    what = r"it changed the class Total .*\(x=.*The compiler could not see it: .*\d\)"
    with pytest.raises(ProgramError, match=what):
        ParallelRun([keyed(BehindADescriptor)], tmp_path, channels=2).run_epochs()


_shared: list = []


@functools.lru_cache
def of_key(key):
    return [key]


def same(value):
    return functools.partial(lambda held: held, value)()  # the compiler does not follow it


class KeepsWhatAllHave(ab.Operator):
    """It changes the list when the key comes again, by when it may be a copy."""

    held = ab.state(None)

    def process(self, t):
        if self.held is None:
            self.held = same(_shared)
        elif t.x % 2:
            self.held.append(t.x)
        yield t.x, len(self.held)


class ChangesWhatIsCached(ab.Operator):
    n = ab.state(0)

    def process(self, t):
        given = same(of_key("all"))
        given.append(t.x)
        yield t.x, len(given)


class ReadsWhatIsCached(ab.Operator):
    held = ab.state(factory=list)

    def process(self, t):
        given = same(of_key(t.k))
        self.held = [*given, t.x]
        yield t.x, len(self.held)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (KeepsWhatAllHave, "held outside of its state"),
        (ChangesWhatIsCached, "what the cache of of_key gives to all callers"),
    ],
)
def test_what_all_keys_have_is_neither_kept_for_one_nor_changed_out_of_sight(kind, reason):
    for rows_per_epoch in (1, 4, 24):
        rows = ab.from_rows(ROWS, SCHEMA, rows_per_epoch=rows_per_epoch)
        found = compare(rows.process(kind(), by="k", schema="x long, n long"))
        assert found.verdict == "stopped", found.difference
        assert rows_per_epoch > 1 or reason in found.parallel[0].error


def test_what_is_cached_may_be_read_and_copied():
    assert compare(keyed(ReadsWhatIsCached)).verdict == "equal"


def test_a_list_of_the_class_in_the_state_of_a_key_is_refused_before_the_start_where_not_all_is_followed() -> None:
    class KeepsTheTemplate(ab.Operator):
        template: ClassVar[list[int]] = []
        values: Any = ab.state(default=None)

        def process(self, t):
            if self.values is None:
                self.values = self.template
            type(getattr(self, "val" + "ues")).append(self.values, t.x)
            yield t

    stream = ab.from_rows([(1, 2)], "k long, x long").process(KeepsTheTemplate(), by="k")
    with pytest.raises(ProgramError, match=r"keeps self\.template in values: self\.template outlives the call"):
        stream.plan().layout  # noqa: B018 - refuses what cannot run
