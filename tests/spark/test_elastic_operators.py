"""Elastic operators on Spark: pools outlive tasks and epochs, and what they learn stays."""

import os
import time
from collections import Counter

import pytest

import anabranch as ab
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
    assert [each["level"] for each in told[-2:]] == [MOST] * 2, told
    assert sum(each["periods"] for each in told) >= 3
    assert told[-1]["p50_ms"] >= 9
    assert set(Counter(log.read_text().split()).values()) == {1}, "once in each worker process"


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
