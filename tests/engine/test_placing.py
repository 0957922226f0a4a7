"""What is told of the work of executors: shared among bundles, added up for hosts."""

import os

import pytest

from anabranch.control.channel_places import StandbySettings
from anabranch.control.executor_planner import ExecutorState
from anabranch.engine.driver.placing import Placing
from anabranch.engine.reports import ChannelReport
from anabranch.engine.worker.measuring import resident_bytes
from anabranch.partitioning.function import PartitioningFunction
from anabranch.state.records import SegmentRecord

EXECUTORS = [ExecutorState(identity, identity, 1, 0, False) for identity in "AB"]
MB = 1 << 20


def settled(seconds: float, processor: float, busy: float) -> tuple[Placing, dict[str, object]]:
    """An epoch of a second with a channel on each of two executors; the first has three bundles of four."""
    now = iter([0.0, 1.0])
    placing = Placing(StandbySettings(), clock=lambda: next(now))
    placing.executors = EXECUTORS
    channels = [("sum", 0), ("sum", 1)]
    placing.job_plan(1, channels, {"sum": PartitioningFunction.even(2).with_bundles([0, 0, 0, 1])})
    reports = [
        ChannelReport(
            7, "sum", 1, channel, 0.0, seconds, rows_in=300, place="AB"[channel],
            processor_seconds=processor, memory_bytes=90 * MB,
        )
        for channel in (0, 1)
    ]  # fmt: skip
    progress, _ = placing.settled(reports, lambda place: place, {"A": (busy, 1), "B": (busy, 1)})
    return placing, dict(progress.hosts)


def test_what_a_channel_used_is_that_of_its_bundles_and_of_its_host():
    placing, hosts = settled(seconds=0.6, processor=0.3, busy=0.3)
    assert placing._statistics["sum", 1].processor == pytest.approx(0.1)
    assert placing._statistics["sum", 1].rows == 100 and placing._statistics["sum", 1].memory_bytes == 30 * MB
    for identity, bundles in (("A", 3), ("B", 1)):
        told = hosts[identity]
        assert (told.bundles, told.rows, told.memory_bytes) == (bundles, 300, 90 * MB)
        assert (told.load, told.processor, told.outside) == pytest.approx((0.6, 0.3, 0.0))


def test_others_use_what_is_busy_beyond_what_our_processes_used_not_beyond_how_long_they_took():
    """A task that waits for a store has its slot, and no core."""
    _, hosts = settled(seconds=0.9, processor=0.1, busy=0.8)
    assert hosts["A"].outside == pytest.approx(0.3 * 0.7)  # a third of it at once, the rest as it lasts


def test_the_memory_of_this_process_is_known_where_the_system_tells_it():
    assert resident_bytes() > 10 * MB or not os.path.exists("/proc/self/statm")


def test_what_a_copy_lacks_grows_with_every_epoch_until_its_host_says_otherwise():
    """Who follows is not asked while epochs have all slots: a channel must not go there as if it had all."""
    placing = Placing(StandbySettings(1))
    placing.executors = EXECUTORS
    one, other = ("sum", 0), ("sum", 1)
    for epoch in range(4):
        placing.job_plan(1, [one, other], {"sum": PartitioningFunction.even(2)})
        written = SegmentRecord(
            name=f"sum/{epoch}.segment", operator="sum", channel=0, generation=0, route=("k",), first=epoch, last=epoch,
            rows=1, bytes=100, checksum=0,
        )  # fmt: skip
        reports = [
            ChannelReport(7, "sum", 1, channel, 0.0, 0.1, place="AB"[channel], segments=(written,) * (channel == 0))
            for channel in (0, 1)
        ]
        placing.settled(reports, lambda place: place)
        if epoch == 0:
            placing.followed_by("B", {one: 0})
        # What the last epoch wrote nobody can have yet; what those before it wrote is lacking.
        assert placing._copies_now()[one]["B"] == max(0, 100 * (epoch - 1)), epoch
    placing._wishes.update({one: "B", other: "A"})
    plan = placing.job_plan(1, [one, other], {"sum": PartitioningFunction.even(2)})
    assert not plan.moves and plan.now[one].identity == "A"
    placing.followed_by("B", {one: 100})
    placing.followed_by("A", {other: 0})
    plan = placing.job_plan(1, [one, other], {"sum": PartitioningFunction.even(2)})
    assert {move.how for move in plan.moves} == {"CPAL"} and plan.now[one].identity == "B"
