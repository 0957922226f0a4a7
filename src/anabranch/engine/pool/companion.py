"""A process that makes calls for a worker: begun, asked, let go, killed.

It has pipes of its own for questions and answers, so that user code may read the standard input (which is empty) and
print. A third pipe, which nobody writes to, closes when this process ends, however it ends: then the other one ends,
too, and what user code has started there (`process_worker.py`).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from typing import Any

from anabranch.engine.pool.process_worker import receive, send


class Companion:
    """One such process.

    Parameters
    ----------
    work : bytes
        What it calls, and what is to hold where it does.
    """

    def __init__(self, work: bytes) -> None:
        their_questions, questions = os.pipe()
        answers, their_answers = os.pipe()
        theirs = (their_questions, their_answers, _LIFE.until_the_end())
        command = [sys.executable, "-m", "anabranch.engine.pool.process_worker", *map(str, theirs)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=2,  # where user code prints: with the messages, not among what this process gives out
                env=_environment(),
                pass_fds=theirs,
                process_group=0,
            )
        except BaseException:
            os.close(questions)
            os.close(answers)
            raise
        finally:
            os.close(their_questions)
            os.close(their_answers)
        self._questions = os.fdopen(questions, "wb")
        self._answers = os.fdopen(answers, "rb")
        self._work = work

    @property
    def is_there(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def make_ready(self) -> None:
        """Have it open what it calls; whoever asks it will notice if it ended instead."""
        with contextlib.suppress(OSError, EOFError):
            send(self._questions, pickle.dumps((sys.path, self._work)))
            receive(self._answers)

    def asked(self, question: bytes) -> bytes:
        """Its answer; EOFError or OSError if it has ended."""
        send(self._questions, question)
        return receive(self._answers)

    def status(self) -> int:
        """What it ended with."""
        return self._process.wait()

    def kill(self) -> None:
        """End it at once, with what user code has started there."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def let_go(self) -> None:
        """There are no more questions: it closes what it opened, and ends."""
        with contextlib.suppress(OSError, ValueError):
            self._questions.close()

    def end(self, seconds: float) -> None:
        """Await its end for so long, and then end it."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        with contextlib.suppress(OSError, ValueError):
            self._answers.close()


class _Life:
    """A pipe that closes when this process ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = 0
        self._ends: tuple[int, int] = (-1, -1)

    def until_the_end(self) -> int:
        """The end that is read."""
        with self._lock:
            if self._process != os.getpid():  # a child that was forked has the ends of its parent
                self._ends, self._process = os.pipe(), os.getpid()
            return self._ends[0]


_LIFE = _Life()


def _environment() -> dict[str, Any]:
    """Where this package is found, whatever this process did to find it."""
    places = [path for path in sys.path if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
