"""Programs in virtual time: the production's driver loop decides, and what it delivers is what one thread would."""

import pytest

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.control.elastic_options import ElasticOptions
from anabranch.errors import ProgramError
from anabranch.sim import (
    AskedChannels,
    Constant,
    Crash,
    Keys,
    SimulatedHost,
    Situation,
    Steps,
    WorkCosts,
    simulate,
)
from anabranch.sim.simulation import Simulation


class Total(ab.Operator):
    total: int = ab.state(default=0)

    def process(self, t):
        self.total += t.x
        yield t.k, self.total


ROWS = [(at % 7, at) for at in range(400)]


def totals(rows=ROWS):
    return ab.from_rows(rows, "k long, x long").process(Total(), by="k", schema="k long, x long", name="total")


def regions(*names):
    stream = ab.from_rows([], "k long, x long")
    for name in names:
        stream = stream.process(Total(), by="k", schema="k long, x long", name=name)
    return stream


def test_it_delivers_what_one_thread_would_whatever_happens():
    run = simulate(
        totals(),
        load=Constant(60.0),
        rows_per_file=20,
        files_per_epoch=1,
        initialChannels=2,
        maxChannels=5,
        crashes=[Crash("sink written", 3), Crash("segment written", 5), Crash("manifest written", 8)],
        asked=[AskedChannels(4, 0, 5)],
        hosts=[SimulatedHost(2), SimulatedHost(2, absent_s=((1.0, 9.0),))],
    )
    assert list(run.outputs[0]) == totals().run_sequential()
    assert sorted(point for _, point in run.crashes) == ["manifest written", "segment written", "sink written"]
    assert run.channels("total")[0] == 2 and 5 in run.channels("total")
    # An epoch whose driver dies right after its commit is told by nobody, and does not run again.
    assert [epoch.number for epoch in run.epochs] == [number for number in range(20) if number != 7]


def test_a_run_is_the_same_every_time():
    situation = Situation(load=Constant(60.0), rows_per_file=20, crashes=(Crash("job done", 4),), straggler_share=0.2)
    one, other = (Simulation(totals(), situation).run() for _ in range(2))
    assert one == other


def test_channels_follow_the_load_up_and_down():
    run = simulate(
        regions("work"),
        load=Steps((30.0, 300.0, 30.0), (60.0, 90.0, 150.0)),
        rows_per_file=20,
        seconds=300.0,
        slots=8,
        costs={"work": 0.01},
        initialChannels=1,
        keys=Keys(200),
    )
    at = {name: [e.channels["work"] for e in run.epochs if low <= e.started_s < high] for name, low, high in
          (("calm", 30, 60), ("busy", 120, 150), ("calm again", 270, 300))}  # fmt: skip
    assert at["calm"][-1] <= 2
    assert at["busy"][-1] >= 4
    assert at["calm again"][-1] < at["busy"][-1]
    assert any(decision.changed for _, _, decision in run.decisions)
    assert "channels" in run.summary() and "work" in run.summary()


def test_a_backlog_grows_where_channels_are_too_few_and_not_where_they_are_enough():
    few, enough = (
        simulate(regions("work"), load=400.0, rows_per_file=40, seconds=60.0, slots=8, costs={"work": 0.01}, channels=n)
        for n in (2, 8)
    )
    assert few.epochs[-1].backlog_rows > 5_000
    assert enough.epochs[-1].backlog_rows < 1_000
    assert few.epochs[-1].latency_s > 5 * enough.epochs[-1].latency_s


def test_slow_hosts_stragglers_and_few_slots_make_epochs_longer():
    def epoch_s(**more):
        options = {"slots": 8, **more} if "hosts" not in more else more
        run = simulate(
            regions("work"),
            rows_per_file=100,
            files_per_epoch=4,
            epochs=12,
            costs={"work": 0.005},
            channels=8,
            **options,
        )
        return sum(epoch.duration_s for epoch in run.epochs)

    plain = epoch_s()
    assert epoch_s(hosts=[SimulatedHost(8, speed=0.5)]) > 1.4 * plain
    assert epoch_s(slots=2) > 1.6 * plain
    assert epoch_s(straggler_share=0.3) > 1.2 * plain
    assert epoch_s(hosts=[SimulatedHost(4), SimulatedHost(4, absent_s=((0.2, 1e9),))]) > 1.2 * plain


def test_epochs_take_what_they_have_time_for():
    run = simulate(regions("work"), rows_per_file=50, epochs=30, slots=4, costs={"work": 0.01}, epochTarget="3 seconds")
    assert 1.5 < sorted(epoch.duration_s for epoch in run.epochs[15:])[7] < 6


def test_a_hot_key_holds_its_channel_up():
    skewed, even = (
        simulate(regions("work"), rows_per_file=200, files_per_epoch=2, epochs=8, slots=8, costs={"work": 0.01},
                 channels=8, keys=keys)
        for keys in (Keys(500, skew=1.6), Keys(500))
    )  # fmt: skip
    assert skewed.throughput < 0.6 * even.throughput
    last = skewed.epochs[-1].tasks_s["work"]
    assert max(last) > 2 * sum(last) / len(last)


def test_what_tasks_take_adds_up_to_the_epoch():
    nothing = dict.fromkeys(("tuple_s", "key_s", "byte_s", "file_s", "launch_s", "sink_tuple_s"), 0.0)
    taking = {"task_s": 0.5, "stage_s": 1.0, "plan_s": 2.0, "begin_s": 0.25, "sink_s": 0.125, "commit_s": 0.0625}
    costs = WorkCosts(operators={"work": 0.01}, **nothing, **taking)
    run = simulate(
        regions("work"), rows_per_file=100, files_per_epoch=1, epochs=1, costs=costs, channels=1, epochSize="fixed"
    )
    # Plan, two stages, two tasks of which one works a second, begin, sink, commit.
    assert run.epochs[0].duration_s == pytest.approx(2.0 + 2 * 1.0 + 2 * 0.5 + 1.0 + 0.25 + 0.125 + 0.0625)


def test_hot_keys_are_split_only_where_there_are_tuples():
    with pytest.raises(ProgramError, match="splitting hot keys needs tuples"):
        Simulation(regions("work"), Situation(split_hot_keys="auto"), fast=True)


def test_options_are_those_of_a_query():
    with pytest.raises(ProgramError, match="channel"):
        simulate(regions("work"), epochs=1, channels=0)
    with pytest.raises(ValueError, match="no crash point 'nowhere'"):
        Crash("nowhere")


def test_elastic_options_can_be_given_as_they_are():
    run = simulate(regions("work"), epochs=2, rows_per_file=10, options=ElasticOptions(channels=3))
    assert run.channels("work") == (3, 3)


def test_what_has_no_state_gets_channels_of_its_own_where_that_pays():
    def run_of(**more):
        stream = ab.from_rows([], "k long, x long", name="in").filter(lambda t: t.x % 5 != 3, name="heavy")
        return simulate(
            stream,
            rows_per_file=400,
            files_per_epoch=1,
            epochs=12,
            slots=4,
            costs={"heavy": 0.02},
            channels=4,
            **more,
        )

    spread, never = run_of(), run_of(spread="off")
    assert [epoch.channels.get("in-spread") for epoch in spread.epochs] == [None] * 3 + [4] * 9
    assert all(not epoch.channels for epoch in never.epochs)
    # 400 rows of 20 ms take one task 8 s, and 4 channels 2 s each.
    assert never.epochs[-1].duration_s == pytest.approx(8.2, abs=0.3)
    assert spread.epochs[-1].duration_s == pytest.approx(2.3, abs=0.3)


def test_the_form_is_kept_and_left_as_on_spark_and_the_output_stays_that_of_one_thread():
    sizes = [40] * 6 + [1] * 12
    files = [[(at % 7, at) for at in range(size)] for size in sizes]
    stream = from_epochs(files, "k long, x long", name="in").filter(lambda t: t.x % 5 != 3, name="heavy")
    situation = Situation(
        files_per_epoch=1,
        costs=WorkCosts(operators={"heavy": 0.1}),
        spread_gain_s=0.3,
        crashes=(Crash("program replaced", 1), Crash("job done", 7)),
    )
    run = Simulation(stream, situation).run()
    had = ["in-spread" in epoch.channels for epoch in run.epochs]
    assert True in had and False in had[had.index(True) :], had
    assert list(run.outputs[0]) == stream.run_sequential()


# -- executors ------------------------------------------------------------------------------------------------------


def with_executors(seconds=900.0, **more):
    """Load for ten slots, then for one, on hosts of two slots, of which there is one at first."""
    return simulate(
        regions("total"),
        load=Steps((1000.0, 50.0), (300.0, 600.0)),
        seconds=seconds,
        rows_per_file=500,
        slots=2,
        costs={"total": 0.008},
        maxExecutors=8,
        executorIdleTimeout="40 seconds",
        **more,
    )


def test_executors_come_when_channels_outgrow_them_and_go_when_they_are_idle():
    run = with_executors(executors_absent_s=20.0)
    slots = {epoch.started_s: epoch.slots for epoch in run.epochs}
    assert next(iter(slots.values())) == 2
    assert all(count == 2 for at_s, count in slots.items() if at_s < 15.0), "they take a while to come"
    busy = [count for at_s, count in slots.items() if 150.0 < at_s < 290.0]
    quiet = [count for at_s, count in slots.items() if at_s > 750.0]
    assert min(busy) >= 8 and max(busy) <= 16 and max(quiet) <= 4
    assert run.channels("total")[-1] <= 4 < max(run.channels("total"))
    # What was asked for came after its time, and not before.
    late = with_executors(seconds=180.0, executors_absent_s=200.0)
    assert {epoch.slots for epoch in late.epochs} == {2}


def test_without_maxexecutors_their_number_is_left_alone():
    run = simulate(regions("total"), load=Constant(1000.0), seconds=100.0, rows_per_file=500, slots=2)
    assert {epoch.slots for epoch in run.epochs} == {2}


def test_output_is_that_of_one_thread_while_executors_come_and_drivers_die():
    run = simulate(
        totals(),
        load=Constant(60.0),
        rows_per_file=20,
        files_per_epoch=1,
        slots=1,
        maxExecutors=3,
        executors_absent_s=1.0,
        executorIdleTimeout="2 seconds",
        costs={"total": 0.1},
        asked=[AskedChannels(2, 0, 3), AskedChannels(12, 0, 1)],
        crashes=[Crash("sink written", 3), Crash("manifest written", 8)],
    )
    assert list(run.outputs[0]) == totals().run_sequential()
    assert max(epoch.slots for epoch in run.epochs) == 3


def test_channels_for_executors_that_come_late_do_not_count_as_a_failure():
    """They take 200 s: the controller goes back to what has slots, never below, and asks again, more patiently."""
    run = with_executors(seconds=420.0, executors_absent_s=200.0)
    assert min(run.channels("total")) >= 2, "it is overloaded all the time"
    assert any(decision.branch == "slots" for _, _, decision in run.decisions)
    assert run.epochs[-1].slots >= 4, "in the end they came"
