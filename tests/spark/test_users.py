"""Broadcast state, shared state, changes, annotated tuples and time zones on Spark: what one thread gives."""

import datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.testing import run_sequential

pytestmark = pytest.mark.spark


class Payment(NamedTuple):
    who: str
    kind: str
    amount: int

    @property
    def is_large(self) -> bool:
        return self.amount > 5


class Limits(ab.Operator):
    seen: int = ab.state(default=0)
    last: Payment | None = ab.state(default=None)
    limits: dict = ab.broadcast(factory=dict)

    def on_broadcast(self, rule):
        self.limits[rule.kind] = rule.limit

    def process(self, t: Payment):
        before = self.last.amount if self.last is not None and self.last.is_large else 0
        self.seen += 1
        self.last = t
        yield (t.who, self.seen, before + self.limits.get(t.kind, 0))


SCHEMA = "who string, seen long, total long"


def program(session):
    rules = session.from_rows([("a", 1), ("b", 2), ("a", None), ("a", 7)], "kind string, limit long", rows_per_epoch=1)
    rules = rules.filter(lambda t: t.limit is not None)
    payments = session.from_rows([(f"u{at % 5}", "ab"[at % 2], at % 9) for at in range(60)], Payment, rows_per_epoch=15)
    made = payments.process(Limits(), by="who", schema=SCHEMA, broadcast=rules)
    return made.changes(by="who", deleted=lambda t: t.seen % 4 == 0)


def test_what_comes_out_is_what_one_thread_gives_and_the_view_has_the_last_of_each_key(spark, tmp_path):
    stream = program(ab.session(spark))
    expected = stream.run_sequential()
    writer = stream.writeStream.format("memory").queryName("latest_totals").option("latestBy", "who")
    batches = []
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("channels", 3)
        .also(
            stream.writeStream.option("latestBy", "who").foreachBatch(
                lambda frame, epoch: batches.append([tuple(row) for row in frame.collect()])
            )
        )
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    table = {}
    for t in expected:
        if t.change == "delete":
            table.pop(t.who, None)
        else:
            table[t.who] = tuple(t)
    shown = [tuple(row) for row in spark.sql("select * from latest_totals").collect()]
    assert {row[0]: row for row in shown} == table
    assert all(len({row[0] for row in batch}) == len(batch) for batch in batches)
    last = {row[0]: row for batch in batches for row in batch}
    assert {who: row for who, row in last.items() if row[-1] != "delete"} == table


class Logins(ab.Operator):
    failed: int = ab.state(default=0)

    def process(self, t):
        self.failed = 0 if t.ok else self.failed + 1
        self.timers.at(t.at + 6)

    def on_timer(self, time):
        yield (time, self.failed)
        self.failed = 0


class Orders(ab.Operator):
    failed: int = ab.state(default=0)
    total: int = ab.state(default=0)

    def process(self, t):
        self.total += t.amount
        if self.failed > 1:
            yield (t.who, t.at, self.total)

    def on_end(self):
        yield ("end", self.failed, self.total)


def shared(session, epochs):
    rows = [(f"u{at * at % 7}", at - at % 4, at % 3 == 0) for at in range(epochs * 15)]
    logins = session.from_rows(rows, "who string, at long, ok boolean", rows_per_epoch=15, name="logins")
    rows = [(f"U{at * at % 5}", at - at % 3, at) for at in range(epochs * 15)]
    orders = session.from_rows(rows, "who string, at long, amount long", rows_per_epoch=15, name="orders")
    return ab.share(
        (logins.event_time("at", 3), Logins(), "at long, failed long"),
        (orders.event_time("at", 3), Orders(), "who string, at long, total long"),
        by=lambda t: t.who.lower(),
        name="together",
    )


def test_operators_that_share_state_go_on_after_a_restart_and_their_state_can_be_read(spark, tmp_path):
    for epochs, channels in ((2, 2), (4, 3)):
        forgotten, doubtful = shared(ab.session(spark), epochs)
        writer = forgotten.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.options(channels=channels, endOfInput="close" if epochs == 4 else "open")
        writer = writer.also(doubtful.writeStream.option("path", str(tmp_path / "doubtful")))
        writer.trigger(availableNow=True).start(str(tmp_path / "forgotten")).awaitTermination()
        if epochs == 2:
            state = ab.session(spark).read_state(str(tmp_path / "checkpoint"), "together")
            assert 3 <= state.count() <= 4 and {"failed", "total"} <= set(state.columns)  # keys are u0, u1, u2 and u4
    found = []
    for name in ("forgotten", "doubtful"):
        files = sorted((tmp_path / name).glob("*.parquet"))
        found.append([tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()])
    assert found == run_sequential([forgotten, doubtful], ends=True)
    assert all(found)


def test_instants_are_the_same_in_every_session_and_local_time_is_the_sessions(spark, tmp_path):
    start = datetime.datetime(2024, 11, 2, 12, tzinfo=datetime.UTC)  # the day before clocks go back in New York
    rows = [(f"k{at % 3}", start + datetime.timedelta(hours=at)) for at in range(60)]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        spark.createDataFrame(pa.table({"k": [k for k, _ in rows], "at": [at for _, at in rows]})).coalesce(
            1
        ).write.parquet(str(tmp_path / "in"))
        session = ab.session(spark)
        stream = session.from_files(str(tmp_path / "in"), "parquet", "k string, at timestamp").local_time("at")
        query = (
            stream.select("k", "at", "local", h=(lambda t: t.local.hour, "int"))
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
        out = spark.read.parquet(str(tmp_path / "out"))
        assert out.count() == 60
        # Spark's own idea of the session's clocks.
        assert out.where("hour(at) != h or cast(at as timestamp_ntz) != local").count() == 0
        instants = {row.us for row in out.selectExpr("unix_micros(at) as us").collect()}
        assert instants == {round(at.timestamp() * 1e6) for _, at in rows}
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
