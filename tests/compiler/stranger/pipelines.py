"""Whole programs: operators without state before and behind operators with state per key."""

import json
import re
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import anabranch as ab
from tests.compiler.stranger.stranger_data import (
    ADS,
    CLICKS,
    DOCUMENTS,
    LOGS,
    MESSAGES,
    ORDERS,
    PACKETS,
    PAYMENTS,
    READINGS,
    TRADES,
)
from tests.compiler.stranger.stranger_entry import STATELESS, Entry, keyed

# ---- words of chat rooms: normalised, then counted for each word


def tokens(t):
    for word in re.findall(r"[a-z]{3,}", t.text.lower()):
        yield word, t.author


class Spread:
    """Words that a third author uses."""

    def __init__(self):
        self.authors = {}

    def __call__(self, t):
        authors = self.authors.setdefault(t.word, set())
        if t.author in authors:
            return
        authors.add(t.author)
        if len(authors) == 3:
            yield t.word, sorted(authors)


def trending(messages):
    words = messages.flat_map(tokens, schema="word string, author string")
    return words.process(Spread(), schema="word string, authors array<string>").filter(lambda t: len(t.word) > 3)


# ---- access log: parsed, failures counted for each host, alerts written out

REQUEST = re.compile(r'^(\S+) .*"(\w+) (\S+) \S+" (\d+) (\d+)$')


class Request(NamedTuple):
    address: str
    path: str
    status: int


def parse(t):
    m = REQUEST.match(t.line)
    return [Request(m[1], m[3].partition("?")[0], int(m[4]))] if m else []


class Failures:
    def __init__(self, limit):
        self.limit = limit
        self.streaks = {}

    def __call__(self, t):
        if t.status < 400:
            self.streaks.pop(t.address, None)
            return
        streak = self.streaks.get(t.address, 0) + 1
        self.streaks[t.address] = streak
        if streak >= self.limit:
            yield t.address, streak, t.path


def render(t):
    return (f"{t.address:<15} {t.streak:>3d} failures, last {t.path!r}",)


def failing_hosts(lines):
    requests = lines.flat_map(parse, schema=Request, name="parse")
    streaks = requests.process(Failures(2), schema="address string, streak long, path string", name="failures")
    return streaks.map(render, schema="text string", name="render")


# ---- payments: cleaned, running share of a country for each card, only the odd ones


def normalise(t):
    return {"card": t.card.replace("-", ""), "cents": round(t.amount * 100), "country": t.country.lower()}


class CountryShare:
    def __init__(self):
        self.counts = defaultdict(Counter)

    def __call__(self, t):
        self.counts[t.card][t.country] += 1
        share = self.counts[t.card][t.country] / sum(self.counts[t.card].values())
        yield t.card, t.country, t.cents, share


def odd_countries(payments):
    clean = payments.map(normalise, schema="card string, cents long, country string")
    shares = clean.process(CountryShare(), schema="card string, country string, cents long, share double")
    return shares.filter(lambda t: t.share < 0.25 and t.cents > 1000)


# ---- readings: unit conversion, smoothing, banding


def fahrenheit(t):
    return t.but(value=None if t.value is None else t.value * 9 / 5 + 32)


class Smooth(ab.Operator):
    weight: float = 0.25
    level: float = ab.state(default=None)

    def process(self, t):
        if t.value is None:
            return
        self.level = t.value if self.level is None else (1 - self.weight) * self.level + self.weight * t.value
        yield t.device, t.metric, self.level


def comfort(readings):
    converted = readings.map(fahrenheit, schema=READINGS.schema)
    smooth = converted.process(
        Smooth(weight=0.5), by=["device", "metric"], schema="device string, metric string, level double"
    )
    return smooth.map(
        lambda t: (t.device, "ok" if 60 <= t.level <= 75 else "off"), schema="device string, state string"
    )


# ---- clicks: enriched from a table, then sessions by user, then lengths

SECTIONS = {"/": "home", "/cart": "shop", "/checkout": "shop", "/thanks": "shop"}


def section_of(page, table=SECTIONS):
    return table.get(page) or page.split("?")[0].strip("/").split("/")[0]


def with_section(t):
    return t.user, section_of(t.page), t.ts


class SectionChanges:
    def __init__(self):
        self.current = {}

    def __call__(self, t):
        section, since = self.current.get(t.user, (None, t.ts))
        if section == t.section:
            return
        self.current[t.user] = t.section, t.ts
        if section is not None:
            yield t.user, section, t.section, t.ts - since


def section_changes(clicks):
    return clicks.map(with_section, schema="user string, section string, ts long").process(
        SectionChanges(), schema="user string, left string, entered string, seconds long"
    )


# ---- documents: decoded, best score of each name


@dataclass
class Doc:
    name: str
    score: float
    at: datetime


def decode(t):
    try:
        body = json.loads(t.body)
        yield Doc(body["user"]["name"], float(body["score"]), datetime.fromisoformat(body["at"]).astimezone(UTC))
    except (ValueError, TypeError):
        pass


class BestScore:
    def __init__(self):
        self.best = {}

    def __call__(self, t):
        best = self.best.get(t.name)
        if best is None or (t.score, t.at) > (best.score, best.at):
            self.best[t.name] = t
            yield t


def best_scores(documents):
    return documents.flat_map(decode, schema=Doc).process(BestScore())


# ---- trades: filtered by size, then two operators by symbol, then rounded


class Momentum:
    def __init__(self, lag):
        self.lag = lag
        self.prices = {}

    def __call__(self, t):
        prices = self.prices.setdefault(t.symbol, deque(maxlen=self.lag + 1))
        prices.append(t.price)
        if len(prices) > self.lag:
            yield t.symbol, prices[-1] / prices[0] - 1


class Flips:
    def __init__(self):
        self.signs = {}

    def __call__(self, t):
        sign = t.momentum > 0
        if self.signs.get(t.symbol) is not sign:
            self.signs[t.symbol] = sign
            yield t


def at_least(size, t):
    return t.size >= size


def momentum_flips(trades):
    large = trades.filter(partial(at_least, 300))
    momentum = large.process(Momentum(3), schema="symbol string, momentum double")
    return momentum.process(Flips()).map(
        lambda t: {"symbol": t.symbol, "percent": f"{t.momentum:+.2%}"}, schema="symbol string, percent string"
    )


# ---- packets: by source, then what is left by target


class BytesPerSource:
    def __init__(self):
        self.bytes = Counter()

    def __call__(self, t):
        self.bytes[t.src] += t.size
        yield t.src, t.dst, self.bytes[t.src]


class Greediest:
    """The source that a target has heard most of."""

    def __init__(self):
        self.top = {}

    def __call__(self, t):
        source, total = self.top.get(t.dst, ("", 0))
        if t.total > total:
            self.top[t.dst] = (t.src, t.total)
            if t.src != source:
                yield t.dst, t.src, t.total


def greediest(packets):
    known = packets.filter(lambda t: not t.src.startswith("not"))
    totals = known.process(BytesPerSource(), schema="src string, dst string, total long")
    return totals.process(Greediest(), schema="dst string, src string, total long")


# ---- orders: one row for each item, stock by item, orders that come too late


class Stock:
    def __init__(self, initial):
        self.initial = initial
        self.left = {}

    def __call__(self, t):
        left = self.left.get(t.item, self.initial)
        if left > 0:
            self.left[t.item] = left - 1
        yield t.order_id, t.item, left > 0


def out_of_stock(orders):
    items = orders.filter(lambda t: t.event == "created" and t.items).flat_map(
        lambda t: [(t.order_id, item) for item in t.items], schema="order_id string, item string"
    )
    reserved = items.process(Stock(6), schema="order_id string, item string, available boolean")
    return reserved.filter(lambda t: not t.available)


# ---- ads: revenue of each campaign and hour, then text


def to_micros(t):
    hour = datetime.fromtimestamp(t.ts, tz=UTC).strftime("%Y-%m-%dT%H")
    return t.campaign, hour, int(t.bid * 1_000_000) if t.event != "conversion" else 0


class Revenue:
    def __init__(self):
        self.sums = {}

    def __call__(self, t):
        key = t.campaign, t.hour
        if key not in self.sums:
            self.sums[key] = 0
        self.sums[key] += t.micros
        return t.campaign, t.hour, self.sums[key]


def revenue(ads):
    hourly = ads.map(to_micros, schema="campaign string, hour string, micros long")
    sums = hourly.process(Revenue(), schema="campaign string, hour string, micros long")
    return sums.map(lambda t: (f"{t.campaign}@{t.hour}: {t.micros / 1e6:,.2f}",), schema="text string")


ENTRIES = [
    Entry("trending_words", MESSAGES, trending, (STATELESS, keyed("word"), STATELESS)),
    Entry("failing_hosts", LOGS, failing_hosts, (STATELESS, keyed("address"), STATELESS)),
    Entry("odd_countries", PAYMENTS, odd_countries, (STATELESS, keyed("card"), STATELESS)),
    Entry("comfort", READINGS, comfort, (STATELESS, keyed("device", "metric"), STATELESS)),
    Entry("section_changes", CLICKS, section_changes, (STATELESS, keyed("user"))),
    Entry("best_scores", DOCUMENTS, best_scores, (STATELESS, keyed("name"))),
    Entry("momentum_flips", TRADES, momentum_flips, (STATELESS, keyed("symbol"), keyed("symbol"), STATELESS)),
    Entry("greediest_sources", PACKETS, greediest, (STATELESS, keyed("src"), keyed("dst"))),
    Entry("out_of_stock", ORDERS, out_of_stock, (STATELESS, STATELESS, keyed("item"), STATELESS)),
    Entry("hourly_revenue", ADS, revenue, (STATELESS, keyed("campaign", "hour"), STATELESS)),
]
