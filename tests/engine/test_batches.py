"""Channels work on whole batches; what user code emits must not depend on it."""

import datetime

import pytest

import anabranch as ab
from anabranch.testing import run_parallel

ROWS = [(1, 2), (1, 3), (2, 4), (1, 5)]


def source() -> ab.Stream:
    return ab.from_rows(ROWS, "k long, x long")


class Seen(ab.Operator):
    """Emits its own state, which the next tuple changes in place."""

    seen = ab.state(factory=list)

    def process(self, t):
        self.seen.append(t.x)
        yield (t.k, self.seen)


class SeenByReturn(Seen):
    def process(self, t):
        self.seen.append(t.x)
        return (t.k, self.seen)


class Reused(ab.Operator):
    """Emits one dict again and again."""

    record = ab.state(factory=dict)

    def process(self, t):
        self.record["k"], self.record["total"] = t.k, self.record.get("total", 0) + t.x
        yield self.record


def always_the_same(record={}):  # noqa: B006 - that it is shared is the point
    def function(t):
        record["k"], record["total"] = t.k, t.x
        return record

    return function


SAME = always_the_same()


def same_again(t):
    yield SAME(t)
    yield SAME(t.but(x=0))


def buffer_of(t, shared=bytearray(1)):  # noqa: B008 - that it is shared is the point
    shared[0] = t.x
    return (t.k, shared)


@pytest.mark.parametrize(
    "program",
    [
        source().process(Seen(), by="k", schema="k long, seen array<long>"),
        source().process(SeenByReturn(), by="k", schema="k long, seen array<long>"),
        source().process(Reused(), by="k", schema="k long, total long"),
    ],
    ids=["state, yielded", "state, returned", "one dict"],
)
def test_an_output_is_what_it_was_when_it_was_emitted(program):
    assert run_parallel(program, channels=2) == program.run_sequential()


@pytest.mark.parametrize(
    "program",
    [
        source().map(always_the_same(), schema="k long, total long"),
        source().flat_map(same_again, schema="k long, total long"),
        source().map(buffer_of, schema="k long, data binary"),
    ],
    ids=["map", "flat_map", "a buffer"],
)
def test_a_function_that_remembers_runs_in_one_channel(program):
    assert run_parallel(program, channels=2) == program.run_sequential()


def test_the_values_of_these_tests_do_change():
    assert source().process(Seen(), by="k", schema="k long, seen array<long>").run_sequential() == [
        (1, [2]),
        (1, [2, 3]),
        (2, [4]),
        (1, [2, 3, 5]),
    ]


def test_operators_see_the_same_values_in_both_ways_of_running():
    """Also inside arrays and structs, and to the last attribute: their text is compared."""
    moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    schema = "k long, at timestamp, xs array<map<string,timestamp>>, s struct<m:map<bigint,boolean>>"
    rows = [(1, moment, [{"a": moment}, None], {"m": {1: True}}), (2, None, None, None)]
    program = ab.from_rows(rows, schema).process(AsText(), by="k", schema="text string")
    assert run_parallel(program) == program.run_sequential()


class AsText(ab.Operator):
    def process(self, t):
        return repr(t)
