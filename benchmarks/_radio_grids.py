"""Radio imaging: one grid that all workers share, beside a local one for each block of calls, and one thread.

The paper's first attempt shared the matrix and was slower than sequential. Here numpy adds a few cells at a time and
holds the interpreter for most of it, so threads bring little, whatever they share; what is measured is what sharing
takes away. The shared grid is guarded by a lock for each sample; the local ones are summed in the end.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import anabranch as ab
from anabranch.sim.operators.operator_world import PinnedLevel
from benchmarks._pool_runs import pool_for
from examples import radio_imaging as radio

WORKERS = 4


def grids(count: int, rounds: int) -> dict[str, float]:
    """Time of one thread over that with a shared grid and with local ones: more is better, 1 is as good."""
    made = radio.generate(count, 1)["coordinates"]
    rows = [tuple(each.values()) for each in made]
    source = ab.from_rows(rows, radio.COORDINATES["coordinates"], name="coordinates")
    tuples = radio.areas_of(source).run_sequential()
    ways: dict[str, Callable[[Any], Any]] = {"sequential": _sequential, "shared": _shared, "local": _local}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    expected = _sequential(tuples)
    for number in range(rounds):
        for name in list(ways)[number % 3 :] + list(ways)[: number % 3]:
            begun = time.perf_counter()
            grid = ways[name](tuples)
            seconds[name].append(time.perf_counter() - begun)
            np.testing.assert_allclose(grid, expected, atol=1e-9 * np.abs(expected).max())
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    found = {name: medians["sequential"] / medians[name] for name in ("shared", "local")}
    print(
        f"radio imaging, {len(tuples)} tuples, {WORKERS} workers: one shared grid {found['shared']:.2f} times as fast "
        f"as one thread, local grids {found['local']:.2f}",
        flush=True,
    )
    return found


def _empty() -> Any:
    return np.zeros((radio.GRID, radio.GRID), dtype=complex)


def _sequential(tuples: Any) -> Any:
    grid = _empty()
    for t in tuples:
        radio.convolved(t, grid)
    return grid


def _shared(tuples: Any) -> Any:
    grid, lock = _Locked(_empty()), threading.Lock()
    grid.lock = lock
    _run(tuples, lambda t: radio.convolved(t, grid))
    return np.asarray(grid.cells)


def _local(tuples: Any) -> Any:
    mine = threading.local()
    all_of_them: list[Any] = []

    def call(t: Any) -> None:
        if not hasattr(mine, "grid"):
            mine.grid = _empty()
            all_of_them.append(mine.grid)
        radio.convolved(t, mine.grid)

    _run(tuples, call)
    return np.sum(all_of_them, axis=0)


def _run(tuples: Any, call: Callable[[Any], Any]) -> None:
    pool = pool_for(call, PinnedLevel(WORKERS), 1.0)
    for _ in pool.run(tuples, ordered=False):
        pass
    pool.close()


class _Locked:
    """A grid whose every update is made under one lock, as the paper's is by compare-and-swap."""

    lock: threading.Lock

    def __init__(self, cells: Any) -> None:
        self.cells = cells

    def __getitem__(self, where: Any) -> Any:
        self.lock.acquire()
        return self.cells[where]

    def __setitem__(self, where: Any, value: Any) -> None:
        self.cells[where] = value
        self.lock.release()
