# mypy: disable-error-code="no-untyped-def,no-untyped-call,no-any-return,arg-type"
"""Random programs: graphs of operators that users could have written, and data for them.

A recipe is a list of steps; each names an operator and which of the streams made so far it reads. All streams have the
columns ``k long, s string, x double``, so that anything can follow anything. Together the operators cover dropping and
multiplying, fan-in and fan-out, several sources and outputs, shuffles between different keys, state of many types,
windows of every kind, punctuations, time, joins, sorting, patterns, routes and feedback.
"""

from __future__ import annotations

import collections
import dataclasses
import random
from typing import Any

import anabranch as ab
from anabranch import agg, count, delta, event_time, punctuation, sliding, step, time, tumbling
from anabranch.api.session import from_epochs

COLUMNS = "k long, s string, x double"


class Running(ab.Operator):
    """A running sum, in stream order: any change of order shows in its last bits."""

    total: float = ab.state(default=0.1)
    seen: int = ab.state(default=0)

    def process(self, t):
        self.total = self.total / 3 + (t.x or 0.0)
        self.seen += 1
        yield t.but(x=self.total + self.seen)


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
        .process(Before(), by="k", schema=COLUMNS)
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


class Before(ab.Operator):
    """The name that came before, for each key."""

    last = ab.state(default=None)

    def process(self, t):
        before, self.last = self.last, t.s
        return None if before is None else t.but(s=str(before))


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A program: its sources, its steps, its outputs, and whether the first output is fed back."""

    sources: int
    steps: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[int, ...]
    loop: bool
    loop_from: int = 0


def build(recipe: Recipe, inputs: Any, session: Any = None, mark: Any = None) -> list[ab.Stream]:
    """The output streams of a recipe; `inputs` are the epochs of every source.

    `mark`, if given, is called with the number of a step, what it made and what it read, and may say more of it.
    """
    made: list[ab.Stream] = [from_epochs(each, COLUMNS, session=session) for each in inputs]
    loop = ab.feedback(COLUMNS, session=session) if recipe.loop else None
    if loop is not None:
        made.append(loop)
    for number, (name, reads) in enumerate(recipe.steps):
        streams = [made[at % len(made)] for at in reads]
        if name == "route":
            made += streams[0].route(lambda t: (t.k or 0) % 3, 3)
        elif name == "split":
            made += streams[0].split(lambda t: t.k is None, lambda t: t.s == "a")
        elif name in TWO:
            made.append(TWO[name](*streams[:2]))
        else:
            made.append({**STEPS, **MORE}[name](streams[0]))
        if mark is not None:
            made[-1] = mark(number, made[-1], streams[0])
    if loop is not None:
        # Each time round a letter more, so that it ends.
        back = made[recipe.loop_from % len(made)].filter(lambda t: t.s is not None and len(t.s) < 4)
        loop.close(back.map(lambda t: t.but(s=t.s + "z"), schema=COLUMNS))
    return [made[at % len(made)] for at in recipe.outputs]


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


CHEAP = ("filter", "halve", "rekey", "repeat", "spread", "union", "punctuate")
"""What has no state, or only joins streams: seldom a program's whole point."""


def random_recipe(chance: random.Random, steps_max: int = 4) -> Recipe:
    """A random program of up to so many steps, at least one of which has state."""
    sources = chance.choice([1, 1, 1, 2])
    loop = chance.random() < 0.15
    names = [*sorted({*STEPS, *MORE, *TWO, "route", "split"} - {"nothing"}), "timed"]
    stateful = [name for name in names if name not in (*CHEAP, "route", "split")]
    steps: list[tuple[str, tuple[int, ...]]] = []
    made = sources + loop
    length = chance.randint(1, steps_max)
    for number in range(length):
        last_chance = number == length - 1 and not any(name in stateful for name, _ in steps)
        name = chance.choice(stateful if last_chance else names)
        # What was made last is read most often: chains with branches rather than bushes.
        reads = tuple(made - 1 - min(chance.randint(0, 2), chance.randint(0, made - 1)) for _ in range(2))
        steps.append((name, reads))
        made += 3 if name in ("route", "split") else 1
    ends = chance.sample(range(sources, made), min(chance.choice([0, 0, 1]), made - sources))
    # The loop is read by something, and every output comes from a source.
    outputs = (made - 1, *ends) if not loop else (*range(sources), made - 1, *ends)
    return Recipe(sources, tuple(steps), outputs, loop, chance.randrange(made))
