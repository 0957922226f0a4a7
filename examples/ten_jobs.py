"""Ten small jobs that people write first, each a few lines: what the pages on operators and time say, put to use.

python -m examples.ten_jobs fraud     runs one on one thread and in channels, and prints what comes out
"""

from __future__ import annotations

import argparse
import datetime
import math
from typing import NamedTuple

import anabranch as ab
from anabranch import agg
from anabranch.testing import run_parallel

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


def at(seconds: float) -> datetime.datetime:
    """So many seconds after the start."""
    return START + datetime.timedelta(seconds=seconds)


class Payment(NamedTuple):
    """What was paid with a card."""

    card: str
    amount: float
    at: datetime.datetime

    def is_before(self, other: datetime.datetime) -> bool:
        """Whether it lies a minute or more before a time."""
        return other - self.at >= datetime.timedelta(seconds=60)


class Fraud(ab.Operator):
    """Cards that pay more within a minute than the limit, which a stream of rules changes."""

    limit: float = ab.broadcast(default=1000.0)
    recent: list = ab.state(factory=list)

    def on_broadcast(self, rule):
        self.limit = rule.limit

    def process(self, t: Payment):
        self.recent = [each for each in self.recent if not each.is_before(t.at)] + [t]
        total = sum(each.amount for each in self.recent)
        if total > self.limit:
            yield (t.card, total, t.at)


def fraud() -> ab.Stream:
    """Fraud alerts with rules."""
    rules = ab.from_rows([(500.0,)], "limit double")
    paid = ab.from_rows([(f"card{n % 3}", 100.0 * (n % 7), at(n * 5)) for n in range(40)], Payment)
    return paid.process(Fraud(), by="card", broadcast=rules, schema="card string, total double, at timestamp")


def sessions() -> ab.Stream:
    """Sessions of users, with late clicks as tuples of their own, of zero clicks."""
    clicks = ab.from_rows(
        [(f"user{n % 3}", at(n * 7 + 100 * (n // 10) - (170 if n % 9 == 8 else 0))) for n in range(60)],
        "user string, at timestamp",
    )
    found, late = clicks.event_time("at", lateness=20).aggregate(
        by="user", window=ab.sessions("at", gap=25), late="stream", start=agg.window_start(), clicks=agg.count()
    )
    return found.union(late.select("user", start="at", clicks=(lambda t: 0, "long")))


class Overdue(ab.Operator):
    """Tickets that were not closed within a minute."""

    ticket: str = ab.state(default=None)

    def process(self, t):
        self.ticket = t.ticket
        if t.kind == "open":
            self.timers.at(t.at + datetime.timedelta(minutes=1))
        for due in self.timers.pending if t.kind == "close" else ():
            if t.at < due:  # what comes later does not count, though it may come before the timer is due
                self.timers.cancel(due)

    def on_timer(self, time):
        yield (self.ticket, time)


def overdue() -> ab.Stream:
    """Timers of a service level."""
    rows = [(f"ticket{n // 2}", "close" if n % 2 else "open", at(n * 20 + 100 * (n % 8 == 1))) for n in range(30)]
    tickets = ab.from_rows(rows, "ticket string, kind string, at timestamp").event_time("at", lateness=120)
    return tickets.process(Overdue(), by="ticket", schema="ticket string, since timestamp")


def once() -> ab.Stream:
    """Each message once within an hour of the clock; then its id is forgotten."""
    messages = ab.from_rows([(n % 5, f"text {n}") for n in range(20)], "id long, text string")
    return messages.deduplicate(by="id", within=ab.time(3600))


def best_sellers() -> ab.Stream:
    """The three best products of each minute."""
    sales = ab.from_rows(
        [(f"product{n * n % 7}", n % 11, at(n * 3)) for n in range(80)], "product string, sold long, at timestamp"
    )
    minute = ab.event_time("at", 60)
    sold = sales.event_time("at").aggregate(
        by="product", window=minute, sold=agg.sum("sold"), end=agg.window_end(), at=agg.window_time()
    )
    return sold.aggregate(by="end", window=minute, best=agg.top("product", 3, by="sold"))


def latest() -> ab.Stream:
    """A feed of changes of a database, as what it does to the table."""
    feed = [(1, "a", "I"), (2, "b", "I"), (1, "c", "U"), (2, None, "D"), (3, "z", "I"), (1, "c", "U")]
    changes = ab.from_rows(feed, "id long, name string, operation string")
    return changes.select("id", "name", gone=lambda t: t.operation == "D").changes(by="id", deleted=lambda t: t.gone)


def tiers() -> ab.Stream:
    """Payments with the tier of their card."""
    paid = ab.from_rows([(f"card{n % 3}", float(n)) for n in range(6)], "card string, amount double")
    return paid.enrich({"card0": "gold", "card1": "blue"}, by="card", schema="card string, tier string")


def funnel() -> ab.Stream:
    """Who looked, filled a basket and bought, within half a minute."""
    kinds = ("view", "cart", "buy")
    events = ab.from_rows([(f"user{n % 4}", kinds[n % 3], n) for n in range(40)], "user string, kind string, at long")
    return events.match(
        by="user",
        pattern=[
            ab.step("view", lambda t: t.kind == "view"),
            ab.step("cart", lambda t: t.kind == "cart"),
            ab.step("buy", lambda t: t.kind == "buy"),
        ],
        within=ab.delta("at", 30),
        contiguity="relaxed",
        emit=lambda m: (m.buy[0].user, m.view[0].at, m.buy[0].at),
        schema="user string, looked long, bought long",
    )


class Unusual(ab.Operator):
    """Values far from the mean of their sensor so far, by Welford's sums."""

    count: int = ab.state(default=0)
    mean: float = ab.state(default=0.0)
    squares: float = ab.state(default=0.0)

    def process(self, t):
        spread = math.sqrt(self.squares / self.count) if self.count > 5 else 0.0
        score = (t.value - self.mean) / spread if spread else 0.0
        self.count += 1
        away = t.value - self.mean
        self.mean += away / self.count
        self.squares += away * (t.value - self.mean)
        if abs(score) > 3:
            yield (t.sensor, t.value, score)


def unusual() -> ab.Stream:
    """Anomalies by z-score."""
    rows = [(f"sensor{n % 2}", float(n % 5 + 50 * (n == 40))) for n in range(60)]
    return ab.from_rows(rows, "sensor string, value double").process(
        Unusual(), by="sensor", schema="sensor string, value double, score double"
    )


def stock() -> ab.Stream:
    """What each site has in stock, while counts of items are corrected and items go."""
    rows = [("west", 1, 5), ("west", 2, 7), ("west", 1, 6), ("west", 2, None), ("east", 3, 2)]
    counted = ab.from_rows(rows, "site string, item long, pieces long")
    table = ab.running(latest_of="item", deleted=lambda t: t.pieces is None)
    return counted.aggregate(by="site", window=table, items=agg.count(), pieces=agg.sum("pieces"))


JOBS = {
    each.__name__: each
    for each in (fraud, sessions, overdue, once, best_sellers, latest, tiers, funnel, unusual, stock)
}


def main() -> None:
    """Run a job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=sorted(JOBS))
    stream = JOBS[parser.parse_args().job]()
    found = stream.run_sequential(ends=True)
    print(*found, sep="\n")
    print("the same in 4 channels:", run_parallel(stream, channels=4, ends=True) == found)


if __name__ == "__main__":
    main()
