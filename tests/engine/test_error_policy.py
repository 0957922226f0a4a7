"""Calls that fail by policy: outputs and dead letters are those of one thread, whatever else happens."""

import asyncio
import datetime
import json
import os
import random
import tempfile
import time

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import faults
from anabranch.engine.sequential import SequentialRun
from anabranch.errors import OperatorError, ProgramError, StateError
from anabranch.testing import ParallelRun, run_parallel
from tests.compiler.product_path import compare, parallel, sequential
from tests.engine.test_first_error import PLANTS, BoomError, Fails, Meets, raising
from tests.graphs import build, cases, clocks
from tests.programs import COLUMNS

GRAPHS = int(os.environ.get("ANABRANCH_PROGRAMS", "40"))
POINTS = ["epoch begun", "segment written", "job done", "sink written", "manifest written"]
GIVEN = settings(
    max_examples=GRAPHS,
    derandomize="ANABRANCH_PROGRAMS" not in os.environ,
    print_blob=True,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
POLICIES = ["skip", "dead_letter", "dead_letter", "dead_letter"]


def planted(recipe, inputs, seed, rarity, policies):
    """The program of a recipe with operators that fail for some tuples, by a policy; and with their letters."""
    chance = random.Random(seed)

    def plant(number, stream, _):
        if chance.random() < 0.6:
            chosen = chance.choice(sorted(PLANTS))
            policy = chance.choice(policies)
            stream = PLANTS[chosen](stream.on_error(policy), Meets(f"{seed} {number}", rarity)).on_error("fail")
        return stream

    streams = build(recipe, inputs, mark=plant)
    try:
        return [*streams, streams[0].dead_letters(*streams[1:])]
    except ProgramError:
        return streams


@GIVEN
@given(
    case=cases(steps_max=6, epochs_max=3),
    channels=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    times=clocks,
    rarity=st.sampled_from([3, 9, 25]),
    policies=st.sampled_from([POLICIES, POLICIES, [*POLICIES, "fail"]]),
    splits=st.booleans(),
)
def test_outputs_and_letters_are_those_of_one_thread(case, channels, seed, times, rarity, policies, splits):
    recipe, inputs = case
    streams = planted(recipe, inputs, seed, rarity, policies)
    expected = sequential(streams, times, epochs_max=12)
    assume("still fed back" not in expected.error)
    found = parallel(streams, channels, seed, times, fresh_tasks=False, split_hot_keys=splits)
    assume("no source" not in found.refused)
    assert found == expected


class CrashError(Exception):
    pass


@settings(GIVEN, max_examples=max(GRAPHS // 4, 4))
@given(
    case=cases(steps_max=4, epochs_max=4),
    channels=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    crashes=st.lists(st.tuples(st.sampled_from(POINTS), st.integers(0, 3)), min_size=1, max_size=4),
)
def test_crashes_change_nothing(case, channels, seed, crashes):
    recipe, inputs = case
    streams = planted(recipe, inputs, seed, 4, POLICIES)
    run = SequentialRun([stream._node for stream in streams])
    try:
        run.run_epochs((1,), epochs_max=12)
    except (OperatorError, StateError, ProgramError):
        assume(False)
    left = list(crashes)

    def crash(point, facts):
        if (point, facts.get("epoch")) in left:
            left.remove((point, facts.get("epoch")))
            raise CrashError(point)

    with tempfile.TemporaryDirectory() as scratch:
        written = {}
        faults.install(crash)
        try:
            for _ in range(len(crashes) + 1):
                try:
                    made = ParallelRun(streams, scratch, channels=channels, seed=seed, clocks_ms=(1,), written=written)
                except ProgramError as refused:
                    assume("no source" not in str(refused))
                    raise
                try:
                    made.run_epochs()
                    break
                except CrashError:
                    continue
        finally:
            faults.install(None)
        assert repr(made.outputs) == repr(run.outputs)


# -- what a call that fails leaves behind: nothing --------------------------------------------------------------


class Holds(ab.Operator):
    """Changes its state in every way it can, and then may fail."""

    number: int = ab.state(default=0)
    held: list = ab.state(factory=list)
    nested: dict = ab.state(factory=dict)
    seen = ab.store()

    def process(self, t):
        self.number += 1
        self.held.append(t.x)
        self.nested.setdefault("a", []).append(t.x)
        self.seen.put(t.x, [t.x])
        yield (t.k, self.number, str(self.held), str(self.nested), len(self.seen))
        if t.x % 3 == 0:
            raise BoomError(f"three at {t.x}")


class Own:
    """Keeps its own dicts, by key or not."""

    def __init__(self, whole):
        self.whole, self.counts, self.all = whole, {}, []

    def __call__(self, t):
        if self.whole:
            self.all.append(t.x)
        self.counts[t.k] = [*self.counts.get(t.k, []), t.x]
        if t.x % 3 == 0:
            raise BoomError("three")
        return (t.k, str(self.counts[t.k]), len(self.all))


ROWS = [(f"k{x % 4}", x) for x in range(40)]


def test_a_call_that_fails_has_no_effect():
    stream = ab.from_rows(ROWS, "k string, x long", rows_per_epoch=9)
    made = stream.process(Holds(), by="k", schema="k string, n long, h string, d string, m long", on_error="skip")
    good = ab.from_rows([row for row in ROWS if row[1] % 3], "k string, x long")
    without = good.process(Holds(), by="k", schema="k string, n long, h string, d string, m long")
    assert made.run_sequential() == without.run_sequential()
    assert compare(made).verdict == "equal"


@pytest.mark.parametrize("whole", [False, True])
def test_what_an_operator_keeps_by_itself_is_put_back_too(whole):
    columns = "k string, h string, n long"
    stream = ab.from_rows(ROWS, "k string, x long", rows_per_epoch=9)
    made = stream.process(Own(whole), schema=columns, on_error="dead_letter")
    good = ab.from_rows([row for row in ROWS if row[1] % 3], "k string, x long")
    assert made.run_sequential() == good.process(Own(whole), schema=columns).run_sequential()
    assert compare([made, made.dead_letters()]).verdict == "equal"


def test_a_key_that_cannot_be_computed_is_a_call_that_fails():
    counts = {}

    def counted(t):
        counts[t.x // (t.x % 4)] = counts.get(t.x // (t.x % 4), 0) + 1
        return (t.x, counts[t.x // (t.x % 4)])

    made = ab.from_rows(ROWS, "k string, x long").process(counted, schema="x long, n long", on_error="dead_letter")
    compared = compare([made, made.dead_letters()])
    assert (compared.verdict, len(compared.sequential.rows[1])) == ("equal", 10), compared.difference


class Late(ab.Operator):
    """Sets timers, some of which fail."""

    total: int = ab.state(default=0)

    def process(self, t):
        self.total += t.x
        self.timers.at(t.x + 3)
        if t.x % 7 == 0:
            raise BoomError("seven")

    def on_timer(self, at):
        self.total += 1000
        if at % 4 == 0:
            raise BoomError(f"at {at}")
        yield (at, self.total)


class Marks(ab.Operator):
    total: int = ab.state(default=0)

    def process(self, t):
        self.total += t.x

    def on_punctuation(self):
        self.total += 1000
        if self.total % 2 == 0:
            raise BoomError("even")
        yield (self.total, self.total)


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_timers_and_punctuations_that_fail_are_not_called_again(policy):
    stream = ab.from_rows(ROWS, "k string, x long", rows_per_epoch=7)
    timed = stream.event_time("x").process(Late(), by="k", schema="at long, n long", on_error=policy)
    marked = stream.punctuate(lambda t: t.x % 5 == 4).process(Marks(), by="k", schema="a long, n long", on_error=policy)
    streams = [timed, marked, *([timed.dead_letters(marked)] if policy == "dead_letter" else [])]
    compared = compare(streams, ((1, 1), (3, 2), (5, 3)))
    assert compared.verdict == "equal", compared.difference
    assert compared.sequential.rows[0] and compared.sequential.rows[1]
    if policy == "dead_letter":
        told = [json.loads(eval(row)[0]) for row in compared.sequential.rows[2]]
        assert {"key": "k1"} in told and any("x" in each for each in told)


def test_what_the_library_does_with_time_fails_the_epoch():
    result = ab.agg.custom(create=lambda: 0, add=lambda total, t: total + 1, result=lambda n: 1 // 0, type="long")
    stream = ab.from_rows(ROWS, "k string, x long").event_time("x").on_error("skip")
    made = stream.aggregate(by="k", window=ab.event_time("x", 10), n=result)
    compared = compare(made)
    assert (compared.verdict, "ZeroDivisionError" in compared.sequential.error) == ("equal", True)


# -- letters ------------------------------------------------------------------------------------------------------


def test_a_letter_tells_tuple_operator_line_error_and_epoch():
    rows = [(1, "a", None), (0, "b", datetime.date(2024, 1, 2)), (2, "c", None)]
    stream = ab.from_rows(rows, "x long, s string, d date", rows_per_epoch=1)
    made = stream.map(lambda t: (2 // t.x,), schema="y long", name="inverse", on_error="dead_letter")
    assert made.run_sequential() == [(2,), (1,)]
    (letter,) = made.dead_letters().run_sequential()
    assert json.loads(letter["tuple"]) == {"x": 0, "s": "b", "d": "2024-01-02"}
    line = f"{__file__}:{test_a_letter_tells_tuple_operator_line_error_and_epoch.__code__.co_firstlineno + 3}"
    told = ("inverse", line, "ZeroDivisionError: integer division or modulo by zero", 1)
    assert tuple(letter)[1:] == told


def test_a_letter_has_all_columns_of_its_tuple_also_those_that_nobody_reads():
    source = ab.from_rows([(1, 0, "x"), (1, 2, "y"), (2, 0, None)], "k long, v long, unused string")
    inverse = ab.agg.custom(int, lambda a, v: a + 10 // v, lambda a: a, "long", attribute="v")
    found = source.aggregate(by="k", window=ab.count(1), n=inverse, on_error="dead_letter")
    letters = found.dead_letters().select("tuple")
    expected = [('{"k": 1, "v": 0, "unused": "x"}',), ('{"k": 2, "v": 0, "unused": null}',)]
    assert letters.run_sequential() == run_parallel(letters, channels=3) == expected


def test_letters_go_on_as_any_stream_does():
    stream = ab.from_rows([(x % 5, "s", float(x)) for x in range(60)], COLUMNS, rows_per_epoch=11)
    first = stream.on_error("dead_letter").map(raising(Meets("a", 4), lambda t: t), schema=COLUMNS)
    second = first.filter(raising(Meets("b", 4), lambda t: True), name="second")
    letters = second.dead_letters()
    counted = letters.aggregate(by="operator", window=ab.tumbling(2), n=ab.agg.count(), last=ab.agg.last("epoch"))
    compared = compare([second, letters, counted], ((1, 1), (4, 2)))
    assert compared.verdict == "equal", compared.difference
    assert {eval(row)[1] for row in compared.sequential.rows[1]} == {"map", "second"}


def test_counts_are_in_the_progress(tmp_path):
    stream = ab.from_rows([(x, "s", 1.0) for x in range(30)], COLUMNS)
    made = stream.map(lambda t: (1 // (t.k % 10),), schema="y long", on_error="skip", name="inverse")
    run = ParallelRun(made, str(tmp_path), channels=2)
    run.run_epochs()
    assert run.progress[0].anomalies == {"inverse": {"skipped": 3}}


def test_explain_tells_the_policy(capsys):
    stream = ab.from_rows([(1, "s", 1.0)], COLUMNS).on_error("skip")
    stream.map(lambda t: (1 // t.k,), schema="y long").explain()
    assert "on_error=skip: a call that fails has no effect" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.map(lambda t: t, schema=COLUMNS, on_error="ignore"), "on_error='ignore'; expected 'fail', 'skip'"),
        (lambda s: s.on_error("drop"), "on_error at .*'drop'"),
        (lambda s: s.map(lambda t: t, schema=COLUMNS, on_error="skip").dead_letters(), "no operator before it has"),
        (lambda s: s.dead_letters(), "no operator before it has"),
    ],
)
def test_mistakes_are_told(build, message):
    with pytest.raises(ProgramError, match=message):
        build(ab.from_rows([(1, "s", 1.0)], COLUMNS))


def test_an_undeclared_attribute_fails_in_any_case():
    operator = Fails()
    operator.how, operator.meets = "keeps", Meets("x", 2)
    stream = ab.from_rows([(x % 3, "s", float(x)) for x in range(30)], COLUMNS)
    compared = compare(stream.process(operator, by="k", schema=COLUMNS, on_error="skip"))
    assert (compared.verdict, compared.sequential.error[:10]) == ("equal", "StateError")


# -- elastic operators ----------------------------------------------------------------------------------------------


def slow_inverse(t):
    time.sleep(0.0005 * (t.x % 3))
    return (t.x, 10 // (t.x % 6))


async def later_inverse(t):
    await asyncio.sleep(0.0005 * (t.x % 3))
    return (t.x, 10 // (t.x % 6))


def slow_many(t):
    yield (t.x, 0)
    time.sleep(0.0005)
    if t.x % 6 == 0:
        raise BoomError("six")
    yield (t.x, 1)


ELASTIC = {
    "map": lambda s, **e: s.map(slow_inverse, schema="x long, n long", **e),
    "async": lambda s, **e: s.map(later_inverse, schema="x long, n long", **e),
    "flat_map": lambda s, **e: s.flat_map(slow_many, schema="x long, n long", **e),
    "filter": lambda s, **e: s.filter(lambda t: 10 // (t.x % 6), **e),
    "misfit": lambda s, **e: s.map(lambda t: (t.x, "six" if t.x % 6 == 0 else 1), schema="x long, n long", **e),
    "retries": lambda s, **e: s.map(slow_inverse, schema="x long, n long", retries=1, **e),
    "late": lambda s, **e: s.map(
        lambda t: time.sleep(0.2 * (t.x == 6)) or (t.x, 1), schema="x long, n long", timeout=0.1, **e
    ),
}


@pytest.mark.parametrize("which", sorted(ELASTIC))
def test_elastic_operators_follow_the_policy_too(which):
    stream = ab.from_rows([(x,) for x in range(37)], "x long", rows_per_epoch=20)
    made = ELASTIC[which](stream, elastic=True, max_workers=4, period=0.01, on_error="dead_letter")
    streams = [made, made.dead_letters()]
    expected = sequential(streams)
    assert len(expected.rows[1]) == (1 if which == "late" else 7)
    assert parallel(streams, channels=2, fresh_tasks=False) == expected
    skipping = ELASTIC[which](stream, elastic=True, max_workers=4, period=0.01, on_error="skip")
    assert parallel([skipping], channels=2, fresh_tasks=False).rows == expected.rows[:1]
