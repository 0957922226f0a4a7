"""Elastic operators on Spark: pools outlive tasks and epochs, and what they learn stays."""

import os
import statistics
import threading
import time
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.control.operator_levels import searching_levels
from anabranch.engine.pool.dispatch import Pool
from anabranch.engine.pool.thread_crew import ThreadCrew
from anabranch.program.elastic import Concurrency
from tests.programs import COLUMNS, Running, exact

pytestmark = pytest.mark.spark

ROWS, EPOCHS, MOST = 160, 6, 4


class Asks(ab.Operator):
    """Waits as for a service; tells where it was opened."""

    log: str = ""

    def open(self):
        self.connection = os.getpid()
        with open(self.log, "a", encoding="utf-8") as file:
            file.write(f"{self.connection}\n")

    def process(self, t):
        time.sleep(0.01)
        yield (t.k, t.s, t.x + (self.connection > 0))


def test_the_level_is_found_over_short_epochs_and_stays(spark, tmp_path):
    log = tmp_path / "opened"
    rows = [(n % 7, "ab"[n % 2], float(n)) for n in range(ROWS * EPOCHS)]
    source = ab.session(spark).from_rows(rows, COLUMNS, rows_per_epoch=ROWS)
    asked = source.process(
        Asks(log=str(log)), schema=COLUMNS, name="asks", elastic=True, max_workers=MOST, period=0.1, timeout=30.0
    )
    stream = asked.process(Running(), by="k", schema=COLUMNS)
    query = stream.writeStream.format("memory").queryName("elastic_calls").trigger(availableNow=True).start()
    query.awaitTermination()
    plain = ab.from_rows([(k, s, x + 1) for k, s, x in rows], COLUMNS, rows_per_epoch=ROWS)
    expected = plain.process(Running(), by="k", schema=COLUMNS).run_sequential()
    assert exact(stream.schema.rows(query.sink.table().columns)) == exact(expected)
    told = [each["elastic"]["asks"] for each in query.recentProgress if each["rows_in"]]
    assert [each["calls"] for each in told] == [ROWS] * EPOCHS
    # On a machine that others use, too, a search may be under way when an epoch ends.
    assert statistics.median(each["level"] for each in told[-3:]) >= MOST - 1, told
    assert sum(each["periods"] for each in told) >= 3
    assert told[-1]["p50_ms"] >= 9
    assert set(Counter(log.read_text().split()).values()) == {1}, "once in each worker process"


class UnderPermits(ab.Operator):
    """Sleeps under one of so many permits of its process: more calls at once than that bring nothing."""

    permits: int = 6

    def open(self):
        self.free = threading.Semaphore(self.permits)

    def process(self, t):
        with self.free:
            time.sleep(0.01)
        yield (t.k, t.s, t.x)


def test_the_level_is_that_of_a_pool_that_never_pauses(spark):
    """Every epoch is a task of about two periods, and Spark's own work between them is a pause of several."""
    epochs = int(os.environ.get("ANABRANCH_ELASTIC_EPOCHS", "14"))
    per_epoch, period_s = 120, 0.1
    rows = [(n % 7, "ab"[n % 2], float(n)) for n in range(per_epoch * epochs)]
    stream = (
        ab.session(spark)
        .from_rows(rows, COLUMNS, rows_per_epoch=per_epoch)
        .process(UnderPermits(), schema=COLUMNS, name=f"asks{time.time():.0f}", elastic=True, period=period_s)
    )
    query = stream.writeStream.format("memory").queryName("permits").trigger(availableNow=True).start()
    query.awaitTermination()
    assert [tuple(row) for row in stream.schema.rows(query.sink.table().columns)] == rows
    told = [next(iter(each["elastic"].values())) for each in query.recentProgress if each["rows_in"]]
    assert len(told) == epochs
    alone = UnderPermits()
    alone.open()

    def many(rows, results):
        for _ in rows:
            with alone.free:
                time.sleep(0.01)
            results.append(())

    pool = Pool(ThreadCrew(many), many, Concurrency(period_s=period_s), searching_levels(0, 128))
    list(pool.run(range(per_epoch * epochs)))
    found, expected = (
        statistics.median(each["level"] for each in told[epochs // 2 :]),
        pool.controller.to_dict()["level"],
    )
    pool.close()
    assert 0.6 <= found / expected <= 1.7, (found, expected, [each["level"] for each in told])
    assert 4 <= found <= 16


def test_results_leave_as_they_come_where_order_was_given_up(spark, tmp_path):
    """Many small files, each a batch of its own: what comes out is what one thread makes, in any order."""
    source = tmp_path / "in"
    source.mkdir()
    rows = [(n % 7, "ab"[n % 2], float(n)) for n in range(400)]
    for first in range(0, len(rows), 20):
        columns = [list(column) for column in zip(*rows[first : first + 20], strict=True)]
        pq.write_table(pa.table(columns, names=["k", "s", "x"]), source / f"{first:04}.parquet")

    def slow_at_times(t):
        time.sleep(0.04 if t.x % 20 == 3 else 0.001)
        return [(t.k, t.s, t.x + n) for n in range(int(t.x) % 3)]

    def program(stream):
        asked = stream.flat_map(slow_at_times, COLUMNS, name="asks", elastic=True, min_workers=4, max_workers=4)
        return asked.filter(lambda t: t.x % 5 != 0, elastic=True, max_workers=2)

    stream = program(ab.session(spark).read(spark.readStream.schema(COLUMNS).parquet(str(source))))
    writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "out")).option("order", "none")
    query = writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
    query.awaitTermination()
    found = pq.read_table(tmp_path / "out").to_pylist()
    expected = [tuple(row) for row in program(ab.from_rows(rows, COLUMNS)).run_sequential()]
    assert Counter(tuple(each.values()) for each in found) == Counter(expected)
    assert sum(each["elastic"]["asks"]["calls"] for each in query.recentProgress if each["rows_in"]) == len(rows)


class Sums(ab.Operator):
    """Sums whose last bits depend on what is added to what."""

    total = ab.accumulator(lambda: [0, 0.0], merge=lambda a, b: [a[0] + b[0], a[1] + b[1]])

    def process(self, t):
        time.sleep(0.001)
        self.total[0] += 1
        self.total[1] += t.x * 0.1

    def result(self):
        return ("sum", self.total[0], self.total[1])


def test_accumulators_give_what_one_thread_gives_over_epochs(spark):
    rows = [(n % 7, "ab"[n % 2], float(n) ** 3) for n in range(700)]
    made = [
        source.accumulate(Sums(), "what string, n long, x double", block=16, every=64, elastic=True, period=0.05)
        for source in (
            ab.session(spark).from_rows(rows, COLUMNS, rows_per_epoch=230),
            ab.from_rows(rows, COLUMNS, rows_per_epoch=230),
        )
    ]
    query = made[0].writeStream.format("memory").queryName("elastic_sums").trigger(availableNow=True).start()
    query.awaitTermination()
    assert exact(made[0].schema.rows(query.sink.table().columns)) == exact(made[1].run_sequential())
    assert sum(each["elastic"]["Sums"]["calls"] for each in query.recentProgress if each["rows_in"]) >= 700 // 16
