"""Programs that stop in the middle of an epoch, until a test lets them go on.

A gate is one more operator, anywhere in the program. One tuple, marked by its key, is held there, so the
test acts while the epoch is under way, however fast or slow the machine is. What the test and the tasks
tell each other, in files of one directory::

    reached-<pid>        the Python worker <pid> holds the marked tuple
    released             tuples pass; written by the test
    executor-<pid>       tuples went through the executor whose pyspark.daemon is <pid>
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anabranch as ab
from tests.programs import COLUMNS, build

HELD_KEY = 1000
_HOLD_SECONDS_MAX = 60


def gate(directory: str) -> Callable[[Any], Any]:
    """A function that gives back the tuple it gets, once it may."""

    @ab.model(state="stateless", selectivity="1:1", forwards="*")
    def passing(t: Any) -> Any:
        note_executor(directory)
        if t.k == HELD_KEY:
            hold(directory)
        return t

    return passing


def note_executor(directory: str) -> None:
    path = Path(directory, f"executor-{os.getppid()}")
    if not path.exists():
        path.touch()


def hold(directory: str) -> None:
    released = Path(directory, "released")
    deadline = time.monotonic() + _HOLD_SECONDS_MAX
    if not released.exists():
        Path(directory, f"reached-{os.getpid()}").touch()
    while not released.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody wrote {released}")
        time.sleep(0.02)


def build_gated(stream: ab.Stream, steps: list[str], directory: str) -> ab.Stream:
    """The program with these operators in a row, ``gate`` among them."""
    for step in steps:
        if step == "gate":
            stream = stream.map(gate(directory), schema=COLUMNS, name="gate")
        else:
            stream = build(stream, [step])
    return stream
