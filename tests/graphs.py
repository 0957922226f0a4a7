"""Random programs that are graphs, for tests that compare ways of running them.

A recipe is a list of steps; each names an operator and which of the streams made so far it reads. All streams
have the columns ``k long, s string, x double``, so that anything can follow anything. Together the operators
cover fan-in and fan-out, several sources and outputs, shuffles between different keys, all selectivities,
windows of every kind, punctuations, time, joins, sorting, patterns, routes and feedback.
"""

from __future__ import annotations

import dataclasses
import random

from hypothesis import strategies as st

import anabranch as ab
from anabranch import agg, count, delta, event_time, punctuation, sliding, step, time, tumbling
from anabranch.api.session import from_epochs
from tests.programs import COLUMNS, STEPS


class Every(ab.Operator):
    """No key: runs in one channel."""

    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        if self.seen % 3 == 1:
            yield t.but(x=float(self.seen))
            if self.seen % 2:
                yield t


class Global:
    """Ordinary code that no key can be found for."""

    def __init__(self):
        self.last = None

    def __call__(self, t):
        before, self.last = self.last, t.s
        if before != t.s:
            yield t.but(s=f"{before}>{t.s}"[-8:])


def _number(t):
    return None if t.x is None or t.x != t.x or abs(t.x) > 100 else t.x


def _dense(stream):
    return stream.filter(lambda t: t.x is not None and t.x == t.x and abs(t.x) < 100)


def _columns(stream):
    return stream.map(lambda t: (t.k, t.s, t.x), schema=COLUMNS)


MORE = {
    "sliding": lambda s: _columns(
        s.aggregate(by="k", window=sliding(count(3), every=2), x=agg.sum("x"), s=agg.first("s"))
    ),
    "sliding delta": lambda s: _columns(
        _dense(s).aggregate(
            by="s", window=sliding(delta("x", 2.0), every=delta("x", 1.0)), x=agg.max("x"), k=agg.last("k")
        )
    ),
    "events": lambda s: _columns(
        _dense(s).aggregate(
            by="k", window=tumbling(event_time("x", 2.0, lateness=1.0)), s=agg.last("s"), x=agg.sum("x")
        )
    ),
    "timed": lambda s: _columns(s.aggregate(by="k", window=tumbling(time(2)), s=agg.last("s"), x=agg.count("x"))).map(
        lambda t: t.but(x=float(t.x)), schema=COLUMNS
    ),
    "punctuate": lambda s: s.punctuate(lambda t: t.k == 1),
    "punctuate twice": lambda s: (
        s.punctuate(lambda t: t.k == 2).filter(lambda t: t.k != 3).punctuate(lambda t: t.s == "b")
    ),
    "punctuated": lambda s: _columns(
        s.punctuate(lambda t: t.k == 1).aggregate(
            by="s", window=tumbling(punctuation()), k=agg.first("k"), x=agg.sum("x")
        )
    ),
    "punctuated far": lambda s: _columns(
        s.punctuate(lambda t: t.k == 1)
        .process(STEPS_OPERATORS["last"](), by="k", schema=COLUMNS)
        .aggregate(by="s", window=tumbling(punctuation()), k=agg.first("k"), x=agg.last("x"))
    ),
    "sort": lambda s: s.sort("x", window=count(3), key="k"),
    "sort all": lambda s: s.sort(["k", "x"], window=count(2)),
    "sort windows": lambda s: s.punctuate(lambda t: t.k == 1).sort("x", window=punctuation(), key="s"),
    "unique": lambda s: s.deduplicate(by=["k", "s"]),
    "recently unique": lambda s: s.deduplicate(by="s", within=count(2)),
    "match": lambda s: s.match(
        by="k",
        pattern=[
            step("low", lambda t: (_number(t) or 0) < 1),
            step("high", lambda t: (_number(t) or 0) >= 1).one_or_more(),
        ],
        emit=lambda m: (m.low[0].k, m.low[0].s, float(len(m.high))),
        schema=COLUMNS,
    ),
    "spread": lambda s: s.spread().map(lambda t: t.but(s=None if t.s is None else t.s.upper()), schema=COLUMNS),
    "every": lambda s: s.process(Every(), by="k", schema=COLUMNS),
    "global": lambda s: s.process(Global(), schema=COLUMNS),
}
TWO = {
    "union": lambda a, b: a.union(b),
    "join": lambda a, b: a.join(
        b, by="k", window=count(2), function=lambda one, other: (one.k, other.s, one.x), schema=COLUMNS
    ),
    "outer join": lambda a, b: a.join(
        b,
        by="s",
        window=count(1),
        how="outer",
        function=lambda one, other: ((one or other).k, (other or one).s, None if one is None else one.x),
        schema=COLUMNS,
    ),
    "enrich": lambda a, b: _columns(a.enrich(b.map(lambda t: (t.k, t.s), schema="k long, other string"), by="k")),
    "combine": lambda a, b: _dense(a).combine(_dense(b), on="x"),
    "combine by": lambda a, b: _dense(a).combine(_dense(b), on="x", by="k"),
}


class _Last(ab.Operator):
    last = ab.state(default=None)

    def process(self, t):
        before, self.last = self.last, t.s
        return None if before is None else t.but(s=str(before))


STEPS_OPERATORS = {"last": _Last}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A program: its sources, its steps, its outputs, and whether the first output is fed back."""

    sources: int
    steps: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[int, ...]
    loop: bool
    loop_from: int = 0


def build(recipe: Recipe, inputs, session=None) -> list[ab.Stream]:
    """The output streams of a recipe."""
    made = [from_epochs(each, COLUMNS, session=session) for each in inputs]
    loop = ab.feedback(COLUMNS, session=session) if recipe.loop else None
    if loop is not None:
        made.append(loop)
    for name, reads in recipe.steps:
        streams = [made[at % len(made)] for at in reads]
        if name == "route":
            made += streams[0].route(lambda t: (t.k or 0) % 3, 3)
        elif name == "split":
            made += streams[0].split(lambda t: t.k is None, lambda t: t.s == "a")
        elif name in TWO:
            made.append(TWO[name](*streams[:2]))
        else:
            made.append({**STEPS, **MORE}[name](streams[0]))
    if loop is not None:
        # Each time round a letter more, so that it ends.
        back = made[recipe.loop_from % len(made)].filter(lambda t: t.s is not None and len(t.s) < 4)
        loop.close(back.map(lambda t: t.but(s=t.s + "z"), schema=COLUMNS))
    return [made[at % len(made)] for at in recipe.outputs]


@st.composite
def recipes(draw, steps_max: int = 10):
    """Random programs of up to so many steps (a step may be several operators)."""
    sources = draw(st.sampled_from([1, 1, 2, 3]))
    loop = draw(st.sampled_from([False, False, False, True]))
    names = sorted(({*STEPS, *MORE} - {"nothing"}) | {*TWO, "route", "split"}) + sorted(TWO)
    steps = []
    made = sources + loop
    for _ in range(draw(st.integers(2, steps_max))):
        name = draw(st.sampled_from(names))
        # What was made last is read most often: chains with branches rather than bushes.
        reads = tuple(made - 1 - min(draw(st.integers(0, 3)), draw(st.integers(0, made - 1))) for _ in range(2))
        steps.append((name, reads))
        made += 3 if name in ("route", "split") else 1
    ends = draw(st.lists(st.integers(sources, made - 1), max_size=4, unique=True))
    return Recipe(sources, tuple(steps), (made - 1, *ends), loop, draw(st.integers(0, made - 1)))


def data(seed: int, rows: int, epochs_max: int = 4) -> list[list[tuple]]:
    """Epochs of rows: few distinct values, skewed keys, many ties, all kinds of null."""
    chance = random.Random(seed)
    found = [
        (
            chance.choice([1, 1, 1, 0, 2, 3, 4, 5, 6, None]),
            chance.choice(["a", "a", "a", "b", "b", "", "é", "a longer name than eight bytes", None]),
            chance.choice([chance.randrange(-4, 8) * 1.0, chance.uniform(-5, 5), chance.choice(EDGES)]),
        )
        for _ in range(rows)
    ]
    cuts = sorted(chance.randrange(rows + 1) for _ in range(chance.randrange(epochs_max)))
    return [found[start:stop] for start, stop in zip([0, *cuts], [*cuts, rows], strict=True)]


EDGES = [-0.0, 0.0, float("nan"), float("inf"), None, 0.5]


@st.composite
def cases(draw, steps_max: int = 10, epochs_max: int = 4):
    """A program, and data for each of its sources."""
    recipe = draw(recipes(steps_max))
    sizes = st.sampled_from([40, 60, 90, 10, 3, 0])
    return recipe, [data(draw(st.integers(0, 10**6)), draw(sizes), epochs_max) for _ in range(recipe.sources)]


clocks = st.lists(st.integers(0, 4000), min_size=1, max_size=6).map(sorted)
