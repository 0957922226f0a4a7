"""Random programs over event time: streams of ``k long, at long, x long``, with one source or two."""

from __future__ import annotations

from hypothesis import strategies as st

import anabranch as ab

COLUMNS = "k long, at long, x long"


class Running(ab.Operator):
    """A running sum per key: state, but nothing that waits."""

    total: int = ab.state(default=0)

    def process(self, t):
        self.total += t.x
        yield (t.k, t.at, self.total)


def both_sums(one, other):
    return [max(one[0], other[0]), max(one[1], other[1]), one[2] * 3 + other[2]]


class Blocks(ab.Operator):
    """Something of every four tuples, and of what is left at the end of the input."""

    held = ab.accumulator(lambda: [0, -9, 0], merge=both_sums)

    def process(self, t):
        self.held = both_sums(self.held, [t.k, t.at, t.x])

    def result(self):
        yield tuple(self.held)


def twice(t):
    yield (t.k, t.at, t.x)
    if t.x % 3 == 0:
        yield (t.k + 1, t.at - 2, -t.x)


def windows(stream: ab.Stream, size: int, every: int | None = None, key: str | None = "k", **more) -> ab.Stream:
    policy = ab.event_time("at", size, **more)
    found = stream.aggregate(
        by=key,
        window=policy if every is None else ab.sliding(policy, every=every),
        at=ab.agg.window_start(),
        x=ab.agg.sum("x"),
        n=ab.agg.count(),
        first=ab.agg.first("x"),
        why=ab.agg.emission(),
    )
    return found.map(lambda t: ((t.k if key else 0), t.at, t.x * 100 + t.n * 10 + t.first + len(t.why)), schema=COLUMNS)


def forked(stream: ab.Stream) -> ab.Stream:
    even, odd = stream.split(lambda t: t.k % 2 == 0)
    return even.map(lambda t: (t.k, t.at, t.x + 1), schema=COLUMNS).union(odd)


def whole(stream: ab.Stream) -> ab.Stream:
    found = stream.aggregate(by=None, window=ab.event_time("at", 10), at=ab.agg.window_start(), x=ab.agg.sum("x"))
    return found.map(lambda t: (0, t.at, t.x), schema=COLUMNS)


STEPS = {
    "map": lambda s: s.map(lambda t: (t.k, t.at, t.x * 2), schema=COLUMNS),
    "filter": lambda s: s.filter(lambda t: t.x % 4 != 1),
    "twice": lambda s: s.flat_map(twice, schema=COLUMNS),
    "running": lambda s: s.process(Running(), by="k", schema=COLUMNS),
    "tumbling": lambda s: windows(s, 10),
    "sliding": lambda s: windows(s, 9, 3),
    "staying": lambda s: windows(s, 6, lateness=7),
    "early": lambda s: windows(s, 12, early=3),
    "both": lambda s: windows(s, 8, 4, early=3, lateness=5),
    "per key": lambda s: s.aggregate(
        by="k", window=ab.event_time("at", 5, per_key=True), at=ab.agg.window_start(), x=ab.agg.sum("x")
    ),
    "whole": whole,
    "forked": forked,
    "united": lambda s: s.union(s.filter(lambda t: t.x > 0)),
    "again": lambda s: s.event_time("at", 3, every=2),
    "spread": lambda s: s.spread(),
    "blocks": lambda s: s.accumulate(Blocks(), COLUMNS, block=2, every=4),
    "counted": lambda s: s.aggregate(by="k", window=ab.tumbling(2), at=ab.agg.max("at"), x=ab.agg.sum("x")),
}


def build(stream: ab.Stream, steps: list[str]) -> ab.Stream:
    for step in steps:
        stream = STEPS[step](stream)
    return stream


@st.composite
def rows(draw, most=40):
    """Times that rise, with disorder and jumps; few keys."""
    at, found = draw(st.integers(-5, 5)), []
    for _ in range(draw(st.integers(0, most))):
        at += draw(st.sampled_from([0, 0, 1, 1, 2, 5, 17]))
        back = draw(st.sampled_from([0, 0, 0, 1, 4, 9, 30]))
        found.append((draw(st.integers(0, 3)), at - back, draw(st.integers(-3, 6))))
    return found


@st.composite
def cuts(draw, data, most=4):
    """The same rows, cut into epochs."""
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=most - 1)))
    return [data[start:stop] for start, stop in zip([0, *places], [*places, len(data)], strict=True)]
