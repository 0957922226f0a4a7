"""A driver with elastic operators that is killed in the middle of a call: ``elastic_victim.py WORK SEED``.

Where it is killed follows from the seed; a file remembers that it was, so that each kill happens once. What the epochs
deliver is kept in files, as a sink would.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.testing import ParallelRun

ROWS, PER_EPOCH, KILLS = 240, 60, 2


class Work:
    """Takes a while, fails now and then, and twice ends the whole process; its output depends on the tuple only."""

    def __init__(self, marks: str, seed: int) -> None:
        chance = random.Random(seed)
        self.marks = marks
        self.deadly = set(chance.sample(range(ROWS), KILLS))
        self.failing = set(chance.sample(range(ROWS), 20))
        self.seed = seed

    def __call__(self, t: Any) -> Any:
        time.sleep(random.Random(self.seed * 1000 + t.i).choice((0.0, 0.0, 0.002)))
        if self.marks and t.i in self.deadly and self._is_first(f"kill-{t.i}"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.marks and t.i in self.failing and self._is_first(f"fail-{t.i}-{os.getpid()}"):
            raise ConnectionError("try again")
        return (t.i, t.x * 0.1)

    def _is_first(self, name: str) -> bool:
        try:
            os.close(os.open(f"{self.marks}/{name}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


class Sums(ab.Operator):
    total = ab.accumulator(lambda: [0.0, 0], merge=lambda a, b: [a[0] + b[0], a[1] + b[1]])

    def process(self, t):
        self.total[0] += t.y
        self.total[1] += 1

    def result(self):
        return (self.total[1], self.total[0])


def program(marks: str, seed: int) -> list[ab.Stream]:
    """Two outputs: of an elastic map, and of elastic accumulators behind it."""
    rows = [(i, random.Random(i).uniform(-1e6, 1e6)) for i in range(ROWS)]
    source = ab.from_rows(rows, "i long, x double", rows_per_epoch=PER_EPOCH)
    fast: Any = {"elastic": True, "period": 0.01, "max_workers": 6}
    mapped = source.map(Work(marks, seed), "i long, y double", retries=3, name="work", **fast)
    return [mapped, mapped.accumulate(Sums(), "n long, total double", block=7, every=21, **fast)]


class Kept(dict):
    """What an epoch delivered, in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(pickle.loads(path.read_bytes()) if path.exists() else {})
        self._path = path

    def __setitem__(self, number: int, table: Any) -> None:
        super().__setitem__(number, table)
        scratch = self._path.with_suffix(".new")
        scratch.write_bytes(pickle.dumps(dict(self)))
        scratch.replace(self._path)


class Written(dict):
    """What all epochs delivered."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        super().__init__({int(path.stem): Kept(path) for path in directory.glob("*.epoch")})

    def setdefault(self, epoch: int, default: Any = None) -> Any:
        if epoch not in self:
            self[epoch] = Kept(self._directory / f"{epoch}.epoch")
        return self[epoch]


def run(work: str, seed: int) -> ParallelRun:
    """Run, or go on with, the program."""
    for name in ("marks", "out", "checkpoint"):
        Path(work, name).mkdir(exist_ok=True)
    streams = program(f"{work}/marks", seed)
    made = ParallelRun(streams, f"{work}/checkpoint", channels=2, written=Written(Path(work, "out")))
    made.run_epochs()
    return made


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
