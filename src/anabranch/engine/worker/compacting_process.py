"""Compactions in a process of their own, which gives way to everything else on its host.

    task, a moment long ──► a thread of the worker ──► a process of the lowest priority: reads, compacts, writes
    task, a moment long ◄── how it stands: the record of what was made

A large compaction takes seconds, and in a task it would hold a slot for as long: on an executor of one core each epoch
would wait for it, or have its channel run where the state is not. So a task only begins it, and others ask how it
stands. Nothing depends on it: if the worker ends, so does the process (its standard input closes), what it has written
is named nowhere, and the driver begins another compaction some time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any

import cloudpickle

from anabranch.engine.pool.process_worker import receive, send
from anabranch.engine.worker.compact_task import CompactTask
from anabranch.state.lineage import Compaction
from anabranch.state.records import SegmentRecord

_log = logging.getLogger("anabranch")
_NICENESS = 19
_MODULE = "anabranch.engine.worker.compacting_process"


@dataclass(frozen=True)
class Standing:
    """How a compaction stands."""

    is_known: bool
    """Whether this process was asked to make it."""
    is_done: bool = False
    record: SegmentRecord | None = None
    """What was made; None of one that is done: it failed."""


class Compacting:
    """The compactions that this process was asked for, by what the driver calls each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Standing] = {}

    def begin(self, name: str, task: CompactTask, wanted: Compaction) -> None:
        """Have one made; nothing, if it is under way."""
        with self._lock:
            if name in self._known:
                return
            self._known[name] = Standing(True)
        threading.Thread(target=self._make, args=(name, task, wanted), name="anabranch-compacting", daemon=True).start()

    def standing(self, name: str) -> Standing:
        """How one stands; once it is done it is told once, and forgotten."""
        with self._lock:
            found = self._known.get(name, Standing(False))
            if found.is_done:
                del self._known[name]
            return found

    def _make(self, name: str, task: CompactTask, wanted: Compaction) -> None:
        record = None
        try:
            record = made_aside(task, wanted)
        except Exception as problem:  # none is ever needed
            _log.warning("a compaction of %s was not made: %s", wanted[0], problem)
        finally:
            with self._lock:
                self._known[name] = Standing(True, True, record)


COMPACTING = Compacting()


def made_aside(task: CompactTask, wanted: Compaction) -> SegmentRecord | None:
    """Compact in a process of the lowest priority; None if that failed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-m", _MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            send(process.stdin, cloudpickle.dumps((task, wanted)))  # state may have values of classes of the driver's
            found: dict[str, Any] = pickle.loads(receive(process.stdout))
            return SegmentRecord.of_fields(found)
        except (OSError, EOFError):
            return None
        finally:
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.kill()


def main() -> None:
    """Make one compaction: asked on the standard input, answered on the standard output."""
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    # What modules of the user's print when they are loaded goes to the messages, and is no part of the answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    task, wanted = pickle.loads(receive(sys.stdin.buffer))
    threading.Thread(target=_end_with_the_other, daemon=True).start()
    send(answers, pickle.dumps(task(wanted).to_fields()))


def _end_with_the_other() -> None:
    """Whoever asked has ended when there is nothing to be read any more."""
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
