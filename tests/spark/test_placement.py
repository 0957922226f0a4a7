"""Wishes of tasks for executors: what is remembered, what is asked for, and that rows are the same with them."""

from concurrent.futures import Future
from threading import Event
from types import SimpleNamespace

import pytest

from anabranch.control.channel_places import StandbySettings
from anabranch.control.executor_planner import ExecutorState
from anabranch.engine.reports import ChannelReport, SplitReport
from anabranch.spark.placement import ChannelPlacement, _anchored
from anabranch.spark.warming import Warming

pytestmark = pytest.mark.spark


class Manager:
    """Executors that come and go as the test says."""

    def __init__(self, *identities: str) -> None:
        self.present = list(identities)

    def executors(self):
        return [ExecutorState(identity, "host", 1, 0, False) for identity in self.present]


class Placement(ChannelPlacement):
    """Told by the test which executor a task ran on: the name of the place is the executor's."""

    def _looked_up(self, stage, task):
        return {1: "A", 2: "B", 3: ""}[task]


class Task(SimpleNamespace):
    """The tasks of a depth with two channels."""

    depth = 1

    def load(self):
        stages = {7: SimpleNamespace(name="Sum", number=7)}
        node = SimpleNamespace(name="Sum", logic=None)
        return SimpleNamespace(
            layout=SimpleNamespace(
                stages=stages, at_depth=lambda depth: list(stages.values()), nodes=lambda stage: [node]
            )
        )

    functions = {7: SimpleNamespace(channels=2, bundles=0)}  # noqa: RUF012


def report(channel: int, place: str) -> ChannelReport:
    return ChannelReport(7, "Sum", 1, channel, 0.0, 0.0, place=place)


@pytest.fixture
def placement(monkeypatch):
    placement = Placement(None, manager=Manager("A", "B"))
    monkeypatch.setattr("anabranch.spark.placement._LOOK_S", -1.0)
    return placement


def test_channels_are_asked_back_to_where_they_ran(placement):
    assert placement._locations(Task()) == ["executor_host_A", "executor_host_B"]
    first, _ = placement.settled([SplitReport(0.0, 0.0), report(0, "x 5 2"), report(1, "y 5 1")])
    assert (first.kept, first.moved, first.elsewhere) == (0, 0, 2)
    assert placement._locations(Task()) == ["executor_host_B", "executor_host_A"]
    second, _ = placement.settled([report(0, "x 6 2"), report(1, "y 6 1")])
    assert (second.kept, second.moved, second.elsewhere) == (2, 0, 0)


def test_a_channel_whose_executor_was_busy_goes_back_to_its_state_and_pushes_no_other_away(placement):
    home = ["executor_host_B", "executor_host_A"]
    placement.settled([report(0, "x 5 2"), report(1, "y 5 1")])
    for epoch in (6, 7):
        assert placement._locations(Task()) == home
        told, _ = placement.settled([report(0, f"y {epoch} 1"), report(1, f"y {epoch} 1")])
        assert (told.kept, told.moved, told.elsewhere) == ((1, 1, 1) if epoch == 6 else (2, 0, 1))
    assert placement._locations(Task()) == home
    # For a third time in a row: then it has moved, and as that executor has one too many one of them goes elsewhere.
    placement.settled([report(0, "y 8 1"), report(1, "y 8 1")])
    assert placement._locations(Task()) == ["executor_host_A", "executor_host_B"]


def test_who_was_back_at_home_once_may_be_away_as_long_again(placement):
    placement.settled([report(0, "x 5 2"), report(1, "y 5 1")])
    for epoch, place in enumerate(["y", "y", "x", "y", "y"], start=6):
        assert placement._locations(Task()) == ["executor_host_B", "executor_host_A"]
        placement.settled([report(0, f"{place} {epoch} 2"), report(1, f"y {epoch} 1")])
    assert placement._locations(Task()) == ["executor_host_B", "executor_host_A"]


def test_a_channel_whose_executor_is_gone_goes_to_one_that_is_there(placement):
    placement.settled([report(0, "x 5 2"), report(1, "y 5 1")])
    placement._manager.present = ["A"]
    assert placement._locations(Task()) == ["executor_host_A", "executor_host_A"]
    told, _ = placement.settled([report(0, "y 6 1"), report(1, "y 6 1")])
    assert (told.kept, told.moved) == (1, 1)


def test_nothing_is_said_of_tasks_whose_executor_nobody_knows(placement):
    told, _ = placement.settled([report(0, "z 5 3"), report(1, "")])
    assert (told.kept, told.moved, told.elsewhere) == (0, 0, 0)
    placement._manager.present = []
    assert placement._locations(Task()) == []


def test_rows_are_where_the_shuffle_put_them_with_wishes_that_nobody_can_grant(spark):
    rows = spark.createDataFrame(
        [(at % 3, bytes([at]), b"x" * at) for at in range(40)], "task int, order binary, payload binary"
    )
    shuffled = rows.repartitionById(3, "task").select("order", "payload")
    united = _anchored(spark, shuffled, ("executor_nowhere_9",) * 3, {})

    def held(frame):
        return [sorted(map(tuple, part)) for part in frame.rdd.glom().collect()]

    assert held(united) == held(shuffled) and united.columns == ["order", "payload"]


def test_where_spark_has_changed_tasks_run_anywhere_and_it_is_said_once(placement, caplog, monkeypatch):
    def changed(*_):
        raise TypeError("no such constructor")

    monkeypatch.setattr("anabranch.spark.placement._anchored", changed)
    rows = object()
    assert [placement.placed(None, rows, Task()) for _ in range(3)] == [rows] * 3
    assert caplog.text.count("run where Spark likes: no such constructor") == 1


def test_a_lost_executor_is_replaced_by_its_standby_and_the_new_one_takes_over_when_it_has_caught_up(monkeypatch):
    monkeypatch.setattr("anabranch.spark.placement._LOOK_S", -1.0)
    placement = Placement(None, StandbySettings(1), Manager("A", "B"))
    assert placement._locations(Task()) == ["executor_host_A", "executor_host_B"]
    told, _ = placement.settled([report(0, "y 5 1"), report(1, "x 5 2")])
    assert told.unprotected == {"Sum 0": 1, "Sum 1": 1} and not told.moves
    assert placement.followed() == {"executor_host_A": [("Sum", 1, None)], "executor_host_B": [("Sum", 0, None)]}
    placement.followed_by("x 6 2", {("Sum", 0): 0})
    placement.followed_by("y 6 1", {("Sum", 1): 7})
    placement._manager.present = ["B", "C"]  # A is lost, C came
    assert placement._locations(Task()) == ["executor_host_B", "executor_host_B"]
    told, _ = placement.settled([report(0, "x 7 2"), report(1, "x 7 2")])
    (move,) = told.moves
    assert (move.channel, move.source, move.target, move.how) == (0, "A", "B", "CPA")
    assert set(told.unprotected) == {"Sum 0", "Sum 1"} and told.unprotected["Sum 0"] == 2
    # C follows both: one it is to own, one it is a standby of. It takes over when it has caught up.
    assert sorted(placement.followed()["executor_host_C"]) == [("Sum", 0, None), ("Sum", 1, None)]
    placement._identities["c"] = "C"
    placement.followed_by("c 8 9", {("Sum", 0): 5, ("Sum", 1): 5})
    assert placement._locations(Task()) == ["executor_host_B", "executor_host_B"]
    placement.followed_by("c 9 9", {("Sum", 0): 0, ("Sum", 1): 0})
    assert sorted(placement._locations(Task())) == ["executor_host_B", "executor_host_C"]
    told, _ = placement.settled([report(0, "x 10 2"), report(1, "c 10 2")])
    assert [move.how for move in told.moves] == ["CPAL"]
    assert not told.unprotected, "what B leaves behind is a copy, and C has one of the other"


def test_fewer_executors_than_copies_is_said_once(caplog):
    placement = Placement(None, StandbySettings(3), Manager("A", "B"))
    for _ in range(2):
        placement._locations(Task())
    assert caplog.text.count("there are 2 executors, so there are fewer") == 1
    assert {len(each) for each in placement.followed().values()} == {1}


class Threadless:
    """Jobs that end when the test says so."""

    def __init__(self) -> None:
        self.begun: dict[str, Future[None]] = {}

    def submit(self, warmed, executor):
        self.begun[executor.identity] = Future()
        return self.begun[executor.identity]


def test_an_executor_that_comes_later_is_asked_when_it_is_warm():
    now, jobs = [0.0], Threadless()
    warming = Warming(lambda executor: None, lambda: now[0])
    warming._threads = jobs

    def ready(identities: str) -> str:
        return "".join(each.identity for each in warming.ready(Manager(*identities).executors()))

    assert ready("AB") == "AB" and not jobs.begun, "what is there at first is taken as it is"
    assert ready("BC") == "B" and ready("BC") == "B" and list(jobs.begun) == ["C"]
    jobs.begun["C"].set_result(None)
    assert ready("BCD") == "BC" and ready("D") == "D", "if none is warm, all are taken"
    jobs.begun["D"].set_result(None)
    assert ready("BD") == "D", "who was away is another one"
    assert ready("BCD") == "D"
    now[0] = 100.0
    assert ready("BCD") == "BCD", "a job that takes so long is not waited for"


def test_warming_that_fails_stops_nothing():
    done = Event()

    def fails(executor):
        done.set()
        raise RuntimeError("it is gone again")

    warming = Warming(fails)
    warming.ready(Manager("A").executors())
    warming.ready(Manager("A", "B").executors())
    assert done.wait(10)
    warming._threads.shutdown()
    assert [each.identity for each in warming.ready(Manager("A", "B").executors())] == ["A", "B"]


def test_what_warms_an_executor_is_a_job_of_a_depths_form(spark):
    context = spark.sparkContext
    context.setJobGroup("warming", "what warms an executor")
    try:
        ChannelPlacement(spark, manager=Manager("A"))._warm(Manager("A").executors()[0])
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    jobs = [context.statusTracker().getJobInfo(job) for job in context.statusTracker().getJobIdsForGroup("warming")]
    assert [job.status for job in jobs] == ["SUCCEEDED"] * len(jobs)
    assert max(len(job.stageIds) for job in jobs) == 2, "a shuffle, as before every depth"
