"""Channels work on whole batches; what user code emits must not depend on it."""

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


def buffer_of(t, shared=bytearray(1)):  # noqa: B008 - that it is shared is the point
    shared[0] = t.x
    return (t.k, shared)


@pytest.mark.parametrize(
    "program",
    [
        source().process(Seen(), by="k", schema="k long, seen array<long>"),
        source().process(SeenByReturn(), by="k", schema="k long, seen array<long>"),
        source().process(Reused(), by="k", schema="k long, total long"),
        source().map(always_the_same(), schema="k long, total long"),
        source().flat_map(lambda t, f=always_the_same(): [f(t), f(t.but(x=0))][:1], schema="k long, total long"),
        source().map(buffer_of, schema="k long, data binary"),
    ],
    ids=["state, yielded", "state, returned", "one dict", "map", "flat_map", "a buffer"],
)
def test_an_output_is_what_it_was_when_it_was_emitted(program):
    assert run_parallel(program, channels=2) == program.run_sequential()


def test_the_values_of_these_tests_do_change():
    assert source().process(Seen(), by="k", schema="k long, seen array<long>").run_sequential() == [
        (1, [2]),
        (1, [2, 3]),
        (2, [4]),
        (1, [2, 3, 5]),
    ]
