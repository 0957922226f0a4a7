"""Long lives without a JVM: thousands of epochs of one driver, a thousand drivers of one query, millions of keys.

The product's runner, checkpoint, segments and output (`_query_in_process`). What comes in is made as it is needed, and
of what plays Spark's part only the last batches are kept, so that whatever grows is the product's.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch import faults
from anabranch.state.files import LocalFiles
from anabranch.state.reader import CheckpointReader
from benchmarks._query_in_process import COLUMNS, PROGRAMS, LocalQuery, expected, expected_state
from benchmarks._soak_measuring import Sample, checkpoint_files, driver_mib

_NOTES_KEPT = 100  # as Spark does
ROWS = 20
LOOKS = 25
KEYS_PER_EPOCH = 50_000
KEYS_TOUCHED = 1_000

Rows = Sequence[tuple[Any, ...]]


class Cut(BaseException):
    """A driver dies here."""


class Seen(ab.Operator):
    """How often a key came; little comes out."""

    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        if t.k % 1000 == 0:
            yield (t.k, self.seen)


class LongQuery(LocalQuery):
    """A query whose input is made when a batch is planned, and never ends."""

    def __init__(self, program: Callable[..., list[ab.Stream]], rows: Callable[[int], Rows], place: Path) -> None:
        super().__init__(program([[]]), place)
        self._rows = rows

    def _batch(self, number: int) -> None:
        self.run.batch({source.name: self._rows(number) for source in self._sources}, number)
        self._create(f"commits/{number}", "v1\n{}\n")
        self.run.progress.clear()  # a list for tests, of all epochs
        for directory in ("offsets", "commits", *(f"sources/{at}" for at in range(len(self._sources)))):
            self._log.delete(f"{directory}/{number - _NOTES_KEPT}")


def small_rows(number: int) -> Rows:
    """The rows of an epoch: some keys come often, all come again."""
    return [
        ((number * 7 + at * at) % 200, "abcdefg"[(at + number) % 7], float((at * 3 + number) % 11))
        for at in range(ROWS)
    ]


def epochs_of_one_driver(epochs: int, place: Path) -> tuple[list[Sample], bool]:
    """So many epochs, rescaled now and then; and whether what came out is what one thread gives."""
    query = LongQuery(PROGRAMS["keyed"], small_rows, place)
    every = max(1, epochs // LOOKS)
    samples, taken, used = [], [], time.process_time()
    for number in range(epochs):
        if number % 100 == 50:
            query.run.runner.rescale("total", 3 if number % 200 == 50 else 2)
        started = time.perf_counter()
        query.batches(number)
        taken.append(time.perf_counter() - started)
        if len(taken) == every:
            spent, used = time.process_time() - used, time.process_time()
            samples.append(
                _sample(number + 1, place, seconds=statistics.median(taken), processor_seconds=spent / every)
            )
            taken = []
    return samples, _is_right("keyed", query)


def drivers_of_one_query(restarts: int, place: Path) -> tuple[list[Sample], bool]:
    """So many drivers, one after the other, two of three cut off at a point; and whether all came out right."""
    chance = random.Random(restarts)
    every = max(1, restarts // LOOKS)
    samples: list[Sample] = []
    recoveries: list[float] = []
    epochs: list[float] = []
    used = time.process_time()
    for number in range(restarts):
        begun = time.perf_counter()
        query = LongQuery(PROGRAMS["loop"], small_rows, place)
        recoveries.append(time.perf_counter() - begun)
        done = query.run.runner._committed.batch
        begun = time.perf_counter()
        with contextlib.suppress(Cut), _dying_at(chance.choice(faults.POINTS) if number % 3 else None):
            query.batches(done + 1)
            epochs.append(time.perf_counter() - begun)
        if len(recoveries) == every:
            spent, used = time.process_time() - used, time.process_time()
            times = {"seconds": statistics.median(epochs or [0.0]), "recovery_seconds": statistics.median(recoveries)}
            samples.append(_sample(number + 1, place, processor_seconds=spent / every, **times))
            recoveries, epochs = [], []
    return samples, _is_right("loop", LongQuery(PROGRAMS["loop"], small_rows, place))


def many_keys(keys: int, epochs: int, place: Path) -> tuple[list[Sample], bool]:
    """So many keys are held; then small epochs and restarts are looked at; and whether the state is right."""
    loading = -(-keys // KEYS_PER_EPOCH)

    def rows(number: int) -> Rows:
        if number < loading:
            return [(key, "k", 1.0) for key in range(number * KEYS_PER_EPOCH, min(keys, (number + 1) * KEYS_PER_EPOCH))]
        chance = random.Random(number)
        return [(chance.randrange(keys), "k", 1.0) for _ in range(KEYS_TOUCHED)]

    def program(source: Any) -> list[ab.Stream]:
        stream = ab.from_rows(source[0], COLUMNS, name="rows")
        return [stream.process(Seen(), by="k", schema="k long, seen long", name="seen")]

    query = LongQuery(program, rows, place)
    every = max(1, epochs // LOOKS)
    samples: list[Sample] = []
    taken: list[float] = []
    used = 0.0
    for number in range(loading + epochs):
        begun, started = time.process_time(), time.perf_counter()
        query.batches(number)
        if number < loading:
            continue
        taken.append(time.perf_counter() - started)
        used += time.process_time() - begun
        if len(taken) == every:
            started = time.perf_counter()
            query = LongQuery(program, rows, place)
            times = {"recovery_seconds": time.perf_counter() - started, "processor_seconds": used / every}
            samples.append(_sample(number + 1, place, seconds=statistics.median(taken), **times))
            taken, used = [], 0.0
    meant = Counter(row[0] for number in range(loading, loading + epochs) for row in rows(number))
    reader = CheckpointReader(LocalFiles(f"{place}/checkpoint/anabranch"))
    held = {key: value["seen"] for key, value in reader.items("seen")}
    return samples, len(held) == keys and all(held[key] == 1 + count for key, count in meant.items())


def _dying_at(point: str | None) -> contextlib.AbstractContextManager[None]:
    @contextlib.contextmanager
    def installed():  # type: ignore[no-untyped-def]
        def die(reached: str, facts: dict[str, Any]) -> None:
            if reached == point:
                raise Cut

        faults.install(die)
        try:
            yield
        finally:
            faults.install(None)

    return installed()


def _is_right(program: str, query: LocalQuery) -> bool:
    query.batches(-1)  # what was planned and cut off
    while query.run.drain():
        pass
    meant = PROGRAMS[program]([small_rows(number) for number in range(query.run.runner._committed.batch + 1)])
    state = expected_state(meant)
    held = query.state()
    return query.outputs() == expected(meant) and all(held[operator] == values for operator, values in state.items())


def _sample(done: int, place: Path, **times: float) -> Sample:
    files, manifest_bytes, left = checkpoint_files(place)
    return Sample(
        done,
        **times,
        driver_mib=driver_mib(),
        files=files,
        manifest_bytes=manifest_bytes,
        left=left,
        load=os.getloadavg()[0],
    )
