"""The tasks of an epoch on this machine: a job of Spark's for each depth, with files between them.

    the driver ─► job: what the tasks are to do, and the part of each     Spark ─► n tasks, told their number only
    task 3     ─► 12-3: what it sends (`packet_files`)                        ─► all are done, or one has failed

Spark starts the tasks, bounds how many run at once, and says when they are done or why not. What to do, and what tasks
send each other and the driver, does not pass through it: so its job is the same object in every epoch, nothing is
planned, compiled, pickled into closures or broadcast, and there is no shuffle. Two calls to the JVM run a job.

A task that is repeated, or one of a job that was cancelled and still runs, does no harm: what it writes appears whole,
bears the number of the job that it read, and replaces nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from pyspark import cloudpickle

from anabranch.engine.job import Job
from anabranch.engine.worker.exchange import Row
from anabranch.engine.worker.file_pieces import FilePiece
from anabranch.engine.worker.output_mergers import MergerTask
from anabranch.engine.worker.packet_files import PacketList, lists_in, received, send
from anabranch.engine.worker.splitters import FeedbackTask, SplitTask, fed_back_batches
from anabranch.engine.worker.tasks import ChannelTask
from anabranch.spark.slots import is_encrypted, is_local
from anabranch.spark.worker_garbage import task_begins
from anabranch.state.files import LocalFiles

_Run = Callable[[Any, int], Iterator[Row]]
"""From the part of a task, and its number, to the rows that it sends."""

_JOB = "job"


def has_local_files(context: Any) -> bool:
    """Whether all tasks run on this machine and may leave rows in its files as they are."""
    return is_local(context) and not is_encrypted(context)


class LocalJobs:
    """The jobs of one query, one at a time."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._directory = tempfile.mkdtemp(prefix="anabranch-", dir=context._temp_dir)
        self._files = LocalFiles(self._directory)
        weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        self._jobs = 0
        self._started: dict[int, Any] = {}  # how many tasks → what Spark is asked to run

    def rows(self, read: list[list[FilePiece]] | None, job: Job) -> Iterator[Row]:
        """What the tasks of an epoch give the driver; `read` is what those at the sources read, None: nothing."""
        parts: list[tuple[bool, Any]] = [(True, share) for share in read or ()]
        if job.fed_back or not parts:
            parts.append((False, job.fed_back))
        try:
            sent = self._run(partial(_at_source, job.split, job.feedback), parts)
            for task in job.behind_shuffles:
                lists = [[each[number] for each in sent if number in each] for number in range(task.count)]
                sent = self._run(partial(_behind_others, task), lists)
            for number, mine in itertools.chain.from_iterable(each.items() for each in sent):
                for order, payload in received([mine]):
                    yield number, order, payload.as_py()
        finally:
            with contextlib.suppress(OSError):  # Spark may have ended, and its directories with it
                for name in os.listdir(self._directory):
                    os.unlink(os.path.join(self._directory, name))

    def _run(self, run: _Run, parts: Sequence[Any]) -> list[dict[int, PacketList]]:
        """What each task sent."""
        self._jobs += 1
        packed = [pickle.dumps(part) for part in parts]  # so that each task unpacks one only
        self._files.write(_JOB, cloudpickle.dumps((self._jobs, run, packed)))
        if len(parts) not in self._started:
            empty = self._context.parallelize([], len(parts))
            self._started[len(parts)] = empty.mapPartitionsWithIndex(partial(_task, self._directory))._jrdd
        # What counts at once reads Spark's largest classes for every job, to look for what its closure refers to.
        self._started[len(parts)].countAsync().get()
        return [lists_in(_sent_file(self._directory, self._jobs, number)) for number in range(len(parts))]


def _task(directory: str, number: int, nothing: Iterator[Any]) -> Iterator[Any]:
    task_begins()
    yield from nothing  # read to its end: otherwise Spark would not keep the worker
    with open(os.path.join(directory, _JOB), "rb") as file:
        job, run, parts = pickle.load(file)
    send(run(pickle.loads(parts[number]), number), _sent_file(directory, job, number))


def _at_source(split: SplitTask, feedback: FeedbackTask, part: tuple[bool, Any], number: int) -> Iterator[Row]:
    is_read, given = part
    return split.rows_of_files(given, number) if is_read else feedback.rows(iter(fed_back_batches(given)))


def _behind_others(task: ChannelTask | MergerTask, part: Sequence[PacketList], number: int) -> Iterator[Row]:
    return task.rows(received(part), number)


def _sent_file(directory: str, job: int, number: int) -> str:
    return os.path.join(directory, f"{job}-{number}")
