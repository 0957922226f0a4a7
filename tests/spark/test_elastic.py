"""Elastic queries on Spark: signals of loads that must be told apart, rescaling while it runs, restarts."""

import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.errors import ProgramError
from anabranch.sim.owners import check_checkpoint
from tests.faults.test_schedules import check_state
from tests.programs import COLUMNS, build, exact, slow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROWS = [[(n * k % 23, "ab"[k % 2], float(n + k)) for k in range(60)] for n in range(8)]


def test_a_query_is_rescaled_by_hand_while_it_runs_and_goes_on_after_a_restart(spark, tmp_path):
    events = []
    session = ab.session(spark)
    session.addListener(events.append)
    stream = build(from_epochs(ROWS[:5], COLUMNS, session=session), ["running", "jump by both"])
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "ck")).option("maxChannels", 7)
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    region = query.regions[0].name
    with pytest.raises(ProgramError, match="maxChannels=7"):
        query.rescale(region, 8)
    with pytest.raises(ProgramError, match="no such region"):
        query.rescale("nobody", 2)
    query.rescale(region, 5)
    query.awaitTermination()
    ended = [event.progress for event in events if isinstance(event, ab.EpochEnded)]
    assert [each["epoch"] for each in ended] == list(range(5)) and ended[-1] == query.lastProgress
    assert query.lastProgress["channels"][region] == 5
    (change,) = [event for event in events if isinstance(event, ab.Rescaled)]
    assert (change.region, change.channels_before, change.channels) == (region, 2, 5)
    assert change.reason == "asked for by hand"
    assert [decision.branch for decision in query.decisions(region)][-1] == "by hand"
    assert "5" in query.decisions(region)[-1].describe()
    # The checkpoint says how many there were; the options of the second run do not.
    stream = build(from_epochs(ROWS, COLUMNS, session=session), ["running", "jump by both"])
    query = stream.writeStream.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True)
    query = query.start(str(tmp_path / "out"))
    assert query.regions[0].channels == 5 and not query.regions[0].pinned
    query.awaitTermination()
    parts = sorted((tmp_path / "out").glob("part-*"))
    delivered = [row for part in parts for row in stream.schema.rows(pq.read_table(part).columns)]
    assert exact(delivered) == exact(stream.run_sequential())
    check_state(stream, tmp_path / "ck", "state after rescaling")
    assert query.lastProgress["executors"] is None, "there are none in local mode"
    # Nothing comes any more. What is asked for now waits, also for another driver.
    query.rescale(region, 3)
    assert (query.regions[0].channels, query.regions[0].asked) == (5, 3)
    query = stream.writeStream.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True)
    query = query.option("maxExecutors", 4).start(str(tmp_path / "out"))
    assert (query.regions[0].channels, query.regions[0].asked) == (3, None)
    query.awaitTermination()


def test_a_pinned_query_stays_pinned_whatever_it_measures(spark, tmp_path):
    stream = build(from_epochs(ROWS, COLUMNS, session=ab.session(spark)), ["running"])
    writer = stream.writeStream.format("noop").option("channels", 3).option("adaptationPeriod", "1 ms")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert {each["channels"]["Running"] for each in query.recentProgress} == {3}
    assert query.regions[0].pinned
    assert check_checkpoint(tmp_path) > 0


def decisions_of(spark, tmp_path, *, cost_s, sink_s, rows, wait_s=0.0):
    """The decisions of a few adaptation periods of a query that begins with one channel of at most four."""
    directory = tmp_path / "in"
    directory.mkdir()

    def put(number):
        table = pa.table([[n * 37 % 101 for n in range(rows)], ["a"] * rows, [1.0] * rows], schema=schema)
        pq.write_table(table, directory / f"_{number}")
        (directory / f"_{number}").rename(directory / f"{number}.parquet")

    session = ab.session(spark)
    stream = session.from_files(str(directory), "parquet", COLUMNS, maxFilesPerTrigger=1)
    schema = stream.schema.arrow
    if not wait_s:
        for number in range(12):
            put(number)
    stream = slow(build(stream, ["running"]), cost_s)
    writer = stream.writeStream.foreachBatch(lambda frame, epoch: time.sleep(sink_s))
    writer = writer.options(initialChannels=1, maxChannels=4, adaptationPeriod="3 epochs", epochTarget="1 second")
    query = writer.option("checkpointLocation", str(tmp_path / "ck")).start()
    deadline = time.monotonic() + 120
    number = 0
    while time.monotonic() < deadline and query.isActive:
        found = [each for each in query.decisions("Running") if each.observation is not None and each.observation.valid]
        if found:
            break
        if wait_s:
            put(number)
            number += 1
        query.awaitTermination(wait_s or 0.2)
    assert query.exception() is None
    query.stop()
    return found[0]


def test_a_saturated_region_is_congested_and_gets_channels(spark, tmp_path):
    decision = decisions_of(spark, tmp_path, cost_s=0.02, sink_s=0.0, rows=150)
    assert decision.observation.congestion > 0.5, decision.describe()
    assert decision.observation.busy_share > 0.9, decision.describe()
    assert (decision.branch, decision.channels) == ("expand", 2), decision.describe()


def test_an_under_loaded_region_is_not_congested(spark, tmp_path):
    decision = decisions_of(spark, tmp_path, cost_s=0.001, sink_s=0.0, rows=20, wait_s=4.0)
    assert decision.observation.congestion < 0.05, decision.describe()
    assert decision.channels == 1, decision.describe()


def test_a_slow_sink_is_remote_congestion_and_brings_no_channels(spark, tmp_path):
    decision = decisions_of(spark, tmp_path, cost_s=0.0001, sink_s=3.0, rows=50)
    assert decision.observation.remote or decision.observation.busy_share < 0.9, decision.describe()
    assert (decision.branch, decision.channels) == ("remote", 1), decision.describe()
