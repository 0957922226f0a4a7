"""The queries of Nexmark that Structured Streaming can say with its own operators, without Python, to files.

Their rows come in any order. Windows and sessions close by Spark's watermark, which is that of the batch before. Left
out are those that give updates (4, 9, 15 to 19: files can only be appended), that join what windows gave by their
highest (5, 7), and those that need a list or a timer (6) or the clock (12).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from examples.nexmark.events import LATENESS, SIDE_INPUT, side_input


def _kinds(events: Any) -> tuple[Any, Any, Any]:
    """Persons, auctions and bids, without a watermark: Spark refuses a second one."""
    kinds = ("person", "auction", "bid")
    found = [events.where(f"event_type = {at}").selectExpr(f"{kind}.*") for at, kind in enumerate(kinds)]
    return found[0], found[1], found[2]


def _bids(expression: str, condition: str = "true") -> Callable[[Any, Any], Any]:
    def query(spark: Any, events: Any) -> Any:
        bids = events.where("event_type = 2").selectExpr("bid.*")
        return bids.selectExpr(*(each.strip() for each in expression.split(";"))).where(condition)

    return query


def q3(spark: Any, events: Any) -> Any:
    persons, auctions, _ = _kinds(events)
    near = persons.where("state in ('OR', 'ID', 'CA')").selectExpr("id as person", "name", "city", "state")
    wanted = auctions.where("category = 10").selectExpr("seller", "id")
    return wanted.join(near, wanted.seller == near.person).select("name", "city", "state", "id")


def q8(spark: Any, events: Any) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    persons, auctions, _ = _kinds(events)
    came = persons.withWatermark("dateTime", f"{LATENESS} seconds").groupBy(
        "id", "name", F.window("dateTime", "10 seconds").alias("came")
    )
    sold = auctions.withWatermark("dateTime", f"{LATENESS} seconds").groupBy(
        "seller", F.window("dateTime", "10 seconds").alias("sold")
    )
    left, right = came.count().drop("count"), sold.count().drop("count")
    both = left.join(right, (left.id == right.seller) & (left.came == right.sold))
    return both.selectExpr("id", "name", "came.start as starttime")


def q11(spark: Any, events: Any) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    bids = events.withWatermark("dateTime", f"{LATENESS} seconds").where("event_type = 2")
    sessions = bids.groupBy(F.col("bid.bidder").alias("bidder"), F.session_window("dateTime", "10 seconds").alias("s"))
    return sessions.count().selectExpr("bidder", "count", "s.start", "s.end")


def q13(spark: Any, events: Any) -> Any:
    table = spark.createDataFrame(side_input(), SIDE_INPUT)
    bids = events.where("event_type = 2").selectExpr("bid.*", "bid.auction % 10000 as key")
    return bids.join(table, "key").select("auction", "bidder", "price", "dateTime", "value")


def q20(spark: Any, events: Any) -> Any:
    _, auctions, bids = _kinds(events)
    names = ("itemName", "description", "initialBid", "reserve", "expires", "seller", "category")
    renamed = ("id", *names, "dateTime as auction_dateTime", "extra as auction_extra")
    wanted = auctions.where("category = 10").selectExpr(*renamed)
    return bids.join(wanted, bids.auction == wanted.id).drop("id")


_PRICE = "cast(0.908 as decimal(4, 3)) * cast(price as decimal(19, 0))"
_DAY = "case when hour(dateTime) between 8 and 18 then 'dayTime' when hour(dateTime) <= 6 or hour(dateTime) >= 20 "
QUERIES: dict[str, Callable[[Any, Any], Any]] = {
    "q0": _bids("auction; bidder; price; dateTime; extra"),
    "q1": _bids(f"auction; bidder; dateTime; extra; {_PRICE} as price"),
    "q2": _bids("auction; price", "auction % 123 = 0"),
    "q3": q3,
    "q8": q8,
    "q10": _bids(
        "auction; bidder; price; dateTime; extra; date_format(dateTime, 'yyyy-MM-dd') as dt; "
        "date_format(dateTime, 'HH:mm') as hm"
    ),
    "q11": q11,
    "q13": q13,
    "q14": _bids(
        f"auction; bidder; dateTime; extra; {_PRICE} as price; {_DAY} then 'nightTime' else 'otherTime' end as "
        "bidTimeType; length(extra) - length(replace(extra, 'c', '')) as c_counts",
        "price > 1000000 and price < 50000000",
    ),
    "q20": q20,
    "q21": _bids(
        "auction; bidder; price; channel; coalesce(case lower(channel) when 'apple' then '0' when 'google' then '1' "
        "when 'facebook' then '2' when 'baidu' then '3' end, "
        "nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')) as channel_id",
        "channel_id is not null",
    ),
    "q22": _bids(
        "auction; bidder; price; channel; split_part(url, '/', 4) as dir1; split_part(url, '/', 5) as dir2; "
        "split_part(url, '/', 6) as dir3"
    ),
}
