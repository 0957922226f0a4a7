"""The program whose checkpoints are kept: every kind of state there is. What is written down here never changes."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
from typing import Any, NamedTuple

import anabranch as ab
from anabranch.api.session import from_epochs

COLUMNS = "k long, at long, s string, x double"
CLOCKS_MS = [1000 * n for n in range(40)]
KEPT = 12
"""So many epochs were run when the checkpoint was made; all others are for those who go on from it."""


class Mood(enum.Enum):
    CALM = 1
    LOUD = 2


class Place(NamedTuple):
    x: float
    y: float


@dataclasses.dataclass
class Visit:
    place: Place
    mood: Mood
    notes: list[str] = dataclasses.field(default_factory=list)


class Values(ab.Operator):
    """A field of each kind of value."""

    seen: int = ab.state(default=0)
    names: list = ab.state(factory=list)
    sums: dict = ab.state(factory=dict)
    recent: Any = ab.state(factory=lambda: collections.deque(maxlen=4))
    words: Any = ab.state(factory=collections.Counter)
    found: Any = ab.state(factory=set)
    others: Any = ab.state(default=None)
    visit: Any = ab.state(default=None)
    last = ab.store(ttl=20)

    def process(self, t):
        self.seen += 1
        self.names.append(t.s)
        self.sums[t.s] = self.sums.get(t.s, 0.0) + t.x
        self.recent.append((t.at, t.x))
        self.words[t.s] += 1
        self.found.add(t.at % 7)
        self.others = (
            decimal.Decimal(t.at) / 8,
            datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=t.at),
            2 ** (60 + self.seen),
            t.s.encode(),
        )
        if self.visit is None:
            self.visit = Visit(Place(t.x, 0.0), Mood.CALM)
        self.visit.notes.append(t.s)
        self.visit.mood = Mood.LOUD if len(self.visit.notes) % 2 else Mood.CALM
        before = self.last.get(t.s, "")
        self.last.put(t.s, f"{t.at}")
        shown = f"{self.names[-3:]} {self.sums} {list(self.recent)} {self.words} {sorted(self.found)} {self.others}"
        yield (t.k, t.at, f"{shown} {self.visit} {before}", float(self.seen))


class Short(ab.Operator):
    """State that is forgotten."""

    total: float = ab.state(default=0.0)

    def process(self, t):
        self.total += t.x
        yield (t.k, t.at, t.s, self.total)


class Late(ab.Operator):
    """Timers."""

    sum: float = ab.state(default=0.0)

    def process(self, t):
        self.sum += t.x
        self.timers.at(t.at + 5)

    def on_timer(self, time):
        yield (-1, time, "timer", self.sum)


def tuples() -> list[list[tuple]]:
    epochs = []
    for epoch in range(20):
        rows = []
        for n in range(9):
            number = epoch * 9 + n
            rows.append((number * 7 % 5, number - number * 3 % 4, "abcde"[number * 11 % 5], (number % 8) / 4))
        epochs.append(rows)
    return epochs


def program(epochs: int) -> ab.Stream:
    """The program, over the first epochs."""
    source = from_epochs(tuples()[:epochs], COLUMNS).event_time("at", lateness=3, name="time")
    values = source.process(Values(), by="k", schema=COLUMNS, name="values")
    short = source.process(Short(), by="s", schema=COLUMNS, name="short", ttl=3)
    late = source.process(Late(), by="k", schema=COLUMNS, name="late")
    windows = source.aggregate(
        by="k",
        window=ab.event_time("at", 10),
        at=ab.agg.window_start(),
        s=ab.agg.min("s"),
        x=ab.agg.sum("x"),
        name="windows",
    )
    sessions = source.aggregate(
        by="s",
        window=ab.sessions("at", 3),
        k=ab.agg.min("k"),
        at=ab.agg.window_start(),
        x=ab.agg.sum("x"),
        name="sessions",
    ).select("k", "at", "s", "x")
    pairs = source.join(
        source.filter(lambda t: t.x > 1, name="large"),
        by="k",
        window=ab.event_time("at", 4),
        function=lambda one, other: (one.k, one.at, other.s, one.x + other.x),
        schema=COLUMNS,
        name="pairs",
    )
    return values.union(short, late, windows, sessions, pairs, name="all")
