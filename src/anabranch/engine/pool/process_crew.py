"""Workers that are processes, for code that holds the interpreter's lock.

Each thread of the crew has a process as its companion, which makes the calls while the thread waits for the answer. A
call that takes too long can be stopped here: the process is ended, and the worker gets another.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import cloudpickle

from anabranch.engine.pool.companion import Companion
from anabranch.engine.pool.process_worker import packed, unpacked
from anabranch.engine.pool.thread_crew import ThreadCrew, Worker
from anabranch.engine.pool.work import CLOSING_S, Chunk
from anabranch.engine.thread_settings import ThreadSettings
from anabranch.program.whole_copies import pickled_whole


class WorkerDied(Exception):  # noqa: N818 - what happened, told in the error of the operator
    """A worker process ended in the middle of a call."""


class ProcessCrew(ThreadCrew):
    """Threads that have their chunks worked on by a process each.

    Parameters
    ----------
    calls : object
        What processes call: it is sent to each of them, with what holds in this thread.
    values : callable
        A row as it can travel.
    """

    def __init__(self, calls: Any, values: Callable[[Any], Any], name: str = "elastic") -> None:
        super().__init__(calls.many, name)
        self._sent, _ = pickled_whole((calls, ThreadSettings.here().naming(calls)), calls)
        self._values = values

    def _prepare(self, worker: Worker) -> None:
        if worker.companion is None or not worker.companion.is_there:
            if worker.companion is not None:
                worker.companion.let_go()
                worker.companion.end(0)
            worker.companion = Companion(self._sent)  # before it is ready: it may have to be killed while it opens
            worker.companion.make_ready()

    def _work_off(self, worker: Worker, chunk: Chunk) -> None:
        try:
            companion = worker.companion
            question = pickle.dumps(packed([self._values(row) for row in chunk.rows]))
            answers = cloudpickle.loads(companion.asked(question))
        except (EOFError, OSError):
            code = companion.status()
            problem = WorkerDied(f"the worker process ended in the middle of the call, with status {code}")
            for _ in chunk.rows:
                chunk.fail(problem)
            return
        for is_well, result in answers:
            if is_well:
                chunk.results.append(unpacked(result))
            else:
                chunk.fail(result)

    def _interrupt(self, worker: Worker) -> None:
        if worker.companion is not None:
            worker.companion.kill()

    def _dismiss_all(self, workers: list[Worker]) -> None:
        companions = [worker.companion for worker in workers if worker.companion is not None]
        for each in companions:
            each.let_go()
        until = time.perf_counter() + CLOSING_S
        for each in companions:
            each.end(max(0.0, until - time.perf_counter()))
