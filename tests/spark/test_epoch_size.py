"""The size of epochs on Spark: files that are ready are cut so that epochs last about the target."""

import json
import os
import re
import time
from statistics import median

import pytest

import anabranch as ab
from anabranch.errors import ProgramError
from anabranch.spark import read_limits
from anabranch.spark.read_limits import SparkReadLimits
from tests.programs import exact, slow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COLUMNS = "k long, x double"


def put(directory, numbers, rows=4):
    """Files in groups of three of the same time; their names are in no order. Their rows, as one thread reads them."""
    directory.mkdir(exist_ok=True)
    written = []
    for number in numbers:
        path = directory / f"{number * 7919 % 10007:05d}.json"
        part = [(number % 5, number + at / rows) for at in range(rows if number % 11 else 0)]
        path.write_text("".join(json.dumps({"k": k, "x": x}) + "\n" for k, x in part))
        modified = 1_700_000_000 + number // 3
        os.utime(path, (modified, modified))
        written.append((modified, str(path), part))
    return [row for _, _, part in sorted(written, key=lambda each: each[:2]) for row in part]


class Running(ab.Operator):
    total: float = ab.state(default=0.0)

    def process(self, t):
        self.total += t.x
        yield (t.k, self.total)


def summed(stream):
    return stream.process(Running(), by="k", schema=COLUMNS)


def run(stream, place, **options):
    """The rows of every epoch, when they were delivered, and the progress, until all that is there is read."""
    epochs, times = {}, []

    def deliver(frame, epoch):
        epochs[epoch] = [tuple(row) for row in frame.collect()]
        times.append(time.monotonic())

    writer = stream.writeStream.foreachBatch(deliver).options(channels=1, **options)
    query = writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start()
    query.awaitTermination()
    return epochs, times, query.recentProgress


def test_a_backlog_is_read_in_epochs_of_about_the_target_and_a_restart_goes_on_with_their_size(spark, tmp_path):
    rows = put(tmp_path / "in", range(150))
    session = ab.session(spark)

    def program():
        return slow(summed(session.from_files(str(tmp_path / "in"), "json", COLUMNS, name="files")), 0.02)

    first, times, progress = run(program(), tmp_path / "ck", epochTarget="2 seconds")
    shown = [each["epoch_files"]["files"] for each in progress]
    assert sum(each["taken"] for each in shown) == 150
    assert all(each["taken"] <= each["limit"] for each in shown)
    assert [each["limit"] for each in shown[1:]] == [each["next"] for each in shown[:-1]]
    # Files of one time are never cut apart.
    assert all(sum(each["taken"] for each in shown[:at]) % 3 == 0 for at in range(len(shown)))
    # Epochs that had more to take; on a slow machine the target is a multiple of the fixed cost.
    lasted = [
        (times[at] - times[at - 1]) / float(re.search(r"target (\S+) s", progress[at]["epoch_size"])[1])
        for at in range(2, len(shown) - 1)
    ]
    assert 0.5 <= median(lasted[1:]) <= 2.0, (lasted, shown)
    more = put(tmp_path / "in", range(150, 198))
    second, _, progress = run(program(), tmp_path / "ck", epochTarget="2 seconds")
    # What followed from the last epoch is not in that epoch's manifest; and the cut is between two times.
    assert abs(progress[0]["epoch_files"]["files"]["limit"] - shown[-1]["limit"]) <= 2
    delivered = [row for epochs in (first, second) for epoch in sorted(epochs) for row in epochs[epoch]]
    assert exact(delivered) == exact(map(tuple, program().run_sequential(rows + more)))


def test_an_epoch_that_failed_runs_again_with_the_same_files_and_two_sources_are_cut_apart(spark, tmp_path):
    ours = put(tmp_path / "ours", range(60))
    theirs = put(tmp_path / "theirs", range(100, 130))
    session = ab.session(spark)

    def program():
        sources = [session.from_files(str(tmp_path / each), "json", COLUMNS, name=each) for each in ("ours", "theirs")]
        return summed(sources[0].union(sources[1]))

    seen = []

    def deliver(frame, epoch):
        seen.append((epoch, [tuple(row) for row in frame.collect()]))
        if len(seen) == 2:
            raise RuntimeError("planted")

    for _ in range(2):
        writer = program().writeStream.foreachBatch(deliver).options(channels=2, epochTarget="500 ms")
        query = writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except Exception as problem:
            assert "planted" in str(problem)
    assert seen[1] == seen[2]
    assert [epoch for epoch, _ in seen[2:]] == list(range(1, len(seen) - 1))
    files = [each["epoch_files"] for each in query.recentProgress]
    assert all(set(each) == {"ours", "theirs"} for each in files)
    assert min(len(seen[0][1]), len(seen[1][1])) > 0 and len(files) >= 2
    delivered = [row for _, part in (seen[0], *seen[2:]) for row in part]
    assert len(delivered) == len(ours) + len(theirs)
    expected = {k: sum(x for other, x in ours + theirs if other == k) for k in range(5)}
    assert {k: max(total for other, total in delivered if other == k) for k in range(5)} == pytest.approx(expected)


def test_where_spark_cannot_do_it_the_query_takes_all_there_is_and_says_so(spark, tmp_path, monkeypatch, caplog):
    put(tmp_path / "in", range(40))
    stream = summed(ab.session(spark).from_files(str(tmp_path / "in"), "json", COLUMNS))
    monkeypatch.setattr(read_limits, "why_not_replaceable", lambda spark: "Spark 9 is different")
    _, _, progress = run(stream, tmp_path / "ck1")
    assert [each["epoch_size"] for each in progress] == ["fixed: Spark 9 is different"]
    assert progress[0]["rows_in"] == 4 * 36 and progress[0]["epoch_files"] == {}
    monkeypatch.undo()

    def refuse(self, limits):
        raise RuntimeError("not today")

    monkeypatch.setattr(SparkReadLimits, "replace", refuse)
    _, _, progress = run(stream, tmp_path / "ck2", epochTarget="20 seconds")
    assert sum(each["rows_in"] for each in progress) == 4 * 36 and "not today" in progress[-1]["epoch_size"]
    assert len([record for record in caplog.records if record.name == "anabranch"]) == 2


def test_what_the_user_fixed_is_left_alone(spark, tmp_path):
    put(tmp_path / "in", range(9))
    session = ab.session(spark)
    _, _, progress = run(
        summed(session.from_files(str(tmp_path / "in"), "json", COLUMNS)), tmp_path / "a", epochSize="fixed"
    )
    assert len(progress) == 1 and progress[0]["epoch_files"] == {} and progress[0]["epoch_size"] == ""
    limited = session.from_files(str(tmp_path / "in"), "json", COLUMNS, MaxFilesPerTrigger=3)
    _, _, progress = run(summed(limited), tmp_path / "b")
    assert len(progress) == 3 and progress[0]["epoch_files"] == {}
    with pytest.raises(ProgramError, match="epochSize='small'"):
        run(summed(limited), tmp_path / "c", epochSize="small")
