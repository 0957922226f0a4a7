"""Compactions in processes of their own: what they make is what a task would make, and nothing of them stays."""

import pickle
import subprocess
import sys
import time
from concurrent.futures import Future
from types import SimpleNamespace

from anabranch.api.session import from_epochs
from anabranch.engine.driver import committer
from anabranch.engine.pool.process_worker import send
from anabranch.engine.worker.compacting_process import Compacting, Standing, made_aside
from anabranch.state import store
from anabranch.state.records import SegmentRecord
from anabranch.testing import ParallelRun
from tests.programs import COLUMNS, build, exact


class AsideRun(ParallelRun):
    """Large compactions are made in processes."""

    made = 0

    def _compact(self, task, wanted):
        found = [made_aside(task, each) for each in wanted]
        self.made += sum(each is not None for each in found)
        told = Future()
        told.set_result(found)
        return told


def test_what_a_process_compacts_is_what_a_task_would(tmp_path, monkeypatch):
    monkeypatch.setattr(committer, "INLINE_ROWS", 10)
    monkeypatch.setattr(store, "INLINE_ROWS", 10)
    epochs = [[(k, "a", float(n)) for k in range(40)] for n in range(6)]
    stream = build(from_epochs(epochs, COLUMNS), ["running"])
    run = AsideRun(stream, str(tmp_path), channels=1)
    run.run_epochs()
    assert run.made and exact(run.output) == exact(stream.run_sequential())


class Slow:
    """A task that takes long."""

    def __call__(self, wanted):
        time.sleep(60)


class Failing:
    """A task that raises."""

    def __call__(self, wanted):
        raise ValueError("the disk is full")


class Printing:
    """A task that prints, and is a class that only this function knows."""

    def __reduce__(self):
        class Here:
            def __call__(self, wanted):
                print("printed while loading")
                return SimpleNamespace(to_fields=lambda: RECORD.to_fields())

        return Here, ()


RECORD = SegmentRecord(
    name="a/1.segment", operator="a", channel=0, generation=0, route=("k",), first=0, last=1, rows=2, bytes=3,
    checksum=4,
)  # fmt: skip


def test_what_is_printed_is_no_part_of_the_answer_and_classes_travel():
    assert made_aside(Printing(), ("a", 0, [])) == RECORD


def test_a_process_ends_with_whoever_asked():
    command = [sys.executable, "-m", "anabranch.engine.worker.compacting_process"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    send(process.stdin, pickle.dumps((Slow(), None)))
    time.sleep(0.2)
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(30) != 0
    process.stdout.close()


def test_one_that_fails_is_told_as_done_once_and_one_that_nobody_asked_for_is_unknown():
    compacting = Compacting()
    assert compacting.standing("x") == Standing(False)
    compacting.begin("x", Failing(), None)
    compacting.begin("x", Slow(), None)
    deadline = time.monotonic() + 60
    while not (found := compacting.standing("x")).is_done:
        assert found == Standing(True) and time.monotonic() < deadline
        time.sleep(0.05)
    assert found == Standing(True, True) and compacting.standing("x") == Standing(False)
