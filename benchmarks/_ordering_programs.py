"""The programs of the ordering benchmark: real work in multiplications, emulated work in sleep."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import anabranch as ab

COLUMNS = "k long, j long, x double"


def multiply(x: float, times: int) -> float:
    """Work: what the *Safe* paper calls the cost of a tuple, in multiplications."""
    for _ in range(times):
        x = x * 1.0000001
    return x


class Work(ab.Operator):
    """Real work and a running sum per key."""

    times: int = 0
    total: float = ab.state(default=0.0)

    def process(self, t):
        self.total += multiply(t.x, self.times)
        yield (t.k, t.j, self.total)


@ab.model(ordering="tolerant")
class TolerantWork(Work):
    """The same, declared not to mind the order in which tuples come: between regions nothing is numbered for it."""


class Selective(ab.Operator):
    """Real work; emits a tuple for one in two, or several for each."""

    times: int = 0
    copies: int = 1
    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        x = multiply(t.x, self.times)
        if self.copies:
            for copy in range(self.copies):
                yield (t.k, copy, x)
        elif self.seen % 2:
            yield (t.k, t.j, x)


class Rare(ab.Operator):
    """The paper's selective aggregator: real work for one tuple in so many of a key, and nothing for the others."""

    times: int = 0
    every: int = 1
    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        if self.seen % self.every == 0:
            yield (t.k, t.j, multiply(t.x, self.times))


class Mapped:
    """Real work without state."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __call__(self, t: Any) -> Any:
        return (t.k, t.j, multiply(t.x, self.times))


def emulate(seconds: float) -> None:
    """Work that takes time and no processor."""
    time.sleep(seconds)


class Sleepy(ab.Operator):
    """Emulated work and a count per key."""

    seconds: float = 0.0
    seen: int = ab.state(default=0)

    def process(self, t):
        emulate(self.seconds)
        self.seen += 1
        yield (t.k, t.j, float(self.seen))


@ab.model(state="stateless", selectivity="1:1", forwards=["k", "j"])
class SleepyMap:
    """Emulated work without state; declared, because sleeping is something a compiler cannot see through."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, t: Any) -> Any:
        emulate(self.seconds)
        return (t.k, t.j, t.x)


def overhead_program(name: str, stream: ab.Stream, times: int, ordered: bool = True) -> ab.Stream:
    """A program of the first part; without order its operators do not mind it either."""
    if name == "round-robin":
        return stream.map(Mapped(times), schema=COLUMNS)
    if name == "sequence numbers":
        return stream.process(Work(times=times), by="k", schema=COLUMNS)
    if name == "strict and pulses":
        return stream.process(Selective(times=times, copies=0), by="k", schema=COLUMNS)
    if name == "relaxed and pulses":
        return stream.process(Selective(times=times, copies=2), by="k", schema=COLUMNS)
    if name == "shuffle":
        kind = Work if ordered else TolerantWork
        first = stream.process(kind(times=times // 2), by="k", schema=COLUMNS)
        return first.process(kind(times=times // 2), by="j", schema=COLUMNS)
    if name.endswith(":1"):
        return stream.process(Rare(times=times, every=int(name[:-2])), by="k", schema=COLUMNS)
    if name.startswith("1:"):
        return stream.process(Selective(times=times, copies=int(name[2:])), by="k", schema=COLUMNS)
    raise AssertionError(name)


def scaling_program(name: str, stream: ab.Stream, seconds: float) -> ab.Stream:
    """A program of the second part: the same emulated work per tuple in each."""
    if name == "stateless":
        return stream.spread().map(SleepyMap(seconds), schema=COLUMNS)
    if name == "stateful":
        return stream.process(Sleepy(seconds=seconds), by="k", schema=COLUMNS)
    half = Sleepy(seconds=seconds / 2)
    return stream.process(half, by="k", schema=COLUMNS).process(Sleepy(seconds=seconds / 2), by="j", schema=COLUMNS)


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task that only takes rows."""
    yield pa.RecordBatch.from_arrays([pa.array([sum(batch.num_rows for batch in batches)])], names=["rows"])
