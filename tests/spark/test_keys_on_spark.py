"""Keys that are computed or lie in structs, on Spark, against one thread."""

import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch import agg

pytestmark = pytest.mark.spark


class Best(ab.Operator):
    price: int = ab.state(default=0)

    def process(self, t):
        if t.bid is not None and t.bid["price"] > self.price:
            self.price = t.bid["price"]
            yield t.n, self.price


def test_computed_and_nested_keys_on_spark(spark, tmp_path):
    rows = [(n, None if n % 13 == 0 else {"auction": n * n % 7, "price": n * 37 % 101}) for n in range(300)]
    stream = ab.session(spark).from_rows(rows, "n long, bid struct<auction:long,price:long>", rows_per_epoch=120)
    best = stream.process(Best(), by=lambda t: t.n % 5, schema="n long, price long")
    counts = stream.aggregate(
        by=["bid.auction", ab.key(lambda t: t.n // 100, "hundred long")], window=ab.tumbling(3), many=agg.count()
    )
    joined = best.join(counts, by=(lambda t: t.price % 7, "auction"), window=ab.count(3))
    writer = joined.writeStream.format("parquet").options(checkpointLocation=str(tmp_path / "c"), channels=3)
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    parts = sorted((tmp_path / "out").glob("part-*"))
    found = [row for p in parts for row in joined.schema.rows(pq.read_table(p, schema=joined.schema.arrow).columns)]
    assert found == joined.run_sequential() and len(found) > 50
