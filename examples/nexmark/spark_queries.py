"""The queries of Nexmark in Spark's own words, where Structured Streaming can say them: to compare how long they are.

Each is SQL over the streams of events, as views with watermarks where the query has windows. `UNSUPPORTED` says why the
others cannot be said. `python -m examples.nexmark.spark_queries` starts each on a few events.
"""

from __future__ import annotations

QUERIES = {
    "q0": """
        SELECT auction, bidder, price, dateTime, extra
        FROM bids
    """,
    "q1": """
        SELECT auction, bidder,
               0.908 * price AS price,
               dateTime, extra
        FROM bids
    """,
    "q2": """
        SELECT auction, price
        FROM bids WHERE auction % 123 = 0
    """,
    "q3": """
        SELECT P.name, P.city, P.state, A.id
        FROM auctions AS A
        INNER JOIN persons AS P ON A.seller = P.id
        WHERE A.category = 10
          AND P.state IN ('OR', 'ID', 'CA')
    """,
    "q5": """
        SELECT each.auction, each.num FROM (
          SELECT explode(filter(counts, c -> c.num = most)) AS each FROM (
            SELECT collect_list(struct(auction, num)) AS counts, max(num) AS most
            FROM (
              SELECT window, auction, count(*) AS num
              FROM bids
              GROUP BY window(dateTime, '10 seconds', '2 seconds'), auction
            )
            GROUP BY window(window, '2 seconds')
          )
        )
    """,
    "q7": """
        SELECT each.* FROM (
          SELECT explode(filter(bids, b -> b.price = most)) AS each FROM (
            SELECT collect_list(struct(auction, price, bidder, dateTime, extra)) AS bids,
                   max(price) AS most
            FROM bids
            GROUP BY window(dateTime, '10 seconds')
          )
        )
    """,
    "q8": """
        SELECT P.id, P.name, P.window.start
        FROM (
          SELECT id, name, window(dateTime, '10 seconds') AS window FROM persons
          GROUP BY id, name, window(dateTime, '10 seconds')
        ) P
        JOIN (
          SELECT seller, window(dateTime, '10 seconds') AS window FROM auctions
          GROUP BY seller, window(dateTime, '10 seconds')
        ) A
        ON P.id = A.seller AND P.window = A.window
    """,
    "q10": """
        SELECT auction, bidder, price, dateTime, extra,
               date_format(dateTime, 'yyyy-MM-dd') AS dt, date_format(dateTime, 'HH:mm') AS hm
        FROM bids
    """,
    "q11": """
        SELECT bidder, count(*) AS bid_count,
               session_window.start AS starttime,
               session_window.end AS endtime
        FROM bids
        GROUP BY bidder, session_window(dateTime, '10 seconds')
    """,
    "q13": """
        SELECT B.auction, B.bidder, B.price, B.dateTime, S.value
        FROM bids AS B
        JOIN side_input AS S
        ON B.auction % 10000 = S.key
    """,
    "q14": """
        SELECT auction, bidder,
               0.908 * price AS price,
               CASE
                 WHEN hour(dateTime) >= 8 AND hour(dateTime) <= 18 THEN 'dayTime'
                 WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
                 ELSE 'otherTime'
               END AS bidTimeType,
               dateTime, extra,
               length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bids
        WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
    """,
    "q17": """
        SELECT auction,
               date_format(dateTime, 'yyyy-MM-dd') AS day,
               count(*) AS total_bids,
               count(*) FILTER (WHERE price < 10000) AS rank1_bids,
               count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
               count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
               min(price) AS min_price,
               max(price) AS max_price,
               avg(price) AS avg_price,
               sum(price) AS sum_price
        FROM bids
        GROUP BY auction, date_format(dateTime, 'yyyy-MM-dd')
    """,
    "q18": """
        SELECT last.* FROM (
          SELECT max_by(struct(*), dateTime) AS last
          FROM bids GROUP BY bidder, auction
        )
    """,
    "q20": """
        SELECT B.*, A.itemName, A.description, A.initialBid, A.reserve,
               A.dateTime AS auction_dateTime, A.expires, A.seller, A.category,
               A.extra AS auction_extra
        FROM bids AS B
        INNER JOIN auctions AS A ON B.auction = A.id
        WHERE A.category = 10
    """,
    "q21": """
        SELECT * FROM (
          SELECT auction, bidder, price, channel,
                 CASE lower(channel)
                   WHEN 'apple' THEN '0'
                   WHEN 'google' THEN '1'
                   WHEN 'facebook' THEN '2'
                   WHEN 'baidu' THEN '3'
                   ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')
                 END AS channel_id
          FROM bids
        ) WHERE channel_id IS NOT NULL
    """,
    "q22": """
        SELECT auction, bidder, price, channel,
               split_part(url, '/', 4) AS dir1,
               split_part(url, '/', 5) AS dir2,
               split_part(url, '/', 6) AS dir3
        FROM bids
    """,
}

UPDATES = frozenset({"q17", "q18"})
"""Queries that are run in output mode `update`; the others append."""
_CHAINED = "an aggregate of what a join, or another aggregate, still updates is refused"
UNSUPPORTED = {
    "q4": _CHAINED,
    "q6": f"{_CHAINED}; and so are windows of the last 10 rows",
    "q9": f"{_CHAINED}, and the first row by an order (`row_number`)",
    "q12": "windows of the clock that close while nothing comes: only with a timer of one's own",
    "q15": "distinct aggregates are refused on streams",
    "q16": "distinct aggregates are refused on streams",
    "q19": "the first rows by an order (`row_number`) are refused on streams",
}


def lines() -> dict[str, int]:
    """Query → lines of SQL."""
    return {name: sum(1 for line in text.splitlines() if line.strip()) for name, text in QUERIES.items()}


def main() -> None:
    """Start each query on a few events, and say what comes out, or what Spark says."""
    import tempfile

    import pyarrow as pa

    import anabranch as ab
    from anabranch.spark.sinks import to_dataframe
    from examples.nexmark.events import EVENTS, SIDE_INPUT, generate, side_input

    spark = ab.session().spark
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    schema = ab.Schema.of(EVENTS)
    with tempfile.TemporaryDirectory() as scratch:
        columns = list(zip(*generate(2000), strict=True))
        table = pa.Table.from_arrays(schema.arrays(columns), schema=schema.arrow)
        to_dataframe(spark, table, schema).write.parquet(f"{scratch}/events")
        events = spark.readStream.schema(spark.read.parquet(f"{scratch}/events").schema).parquet(f"{scratch}/events")
        for kind, name in enumerate(("person", "auction", "bid")):
            view = events.where(f"event_type = {kind}").select(f"{name}.*").withWatermark("dateTime", "4 seconds")
            view.createOrReplaceTempView(f"{name}s")
        spark.createDataFrame(list(side_input()), SIDE_INPUT).createOrReplaceTempView("side_input")
        for name, text in QUERIES.items():
            mode = "update" if name in UPDATES else "append"
            try:
                writer = spark.sql(text).writeStream.outputMode(mode).format("memory").queryName(f"out_{name}")
                writer.trigger(availableNow=True).start().awaitTermination()
                print(name, spark.table(f"out_{name}").count(), "rows", flush=True)
            except Exception as problem:  # of Spark, which says why it cannot be said so
                print(name, "refused:", str(problem).splitlines()[0], flush=True)


if __name__ == "__main__":
    main()
