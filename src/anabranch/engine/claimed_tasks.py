"""The tasks of an epoch as the slots of one machine work them off: each takes the next one that nobody has.

    slot 0 ─ task 0 of depth 0 ─┐        ┌─ task 0 of depth 1 ─ task 2 ─┐
                                ├─ all ──┤                              ├─ all ── …
    slot 1 ─ task 1 of depth 0 ─┘        └─ task 1 of depth 1 ──────────┘

To claim a task is to lock a byte of a file. The lock goes with the process that holds it, so whoever waits for a task
of another waits for its byte: then either the task is done, or who had it is dead, and the task is there to be taken.
So no slot waits for one that has not begun, one slot alone does all, and a task that is run twice does no harm: what
it sends appears whole, and replaces nothing (`packet_files`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from anabranch.engine.job import Job
from anabranch.engine.worker.exchange import Row
from anabranch.engine.worker.file_pieces import FilePiece
from anabranch.engine.worker.packet_files import PacketList, lists_in, received, send
from anabranch.engine.worker.splitters import fed_back_batches


class _Over(Exception):  # noqa: N818 - no error
    """Nobody needs the tasks any more: one has failed, or the epoch has ended without them."""


@dataclasses.dataclass(frozen=True)
class ClaimedTasks:
    """The tasks of an epoch, in a directory of its own number.

    Attributes
    ----------
    directory : str
        Where tasks leave what they send, and find what was sent to them.
    epoch_number : int
        Distinguishes its files from those of another epoch that somebody may still work for.
    job : Job
        What is fed back is among the parts.
    parts : list of bytes
        What each task at the sources has to read, packed: a task unpacks one only.
    """

    directory: str
    epoch_number: int
    job: Job
    parts: tuple[bytes, ...]

    @classmethod
    def of(cls, directory: str, number: int, job: Job, read: list[list[FilePiece]] | None) -> ClaimedTasks:
        """The tasks of a job; `read` is what those at the sources read, None: nothing."""
        parts: list[tuple[bool, Any]] = [(True, share) for share in read or ()]
        if job.fed_back or not parts:
            parts.append((False, job.fed_back))
        rest = dataclasses.replace(job, fed_back=[])
        tasks = cls(directory, number, rest, tuple(pickle.dumps(part) for part in parts))
        Path(tasks._claims).touch()
        return tasks

    @property
    def counts(self) -> list[int]:
        """How many tasks each depth has."""
        return [len(self.parts), *(task.count for task in self.job.behind_shuffles)]

    def work_off(self, first: int, again: bool) -> None:
        """Do what nobody else does until nothing is left, in a slot that begins with task `first` of each depth.

        `again`: Spark repeats what has failed, so that it failed need not stop anybody.
        """
        try:
            with contextlib.suppress(_Over), open(self._claims, "r+b") as claims:
                if again:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(self._failed)
                _Worker(self, claims, first).work_off()
        except FileNotFoundError:
            if not self.has_ended:  # then it is something of the user's that is not there
                raise

    def results(self) -> Iterator[Row]:
        """What the last tasks sent to the driver, which may have few files open at once: one after the other."""
        depth = len(self.counts) - 1
        for number in range(self.counts[depth]):
            for receiver, mine in lists_in(self.path(depth, number)).items():
                for order, payload in received([mine]):
                    yield receiver, order, payload.as_py()

    def run(self, depth: int, number: int, sent: list[dict[int, PacketList]]) -> Iterator[Row]:
        """What a task sends, of what those of the depth before it have sent."""
        if depth:
            arriving = received([each[number] for each in sent if number in each])
            return self.job.behind_shuffles[depth - 1].rows(arriving, number)
        is_read, given = pickle.loads(self.parts[number])
        if is_read:
            return self.job.split.rows_of_files(given, number)
        return self.job.feedback.rows(iter(fed_back_batches(given)))

    def sent(self, depth: int) -> list[dict[int, PacketList]]:
        """What each task of a depth sent."""
        return [lists_in(self.path(depth, number)) for number in range(self.counts[depth])]

    def path(self, depth: int, number: int) -> str:
        """Where a task leaves what it sends."""
        return os.path.join(self.directory, f"{self.epoch_number}-{depth}-{number}")

    @property
    def is_over(self) -> bool:
        return self.has_ended or os.path.exists(self._failed)

    @property
    def has_ended(self) -> bool:
        """Whether the driver has removed the files."""
        return not os.path.exists(self._claims)

    def fail(self) -> None:
        """Let those who wait for a task know that it will not be done."""
        with contextlib.suppress(OSError):  # the disk may be what failed: then they find out by themselves
            Path(self._failed).touch()

    @property
    def _claims(self) -> str:
        return os.path.join(self.directory, f"{self.epoch_number}-claims")

    @property
    def _failed(self) -> str:
        return os.path.join(self.directory, f"{self.epoch_number}-failed")


class _Worker:
    """One of those who work the tasks off."""

    def __init__(self, tasks: ClaimedTasks, claims: IO[bytes], first: int) -> None:
        self._tasks = tasks
        self._claims = claims
        self._first = first
        self._byte = 0  # of the first task of the depth

    def work_off(self) -> None:
        counts = self._tasks.counts
        sent: list[dict[int, PacketList]] = []
        for depth, count in enumerate(counts):
            in_turn = [(self._first + at) % count for at in range(count)]
            for number in in_turn:
                self._do(depth, number, sent, waits=False)
            if depth == len(counts) - 1:
                return  # those of others are done when they are: nothing here is made of them
            for number in in_turn:
                self._do(depth, number, sent, waits=True)
            sent = self._tasks.sent(depth)
            self._byte += count

    def _do(self, depth: int, number: int, sent: list[dict[int, PacketList]], waits: bool) -> None:
        """Do a task, unless it is done; if somebody has it, wait or leave it."""
        path = self._tasks.path(depth, number)
        if os.path.exists(path):
            return
        byte = self._byte + number
        try:
            fcntl.lockf(self._claims, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB), 1, byte)
        except BlockingIOError:
            return
        try:
            if os.path.exists(path):
                return
            if self._tasks.is_over:
                raise _Over
            send(self._tasks.run(depth, number, sent), path)
        except _Over:
            raise
        except BaseException:
            self._tasks.fail()
            raise
        finally:
            fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, byte)
