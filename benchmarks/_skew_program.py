"""The program of the skew benchmark: a running total per key, with work of a given length for every tuple.

The work is emulated: a channel sleeps. So eight channels work at once on a machine with two cores, as they would on
one with eight, and what is measured is how long channels wait for the busiest. A sleep of microseconds lasts a hundred
of them, so one tuple in five, known by its value, sleeps for five.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch import agg

VALUES = 100
SLEEPING = 20  # values below this sleep
FILES_PER_EPOCH = 4


def write_epoch(directory: Path, epoch: int, table: pa.Table) -> None:
    """An epoch's rows in files whose names and times are in the order of the rows."""
    bounds = np.linspace(0, table.num_rows, FILES_PER_EPOCH + 1).astype(int)
    for part in range(FILES_PER_EPOCH):
        path = directory / f"{epoch:06d}-{part}.parquet"
        pq.write_table(table.slice(bounds[part], bounds[part + 1] - bounds[part]), path)
        seconds = 1_700_000_000 + epoch * FILES_PER_EPOCH + part
        os.utime(path, (seconds, seconds))


class Total(ab.Operator):
    """A running total per key."""

    total: int = ab.state(default=0)

    def process(self, t: Any) -> Any:
        self.total += t.value
        yield t.key, t.value, self.total


def working(seconds: float) -> Callable[[Any], Any]:
    """A function that gives back the tuple it gets, after being busy for so long, on average."""
    nap = seconds * VALUES / SLEEPING

    # Declared, because a clock may be anything to the compiler.
    @ab.model(state="stateless", selectivity="1:1", forwards="*")
    def busy(t: Any) -> Any:
        if t.value < SLEEPING:
            time.sleep(nap)
        return t

    return busy


def slow_sum(seconds: float) -> Any:
    """The sum of a column of integers, for which every tuple is so much work, on average: it combines exactly."""
    nap = seconds * VALUES / SLEEPING

    @ab.model(state="stateless")
    def busy(value: int) -> None:
        if value < SLEEPING:
            time.sleep(nap)

    plain = agg.sum("value")
    return dataclasses.replace(plain, add="{f0}({v})\n" + plain.add, functions=(busy,))
