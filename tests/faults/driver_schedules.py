"""Drivers of one query that take turns at named points: killed, frozen and thawed, several at once, on a full disk.

Each driver is a thread, and one of them moves at a time: from one crash point to the next. A driver that is not moved
is frozen. What happens is decided by a seed, so a schedule that fails can be repeated: ``schedule(seed, place)``.
"""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from anabranch import faults
from anabranch.api.session import from_epochs
from anabranch.errors import CheckpointError, SinkError
from anabranch.state import files
from anabranch.testing import TaskDied
from benchmarks._query_in_process import (
    COLUMNS,
    PROGRAMS,
    LocalQuery,
    Total,
    expected,
    expected_state,
    rows_of,
)


class Killed(BaseException):
    """A driver dies."""


class Driver:
    """A driver that stops at every point, until it is moved on."""

    def __init__(self, body: Callable[[Driver], None]) -> None:
        self._body = body
        self._go, self._stands = threading.Event(), threading.Event()
        self.point = ""
        self.ended = False
        self.problem: BaseException | None = None
        self.doom: type[BaseException] | None = None
        self.query: LocalQuery | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._wait()
        try:
            self._body(self)
        except BaseException as problem:
            self.problem = problem
        self.ended = True
        self._stands.set()

    def _wait(self) -> None:
        self._go.wait()
        self._go.clear()

    def stop_at(self, point: str) -> None:
        """Called in the driver's own thread."""
        self.point = point
        self._stands.set()
        self._wait()
        if self.doom is not None:
            doom, self.doom = self.doom, None
            raise TaskDied if doom is TaskDied else doom

    def move(self) -> None:
        """Let it go on to its next point, or to its end."""
        self._stands.clear()
        self._go.set()
        assert self._stands.wait(120), f"a driver hangs behind {self.point}"

    def finish(self) -> None:
        """Let it go on to its end."""
        while not self.ended:
            self.move()

    @property
    def mine(self) -> bool:
        return threading.current_thread() is self._thread


class Disk:
    """The disk, which is full for the next so many files."""

    def __init__(self) -> None:
        self.full_for = 0

    def open(self, path: Any, mode: str = "r") -> Any:
        if self.full_for > 0 and "w" in mode:
            self.full_for -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return open(path, mode)


class Machine:
    """Where drivers run: their points are reached, and their disk is one."""

    def __init__(self) -> None:
        self.drivers: list[Driver] = []
        self.disk = Disk()

    def __enter__(self) -> Machine:
        faults.install(self._reached)
        files.open = self.disk.open  # type: ignore[attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        self.disk.full_for = 0
        for driver in self.drivers:
            if not driver.ended:
                driver.doom = Killed
                driver.finish()
        faults.install(None)
        del files.open  # type: ignore[attr-defined]

    def _reached(self, point: str, facts: dict[str, Any]) -> None:
        for driver in self.drivers:
            if driver.mine:
                driver.stop_at(point)

    def start(self, make: Callable[[], LocalQuery], last: int | None = None, drains: bool = False) -> Driver:
        """Another driver. It stands before its start. `drains`: behind its last batch it runs what was fed back."""

        def body(driver: Driver) -> None:
            driver.query = make()
            driver.query.batches(last)
            while drains and driver.query.run.drain():
                pass

        driver = Driver(body)
        self.drivers.append(driver)
        return driver


def check(streams: list[Any], place: Path, message: str, meant: list[Any] | None = None) -> None:
    """A last driver, undisturbed, ends the query; then everything is as one thread leaves it.

    `meant` is the program as one thread sees it, if epochs without input are among those of the source.
    """
    query = LocalQuery(streams, place)
    query.batches()
    meant = streams if meant is None else meant
    assert query.outputs() == expected(meant), f"output of {message}"
    held = query.state()
    for operator, values in expected_state(meant).items():
        assert held[operator] == values, f"state of {operator} of {message}"
    left = [str(path) for path in place.rglob("*") if path.name.endswith(".tmp") or path.name.startswith("_stag")]
    assert not left, f"left behind by {message}"


def schedule(seed: int, place: Path) -> dict[str, int]:
    """Run one schedule and check it; what happened how often."""
    chance = random.Random(seed)
    program = chance.choice(sorted(PROGRAMS))
    streams = PROGRAMS[program](rows_of(seed, chance.randrange(4, 8), chance.randrange(3, 9)))
    happened = dict.fromkeys(("killed", "task died", "taken over", "fenced", "disk full", "rescaled"), 0)

    def make() -> LocalQuery:
        channels = chance.choice([1, 2, 3])
        return LocalQuery(streams, place, channels, chance.randrange(1000), chance.choice([2, 3, 10]))

    with Machine() as machine:
        machine.start(make)
        for _ in range(chance.randrange(60, 200)):
            live = [driver for driver in machine.drivers if not driver.ended]
            roll = chance.random()
            if not live or (roll < 0.05 and len(live) < 3):
                happened["taken over"] += bool(live)
                machine.start(make)
                continue
            # Mostly the newest moves; the others are frozen for most of the time.
            driver = live[-1] if chance.random() < 0.8 else chance.choice(live)
            if roll < 0.09:
                driver.doom = Killed
                happened["killed"] += 1
            elif roll < 0.13 and driver.point == "segment written":
                driver.doom = TaskDied
                happened["task died"] += 1
            elif roll < 0.16:
                machine.disk.full_for = chance.randrange(1, 4)
            elif roll < 0.20 and driver.query is not None:
                _rescale(driver.query, chance)
                happened["rescaled"] += 1
            driver.move()
        machine.disk.full_for = 0
        for driver in machine.drivers:  # all that are frozen wake up, the oldest first
            driver.finish()
        for driver in machine.drivers:
            problem = driver.problem
            allowed = problem is None or isinstance(problem, (Killed, TaskDied, CheckpointError, SinkError))
            assert allowed, f"schedule({seed}), {program}: {problem!r}"
            happened["fenced"] += "has taken over" in str(problem)
            happened["disk full"] += "Make room" in str(problem)
    check(streams, place, f"schedule({seed}), {program}")
    return happened


def _rescale(query: LocalQuery, chance: random.Random) -> None:
    scaling = query.run.runner.adaptation.scaling
    region = chance.choice(scaling.status())
    try:
        scaling.rescale(region.name, chance.randrange(1, 5))
    except CheckpointError:  # the disk is full
        return


def stateless_first(epochs: Sequence[Sequence[Any]]) -> list[Any]:
    """A program with something that needs no state, which may get channels of its own."""
    doubled = from_epochs(epochs, COLUMNS, name="rows").map(lambda t: (t.k, t.s, 2 * t.x), schema=COLUMNS)
    return [doubled.process(Total(), by="k", schema=COLUMNS, name="total")]


def frozen(
    program: str,
    point: str,
    epoch: int,
    ahead: int | None,
    place: Path,
    drains_after: int | None = None,
    kept: int = 2,
    rescaled: str = "",
    **how: Any,
) -> bool:
    """A driver is frozen at a point, another runs so many batches, the first wakes up; whether it was frozen.

    `rescaled` is a region for which the first asks for other channels in that epoch; `how` is how both run.
    """
    rows = rows_of(4, 8, 6)
    made = {**PROGRAMS, "stateless first": stateless_first}[program]
    streams = meant = made(rows)
    if drains_after is not None:
        meant = made([*rows[: drains_after + 1], [], *rows[drains_after + 1 :]])
    with Machine() as machine:
        drains = drains_after is not None
        first = machine.start(lambda: LocalQuery(streams, place, 2, 1, kept, **how), drains_after, drains)
        reached: list[int] = []
        faults_handler = machine._reached

        def note(at: str, facts: dict[str, Any]) -> None:
            if at == point:
                reached.append(facts["epoch"])
            if at == "epoch begun" and facts["epoch"] == epoch and first.mine and rescaled:
                first.query.run.runner.rescale(rescaled, 4)
            faults_handler(at, facts)

        faults.install(note)
        while not first.ended and not (reached and reached[-1] >= epoch and first.point == point):
            first.move()
        was = not first.ended
        batch = max([int(path.name) for path in (place / "checkpoint/offsets").iterdir()], default=0)
        last = None if ahead is None else batch + ahead
        second = machine.start(lambda: LocalQuery(streams, place, 3, 2, kept, **how), last)
        second.finish()
        assert second.problem is None, f"{program}, {point}: the successor failed: {second.problem!r}"
        delivered = second.query.outputs()
        first.finish()
        assert first.problem is None or isinstance(first.problem, (CheckpointError, SinkError)), repr(first.problem)
        assert second.query.outputs() == delivered, f"{program}, {point}: output changed after the thaw"
    check(streams, place, f"{program} frozen at {point!r} in epoch {epoch}", meant)
    return was
