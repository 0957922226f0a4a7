"""The tasks of an epoch on this machine: one small job of Spark's, with files between the tasks.

    the driver ─► a file: what is to be done, and each part     Spark ─► a task for each slot, told its number only
    slots      ─► work it off, by depths (`claimed_tasks`)            ─► all are done, or one has failed

Spark starts what works them off, bounds how many do at once, and says when they are done or why not. What to do, and
what tasks send each other and the driver, does not pass through it: so its job is the same object in every epoch,
nothing is planned, compiled, pickled into closures or broadcast, and there is no shuffle. Two calls to the JVM run an
epoch.

What Spark repeats, or has cancelled and still runs, does no harm: what it sends appears whole, bears the number of
the epoch's job that it read, and replaces nothing.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

from pyspark import TaskContext, cloudpickle

from anabranch.engine.claimed_tasks import ClaimedTasks
from anabranch.engine.job import Job
from anabranch.engine.worker.exchange import Row
from anabranch.engine.worker.file_pieces import FilePiece
from anabranch.spark.slots import is_encrypted, is_local, local_slots
from anabranch.spark.worker_garbage import task_begins
from anabranch.state.files import LocalFiles

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
        self._slots = local_slots(context)
        self._started: dict[int, Any] = {}  # how many slots → what Spark is asked to run

    def rows(self, read: list[list[FilePiece]] | None, job: Job) -> Iterator[Row]:
        """What the tasks of an epoch give the driver; `read` is what those at the sources read, None: nothing."""
        self._jobs += 1
        try:
            tasks = ClaimedTasks.of(self._directory, self._jobs, job, read)
            self._files.write(_JOB, cloudpickle.dumps(tasks))
            self._run(min(self._slots, max(tasks.counts)))
            yield from tasks.results()
        finally:
            with contextlib.suppress(FileNotFoundError):  # Spark may have ended, and its directories with it
                for name in os.listdir(self._directory):
                    with contextlib.suppress(FileNotFoundError):  # who still works removes what is not whole yet
                        os.unlink(os.path.join(self._directory, name))

    def _run(self, slots: int) -> None:
        if slots not in self._started:
            empty = self._context.parallelize([], slots)
            self._started[slots] = empty.mapPartitionsWithIndex(partial(_work_off, self._directory))._jrdd
        # What counts at once reads Spark's largest classes for every job, to look for what its closure refers to.
        self._started[slots].countAsync().get()


def _work_off(directory: str, number: int, nothing: Iterator[Any]) -> Iterator[Any]:
    task_begins()
    yield from nothing  # read to its end: otherwise Spark would not keep the worker
    context = TaskContext.get()
    assert context is not None, "outside a Spark task"
    try:
        file = open(os.path.join(directory, _JOB), "rb")  # noqa: SIM115 - what it holds may miss files of its own
    except FileNotFoundError:  # the query was stopped before this began
        return
    with file:
        tasks: ClaimedTasks = pickle.load(file)
    tasks.work_off(number, again=context.attemptNumber() > 0)
