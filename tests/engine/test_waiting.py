"""What stood ready at the start of an epoch, from what sources and Spark's progress tell."""

import pytest

from anabranch.control.elastic_options import ElasticOptions
from anabranch.engine.driver.adaptation import EpochFacts
from anabranch.engine.driver.epoch_progress import EpochDurations
from anabranch.engine.driver.scaling import SOURCE, Scaling, measured, stage_times
from anabranch.engine.driver.waiting import Ready, SparkSurroundings, outstanding_rows
from anabranch.engine.reports import ChannelReport, SplitReport


def progress(batch, latest, end, trigger_ms=500, batch_ms=400, rows=10):
    source = {"latestOffset": latest, "endOffset": end}
    times = {"triggerExecution": trigger_ms, "addBatch": batch_ms}
    return {"batchId": batch, "sources": [source], "numInputRows": rows, "durationMs": times}


def test_kafka_says_how_many_rows_were_left_behind():
    assert outstanding_rows(progress(0, '{"t": {"0": 50, "1": 7}}', '{"t": {"0": 20, "1": 7}}')) == 30


def test_files_do_not_say_how_many_rows_were_left_behind():
    assert outstanding_rows(progress(0, None, '{"logOffset": 3}')) is None


def test_what_spark_does_between_epochs_is_the_median_of_the_last_few():
    told = []
    surroundings = SparkSurroundings(lambda: 2, limited=False, last_progress=lambda: told[-1])
    for batch, trigger_ms in enumerate([20_000, 450, 500, 9000, 480, 470]):
        told.append(progress(batch, None, None, trigger_ms))
        ready = surroundings.at_start()
    assert ready.bookkeeping_s == pytest.approx(0.08)


def split(oldest_ms):
    return SplitReport(0.0, 1.0, oldest_ms=oldest_ms)


def test_a_source_without_a_limit_leaves_nothing_behind():
    ready = Ready(limited=False)
    assert ready.rows_of(17) == 17 and ready.waited_s(5_000, [split(1_000)]) is None


def test_files_say_how_long_they_waited_but_not_for_a_query_that_had_not_started():
    ready = Ready(limited=True, since_ms=3_000)
    assert ready.rows_of(17) is None
    assert ready.waited_s(10_000, [split(8_000), split(6_000), split(None)]) == 4.0
    assert ready.waited_s(10_000, [split(0)]) == 7.0
    assert ready.waited_s(10_000, [split(None)]) is None


def channel(name, depth, number, began_s, seconds):
    return ChannelReport(1, name, depth, number, began_s, seconds, rows_in=5)


def test_a_stage_lasts_from_its_first_task_to_its_last_however_many_run_at_once():
    waves = [channel("a", 1, at, 10.0 + 2.0 * (at // 2), 2.0) for at in range(4)]
    assert stage_times(waves, job_s=9.0) == {"a": 4.0}
    skewed = [channel("a", 1, 0, 10.0, 2.0), channel("a", 1, 1, 500.0, 2.0)]
    assert stage_times(skewed, job_s=3.0) == {"a": 3.0}


def facts(**more):
    reports = [
        SplitReport(0.0, 0.5, sources={"in": 9}),
        channel("a", 1, 0, 1.0, 2.0),
        channel("b", 1, 0, 1.0, 1.0),
        channel("c", 2, 0, 4.0, 0.5),
    ]
    durations = EpochDurations(begin=0.0, job=5.0, merge=0.1, sink=0.4, commit=0.1, total=6.0)
    return EpochFacts(3, 100.0, durations, 9, reports, {"a": 1, "b": 1, "c": 2}, **more)


def test_tuples_that_go_round_are_taken_too():
    """Else a loop whose source is at its end had no rows, and never got channels."""
    found = measured(facts(fed_back=5), target_s=1.0, warm_up=False)
    assert (found.taken_rows, found.ready_rows) == (14, None)
    found = measured(facts(fed_back=5, ready_rows=11), target_s=1.0, warm_up=False)
    assert (found.taken_rows, found.ready_rows) == (14, 16)


def test_the_time_of_an_epoch_is_that_of_its_levels_its_sink_and_what_is_left():
    found = measured(facts(bookkeeping_s=0.3), target_s=1.0, warm_up=False)
    assert dict(found.region_s) == {SOURCE: 0.5, "a": 2.0, "b": 1.0, "c": 0.5}
    assert found.beside == (("a", "b"),)
    assert found.sink_s == pytest.approx(0.5)
    assert found.overhead_s == pytest.approx(6.0 - 0.5 - 2.0 - 0.5 - 0.5 + 0.3)
    assert found.duration_s == pytest.approx(6.3)


def test_what_controllers_learned_survives_a_restart_and_a_pin_does_not():
    pinned = Scaling({"a": 3}, ElasticOptions(channels=3))
    kept = pinned.to_facts()
    assert kept.controllers["a"].pinned == 3
    free = Scaling({"a": 3}, ElasticOptions())
    free.restore(kept, {"a": 3})
    assert [(each.channels, each.pinned) for each in free.status()] == [(3, False)]
    again = Scaling({"a": 2}, ElasticOptions(channels=2))
    again.restore(free.to_facts(), {"a": 2})
    assert [(each.channels, each.pinned) for each in again.status()] == [(2, True)]
