"""Which task runs where and when."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.sim.hosts import SimulatedHost, placed, slots_at

works = st.lists(st.floats(0.01, 5.0), min_size=1, max_size=12)
absences = st.lists(st.tuples(st.floats(0, 8), st.floats(0.1, 3)), max_size=2).map(
    lambda each: tuple((lost, lost + length) for lost, length in each)
)
hosts = st.lists(
    st.builds(SimulatedHost, st.integers(1, 3), st.sampled_from([0.5, 1.0, 2.0]), absences), min_size=1, max_size=3
)


@given(works, hosts, st.floats(0, 3), st.sampled_from([0.0, 0.1]))
def test_every_task_runs_to_its_end_on_a_host_that_is_there(works, hosts, begin_s, launch_s):
    tasks = placed(works, hosts, begin_s, launch_s)
    assert len(tasks) == len(works)
    for work, task in zip(works, tasks, strict=True):
        host = hosts[task.host]
        assert task.began_s >= begin_s
        assert abs(task.ended_s - task.began_s - work / host.speed) < 1e-9
        for lost, back in host.absent_s:
            assert task.ended_s <= lost or task.began_s >= back, "it ran on a host that was not there"


@given(works, hosts, st.floats(0, 3))
def test_a_slot_runs_one_task_at_a_time(works, hosts, begin_s):
    tasks = placed(works, hosts, begin_s)
    for number, host in enumerate(hosts):
        mine = [task for task in tasks if task.host == number]
        for task in mine:
            beside = [each for each in mine if each.began_s <= task.began_s < each.ended_s]
            assert len(beside) <= host.slots


def test_a_task_whose_host_is_lost_begins_anew_elsewhere():
    lost = SimulatedHost(slots=1, absent_s=((2.0, 50.0),))
    (task,) = placed([5.0], [lost, SimulatedHost(slots=1)], 0.0, noticed_s=1.0)
    first, second = placed([5.0, 5.0], [lost, SimulatedHost(slots=1)], 0.0, noticed_s=1.0)
    assert (task.attempts, task.host) in ((1, 1), (2, 1))
    assert {first.host, second.host} == {1}
    assert max(first.ended_s, second.ended_s) == 10.0
    assert slots_at([lost], 1.0) == 1 and slots_at([lost], 3.0) == 0


def test_a_slow_host_takes_longer_and_gets_fewer_tasks():
    tasks = placed([1.0] * 6, [SimulatedHost(1, 0.25), SimulatedHost(1)], 0.0)
    assert sum(task.host == 0 for task in tasks) < sum(task.host == 1 for task in tasks)


def test_more_slots_than_tasks_do_not_help():
    few, many = (placed([1.0] * 4, [SimulatedHost(slots)], 0.0) for slots in (4, 40))
    assert max(task.ended_s for task in few) == max(task.ended_s for task in many) == 1.0
