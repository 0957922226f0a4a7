"""Event time on Spark: watermarks from timestamps, timers, sessions, and the end of the input, against one thread."""

import datetime
import random

import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.errors import ProgramError

pytestmark = pytest.mark.spark
COLUMNS = "k string, at timestamp, x long"
START = datetime.datetime(2024, 3, 1, tzinfo=datetime.UTC)


class Quiet(ab.Operator):
    key: str = ab.state(default=None)

    def process(self, t):
        self.key = t.k
        for time in self.timers.pending:
            self.timers.cancel(time)
        self.timers.at(t.at + datetime.timedelta(seconds=9))

    def on_timer(self, time):
        yield (self.key, time, -1)
        self.key = None


def program(stream: ab.Stream) -> ab.Stream:
    stream = stream.event_time("at", lateness=5)
    counts = stream.aggregate(
        by="k", window=ab.event_time("at", 10), at=ab.agg.window_start(), x=ab.agg.sum("x"), why=ab.agg.emission()
    )
    gone = stream.process(Quiet(), by="k", schema=COLUMNS)
    sessions = counts.union(gone.map(lambda t: (t.k, t.at, t.x, "quiet"), schema=counts.schema)).aggregate(
        by="why", window=ab.sessions("at", 20), at=ab.agg.window_end(), n=ab.agg.count(), x=ab.agg.sum("x")
    )
    return sessions


def test_watermarks_timers_sessions_and_the_end_on_spark(spark, tmp_path):
    chance = random.Random(7)
    rows = [
        (
            f"key {int(chance.paretovariate(1)) % 9}",
            START + datetime.timedelta(seconds=n // 3 - chance.choice([0, 2, 9])),
            n,
        )
        for n in range(600)
    ]
    stream = program(ab.session(spark).from_rows(rows, COLUMNS, rows_per_epoch=250))

    def start(**options):
        writer = stream.writeStream.format("parquet").options(checkpointLocation=str(tmp_path / "c"), channels=3)
        return writer.options(**options).trigger(availableNow=True).start(str(tmp_path / "out"))

    start().awaitTermination()
    start(endOfInput="close").awaitTermination()
    parts = sorted((tmp_path / "out").glob("part-*"))
    found = [
        row for part in parts for row in stream.schema.rows(pq.read_table(part, schema=stream.schema.arrow).columns)
    ]
    assert found == stream.run_sequential(ends=True) and len(found) > len(stream.run_sequential())
    start(endOfInput="close").awaitTermination()
    assert sorted((tmp_path / "out").glob("part-*")) == parts
    with pytest.raises(ProgramError, match="availableNow"):
        stream.writeStream.format("noop").option("endOfInput", "close").start()
