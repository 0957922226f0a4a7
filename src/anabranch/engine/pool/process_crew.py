"""Workers that are processes, for code that holds the interpreter's lock.

Each thread of the crew has a process as its companion, which makes the calls while the thread waits for the answer. A
call that takes too long can be stopped here: the process is ended, and the worker gets another.
"""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle

from anabranch.engine.pool.process_worker import packed, receive, send, unpacked
from anabranch.engine.pool.thread_crew import ThreadCrew, Worker
from anabranch.engine.pool.work import Chunk
from anabranch.program.elastic import OpenFailed


class WorkerDied(Exception):  # noqa: N818 - what happened, told in the error of the operator
    """A worker process ended in the middle of a call."""


class ProcessCrew(ThreadCrew):
    """Threads that have their chunks worked on by a process each.

    Parameters
    ----------
    calls : object
        What processes call: it is sent to each of them.
    values : callable
        A row as it can travel.
    """

    def __init__(self, calls: Any, values: Callable[[Any], Any], name: str = "elastic") -> None:
        super().__init__(calls.many, name)
        self._sent = cloudpickle.dumps(calls)
        self._values = values

    def _prepare(self, worker: Worker) -> None:
        if worker.companion is None or worker.companion.poll() is not None:
            worker.companion = self._started()

    def _work_off(self, worker: Worker, chunk: Chunk) -> None:
        try:
            process = worker.companion
            send(process.stdin, pickle.dumps(packed([self._values(row) for row in chunk.rows])))
            answers = cloudpickle.loads(receive(process.stdout))
        except (EOFError, OSError):
            code = worker.companion.wait()
            problem = WorkerDied(f"the worker process ended in the middle of the call, with status {code}")
            for _ in chunk.rows:
                chunk.fail(problem)
            return
        for is_well, result in answers:
            if is_well:
                chunk.results.append(unpacked(result))
            else:
                chunk.fail(result)
                if isinstance(result, OpenFailed):  # whoever comes next may try it anew
                    process.kill()
                    process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "anabranch.engine.pool.process_worker"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment())
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError, EOFError):  # whoever sends it rows will notice
            send(process.stdin, pickle.dumps((sys.path, self._sent)))
            receive(process.stdout)  # it is ready
        return process

    def _interrupt(self, worker: Worker) -> None:
        if worker.companion is not None:
            worker.companion.kill()

    def _dismiss(self, worker: Worker) -> None:
        if worker.companion is not None:
            with contextlib.suppress(OSError):
                worker.companion.stdin.close()


def _environment() -> dict[str, str]:
    """Where this package is found, whatever this process did to find it."""
    import os

    places = [path for path in sys.path if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
