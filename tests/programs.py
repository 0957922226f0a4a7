"""Random programs and random data, for tests that compare ways of running them.

All operators take and give the columns ``k long, s string, x double``, so that any chain of them is a
program. Together they cover: dropping, multiplying, changing the key, state by one column, by another, by
both, state of several types, windows of both kinds.
"""

from __future__ import annotations

import collections
import time

from hypothesis import strategies as st

import anabranch as ab
from anabranch import agg, delta, tumbling

COLUMNS = "k long, s string, x double"


def slow(stream: ab.Stream, cost_s: float) -> ab.Stream:
    """The stream, each tuple of which has taken some time."""

    @ab.model(state="stateless", selectivity="1:1", forwards="*")
    def waiting(t):
        time.sleep(cost_s)
        return t

    return stream.map(waiting, schema=stream.schema, name="slow")


class Running(ab.Operator):
    """A running sum, in stream order: any change of order shows in its last bits."""

    total: float = ab.state(default=0.1)
    seen: int = ab.state(default=0)

    def process(self, t):
        self.total = self.total / 3 + (t.x or 0.0)
        self.seen += 1
        yield t.but(x=self.total + self.seen)


class Plain(ab.Operator):
    """A sum per key, named by a string."""

    total: float = ab.state(default=0.0)

    def process(self, t):
        self.total += t.x
        yield (t.k, self.total)


class Jump(ab.Operator):
    """Passes a tuple only if it is far from the last one passed."""

    threshold: float = 2.0
    stored: float = ab.state(default=float("-inf"))

    def process(self, t):
        if t.x is not None and abs(t.x - self.stored) > self.threshold:
            self.stored = t.x
            yield t


class History(ab.Operator):
    """State that no Arrow column holds, changed in place; emits several tuples, or none."""

    recent: collections.deque = ab.state(factory=lambda: collections.deque(maxlen=3))
    names: set = ab.state(factory=set)

    def process(self, t):
        self.recent.append(t.x)
        self.names.add(t.s)
        if len(self.recent) == 3:
            for at, x in enumerate(self.recent):
                yield (t.k, t.s, x if x is None else x + at + len(self.names))


class Last(ab.Operator):
    """Returns instead of yielding; keeps whatever type comes."""

    last = ab.state(default=None)

    def process(self, t):
        before, self.last = self.last, t.x if t.k is None or t.k % 2 else t.s
        return None if before is None else t.but(s=str(before))


def _mean(stream: ab.Stream) -> ab.Stream:
    means = stream.aggregate(by="k", window=tumbling(3), x=agg.avg("x"), s=agg.last("s"), n=agg.count("x"))
    return means.map(lambda t: (t.k, t.s, t.x), schema=COLUMNS)


def _rising(stream: ab.Stream) -> ab.Stream:
    dense = stream.filter(lambda t: t.x is not None and t.x == t.x)
    windows = dense.aggregate(
        by=["s", "k"], window=tumbling(delta("x", 1.5)), x=agg.sum("x"), low=agg.min("x"), all=agg.collect("x")
    )
    return windows.map(lambda t: (t.k, t.s, t.x + len(t.all) - (t.low or 0)), schema=COLUMNS)


STEPS = {
    "filter": lambda s: s.filter(lambda t: t.x is None or not t.x > 3),
    "halve": lambda s: s.map(lambda t: t.but(x=None if t.x is None else t.x / 2), schema=COLUMNS),
    "rekey": lambda s: s.map(
        lambda t: t.but(k=None if t.x is None or abs(t.x) == float("inf") or t.x != t.x else int(t.x) % 3),
        schema=COLUMNS,
    ),
    "repeat": lambda s: s.flat_map(lambda t: [t.but(s=f"{t.s}{n}") for n in range((t.k or 0) % 3)], schema=COLUMNS),
    "nothing": lambda s: s.flat_map(lambda t: None, schema=COLUMNS),
    "running": lambda s: s.process(Running(), by="k", schema=COLUMNS),
    "running by name": lambda s: s.process(Running(), by="s", schema=COLUMNS),
    "jump": lambda s: s.process(Jump(), by="k"),
    "jump by both": lambda s: s.process(Jump(threshold=0.5), by=["k", "s"]),
    "jump by number": lambda s: s.process(Jump(), by="x"),
    "history": lambda s: s.process(History(), by="s", schema=COLUMNS),
    "last": lambda s: s.process(Last(), by="k", schema=COLUMNS),
    "mean": _mean,
    "rising": _rising,
}


def build(stream: ab.Stream, steps: list[str]) -> ab.Stream:
    """The program with these operators in a row."""
    for step in steps:
        stream = STEPS[step](stream)
    return stream


# Few distinct values, the first far more likely than the rest: skewed keys, many ties, all kinds of null.
keys = st.one_of(st.just(1), st.just(1), st.integers(0, 6), st.none())
names = st.one_of(st.just("a"), st.sampled_from(["", "a", "b", "é", "a longer name than eight bytes"]), st.none())
numbers = st.one_of(
    st.integers(-4, 8).map(float), st.floats(-5, 5), st.sampled_from([-0.0, 0.0, float("nan"), float("inf")]), st.none()
)
rows = st.tuples(keys, names, numbers)
epochs = st.lists(st.lists(rows, max_size=25), min_size=1, max_size=4)
programs = st.lists(st.sampled_from(sorted(STEPS)), min_size=0, max_size=6)


def exact(rows: list[ab.Row]) -> list[str]:
    """Rows as text that tells apart what == does not: -0.0 and 0.0, 1 and 1.0; and NaN equals NaN."""
    return [repr(row) for row in rows]
