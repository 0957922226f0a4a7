"""On one machine: files between the tasks, and a stream whose rows Spark does not plan, until it has to read them."""

import os
import signal
import time
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.engine.driver.runner import EpochRunner
from anabranch.errors import OperatorError
from anabranch.spark.local_jobs import LocalJobs, _work_off
from tests.programs import exact

pytestmark = pytest.mark.spark


def write(place, number, values, kind=None):
    place.mkdir(exist_ok=True)
    pq.write_table(pa.table({"x": pa.array(values, kind or pa.int64())}), place / f"{number}.parquet")
    os.utime(place / f"{number}.parquet", (1_700_000_000 + number,) * 2)


class Sums:
    def __init__(self):
        self.sums = {}

    def __call__(self, t):
        self.sums[t.x % 5] = self.sums.get(t.x % 5, 0) + t.x
        return (t.x, self.sums[t.x % 5])


def program(*streams):
    """Two shuffles, state, and an order over all sources."""
    first, *others = streams
    both = first.union(*others) if others else first
    summed = both.map(Sums(), schema="x long, sum long", name="summed")
    return summed.filter(lambda t: t.x % 3 != 1).sort("sum", ab.count(4))


def sources(spark, tmp_path, *names):
    streams = ab.session(spark)
    for name in names:
        (tmp_path / name).mkdir(exist_ok=True)
    frames = [spark.readStream.schema("x long").option("maxFilesPerTrigger", 1) for _ in names]
    return [
        streams.read(frame.parquet(str(tmp_path / name)), name=name) for frame, name in zip(frames, names, strict=True)
    ]


def run(stream, tmp_path, name, **options):
    writer = stream.writeStream.format("parquet").option("path", str(tmp_path / f"out-{name}"))
    writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{name}")).options(channels=3, **options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def output(stream, tmp_path, name):
    parts = sorted((tmp_path / f"out-{name}").glob("part-*"))
    return [row for part in parts for row in stream.schema.rows(pq.read_table(part).columns)]


@pytest.mark.parametrize("names", [("one",), ("one", "two")])
def test_spark_plans_no_reader_for_files_that_tasks_read(spark, tmp_path, names, monkeypatch):
    for number in range(3):
        for name in names:
            write(tmp_path / name, number, range(number * 10, number * 10 + 10))
    plans = []
    ran = EpochRunner._run_batch

    def seen(runner, batch, number):
        ran(runner, batch, number)
        (active,) = spark.streams.active
        plans.append(str(active._jsq.streamingQuery().lastExecution().executedPlan().toString()))

    monkeypatch.setattr(EpochRunner, "_run_batch", seen)
    stream = program(*sources(spark, tmp_path, *names))
    run(stream, tmp_path, "thin")
    assert len(plans) == 3
    assert all("FileScan" not in plan for plan in plans[1:]), plans[-1]
    plans.clear()
    run(stream, tmp_path, "wide", fileReading="spark")
    assert all(plan.count("FileScan") == len(names) for plan in plans), "the check above would see a reader"
    assert exact(output(stream, tmp_path, "thin")) == exact(output(stream, tmp_path, "wide")) != []


@pytest.mark.parametrize("where", ["one", "two"])
def test_what_only_spark_can_read_it_reads_of_all_sources(spark, tmp_path, where):
    """In the epoch with the odd file the other source has one of its own, or nothing new."""
    for number in range(4):
        write(tmp_path / "one", number, range(number * 10, number * 10 + 7))
    for number in range(2):
        write(tmp_path / "two", number, range(100 + number * 10, 100 + number * 10 + 7))
    at = {"one": 2, "two": 1}[where]
    write(tmp_path / where, at, [5, 6, 7], pa.int32())
    stream = program(*sources(spark, tmp_path, "one", "two"))
    query = run(stream, tmp_path, "mixed")
    why = [each["read_by_spark"] for each in query.recentProgress]
    assert why[:at] == [""] * at and all("int32, not int64" in each for each in why[at:]) and len(why) == 4
    run(stream, tmp_path, "wide", fileReading="spark")
    assert exact(output(stream, tmp_path, "mixed")) == exact(output(stream, tmp_path, "wide")) != []


def test_who_reads_may_change_at_every_restart(spark, tmp_path):
    stream = program(*sources(spark, tmp_path, "one", "two"))
    for number, reading in enumerate(["auto", "spark", "auto", "auto", "spark"]):
        for name in ("one", "two"):
            write(tmp_path / name, number, range(number * 10, number * 10 + 7))
        run(stream, tmp_path, "restarted", fileReading=reading)
    run(stream, tmp_path, "at once", fileReading="spark")
    assert exact(output(stream, tmp_path, "restarted")) == exact(output(stream, tmp_path, "at once")) != []


def test_no_packets_are_left_whether_an_epoch_ends_or_fails(spark, tmp_path, monkeypatch):
    made = []
    begin = LocalJobs.__init__

    def kept(jobs, context):
        begin(jobs, context)
        made.append(jobs._directory)

    monkeypatch.setattr(LocalJobs, "__init__", kept)
    write(tmp_path / "one", 0, range(30))
    write(tmp_path / "one", 1, range(30))
    (source,) = sources(spark, tmp_path, "one")
    run(program(source), tmp_path, "right")
    (source,) = sources(spark, tmp_path, "one")
    wrong = program(source.map(lambda t: (1 // (t.x - 29),), schema="x long"))
    with pytest.raises(OperatorError, match="ZeroDivisionError"):
        run(wrong, tmp_path, "wrong")
    assert [os.listdir(place) for place in made if os.path.exists(place)] in ([], [[]], [[], []])
    assert len(made) == 2


class Killing:
    """Kills its worker once, in an epoch of three depths."""

    def __init__(self, note):
        self.note = note

    def __call__(self, t):
        if t.x == 17 and not os.path.exists(self.note):
            open(self.note, "x").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return (t.x,)


def test_a_worker_that_dies_fails_the_epoch_and_nobody_waits_for_it(spark, tmp_path):
    for number in range(2):
        write(tmp_path / "one", number, range(number * 10, number * 10 + 10))
    (source,) = sources(spark, tmp_path, "one")
    stream = program(source.map(Killing(str(tmp_path / "killed")), schema="x long").isolate())
    begun = time.monotonic()
    with pytest.raises(Exception, match=r"(?i)python worker exited unexpectedly|crashed"):
        run(stream, tmp_path, "killed")
    assert time.monotonic() - begun < 60 and (tmp_path / "killed").exists()
    run(stream, tmp_path, "killed")
    (source,) = sources(spark, tmp_path, "one")
    run(program(source), tmp_path, "undisturbed")
    assert exact(output(stream, tmp_path, "killed")) == exact(output(stream, tmp_path, "undisturbed")) != []


def test_what_begins_when_its_epoch_is_over_does_nothing(spark, tmp_path):
    """A task of Spark's that had to wait until its query was stopped: no error in the log."""
    late = spark.sparkContext.parallelize([], 1).mapPartitionsWithIndex(partial(_work_off, str(tmp_path)))
    assert late.collect() == [] and os.listdir(tmp_path) == []
