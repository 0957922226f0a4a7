"""What managed state costs: epoch time follows the keys that are touched, not those that are held.

    python -m benchmarks state [--quick | --mini]

The query. Spark local[2], two channels, parquet in (one file per epoch, one row per touched key), an operator with
two float fields of state per long key. Every tuple changes the state of its key, so what is touched is also written:
the worst case for the checkpoint. About one tuple in a hundred is emitted, to a sink that drops it, so that output
does not hide the state. Keys are touched uniformly at random among those held. The state is put into the checkpoint
beforehand, in the files that a long run leaves behind (see `_held_state`).

What is measured, in epochs that come after a warm-up, the compared cases taking turns; times are medians of
`recentProgress`'s ``duration_ms["total"]``; CPU seconds are those of the driver, the JVM and the Python workers
together, which a busy machine disturbs less:

    held      20,000 keys touched; 50 k, 500 k, 5 M held. `slowdown_held` is time at 5 M / time at 50 k.
    touched   5 M held; 10³ … 10⁶ touched.
    memory    what the largest Python worker needs at 50 k and at 5 M held. A worker serves any channel. *own* is
              memory of the process; *mapped* are pages of segment files, which all workers of a host share and the
              kernel takes back when it needs them. Too few epochs for a merge of everything, which is made in memory
              and needs several times the size of its segments.
    checkpoint_overhead
              the share of epoch time that goes into making state durable: (begin + the longest any channel took to
              find out what changed, encode, write and merge it + commit) / total, summed over the measured epochs of
              20,000 touched keys at 5 M, so that an epoch in which segments are merged counts for what it took.
              Merges too large for that are made beside the epochs, and the next case waits until they are done: they
              are in no figure here but the rows/s of merge.
    lookup, changes, merge
              the same functions called directly, in this process, on the same files.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.files import LocalFiles
from anabranch.state.lineage import KeyRoute
from anabranch.state.segment import Segment, compacted_segments
from anabranch.state.table import Table
from benchmarks import _held_state
from benchmarks._spark import processor_time, spark_session

CHANNELS = 2
SCHEMA = "key long, value double"
OPERATOR = "Drift"
FIELDS = ["mean", "deviation"]
SEED_EPOCHS = 8


@dataclasses.dataclass(frozen=True)
class Size:
    """Keys held; keys touched, and those touched while the held ones vary; epochs of each part."""

    held: tuple[int, ...] = (50_000, 500_000, 5_000_000)
    touched: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    touched_fixed: int = 20_000
    memory: int = 20
    by_held: tuple[int, int] = (3, 24)
    """Epochs of the warm-up, and measured ones."""
    by_touched: tuple[int, int, int] = (2, 15, 5)
    """The same, and how many of the largest."""


QUICK = Size(memory=6, by_held=(3, 9), by_touched=(1, 5, 1))
MINI = Size((100, 400), (10, 50), 20, memory=1, by_held=(1, 2), by_touched=(1, 1, 1))


def program(session: ab.Session | None, directory: Path) -> ab.Stream:
    # Within a function, so that it is pickled by value and the workers need not find this module.
    class Drift(ab.Operator):
        mean: float = ab.state(default=0.0)
        deviation: float = ab.state(default=0.0)

        def process(self, t):  # type: ignore[no-untyped-def]
            away = t.value - self.mean
            self.mean += 0.1 * away
            self.deviation += 0.1 * (abs(away) - self.deviation)
            if t.value > 0.99:
                yield t

    if session is None:
        rows = ab.from_rows([], SCHEMA)
    else:
        rows = session.from_files(str(directory), "parquet", SCHEMA, maxFilesPerTrigger=1)
    return rows.process(Drift(), by="key", schema=SCHEMA, name=OPERATOR)


@dataclasses.dataclass(frozen=True)
class Epoch:
    """One measured epoch."""

    total_s: float
    cpu_s: float
    channel_s: float  # the slowest channel, from its first packet to its last result
    begin_s: float
    save_s: float  # the slowest channel
    commit_s: float
    merges: bool

    @property
    def durable_s(self) -> float:
        return self.begin_s + self.save_s + self.commit_s


class Case:
    """A query with its own checkpoint and input."""

    def __init__(self, session: ab.Session, place: Path, held: int, touched: int) -> None:
        self.held, self.touched = held, touched
        self.input = _held_state.input_of(place)
        self.input.mkdir(exist_ok=True)
        self.epochs: list[Epoch] = []
        self.random = np.random.default_rng([held, touched])
        writer = program(session, self.input).writeStream.format("noop").option("channels", CHANNELS)
        self.query = writer.option("checkpointLocation", str(place)).start()

    def run(self) -> Epoch:
        """One epoch."""
        draws = self.random.integers(0, self.held, self.touched + self.touched // 2 + 100)
        keys = self.random.permutation(np.unique(draws))[: self.touched]
        if len(keys) < self.touched:  # a large part of what is held
            keys = self.random.permutation(self.held)[: self.touched]
        table = pa.table({"key": keys, "value": self.random.random(len(keys))})
        passing = self.input / f"_{len(self.epochs)}"
        pq.write_table(table, passing, row_group_size=max(1, -(-len(keys) // 2)))
        before = processor_time()
        passing.rename(self.input / f"{time.time_ns()}.parquet")
        self.query.processAllAvailable()
        cpu = processor_time().since(before).total_s
        progress = self.query.recentProgress[-1]
        assert progress["rows_in"] == len(keys) == progress["state_rows"], progress
        channels = [stage for stage in progress["stages"] if stage["kind"] == "channel"]
        spent = {name: milliseconds / 1000 for name, milliseconds in progress["duration_ms"].items()}
        epoch = Epoch(
            total_s=spent["total"],
            cpu_s=cpu,
            channel_s=max(stage["seconds"] for stage in channels),
            begin_s=spent["begin"],
            save_s=max(stage["state_seconds"] for stage in channels),
            commit_s=spent["commit"],
            # Without a merge a row is its hash, key and two fields.
            merges=progress["state_bytes"] > 1.5 * 32 * len(keys) + 20_000,
        )
        self.epochs.append(epoch)
        return epoch


def turns(cases: list[Case], warm_up: int, rounds: int) -> None:
    """Epochs of all cases in turn; those of the warm-up are forgotten."""
    for number in range(warm_up + rounds):
        if number == warm_up:
            for case in cases:
                case.epochs.clear()
        for case in cases:
            case.run()
            while case.query._runner.current.is_compacting:
                time.sleep(0.05)  # or the next case would pay for this one's merge


# -- processes --------------------------------------------------------------------------------------------------


def processes() -> dict[int, str]:
    """This process and all below it: number and command line."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            break
        found |= more
    lines = {}
    for pid in found:
        with contextlib.suppress(OSError):
            lines[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return lines


class WorkerMemory:
    """The largest memory that any Python worker had, sampled every 20 ms."""

    def __init__(self) -> None:
        self.own_mb = self.mapped_mb = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        workers: list[int] = []
        looked = 0.0
        while not self._end.wait(0.02):
            if time.monotonic() - looked > 0.5:
                workers = [pid for pid, line in processes().items() if "pyspark.daemon" in line]
                looked = time.monotonic()
            for pid in workers:
                with contextlib.suppress(OSError):
                    pairs = (line.split(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
                    facts = {name: value.split() for name, value in pairs if name.startswith("Rss")}
                    self.own_mb = max(self.own_mb, int(facts["RssAnon"][0]) / 1024)
                    self.mapped_mb = max(self.mapped_mb, int(facts["RssFile"][0]) / 1024)


@contextlib.contextmanager
def fresh_session(scratch: Path) -> Iterator[ab.Session]:
    """A session of its own, so that its Python workers have seen nothing else."""
    # Queries that wait for their turn look for new files this often.
    settings = {"spark.sql.streaming.pollingDelay": "200ms", "spark.sql.session.timeZone": "UTC"}
    with spark_session(2, scratch, settings) as spark:
        yield ab.session(spark)


# -- the parts --------------------------------------------------------------------------------------------------


class Bench:
    """The checkpoints of one run of the benchmark, and what is measured on copies of them."""

    def __init__(self, root: Path, size: Size) -> None:
        self.root = root
        self.size = size
        self.copies = 0

    def prepare(self) -> None:
        seed = self.root / "seed"
        with fresh_session(self.root) as session:
            case = Case(session, seed, self.size.held[0], min(100, self.size.touched_fixed))
            for _ in range(SEED_EPOCHS):
                case.run()
            case.query.stop()
        for held in self.size.held:
            started = time.perf_counter()
            place = self.root / f"held-{held}"
            _held_state.copy(seed, place)
            rows = _held_state.fill(place, OPERATOR, FIELDS, held, self.size.touched_fixed, CHANNELS)
            took = time.perf_counter() - started
            print(f"  {held:>9,} keys: segments per channel {', '.join(f'{n:,}' for n in rows)} ({took:.1f} s)")

    def case(self, session: ab.Session, held: int, touched: int) -> Case:
        self.copies += 1
        place = self.root / f"case-{self.copies}"
        _held_state.copy(self.root / f"held-{held}", place)
        return Case(session, place, held, touched)

    def memory(self) -> None:
        print(f"\nmemory of the largest Python worker, {self.size.touched_fixed:,} keys touched per epoch")
        print(f"  {'held':>9}  {'own MB':>7}  {'mapped MB':>9}")
        for held in (self.size.held[0], self.size.held[-1]):
            with fresh_session(self.root) as session, WorkerMemory() as memory:
                case = self.case(session, held, self.size.touched_fixed)
                for _ in range(self.size.memory):
                    case.run()
                case.query.stop()
            print(f"  {held:>9,}  {memory.own_mb:>7.0f}  {memory.mapped_mb:>9.0f}", flush=True)

    def by_held(self) -> tuple[float, float]:
        warm_up, rounds = self.size.by_held
        with fresh_session(self.root) as session:
            cases = [self.case(session, held, self.size.touched_fixed) for held in self.size.held]
            turns(cases, warm_up, rounds)
            for case in cases:
                case.query.stop()
        print(f"\n{self.size.touched_fixed:,} keys touched, by keys held ({rounds} epochs each)")
        show("held", [(case.held, case) for case in cases])
        few, many = median(cases[0], "total_s"), median(cases[-1], "total_s")
        cpu = median(cases[-1], "cpu_s") / median(cases[0], "cpu_s")
        within = median(cases[-1], "channel_s") / median(cases[0], "channel_s")
        print(
            f"  most / fewest: epoch × {many / few:.2f}, CPU × {cpu:.2f}, inside the channel × {within:.2f}", flush=True
        )
        return many / few, overhead(cases[-1])

    def by_touched(self) -> None:
        warm_up, rounds, rounds_large = self.size.by_touched
        with fresh_session(self.root) as session:
            cases = [self.case(session, self.size.held[-1], touched) for touched in self.size.touched]
            turns(cases, warm_up, rounds_large)
            if rounds > rounds_large:
                turns(cases[:-1], 0, rounds - rounds_large)
            for case in cases:
                case.query.stop()
        print(f"\n{self.size.held[-1]:,} keys held, by keys touched ({rounds} epochs each, the largest {rounds_large})")
        show("touched", [(case.touched, case) for case in cases])

    def inside(self) -> None:
        """Functions of the state layer on the files of a channel with half of the most keys."""
        files = LocalFiles(str(self.root / f"held-{self.size.held[-1]}" / "anabranch"))
        records = [r for r in Checkpoint(files).latest().segments[OPERATOR] if r.channel == 0]
        segments = [Segment(str(files.path(f"state/{record.name}")), record.checksum) for record in records]
        node = program(None, self.root)._node
        route = KeyRoute(("key",), (pa.int64(),), ("key",))
        known = np.array(segments[-1].values("key"))
        random = np.random.default_rng(1)
        print(f"\nthe state layer by itself: {len(known):,} keys in {len(segments)} segments, CPU time")
        for touched in self.size.touched[1:3]:
            loads, changes = [], []
            for _ in range(3):
                keys = set(random.choice(known, touched, replace=False).tolist())
                table = Table(node, route, segments)
                begun = time.process_time()
                for instance in table.load(keys).values():
                    instance.mean += 1.0
                loaded = time.process_time()
                table.changes()
                loads.append((loaded - begun) / touched * 1e6)
                changes.append((time.process_time() - loaded) / touched * 1e6)
            print(f"  {touched:>9,} touched: lookup {min(loads):.1f} µs, changes {min(changes):.1f} µs per key")
        small = [segment for segment in segments if len(segment) < 60_000][:4]
        for title, merged, is_all in (("small", small, False), ("all", segments, True)):
            rows = sum(map(len, merged))
            begun = time.process_time()
            compacted_segments(merged, drop_dead=is_all)
            print(f"  merge {title}: {rows:,} rows, {rows / (time.process_time() - begun) / 1e6:.1f} M rows/s")


def median(case: Case, what: str) -> float:
    return statistics.median(getattr(epoch, what) for epoch in case.epochs)


def overhead(case: Case) -> float:
    return sum(epoch.durable_s for epoch in case.epochs) / sum(epoch.total_s for epoch in case.epochs)


def show(title: str, cases: list[tuple[int, Case]]) -> None:
    names = ("epoch ms", "mean", "CPU s", "channel", "begin", "save", "commit", "durable", "merges")
    print(f"  {title:>9}  " + "  ".join(f"{name:>8}" for name in names))
    for number, case in cases:
        mean = statistics.mean(epoch.total_s for epoch in case.epochs)
        cells = [f"{median(case, 'total_s') * 1e3:.0f}", f"{mean * 1e3:.0f}", f"{median(case, 'cpu_s'):.2f}"]
        cells += [f"{median(case, f'{what}_s') * 1e3:.0f}" for what in ("channel", "begin", "save", "commit")]
        cells += [f"{overhead(case):.1%}", str(sum(epoch.merges for epoch in case.epochs))]
        print(f"  {number:>9,}  " + "  ".join(f"{cell:>8}" for cell in cells), flush=True)


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks state")
    parser.add_argument("--quick", action="store_true", help="fewer epochs: within 3 minutes on 2 cores")
    parser.add_argument("--mini", action="store_true", help="hardly any keys, to see that it runs")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="anabranch-state-", ignore_cleanup_errors=True) as root:
        bench = Bench(Path(root), MINI if given.mini else QUICK if given.quick else Size())
        print("the state that the checkpoints hold", flush=True)
        bench.prepare()
        bench.inside()
        bench.memory()
        slowdown, share = bench.by_held()
        bench.by_touched()
    return {"slowdown_held": round(slowdown, 3), "checkpoint_overhead": round(share, 3)}
