"""The queries of Nexmark: each a function of the streams that it names, which `run` gives it.

    python -m examples.nexmark.queries q5 --events 20000 --channels 4

makes events, prints `explain`, runs the query on Spark and on one thread, and says whether the two are equal.
"""

from __future__ import annotations

import argparse
import inspect
import re
from decimal import Decimal

import anabranch as ab
from anabranch import agg
from examples.nexmark.events import EVENTS, SIDE_INPUT, generate, side_input, streams

EURO = Decimal("0.908")
TEN = ab.event_time("dateTime", 10)
DAY = ab.key(lambda b: f"{b.dateTime:%Y-%m-%d}", "day")


def offers(auctions, bids):
    """Auctions with each bid that came while they were open."""
    bids = bids.select("auction", "bidder", "price", bid_dateTime="dateTime", bid_extra="extra")
    return auctions.join(bids, by=("id", "auction")).filter(lambda t: t.dateTime <= t.bid_dateTime <= t.expires)


def levels(name, aggregation):
    """An aggregation of all bids, and of those of each level of price."""
    tests = (lambda b: b.price < 10_000, lambda b: 10_000 <= b.price < 1_000_000, lambda b: b.price >= 1_000_000)
    ranks = {f"rank{at}_{name}": aggregation.where(test) for at, test in enumerate(tests, 1)}
    return {f"total_{name}": aggregation, **ranks}


def q0(bids):
    """Pass through."""
    return bids.select("auction", "bidder", "price", "dateTime", "extra")


def q1(bids):
    """Currency conversion: the prices of bids in euros."""
    in_euros = (lambda b: EURO * b.price, "decimal(23, 3)")
    return bids.select("auction", "bidder", "dateTime", "extra", price=in_euros)


def q2(bids):
    """Selection: the bids for some auctions."""
    return bids.filter(lambda b: b.auction % 123 == 0).select("auction", "price")


def q3(auctions, persons):
    """Local item suggestion: who sells in some states, in category 10?"""
    near = persons.filter(lambda p: p.state in ("OR", "ID", "CA")).select("id", "name", "city", "state")
    wanted = auctions.filter(lambda a: a.category == 10).select("seller", auction="id")
    return wanted.join(near, by=("seller", "id")).select("name", "city", "state", id="auction")


def q4(auctions, bids):
    """Average price for a category: of the highest bids of its auctions, as they change."""
    final = offers(auctions, bids).aggregate(by=["id", "category"], window=ab.running(), final=agg.max("price"))
    return final.aggregate(by="category", window=ab.running(latest_of="id"), final=agg.avg("final"))


def q5(bids):
    """Hot items: which auctions had the most bids in the last 10 seconds, every 2 seconds?"""
    hop = ab.sliding(TEN, every=2)
    counts = bids.aggregate(by="auction", window=hop, num=agg.count(), at=agg.window_time())
    most = counts.aggregate(by="at", window=ab.event_time("at", 2), maxn=agg.max("num"))
    best = counts.join(most, by=["at", ("num", "maxn")], window=ab.event_time("at", 0))
    return best.select("auction", "num")


class Winner(ab.Operator):
    """The highest bid of an auction, when it has expired."""

    best: tuple = ab.state(default=None)

    def process(self, t):
        if self.best is None:
            self.timers.at(t.expires)
        if self.best is None or t.price > self.best[1]:
            self.best = t.seller, t.price

    def on_timer(self, time):
        yield self.best
        self.best = None


def q6(auctions, bids):
    """Average selling price by seller: of the last 10 auctions that closed. Flink SQL cannot say it."""
    won = offers(auctions, bids).process(Winner(), by="id", schema="seller long, price long")
    return won.aggregate(by="seller", window=ab.sliding(ab.count(10), every=1), avg_price=agg.avg("price"))


def q7(bids):
    """Highest bid: the highest bids of each 10 seconds."""
    of_auctions = bids.aggregate(by="auction", window=TEN, price=agg.max("price"), at=agg.window_time())
    highest = of_auctions.aggregate(
        by="at", window=ab.event_time("at", 10), price=agg.max("price"), end=agg.window_end()
    )
    near = (TEN, ab.event_time("end", 0))
    return bids.join(highest, by="price", window=near).select("auction", "price", "bidder", "dateTime", "extra")


def q8(persons, auctions):
    """Monitor new users: who came and offered something in the same 10 seconds?"""
    came = persons.aggregate(by=["id", "name"], window=TEN, starttime=agg.window_start(), at=agg.window_time())
    sold = auctions.aggregate(by="seller", window=TEN, at=agg.window_time())
    both = came.join(sold, by=[("id", "seller"), "at"], window=ab.event_time("at", 0))
    return both.select("id", "name", "starttime")


def q9(auctions, bids):
    """Winning bids: the highest bid of each auction so far, of equal ones the first."""
    return offers(auctions, bids).top(1, ["price", "bid_dateTime"], by="id", descending=[True, False])


def q10(bids):
    """Log to file system: all bids, in a directory for each minute (`PARTITIONED`)."""
    day, minute = (lambda b: f"{b.dateTime:%Y-%m-%d}"), (lambda b: f"{b.dateTime:%H:%M}")
    return bids.select("auction", "bidder", "price", "dateTime", "extra", dt=day, hm=minute)


def q11(bids):
    """User sessions: how many bids has each session of a bidder?"""
    gap = ab.sessions("dateTime", 10)
    bounds = {"starttime": agg.window_start(), "endtime": agg.window_end()}
    return bids.aggregate(by="bidder", window=gap, bid_count=agg.count(), **bounds)


def q12(bids):
    """Processing time windows: how many bids does a bidder make within 10 seconds of the clock?"""
    bounds = {"starttime": agg.window_start(), "endtime": agg.window_end()}
    return bids.aggregate(by="bidder", window=ab.time(10), bid_count=agg.count(), **bounds)


def q13(bids):
    """Bounded side input join: bids with a value from a table."""
    key = (lambda b: b.auction % 10_000, "key")
    joined = bids.enrich(side_input(), by=key, how="inner", schema=SIDE_INPUT)
    return joined.select("auction", "bidder", "price", "dateTime", "value")


def q14(bids):
    """Calculation: bids of some prices, with the time of day and a count of letters."""

    def time_of_day(b):
        if 8 <= b.dateTime.hour <= 18:
            return "dayTime"
        return "nightTime" if b.dateTime.hour <= 6 or b.dateTime.hour >= 20 else "otherTime"

    in_euros = (lambda b: EURO * b.price, "decimal(23, 3)")
    priced = bids.select("auction", "bidder", "dateTime", "extra", price=in_euros, bidTimeType=time_of_day)
    wanted = priced.filter(lambda b: 1_000_000 < b.price < 50_000_000)
    return wanted.select("*", c_counts=lambda b: b.extra.count("c"))


def q15(bids):
    """Bidding statistics report: bids, bidders and auctions of each day by level of price, as they change."""
    many = {**levels("bids", agg.count()), **levels("bidders", agg.distinct("bidder"))}
    return bids.aggregate(by=DAY, window=ab.running(), **many, **levels("auctions", agg.distinct("auction")))


def q16(bids):
    """Channel statistics report: the same for each channel, with the last minute."""
    many = {**levels("bids", agg.count()), **levels("bidders", agg.distinct("bidder"))}
    timed = bids.select("*", minute=lambda b: f"{b.dateTime:%H:%M}")
    by, last = ["channel", DAY], agg.max("minute")
    many |= levels("auctions", agg.distinct("auction"))
    return timed.aggregate(by=by, window=ab.running(), minute=last, **many)


def q17(bids):
    """Auction statistics report: bids and prices of each auction and day, as they change."""
    prices = {f"{name}_price": getattr(agg, name)("price") for name in ("min", "max", "avg", "sum")}
    return bids.aggregate(by=["auction", DAY], window=ab.running(), **levels("bids", agg.count()), **prices)


def q18(bids):
    """Find last bid: of each bidder for each auction."""
    return bids.top(1, "dateTime", by=["bidder", "auction"])


def q19(bids):
    """Auction TOP-10 price: the highest bids of each auction, with their ranks."""
    return bids.top(10, "price", by="auction", rank="rank_number")


def q20(bids, auctions):
    """Expand bid with auction: bids with what they are for, in category 10."""
    wanted = auctions.filter(lambda a: a.category == 10).select(
        *("id", "itemName", "description", "initialBid", "reserve", "expires", "seller", "category"),
        auction_dateTime="dateTime",
        auction_extra="extra",
    )
    return bids.join(wanted, by=("auction", "id"))


def q21(bids):
    """Add channel id: of known channels, or from the URL."""
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}

    def channel_id(b):
        found = re.search("(&|^)channel_id=([^&]*)", b.url)
        return known.get(b.channel.lower()) or (found.group(2) if found else None)

    added = bids.select("auction", "bidder", "price", "channel", channel_id=(channel_id, "string"))
    return added.filter(lambda b: b.channel_id is not None)


def q22(bids):
    """Get URL directories."""
    parts = {f"dir{at - 2}": (lambda b, at=at: (b.url.split("/") + [None] * 6)[at], "string") for at in (3, 4, 5)}
    return bids.select("auction", "bidder", "price", "channel", **parts)


QUERIES = {name: function for name, function in list(globals().items()) if re.fullmatch(r"q\d+", name)}
PARTITIONED = {"q10": ("dt", "hm")}


def run(name: str, events: ab.Stream) -> ab.Stream:
    """The output of a query over a stream of events."""
    given = streams(events)
    function = QUERIES[name]
    return function(**{each: given[each] for each in inspect.signature(function).parameters})


def main() -> None:
    """Run a query on Spark and on one thread, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("query", choices=[name for name in QUERIES if name != "q12"])
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--channels", type=int, default=2)
    given = parser.parse_args()
    session = ab.session()
    rows = generate(given.events, disorder=20)
    stream = run(given.query, session.from_rows(rows, EVENTS, rows_per_epoch=max(1, given.events // 5)))
    stream.explain()
    writer = stream.writeStream.format("memory").queryName("output").option("channels", given.channels)
    writer.option("endOfInput", "close").trigger(availableNow=True).start().awaitTermination()
    found = [tuple(row.values()) for row in session.spark.table("output").toArrow().to_pylist()]
    equal = repr(found) == repr([tuple(row) for row in stream.run_sequential(ends=True)])
    print(f"{len(found)} rows; {'equal to' if equal else 'NOT'} the run on one thread")
    raise SystemExit(0 if equal else 1)


if __name__ == "__main__":
    main()
