"""Slots of one machine share the tasks of an epoch: each task is done once, also if who had it dies."""

import dataclasses
import multiprocessing
import os
import resource
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.engine.claimed_tasks import ClaimedTasks
from anabranch.engine.job import Job

SPAWNED = multiprocessing.get_context("fork")


@dataclasses.dataclass(frozen=True)
class Noted:
    """Tasks of one depth that write down who began them, and send what they got to all of the next depth."""

    notes: str
    depth: int
    count: int
    behind: int
    """How many tasks the next depth has; 1 is the driver."""
    delay_s: float = 0.0
    dies: tuple[int, ...] = ()
    """Tasks whose first process is killed half-way."""
    fails: tuple[int, ...] = ()
    """Tasks that raise as long as a file says so."""
    misses: str = ""
    """A file that the tasks open."""

    def rows_of_files(self, read, number):
        return self.made(read, number)

    def rows(self, arriving, number=0):
        return self.made([payload.as_py() for _, payload in arriving], number)

    def made(self, got, number):
        name = f"{self.depth}-{number}"
        with open(os.path.join(self.notes, "begun"), "a") as file:
            file.write(f"{name} {os.getpid()}\n")
        if self.misses:
            open(self.misses).close()
        for to in range(self.behind):
            time.sleep(self.delay_s)
            if number in self.dies and not os.path.exists(os.path.join(self.notes, f"died-{name}")):
                Path(self.notes, f"died-{name}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if number in self.fails and not os.path.exists(os.path.join(self.notes, "mended")):
                raise ValueError(f"{name} fails")
            yield to, b"%03d" % number, repr((name, sorted(got) if self.depth else got)).encode()


def tasks_of(place, counts, **told):
    """Tasks with so many of each depth, in a directory of their own."""
    (place / "notes").mkdir(parents=True)
    (place / "files").mkdir()
    behind = [*counts[1:], 1]
    made = [
        Noted(str(place / "notes"), depth, count, behind[depth], **told.get(f"depth{depth}", {}))
        for depth, count in enumerate(counts)
    ]
    job = Job(made[0], made[0], [], made[1:])
    return ClaimedTasks.of(str(place / "files"), 1, job, [[number] for number in range(counts[0])])


def expected(counts):
    """What the driver gets: each task has what all of the depth before it sent."""
    before = [repr((f"0-{number}", [number])).encode() for number in range(counts[0])]
    for depth, count in enumerate(counts[1:], 1):
        before = [repr((f"{depth}-{number}", sorted(before))).encode() for number in range(count)]
    return sorted(before)


def started(tasks, slots, again=False):
    found = [SPAWNED.Process(target=tasks.work_off, args=(slot, again), daemon=True) for slot in range(slots)]
    for each in found:
        each.start()
    return found


def ended(processes, within_s=30):
    for each in processes:
        each.join(within_s)
        assert not each.is_alive(), "a slot waits for ever"
    return [each.exitcode for each in processes]


def begun(place):
    return [line.split()[0] for line in (place / "notes" / "begun").read_text().splitlines()]


@settings(max_examples=25, deadline=None)
@given(counts=st.lists(st.integers(1, 6), min_size=1, max_size=4), slots=st.integers(1, 5))
def test_every_task_is_done_once_by_as_many_slots_as_there_are(tmp_path_factory, counts, slots):
    place = tmp_path_factory.mktemp("claimed")
    tasks = tasks_of(place, counts)
    assert ended(started(tasks, slots)) == [0] * slots
    assert sorted(payload for _, _, payload in tasks.results()) == expected(counts)
    names = [f"{depth}-{number}" for depth, count in enumerate(counts) for number in range(count)]
    assert sorted(begun(place)) == sorted(names)


def test_one_slot_alone_does_all(tmp_path):
    tasks = tasks_of(tmp_path, [3, 4, 2])
    tasks.work_off(1, again=False)
    assert sorted(payload for _, _, payload in tasks.results()) == expected([3, 4, 2])


def test_slots_work_at_the_same_time(tmp_path):
    tasks = tasks_of(tmp_path, [4, 4], depth0={"delay_s": 0.1}, depth1={"delay_s": 0.4})
    assert ended(started(tasks, 4)) == [0] * 4
    lines = (tmp_path / "notes" / "begun").read_text().splitlines()
    for depth in "01":
        assert len({line.split()[1] for line in lines if line.startswith(depth)}) > 1, "one slot did all"


@settings(max_examples=15, deadline=None)
@given(
    counts=st.lists(st.integers(1, 4), min_size=2, max_size=3),
    slots=st.integers(2, 4),
    depth=st.integers(0, 1),
    number=st.integers(0, 3),
)
def test_who_waits_for_a_task_does_it_if_its_process_dies(tmp_path_factory, counts, slots, depth, number):
    """In the last depth nobody waits: Spark repeats the task that died."""
    place = tmp_path_factory.mktemp("claimed")
    dying = {"dies": (number % counts[depth],), "delay_s": 0.02}
    tasks = tasks_of(place, counts, **{f"depth{depth}": dying})
    codes = ended(started(tasks, slots))
    assert codes.count(-signal.SIGKILL) == 1 and set(codes) <= {0, -signal.SIGKILL}
    if depth == len(counts) - 1:
        assert ended(started(tasks, 1, again=True)) == [0]
    assert sorted(payload for _, _, payload in tasks.results()) == expected(counts)


def test_who_waits_goes_when_a_task_fails_and_whoever_is_sent_again_does_the_rest(tmp_path):
    counts = [3, 2, 3]
    tasks = tasks_of(tmp_path, counts, depth1={"fails": (1,), "delay_s": 0.05})
    codes = ended(started(tasks, 3))
    assert codes.count(1) == 1 and codes.count(0) == 2, "the failure is told once, and nobody tries it again"
    assert begun(tmp_path).count("1-1") == 1
    (tmp_path / "notes" / "mended").touch()
    assert ended(started(tasks, 1)) == [0]
    assert begun(tmp_path).count("1-1") == 1, "a late slot of the failed attempt does nothing"
    assert ended(started(tasks, 1, again=True)) == [0]
    assert sorted(payload for _, _, payload in tasks.results()) == expected(counts)


def test_a_slot_of_an_epoch_that_has_ended_does_nothing(tmp_path):
    tasks = tasks_of(tmp_path, [2, 2], depth0={"delay_s": 0.1})
    (waiting,) = started(tasks, 1)
    while not (tmp_path / "notes" / "begun").exists():
        time.sleep(0.01)
    late = SPAWNED.Process(target=tasks.work_off, args=(0, False), daemon=True)
    for name in os.listdir(tmp_path / "files"):
        if "." not in name:  # what is being written stays
            os.unlink(tmp_path / "files" / name)
    late.start()
    assert ended([waiting, late]) == [0, 0]
    assert begun(tmp_path) == ["0-0"], "what nobody waits for is not begun"


def test_a_slot_that_waits_uses_no_processor_time(tmp_path):
    tasks = tasks_of(tmp_path, [1, 1], depth0={"delay_s": 1.0})
    used = SPAWNED.Value("d", -1.0)

    def wait():
        before = time.process_time()
        tasks.work_off(0, again=False)
        used.value = time.process_time() - before

    (working,) = started(tasks, 1)
    while not (tmp_path / "notes" / "begun").exists():
        time.sleep(0.01)
    waiting = SPAWNED.Process(target=wait, daemon=True)
    waiting.start()
    assert ended([working, waiting]) == [0, 0]
    assert 0 <= used.value < 0.1
    assert sorted(payload for _, _, payload in tasks.results()) == expected([1, 1])


def test_a_failure_is_the_one_that_the_task_met(tmp_path):
    tasks = tasks_of(tmp_path, [1], depth0={"fails": (0,)})
    with pytest.raises(ValueError, match="0-0 fails"):
        tasks.work_off(0, again=False)


def test_a_file_that_a_task_misses_is_its_failure_and_not_the_end_of_the_epoch(tmp_path):
    tasks = tasks_of(tmp_path, [2, 2], depth1={"misses": str(tmp_path / "model")})
    with pytest.raises(FileNotFoundError, match="model"):
        tasks.work_off(0, again=False)


def test_the_driver_opens_what_tasks_sent_one_after_the_other(tmp_path):
    tasks = tasks_of(tmp_path, [60])
    tasks.work_off(0, again=False)
    last = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = len(os.listdir("/proc/self/fd")) + 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, last[1]))
    try:
        sent = list(tasks.results())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, last)
    assert sorted(payload for _, _, payload in sent) == expected([60])
