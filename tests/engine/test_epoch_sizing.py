"""What epoch sizing makes of an epoch: whether rows stood ready, whose fault it was, and where files may be cut."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.control.elastic_options import EPOCH_S, ElasticOptions
from anabranch.control.epoch_size import EpochSizeMemory
from anabranch.engine.driver.adaptation import EpochFacts
from anabranch.engine.driver.epoch_progress import EpochDurations
from anabranch.engine.driver.epoch_sizing import BEGINNING_FILES, EpochSizing, beginning, local_files, whole
from anabranch.engine.driver.scaling import Scaling
from anabranch.engine.driver.waiting import SparkSurroundings
from anabranch.engine.reports import ChannelReport, SplitReport
from anabranch.errors import ProgramError
from anabranch.state.adaptation_facts import SizingFacts


class Limits:
    """In the place of Spark: a backlog of files that are cut as it was told."""

    def __init__(self, ready):
        self.ready = ready
        self.limit = None
        self.newest_ms = 0

    def taken(self):
        count = min(self.ready, self.limit)
        self.ready -= count
        self.newest_ms += count
        return {"in": count}, {"in": self.newest_ms} if count else {}

    def replace(self, limits):
        self.limit = limits["in"]


def sizing_over(ready, facts=None):
    sizing = EpochSizing({"in": None}, 1.0, 2, facts)
    sizing._read_limits = limits = Limits(ready)
    limits.limit = sizing.limits["in"]
    return sizing, limits


def epoch_of(sizing, surroundings, number, started_s, file_s=0.01):
    ready = surroundings.at_start()
    files = ready.taken_files.files["in"]
    work = file_s * files
    reports = [
        SplitReport(0.0, 0.0, sources={"in": files}, oldest_ms=0),
        ChannelReport(1, "a", 1, 0, 0.1, work, rows_in=files),
    ]
    durations = EpochDurations(job=work + 0.1, total=work + 0.1)
    return EpochFacts(
        number,
        started_s,
        durations,
        files,
        reports,
        {"a": 1},
        ready_rows=ready.rows_of(files),
        waited_s=ready.waited_s(started_s * 1000, reports),
        taken_files=ready.taken_files,
    )


def test_an_epoch_that_reached_our_limit_may_have_left_rows_and_one_that_did_not_has_taken_all():
    sizing, limits = sizing_over(BEGINNING_FILES + 3)
    surroundings = SparkSurroundings(lambda: 2, limited=False, sizing=sizing)
    surroundings._since_ms = 0
    first = epoch_of(sizing, surroundings, 0, 100.0)
    assert (first.rows_in, first.ready_rows, first.waited_s) == (BEGINNING_FILES, None, None)
    # What is left stood there while the first epoch ran, and files say since when.
    second = epoch_of(sizing, surroundings, 1, 101.0)
    assert (second.rows_in, second.ready_rows, second.waited_s) == (3, 3, 101.0)
    # The second left nothing: files that are there now came since, however old they are.
    limits.ready = 5
    third = epoch_of(sizing, surroundings, 2, 102.0)
    assert (third.rows_in, third.ready_rows, third.waited_s) == (5, 5, None)


def test_an_epoch_that_reads_nothing_is_not_asked_for_files():
    sizing, _ = sizing_over(50)
    surroundings = SparkSurroundings(lambda: 2, limited=False, sizing=sizing)
    assert surroundings.at_start(reads=False).taken_files is None


def observations(file_s, beginning=None):
    """What the channels' controllers observe of a source that always has more, and the limits meanwhile."""
    sizing, _ = sizing_over(10**9, None if beginning is None else SizingFacts(EpochSizeMemory({"in": beginning})))
    surroundings = SparkSurroundings(lambda: 2, limited=False, sizing=sizing)
    surroundings._since_ms = 0
    seen = []
    scaling = Scaling(
        {"a": 1}, ElasticOptions(channels_max=4, period_s=1.0), lambda: 4, lambda _, each: seen.append(each)
    )
    clock, limits = 1000.0, []
    for number in range(30):
        facts = epoch_of(sizing, surroundings, number, clock, file_s)
        cut_short = sizing.after(facts, 0.1)
        limits.append((facts.rows_in, cut_short, len(seen)))
        scaling.wanted(EpochFacts(**{**vars(facts), "cut_short": cut_short}), {"a": 1})
        clock += facts.durations_s.total
    return limits, seen


def test_channels_are_not_judged_while_a_limit_of_ours_is_on_its_way_up():
    limits, seen = observations(0.001)
    rising = [number for number, (_, cut_short, _) in enumerate(limits) if cut_short]
    assert len(rising) >= 4
    # Nothing was observed until three epochs after the last rise.
    assert all(done == 0 for _, _, done in limits[: rising[-1] + 3])
    assert seen


def test_a_backlog_that_channels_cannot_keep_up_with_is_congestion_though_epochs_keep_to_the_target():
    limits, seen = observations(0.01)
    assert limits[-1][0] * 0.01 + 0.1 == pytest.approx(1.0, rel=0.3)
    assert seen[0].observation.congestion > 0.8
    assert seen[0].observation.busy_share > 0.9
    assert seen[0].branch == "expand"


def test_the_size_and_how_far_it_came_survive_a_restart():
    sizing, _ = sizing_over(10**6)
    surroundings = SparkSurroundings(lambda: 2, limited=False, sizing=sizing)
    for number in range(8):
        sizing.after(epoch_of(sizing, surroundings, number, float(number), 0.001), 0.1)
    kept = sizing.to_facts()
    assert kept.newest_ms["in"] > 0 and kept.size.limits == sizing.limits
    assert EpochSizing({"in": None}, 1.0, 2, kept).limits == sizing.limits


def test_limits_that_cannot_be_looked_up_leave_a_source_with_a_limit(caplog):
    sizing, limits = sizing_over(100)
    limits.taken = lambda: 1 / 0
    surroundings = SparkSurroundings(lambda: 2, limited=False, sizing=sizing)
    for _ in range(2):
        ready = surroundings.at_start()
        assert ready.limited and ready.taken_files.files == {}
    assert ready.left_before
    assert not sizing.adapts and "division" in sizing.reason and len(caplog.records) == 1


@given(st.lists(st.integers(0, 30), max_size=60), st.one_of(st.none(), st.integers(-1, 31)), st.integers(1, 70))
def test_files_of_one_time_are_never_cut_apart(times, newest, limit):
    times = sorted(times)
    found = whole(times, newest, limit)
    left = [each for each in times if newest is None or each > newest]
    assert found >= 1
    assert not left[:found] or not left[found:] or left[found - 1] != left[found]
    largest = max((left.count(each) for each in left), default=0)
    assert (limit + 1) // 2 <= found <= limit + largest


def test_the_files_of_a_directory_are_those_that_spark_sees(tmp_path):
    (tmp_path / "k=1").mkdir()
    (tmp_path / "other").mkdir()
    for number, name in enumerate(["a", "_b", ".c", "k=1/d", "k=1/_e", "other/f"]):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, ns=(0, 1_500_000 + number * 1_000_000))
    assert [time_ms for time_ms, _ in local_files(str(tmp_path))] == [1, 4]
    assert local_files(str(tmp_path / "nowhere")) == []


def test_the_target_is_the_users_or_the_triggers_or_our_own():
    assert ElasticOptions(epoch_target_s=3.0).epoch_s(7.0) == 3.0
    assert ElasticOptions().epoch_s(7.0) == 7.0
    assert ElasticOptions().epoch_s(None) == EPOCH_S
    assert ElasticOptions.parse({"epochsize": "fixed"}).epoch_size == "fixed"
    with pytest.raises(ProgramError, match="epochSize='large': expected one of auto, fixed"):
        ElasticOptions.parse({"epochsize": "large"})


@given(st.lists(st.integers(0, 10**9), max_size=40), st.integers(1, 10**9))
def test_the_first_epoch_takes_what_likely_fits_and_something_always(sizes, budget):
    taken = beginning([(at, size) for at, size in enumerate(sizes)], budget)
    assert 1 <= taken <= BEGINNING_FILES
    assert taken == 1 or sum(sizes[:taken]) <= budget
    assert taken == BEGINNING_FILES or sum(sizes[: taken + 1]) > budget


def test_large_files_are_taken_one_by_one(tmp_path):
    for number in range(20):
        with open(tmp_path / f"{number}.parquet", "wb") as file:
            file.truncate(9 * 2**20 if number < 10 else 10)
        os.utime(tmp_path / f"{number}.parquet", (number, number))
    assert EpochSizing({"in": str(tmp_path)}, 1.0, 2).limits == {"in": 1}
    assert EpochSizing({"in": str(tmp_path)}, 2.5, 2).limits == {"in": 2}
    assert EpochSizing({"in": str(tmp_path)}, 2.5, 2, SizingFacts(EpochSizeMemory({"in": 7}))).limits == {"in": 7}
