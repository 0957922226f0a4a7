"""Executors follow the channels of all queries of an application; the cluster is a fake."""

import time
from types import SimpleNamespace

import pytest

from anabranch.control.elastic_options import ElasticOptions
from anabranch.control.executor_planner import ExecutorBounds, ExecutorPlanner, ExecutorState, SlotNeed
from anabranch.engine.driver.adaptation import EpochFacts
from anabranch.engine.driver.epoch_progress import EpochDurations, ExecutorProgress
from anabranch.engine.driver.scaling import Scaling
from anabranch.engine.driver.slot_need import need_of
from anabranch.engine.driver.waiting import SparkSurroundings
from anabranch.engine.reports import ChannelReport, MergerReport, SplitReport, WrittenFile
from anabranch.spark.cluster import ApplicationExecutors, QueryExecutors, executors_of

BOUNDS = ExecutorBounds(executors_max=4, patience_s=10.0)


class Manager:
    """Grants at once all it is asked for. Counts what the application is told, in order."""

    def __init__(self, count: int, takes: bool = True) -> None:
        self.count = count
        self.takes = takes
        self.calls: list[tuple] = []
        self.looks = 0
        self.present = [f"{number}" for number in range(count)]

    def executors(self):
        self.looks += 1
        return [ExecutorState(name, "host", 2, int(name), False) for name in self.present]

    def request(self, total):
        self.calls.append(("request", total))
        while self.takes and len(self.present) < total:
            self.present.append(f"{self.count}")
            self.count += 1
        return self.takes

    def give_back(self, identities):
        self.calls.append(("give back", *identities))
        self.present = [name for name in self.present if name not in identities]
        return self.takes


class World:
    """An application with a fake cluster and a clock that is moved by hand."""

    def __init__(self, monkeypatch, executors: int, takes: bool = True) -> None:
        self.now_s = 0.0
        self.manager = Manager(executors, takes)
        self.application = ApplicationExecutors(self.manager, ExecutorPlanner(), lambda: self.now_s)
        self.told: list = []
        # Steps are made by hand, too.
        monkeypatch.setattr(self.application, "_watch", lambda: None)

    def query(self, bounds: ExecutorBounds | None = BOUNDS) -> QueryExecutors:
        return QueryExecutors(self.application, bounds, self.told.append)

    def step_after(self, seconds: float):
        self.now_s += seconds
        return self.application.step()


def epoch(query: QueryExecutors, slots: int) -> dict:
    query.begins()
    return query.settled(SlotNeed(slots, slots))


def test_executors_come_when_channels_outgrow_the_slots_and_go_after_the_patience(monkeypatch):
    world = World(monkeypatch, 1)
    query = world.query()
    assert epoch(query, 2) == ExecutorProgress(1, 1)
    assert epoch(query, 6) == ExecutorProgress(1, 3)
    assert epoch(query, 6).present == 1, "nothing has changed, so nobody looked"
    world.now_s += 5
    assert epoch(query, 6) == ExecutorProgress(3, 3)
    epoch(query, 2)
    world.now_s += 9.9
    assert epoch(query, 2).given_back == ()
    world.now_s += 5
    assert epoch(query, 2) == ExecutorProgress(1, 1, ("2", "1"))
    assert epoch(query, 2).given_back == (), "told once"
    # killExecutors leaves any target behind; the total is requested after it.
    assert world.manager.calls == [("request", 3), ("give back", "2", "1"), ("request", 1)]
    assert [(plan.target, plan.present, plan.give_back) for plan in world.told] == [(3, 1, ()), (1, 1, ("2", "1"))]


def test_a_query_to_which_nothing_comes_gives_back_and_asks_again_when_it_begins(monkeypatch):
    world = World(monkeypatch, 3)
    query = world.query()
    epoch(query, 6)
    assert world.step_after(9.9) is None
    assert world.step_after(0.2) is None  # rests from now on
    assert world.step_after(10).give_back == ("2", "1")
    query.begins()
    assert world.manager.calls[-1] == ("request", 3)


def test_nothing_goes_while_any_query_is_in_an_epoch_or_has_said_nothing_yet(monkeypatch):
    world = World(monkeypatch, 3)
    one, other = world.query(), world.query(None)
    epoch(one, 1)
    other.begins()
    assert world.manager.calls == []
    assert world.step_after(11) is None and world.step_after(11) is None
    other.settled(SlotNeed(3, 3))
    assert world.manager.calls == [("give back", "2"), ("request", 2)], "3 and none: the other rests"


def test_queries_that_allow_nothing_leave_the_executors_alone(monkeypatch):
    world = World(monkeypatch, 3)
    query = world.query(None)
    assert epoch(query, 100) is None
    assert world.step_after(100) is None
    assert world.manager.looks == 0 and world.manager.calls == []


@pytest.mark.parametrize("ends", ["stopped", "failed", "Spark is gone"])
def test_a_query_that_has_ended_holds_nothing(monkeypatch, ends):
    world = World(monkeypatch, 3)
    one, other = world.query(), world.query()
    epoch(one, 2)
    epoch(other, 4)
    other.begins()
    if ends == "stopped":
        other.leave()
    elif ends == "failed":
        other.is_active = lambda: False
    else:
        other.is_active = lambda: 1 / 0
    for _ in range(4):  # the end is noticed, and then the patience begins
        epoch(one, 2)
        world.now_s += 5
    assert world.manager.calls == [("give back", "2", "1"), ("request", 1)]


def test_a_cluster_that_takes_no_requests_changes_nothing(monkeypatch, caplog):
    world = World(monkeypatch, 1, takes=False)
    query = world.query()
    assert epoch(query, 8) == ExecutorProgress(1, 1)
    assert world.told == [] and "took no request" in caplog.text
    assert world.step_after(1) is None and world.manager.calls == [("request", 4)]
    world.now_s += 10
    epoch(query, 8)
    assert world.manager.calls == [("request", 4), ("request", 4)]


def test_a_cluster_that_fails_changes_nothing(monkeypatch, caplog):
    world = World(monkeypatch, 1)
    monkeypatch.setattr(world.manager, "executors", lambda: 1 / 0)
    assert epoch(world.query(), 8) is None
    assert "executors cannot follow" in caplog.text


def test_a_request_that_fails_is_made_again_later(monkeypatch, caplog):
    world = World(monkeypatch, 1)
    query, request = world.query(), world.manager.request
    monkeypatch.setattr(world.manager, "request", lambda total: 1 / 0)
    epoch(query, 8)
    assert "executors cannot follow" in caplog.text and world.told == []
    monkeypatch.setattr(world.manager, "request", request)
    world.now_s += 10
    epoch(query, 8)
    assert world.manager.calls == [("request", 4)]


def test_a_thread_looks_while_no_epochs_run_and_ends_with_the_query():
    manager = Manager(2)
    application = ApplicationExecutors(manager, ExecutorPlanner())
    query = QueryExecutors(application, ExecutorBounds(executors_max=2, patience_s=0.3))
    epoch(query, 4)
    deadline = time.monotonic() + 30
    while len(manager.present) > 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert manager.present == ["0"]
    query.leave()
    application._thread.join(timeout=30)
    assert not application._thread.is_alive()


def test_surroundings_say_when_epochs_begin_and_end(monkeypatch):
    world = World(monkeypatch, 1)
    query = world.query()
    surroundings = SparkSurroundings(lambda: 8, False, executors=query)
    surroundings.at_start()
    assert query.in_epoch
    assert surroundings.settled(SlotNeed(4, 4)) == ExecutorProgress(1, 2)
    assert not query.in_epoch


def test_an_epoch_needs_the_channels_before_and_after_it_and_what_the_source_made_use_of():
    reports = [
        *(SplitReport(0.0, 1.0) for _ in range(5)),
        *(ChannelReport(1, "a", 1, at, 0.0, 1.0) for at in range(9)),
        *(MergerReport(2, 0.001, (WrittenFile(0, 2, at, "file", 9),)) for at in range(7)),
    ]
    facts = EpochFacts(0, 0.0, EpochDurations(total=3.0), 0, reports, {"a": 1, "b": 1})
    assert need_of(facts, {"a": 2, "b": 1}, {"a": 1, "b": 1}, False) == SlotNeed(2, 5, False)
    assert need_of(facts, {"a": 9, "b": 1}, {"a": 1, "b": 1}, True) == SlotNeed(2, 10, True)


def test_channels_are_not_judged_before_the_executors_they_need_have_come():
    slots = {"now": 2, "soon": 4}
    scaling = Scaling(
        {"a": 2},
        ElasticOptions(channels_max=8),
        lambda: slots["soon"],
        slots_now=lambda: slots["now"],
    )
    seen = []
    scaling._periods = SimpleNamespace(handle=lambda epoch, channels: seen.append(epoch.warm_up))
    durations = EpochDurations(job=1.0, total=1.0)

    def is_judged(started_s: float, channels: int) -> bool:
        scaling.wanted(EpochFacts(0, started_s, durations, 9, [], {"a": 1}), {"a": channels})
        return not seen[-1]

    assert not is_judged(0.0, 2), "the first epoch is none to judge by"
    assert is_judged(1.0, 2)
    scaling.changed()
    assert not is_judged(2.0, 4) and not is_judged(20.0, 4)
    slots.update(now=4, soon=8)
    assert is_judged(21.0, 4)
    scaling.changed()
    assert not is_judged(22.0, 8) and not is_judged(81.9, 8)
    gone_back = scaling.wanted(EpochFacts(0, 82.1, durations, 9, [], {"a": 1}), {"a": 8})
    assert gone_back["a"][0] == 4, "nobody gives any: back to those that have one"
    assert "nobody has given slots for 8 channels" in gone_back["a"][1]
    slots.update(soon=4)
    scaling.changed()
    assert not is_judged(83.0, 8), "the first after a change"
    assert is_judged(84.0, 8), "none can come"
    slots.update(now=2, soon=8)  # after a rest, in which executors went
    assert not is_judged(200.0, 8) and not is_judged(319.9, 8) and is_judged(320.1, 8), "waited for twice as long"


class Context:
    def __init__(self, master, **settings):
        self.master = master
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.applicationId = "app"

    def getConf(self):
        return self

    @property
    def _conf(self):
        return self

    def get(self, name, default):
        return self.settings.get(name, default)


def test_local_mode_and_dynamic_allocation_manage_themselves(caplog):
    assert executors_of(Context("local[4]"), BOUNDS, print) is None
    assert not caplog.text
    assert executors_of(Context("yarn", spark_dynamicAllocation_enabled="true"), BOUNDS, print) is None
    assert "maxExecutors has no effect" in caplog.text
