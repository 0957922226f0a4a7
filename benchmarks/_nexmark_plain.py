"""The queries of Nexmark as one would write them for one thread without any library: the measure of what they cost.

    files ─► the columns a query needs, as rows ─► a loop with dicts ─► rows of each group of files, to be written

Each query is a generator: it takes rows in groups (one group is an epoch of ours), and gives a list of rows for each
group, and one more when the input has ended, which closes what is open. The rows are those that the library gives, in
its order; `benchmarks.nexmark` compares. State is kept in memory only, nothing survives a crash.
"""

from __future__ import annotations

import collections
import datetime
import heapq
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from examples.nexmark.events import LATENESS, side_input

Row = tuple[Any, ...]
Groups = Iterable[list[Row]]
"""Rows of one kind, or (number of the kind, row) where a query reads several; with the time of the event first."""

LATE = datetime.timedelta(seconds=LATENESS)
TEN = datetime.timedelta(seconds=10)
UTC = datetime.UTC
EURO = Decimal("0.908")
BID = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
SHORT_BID = ("auction", "bidder", "price", "dateTime", "extra")
AUCTION = (
    *("id", "itemName", "description", "initialBid", "reserve", "dateTime", "expires", "seller", "category"),
    "extra",
)


def read_rows(paths: list[Path], kinds: dict[str, tuple[str, ...]]) -> list[Row]:
    """The needed columns of some files, by `to_pylist`: rows of dicts, as most people would read them."""
    columns = [f"{kind}.{name}" for kind, names in kinds.items() for name in names]
    found: list[Row] = []
    for path in paths:
        rows = pq.ParquetFile(path).read(columns).to_pylist()
        if len(kinds) == 1:
            ((kind, names),) = kinds.items()
            found += [tuple([each[name] for name in names]) for row in rows if (each := row[kind]) is not None]
            continue
        for row in rows:
            for number, (kind, names) in enumerate(kinds.items()):
                if (each := row[kind]) is not None:
                    found.append((number, tuple([each[name] for name in names])))
    return found


def read_columns(paths: list[Path], kinds: dict[str, tuple[str, ...]]) -> list[Row]:
    """The same by `to_pylist` of each column: twice as fast, for those who know."""
    columns = [f"{kind}.{name}" for kind, names in kinds.items() for name in names]
    found: list[Row] = []
    for path in paths:
        table = pq.ParquetFile(path).read(columns)
        parts = []
        for kind, names in kinds.items():
            column = table.column(kind).combine_chunks()
            there = column.is_valid()
            rows = zip(*(column.filter(there).field(name).to_pylist() for name in names), strict=True)
            parts.append((there.to_pylist(), rows))
        if len(parts) == 1:
            found += parts[0][1]
            continue
        for row in zip(*(there for there, _ in parts), strict=True):
            for number, is_there in enumerate(row):
                if is_there:
                    found.append((number, next(parts[number][1])))
    return found


def each_row(function: Callable[[Row], Row | None]) -> Callable[[Groups], Iterator[list[Row]]]:
    """A query without state, from a function of a row that gives a row or nothing."""

    def query(groups: Groups) -> Iterator[list[Row]]:
        for rows in groups:
            yield [found for row in rows if (found := function(row)) is not None]

    return query


def q0(groups: Groups) -> Iterator[list[Row]]:
    yield from groups


def q1(groups: Groups) -> Iterator[list[Row]]:
    for rows in groups:
        yield [(auction, bidder, at, extra, EURO * price) for auction, bidder, price, at, extra in rows]


def q2(groups: Groups) -> Iterator[list[Row]]:
    for rows in groups:
        yield [row for row in rows if row[0] % 123 == 0]


def q3(groups: Groups) -> Iterator[list[Row]]:
    persons: dict[int, list[Row]] = collections.defaultdict(list)
    waiting: dict[int, list[int]] = collections.defaultdict(list)
    for rows in groups:
        out = []
        for kind, row in rows:
            if kind == 0:
                seller, auction, category = row
                if category == 10:
                    waiting[seller].append(auction)
                    out += [(*each, auction) for each in persons.get(seller, ())]
            else:
                number, name, city, state = row
                if state in ("OR", "ID", "CA"):
                    persons[number].append((name, city, state))
                    out += [(name, city, state, auction) for auction in waiting.get(number, ())]
        yield out


def offers(rows: list[Row], auctions: dict[int, Row], waiting: dict[int, list[Row]]) -> Iterator[tuple[Row, Row]]:
    """Auctions (id, dateTime, expires, …) with each bid (auction, dateTime, …) that came while they were open."""
    for kind, row in rows:
        if kind == 0:
            auctions[row[0]] = row
            for bid in waiting.get(row[0], ()):
                if row[1] <= bid[1] <= row[2]:
                    yield row, bid
        else:
            waiting[row[0]].append(row)
            auction = auctions.get(row[0])
            if auction is not None and auction[1] <= row[1] <= auction[2]:
                yield auction, row


def q4(groups: Groups) -> Iterator[list[Row]]:
    auctions: dict[int, Row] = {}
    waiting: dict[int, list[Row]] = collections.defaultdict(list)
    best: dict[int, int] = {}
    sums: dict[int, int] = collections.defaultdict(int)
    counts: dict[int, int] = collections.defaultdict(int)
    shown: dict[int, float] = {}
    for rows in groups:
        out = []
        for (number, _, _, category), (_, _, price) in offers(rows, auctions, waiting):
            known = best.get(number)
            if known is not None and price <= known:
                continue
            best[number] = price
            sums[category] += price - (known or 0)
            counts[category] += known is None
            mean = float(sums[category]) / counts[category]
            if shown.get(category) != mean:
                shown[category] = mean
                out.append((category, mean))
        yield out


def q5(groups: Groups) -> Iterator[list[Row]]:
    counts: dict[int, dict[int, int]] = collections.defaultdict(dict)

    def closed(until: float) -> list[Row]:
        out = []
        for start in sorted(start for start in counts if start + 10 <= until):
            found = counts.pop(start)
            most = max(found.values())
            out += [(auction, number) for auction, number in found.items() if number == most]
        return out

    latest = 0.0
    for rows in groups:
        for auction, at in rows:
            seconds = at.timestamp()
            latest = max(latest, seconds)
            last = int(seconds // 2) * 2
            for start in range(last - 8, last + 1, 2):
                window = counts[start]
                window[auction] = window.get(auction, 0) + 1
        yield closed(latest - LATENESS)
    yield closed(float("inf"))


def q6(groups: Groups) -> Iterator[list[Row]]:
    auctions: dict[int, Row] = {}
    waiting: dict[int, list[Row]] = collections.defaultdict(list)
    best: dict[int, tuple[int, int]] = {}
    timers: list[tuple[datetime.datetime, int, int]] = []
    sold: dict[int, collections.deque[int]] = collections.defaultdict(lambda: collections.deque(maxlen=10))
    latest = datetime.datetime.min.replace(tzinfo=UTC)
    begun = 0

    def closed(until: datetime.datetime) -> list[Row]:
        out = []
        while timers and timers[0][0] <= until:
            seller, price = best.pop(heapq.heappop(timers)[2])
            last = sold[seller]
            last.append(price)
            out.append((seller, float(sum(last)) / len(last)))
        return out

    for rows in groups:
        for auction, bid in offers(rows, auctions, waiting):
            number, _, expires, seller = auction
            latest = max(latest, bid[1])
            known = best.get(number)
            if known is None:
                begun += 1  # of equal times the one that waits longer; `len(best)` falls when auctions close
                heapq.heappush(timers, (expires, begun, number))
            if known is None or bid[2] > known[1]:
                best[number] = seller, bid[2]
        yield closed(latest - LATE)
    yield closed(datetime.datetime.max.replace(tzinfo=UTC))


def q7(groups: Groups) -> Iterator[list[Row]]:
    best: dict[int, tuple[int, list[Row]]] = {}
    edges: dict[int, list[Row]] = collections.defaultdict(list)

    def closed(until: float) -> list[Row]:
        out = []
        for start in sorted(start for start in best if start + 10 <= until):
            price, found = best.pop(start)
            out += [*found, *(row for row in edges.get(start + 10, ()) if row[1] == price)]
            edges.pop(start, None)
        return out

    latest = 0.0
    for rows in groups:
        for row in rows:
            price, seconds = row[1], row[3].timestamp()
            latest = max(latest, seconds)
            start = int(seconds // 10) * 10
            if seconds == start:
                edges[start].append(row)
            known = best.get(start)
            if known is None or price > known[0]:
                best[start] = price, [row]
            elif price == known[0]:
                known[1].append(row)
        yield closed(latest - LATENESS)
    yield closed(float("inf"))


def q8(groups: Groups) -> Iterator[list[Row]]:
    came: dict[int, dict[int, dict[str, None]]] = collections.defaultdict(lambda: collections.defaultdict(dict))
    sold: dict[int, dict[int, None]] = collections.defaultdict(dict)

    def closed(until: float) -> list[Row]:
        out = []
        for start in sorted(start for start in came if start + 10 <= until):
            # A pair is there when its second side is: all that came, then sellers in the order of their first offers.
            persons, at = came.pop(start), datetime.datetime.fromtimestamp(start, UTC)
            out += [(number, name, at) for number in sold.pop(start, ()) for name in persons.get(number, ())]
        return out

    latest = 0.0
    for rows in groups:
        for kind, row in rows:
            seconds = row[0].timestamp()
            latest = max(latest, seconds)
            start = int(seconds // 10) * 10
            if kind == 0:
                came[start][row[1]][row[2]] = None
            else:
                sold[start][row[1]] = None
        yield closed(latest - LATENESS)
    yield closed(float("inf"))


def q9(groups: Groups) -> Iterator[list[Row]]:
    auctions: dict[int, Row] = {}
    waiting: dict[int, list[Row]] = collections.defaultdict(list)
    best: dict[int, Row] = {}
    for rows in groups:
        out = []
        for auction, bid in offers(rows, auctions, waiting):
            known = best.get(auction[0])
            _, at, bidder, price, extra = bid
            if known is None or price > known[3] or (price == known[3] and at < known[1]):
                best[auction[0]] = bid
                number, came, expires, item, description, first, reserve, seller, category, more = auction
                out.append(
                    (
                        *(number, item, description, first, reserve, came, expires, seller, category, more),
                        *(bidder, price, at, extra),
                    )
                )
        yield out


q10 = each_row(lambda b: (*b, b[3].strftime("%Y-%m-%d"), b[3].strftime("%H:%M")))


def q11(groups: Groups) -> Iterator[list[Row]]:
    bidders: dict[int, list[Any]] = {}
    ended: list[tuple[datetime.datetime, int, Row]] = []
    number = 0

    def closed(until: datetime.datetime) -> list[Row]:
        for bidder, (start, last, count, since) in list(bidders.items()):
            if last + TEN <= until:
                ended.append((last + TEN, since, (bidder, count, start, last + TEN)))
                del bidders[bidder]
        ended.sort()
        cut = bisect_right(ended, until, key=lambda each: each[0])
        out = [row for _, _, row in ended[:cut]]
        del ended[:cut]
        return out

    latest = datetime.datetime.min.replace(tzinfo=UTC)
    for rows in groups:
        for bidder, at in rows:
            number += 1
            latest = max(latest, at)
            known = bidders.get(bidder)
            if known is None:
                bidders[bidder] = [at, at, 1, number]
            elif at - known[1] >= TEN:
                end = known[1] + TEN
                ended.append((end, known[3], (bidder, known[2], known[0], end)))
                bidders[bidder] = [at, at, 1, number]
            else:
                known[1] = max(at, known[1])
                known[2] += 1
        yield closed(latest - LATE)
    yield closed(datetime.datetime.max.replace(tzinfo=UTC))


def q12(groups: Groups) -> Iterator[list[Row]]:
    windows: dict[int, list[Any]] = {}

    def closed(until: float) -> list[Row]:
        out = []
        for bidder, (began, many) in list(windows.items()):
            if until - began >= 10:
                start = datetime.datetime.fromtimestamp(began, UTC)
                out.append((bidder, many, start, start + TEN))
                del windows[bidder]
        return out

    for rows in groups:
        clock = time.time()
        out = closed(clock)
        for (bidder,) in rows:
            known = windows.get(bidder)
            if known is None:
                windows[bidder] = [clock, 1]
            else:
                known[1] += 1
        yield out
    yield closed(float("inf"))


def q13(groups: Groups) -> Iterator[list[Row]]:
    table = dict(side_input())
    for rows in groups:
        yield [(*row, table[row[0] % 10_000]) for row in rows if row[0] % 10_000 in table]


def q14(groups: Groups) -> Iterator[list[Row]]:
    for rows in groups:
        out = []
        for auction, bidder, price, at, extra in rows:
            euros = EURO * price
            if 1_000_000 < euros < 50_000_000:
                hour = at.hour
                if 8 <= hour <= 18:
                    kind = "dayTime"
                else:
                    kind = "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
                out.append((auction, bidder, at, extra, euros, kind, extra.count("c")))
        yield out


class Levels:
    """Bids, bidders and auctions, of all prices and of three levels of price."""

    __slots__ = ("counts", "latest", "seen")

    def __init__(self) -> None:
        self.counts = [0, 0, 0, 0] + [0] * 8
        self.seen: list[set[int]] = [set() for _ in range(8)]
        self.latest = ""

    def add(self, auction: int, bidder: int, price: int) -> None:
        counts, seen = self.counts, self.seen
        for rank in (0, 1 if price < 10_000 else 2 if price < 1_000_000 else 3):
            counts[rank] += 1
            bidders, auctions = seen[rank], seen[rank + 4]
            bidders.add(bidder)
            auctions.add(auction)
            counts[rank + 4], counts[rank + 8] = len(bidders), len(auctions)


def q15(groups: Groups) -> Iterator[list[Row]]:
    days: dict[str, Levels] = collections.defaultdict(Levels)
    for rows in groups:
        out = []
        for auction, bidder, price, at in rows:
            day = at.strftime("%Y-%m-%d")
            levels = days[day]
            levels.add(auction, bidder, price)
            out.append((day, *levels.counts))
        yield out


def q16(groups: Groups) -> Iterator[list[Row]]:
    channels: dict[tuple[str, str], Levels] = collections.defaultdict(Levels)
    for rows in groups:
        out = []
        for auction, bidder, price, channel, at in rows:
            day = at.strftime("%Y-%m-%d")
            levels = channels[channel, day]
            levels.add(auction, bidder, price)
            levels.latest = max(levels.latest, at.strftime("%H:%M"))
            out.append((channel, day, levels.latest, *levels.counts))
        yield out


def q17(groups: Groups) -> Iterator[list[Row]]:
    held: dict[tuple[int, str], list[int]] = {}
    for rows in groups:
        out = []
        for auction, price, at in rows:
            key = (auction, at.strftime("%Y-%m-%d"))
            known = held.get(key)
            if known is None:
                known = held[key] = [0, 0, 0, 0, price, price, 0]
            known[0] += 1
            known[1 if price < 10_000 else 2 if price < 1_000_000 else 3] += 1
            if price < known[4]:
                known[4] = price
            if price > known[5]:
                known[5] = price
            known[6] += price
            out.append((*key, *known[:6], float(known[6]) / known[0], known[6]))
        yield out


def q18(groups: Groups) -> Iterator[list[Row]]:
    latest: dict[tuple[int, int], datetime.datetime] = {}
    for rows in groups:
        out = []
        for row in rows:
            key = (row[1], row[0])
            known = latest.get(key)
            if known is None or row[5] > known:
                latest[key] = row[5]
                out.append(row)
        yield out


def q19(groups: Groups) -> Iterator[list[Row]]:
    held: dict[int, list[Row]] = collections.defaultdict(list)
    for rows in groups:
        out = []
        for row in rows:
            top = held[row[0]]
            at = bisect_right(top, -row[2], key=lambda each: -each[2])
            if at < 10:
                top.insert(at, row)
                del top[10:]
                out += [(*each, place) for place, each in enumerate(top[at:], at + 1)]
        yield out


def q20(groups: Groups) -> Iterator[list[Row]]:
    auctions: dict[int, Row] = {}
    waiting: dict[int, list[Row]] = collections.defaultdict(list)
    for rows in groups:
        out = []
        for kind, row in rows:
            if kind == 0:
                waiting[row[0]].append(row)
                found = auctions.get(row[0])
                if found is not None:
                    out.append(row + found)
            else:
                number, item, description, first, reserve, at, expires, seller, category, extra = row
                if category == 10:
                    auctions[number] = made = (
                        *(item, description, first, reserve, expires, seller, category, at),
                        extra,
                    )
                    out += [each + made for each in waiting.get(number, ())]
        yield out


def q21(groups: Groups) -> Iterator[list[Row]]:
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    for rows in groups:
        out = []
        for auction, bidder, price, channel, url in rows:
            number = known.get(channel.lower())
            if number is None:
                found = re.search("(&|^)channel_id=([^&]*)", url)
                if found is None:
                    continue
                number = found.group(2)
            out.append((auction, bidder, price, channel, number))
        yield out


def q22(groups: Groups) -> Iterator[list[Row]]:
    for rows in groups:
        out = []
        for auction, bidder, price, channel, url in rows:
            parts = [*url.split("/"), None, None, None]
            out.append((auction, bidder, price, channel, *parts[3:6]))
        yield out


OFFER_BID = ("auction", "dateTime", "price")
NEEDS: dict[str, dict[str, tuple[str, ...]]] = {
    "q0": {"bid": SHORT_BID},
    "q1": {"bid": SHORT_BID},
    "q2": {"bid": ("auction", "price")},
    "q3": {"auction": ("seller", "id", "category"), "person": ("id", "name", "city", "state")},
    "q4": {"auction": ("id", "dateTime", "expires", "category"), "bid": OFFER_BID},
    "q5": {"bid": ("auction", "dateTime")},
    "q6": {"auction": ("id", "dateTime", "expires", "seller"), "bid": OFFER_BID},
    "q7": {"bid": ("auction", "price", "bidder", "dateTime", "extra")},
    "q8": {"person": ("dateTime", "id", "name"), "auction": ("dateTime", "seller")},
    "q9": {
        "auction": (
            *("id", "dateTime", "expires", "itemName", "description", "initialBid", "reserve", "seller", "category"),
            "extra",
        ),
        "bid": ("auction", "dateTime", "bidder", "price", "extra"),
    },
    "q10": {"bid": SHORT_BID},
    "q11": {"bid": ("bidder", "dateTime")},
    "q12": {"bid": ("bidder",)},
    "q13": {"bid": ("auction", "bidder", "price", "dateTime")},
    "q14": {"bid": SHORT_BID},
    "q15": {"bid": ("auction", "bidder", "price", "dateTime")},
    "q16": {"bid": ("auction", "bidder", "price", "channel", "dateTime")},
    "q17": {"bid": ("auction", "price", "dateTime")},
    "q18": {"bid": BID},
    "q19": {"bid": BID},
    "q20": {"bid": BID, "auction": AUCTION},
    "q21": {"bid": ("auction", "bidder", "price", "channel", "url")},
    "q22": {"bid": ("auction", "bidder", "price", "channel", "url")},
}
QUERIES = {name: globals()[name] for name in NEEDS}
