"""What order costs, and how far the engine scales.

    python -m benchmarks ordering [--quick | --mini] [--only CASE]
                                  [--part python|overhead|selectivity|punctuation|scaling]

**Python.** What order adds to all the Python of an epoch, in one process without a JVM (see `_ordering_in_process`).

**Overhead.** The same program, the same data, the same work per tuple, with and without order
(``option("order", "none")`` and operators that do not mind: tuples are only routed; they are not numbered, nothing is
sent along or sorted). One
row per ordering strategy of the *Safe* paper, and one for two regions that exchange tuples. What is compared is the
processor time (user and system) of an epoch, of all processes together: the driver, the JVM, the Python workers; wall
time stands beside it, but on a machine that others use it says little. Two queries, with order and without, run at the
same time and are fed in turn (see `_ordering_in_turn`), so that each epoch is compared with the same epoch of the other
side that ran right before or after it. Given are the median of these ratios and the interval
that covers 90 % of the medians of samples drawn from them with replacement; and the ratio of the least that an epoch
took on either side, because a busy machine makes epochs dearer, never cheaper. In front of it all stands what order
adds in Python, in nanoseconds per tuple, step by step: numbering and encoding in the splitter, decoding in the channel,
encoding what leaves, merging in the driver. These are so short that the least of many runs is undisturbed anywhere.

The paper's figures (12 % for sequence numbers, 21 % with pulses) are the highest of its curves over the work per tuple,
which it gives in integer multiplications of C++. One of Python takes about thirty times as long, and so does
everything else that happens to a tuple here. *Medium* work, 200 of them, is about what the engine itself spends on a
tuple: where parallel channels begin to be of use. The headline figures are those. *Light* work, ten, is printed beside:
there nearly all the time is the engine's, and nobody would take more than one channel.

Order begins at the source: which file a row is from, and where. Both sides of the comparison carry that along (the
option does not change what is read), so it has a line of its own: the processor time of reading the epoch's rows into
Python with these columns and without, as a share of the whole epoch of light work.

**Selectivity and punctuations.** As Figures 9 and 11 of the paper: a tuple out for n in (what the paper's 1:n means),
and n out for one in, with as many out; n from 1 to 256. And a punctuation for every n-th tuple against none. Skew,
the third of these figures, is the benchmark `skew`.

**Scaling.** Operators that sleep (emulated work: two cores do), ``local[36]``, 1 to 32 channels: rows per second of an
epoch against one channel, at the same rows per channel, so that an ideal epoch takes as long at every level.
Stateless behind `spread`, stateful by key, and a shuffle between two keys, where a tuple's work is split over both
regions. Epochs last 40 s, as their fixed cost must not decide. Keys are drawn at random anew for each row, so the
busiest channel has a few percent more rows than the mean; the ratio that this alone allows is printed beside, and where
the rest of the time went: until all channels had begun, and after the last had done its work.

``--quick`` has smaller epochs, fewer of them and fewer ratios. Its epochs of the scaling part last 10 s, so their fixed
cost, about a second, weighs four times as much: its ``scale32_…`` should be lower than those of the
full run; by how much was not measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.engine.worker.packets import merge, pack, route, unpack
from anabranch.engine.worker.trails import Trails, decoded, encoded, refined
from benchmarks import _ordering_in_process as in_process
from benchmarks import _ordering_in_turn as in_turn
from benchmarks import _ordering_programs as programs
from benchmarks._ordering_in_turn import Epoch
from benchmarks._spark import apart, processor_time, spark_session

STRATEGIES = ("round-robin", "sequence numbers", "strict and pulses", "relaxed and pulses", "shuffle")
LIGHT, MEDIUM = 10, 200  # multiplications per tuple
FILES = 4
DISTINCT = 4  # epochs of data; they are used again and again
RESAMPLES = 2_000

# Long enough that going to sleep and waking up, which does cost the processor, is little beside it; many enough that
# chance gives no channel many more of them than the others.
PER_TUPLE_S = 0.010

Make = Callable[[Any], Any]


@dataclass(frozen=True)
class Size:
    """How large every part is."""

    rows: int
    """Of an epoch."""
    warm_up: int
    """Epochs of each query, in which everything is loaded and compiled."""
    measured: int
    """Epochs of each query after that."""
    rounds: int
    """How many queries each side runs, one after the other."""
    ratios: tuple[int, ...]
    """Of selectivities and punctuations."""
    python: tuple[int, int, int]
    """Of the part without a JVM: processes, epochs in each, rows of an epoch."""
    channels: tuple[int, ...]
    """Of the scaling part, the last is the headline's."""
    channel_rows: int
    """Rows of an epoch for each channel, in the scaling part."""
    repeats: int = 60
    """Of the steps that order adds."""


FULL = Size(200_000, 4, 12, 2, (1, 4, 16, 64, 256), (11, 20, 40_000), (1, 2, 4, 8, 16, 32), 4_000)
QUICK = Size(40_000, 3, 6, 1, (1, 16, 256), (3, 6, 15_000), (1, 32), 1_000)
MINI = Size(400, 1, 1, 1, (4,), (1, 1, 400), (1, 2), 4, repeats=1)


def write_epochs(directory: Path, rows_of_epochs: list[int], keys: int) -> None:
    directory.mkdir(parents=True)
    random = np.random.default_rng(1)
    for epoch, rows in enumerate(rows_of_epochs):
        for part in range(FILES):
            count = rows // FILES
            table = pa.table(
                {
                    "k": random.integers(0, keys, count),
                    "j": random.integers(0, keys, count),
                    "x": random.random(count),
                }
            )
            path = directory / f"{epoch:03d}-{part}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + epoch, 1_700_000_000 + epoch))


# -- what order costs ---------------------------------------------------------------------------------------


@dataclass
class Comparison:
    """Epochs with order and the same epochs without, or with punctuations and without."""

    ordered: list[Epoch] = field(default_factory=list)
    plain: list[Epoch] = field(default_factory=list)

    def ratios(self, of: Callable[[Epoch], float]) -> np.ndarray:
        return np.array([of(a) / of(b) - 1 for a, b in zip(self.ordered, self.plain, strict=True)])

    def overhead(self) -> tuple[float, float, float]:
        """The median overhead in processor time, and the interval it lies in."""
        ratios = self.ratios(_processor_s)
        drawn = np.random.default_rng(1).choice(ratios, (RESAMPLES, len(ratios)))
        low, high = np.quantile(np.median(drawn, axis=1), [0.05, 0.95])
        return float(np.median(ratios)), float(low), float(high)

    def line(self) -> str:
        median, low, high = self.overhead()
        with_s, without_s = (statistics.median(map(_processor_s, side)) for side in (self.ordered, self.plain))
        wall = float(np.median(self.ratios(lambda epoch: epoch.wall_s)))
        least = min(map(_processor_s, self.ordered)) / min(map(_processor_s, self.plain)) - 1
        more = {
            name: statistics.median(getattr(e.processor, f"{name}_s") for e in self.ordered)
            - statistics.median(getattr(e.processor, f"{name}_s") for e in self.plain)
            for name in ("jvm", "workers", "driver")
        }
        where = ", ".join(f"{name} {seconds:+.2f}" for name, seconds in more.items())
        return (
            f"{with_s:6.2f} s {without_s:6.2f} s   {median:+7.1%} ({low:+.1%} … {high:+.1%})   least {least:+7.1%}"
            f"   wall {wall:+7.1%}"
            f"   {len(self.ordered)} epochs; {where} s"
        )


def _processor_s(epoch: Epoch) -> float:
    return epoch.processor.total_s


@dataclass(frozen=True)
class Case:
    """Two ways to run a program on input of so many rows an epoch."""

    name: str
    rows: int
    ordered: Make
    ordered_options: dict[str, str]
    plain: Make
    plain_options: dict[str, str]


def _against_none(name: str, rows: int, times: int, title: str = "") -> Case:
    return Case(title or name, rows, _program(name, times), {}, _program(name, times, False), {"order": "none"})


def _cases(part: str, rows: int, ratios: tuple[int, ...]) -> Iterator[Case]:
    if part == "overhead":
        for weight, times in (("medium", MEDIUM), ("light", LIGHT)):
            for name in STRATEGIES:
                yield _against_none(name, rows, times, f"{name}, {weight}")
    elif part == "selectivity":
        for ratio in ratios:
            yield _against_none(f"{ratio}:1", rows, MEDIUM, f"a tuple for {ratio}")
        for ratio in (ratio for ratio in ratios if ratio > 1):
            # The same output in all: what differs is how many tuples share a number.
            yield _against_none(f"1:{ratio}", rows // ratio, MEDIUM, f"{ratio} for a tuple")
    else:
        plain = _program("sequence numbers", MEDIUM)
        for every in (*ratios, 0):
            name = f"a punctuation in {every}" if every else "never one, but asked for"
            yield Case(name, rows, _punctuated(every), {}, plain, {})


def _program(name: str, times: int, ordered: bool = True) -> Make:
    return lambda stream: programs.overhead_program(name, stream, times, ordered)


def _punctuated(every: int) -> Make:
    def make(stream: Any) -> Any:
        marked = stream.punctuate(lambda t: every > 0 and int(t.x * 1e9) % every == 0)
        return programs.overhead_program("sequence numbers", marked, MEDIUM)

    return make


def overhead(size: Size, part: str, only: str = "") -> dict[str, tuple[float, float, float]]:
    """Case → how much more processor time an epoch takes with order (or punctuations) than without."""
    _send_programs()
    with tempfile.TemporaryDirectory(prefix="anabranch-ordering-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        with spark_session(2, scratch, in_turn.SETTINGS) as spark:
            found = {}
            print(f"{'':28} with     without    processor time, median and 90 % interval")
            for case in (case for case in _cases(part, size.rows, size.ratios) if only in case.name):
                source = scratch / f"in-{case.rows}"
                if not source.exists():
                    write_epochs(source, [case.rows] * DISTINCT, 10_000)
                epochs = [sorted(source.glob(f"{at % DISTINCT:03d}-*")) for at in range(size.warm_up + size.measured)]
                comparison = Comparison()
                for number in range(size.rounds):
                    folders = [scratch / f"{len(found)}-{number}" / side for side in ("ordered", "plain")]
                    ordered = in_turn.Fed(spark, folders[0], FILES, case.ordered, 2, case.ordered_options)
                    plain = in_turn.Fed(spark, folders[1], FILES, case.plain, 2, case.plain_options)
                    sides = in_turn.in_turn(ordered, plain, epochs, size.warm_up)
                    ordered.stop()
                    plain.stop()
                    comparison.ordered.extend(sides[0])
                    comparison.plain.extend(sides[1])
                found[case.name] = comparison.overhead()
                print(f"{case.name:28} {comparison.line()}", flush=True)
            if part == "overhead" and not only:
                times = max(3, size.measured)
                share = reading(spark, scratch / f"in-{size.rows}", comparison.plain, times)
                found["source"] = (share, share, share)
            return found


def python(size: Size) -> dict[str, float]:
    """Case → how much more processor time all the Python of an epoch takes with order; over several processes."""
    processes, epochs, rows = size.python
    cases = {
        f"{name}, {weight}": (name, times)
        for weight, times in (("medium", MEDIUM), ("light", LIGHT))
        for name in STRATEGIES
    }
    runs = [apart(in_process.overheads, list(cases.values()), rows, epochs) for _ in range(processes)]
    found = {}
    for at, case in enumerate(cases):
        ratios = [run[at] for run in runs]
        found[case] = statistics.median(ratios)
        print(
            f"{case:28} {found[case]:+7.1%} ({min(ratios):+.1%} … {max(ratios):+.1%}) in {processes} processes",
            flush=True,
        )
    return found


def reading(spark: Any, source: Path, epochs: Sequence[Epoch], times: int) -> float:
    """The processor time that it takes to know where the rows of an epoch are from, as a share of an epoch."""
    from pyspark.sql import functions as functions

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    rows = spark.read.parquet(*sorted(map(str, source.glob("*-?.parquet")))[-FILES:])
    order = [
        functions.unix_micros(functions.col("_metadata.file_modification_time")),
        functions.input_file_name(),
        functions.input_file_block_start(),
    ]
    named = [column.alias(f"o{at}") for at, column in enumerate(order)]
    used: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(times):
        for knows in used:
            before = processor_time()
            rows.select("*", *(named if knows else [])).mapInArrow(programs.counted, "rows long").collect()
            used[knows].append(processor_time().since(before).total_s)
    with_s, without_s = (statistics.median(used[knows][times // 6 :]) for knows in (True, False))
    epoch_s = statistics.median(map(_processor_s, epochs))
    share = (with_s - without_s) / epoch_s
    print(
        f"on both sides: reading takes {with_s:.2f} s with where rows are from, {without_s:.2f} s without;"
        f" {share:.1%} of a light epoch's {epoch_s:.2f} s",
        flush=True,
    )
    return share


def steps(size: Size) -> dict[str, float]:
    """What order adds to the work of Python, in nanoseconds per tuple that enters, by strategy."""
    rows, channels = 65_536, 2  # a batch as Spark hands it over
    schema = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("x", pa.float64())])
    random = np.random.default_rng(1)
    numbers = [np.arange(rows)]
    least_ns = partial(_least_ns, size.repeats)
    found = {}
    for name, copies in (("round-robin", 0), ("sequence numbers", 1), ("relaxed and pulses", 2)):
        to = random.integers(0, channels, rows).astype(np.int32) if copies else np.zeros(rows, dtype=np.int32)
        columns = _columns(rows, random)
        count = channels if copies else 1
        packets = [packet for _, packet in route(columns, schema, to, count, numbers)]
        own = [np.flatnonzero(to == channel) for channel in range(count)]
        leaving = [(_emitted(each, copies), _columns(len(each) * max(copies, 1), random)) for each in own]
        results = [(trails, pack(columns, schema, trails)) for trails, columns in leaving]
        tables = [pa.Table.from_batches([unpack(packet, schema)]) for _, packet in results]
        trails_of = [trails for trails, _ in results]
        added_ns = {
            "splitter": least_ns(lambda c=columns, t=to, n=count: list(route(c, schema, t, n, numbers)))
            - least_ns(lambda c=columns, t=to, n=count: list(route(c, schema, t, n))),
            "channel": least_ns(lambda p=packets: [decoded(memoryview(packet), 1) for packet in p])
            + least_ns(lambda o=own, c=copies: [_emitted(each, c) for each in o])
            + least_ns(lambda e=leaving: [pack(c, schema, t) for t, c in e])
            - least_ns(lambda e=leaving: [pack(c, schema) for _, c in e]),
            "driver": _least_ns(
                size.repeats, lambda r=results: [decoded(memoryview(packet), len(t)) for t, packet in r]
            )
            + least_ns(lambda t=trails_of, b=tables: merge(list(zip(t, b, strict=True)), schema)),
        }
        found[name] = sum(added_ns.values()) / rows
        sent = sum(len(encoded(trails)) for trails, _ in results) / sum(len(each) for each in tables)
        where = ", ".join(f"{step} {each / rows:5.1f}" for step, each in added_ns.items())
        print(f"{name:20} order adds {found[name]:6.1f} ns per tuple: {where}; {sent:.2f} bytes sent per result")
    return found


def _columns(rows: int, random: np.random.Generator) -> list[pa.Array]:
    return [
        pa.array(random.integers(0, 10_000, rows)),
        pa.array(random.integers(0, 9, rows)),
        pa.array(random.random(rows)),
    ]


def _emitted(numbers: np.ndarray, copies: int) -> Trails:
    """The trails of what a channel emits for these numbers: how many each, and which of them."""
    return refined([numbers], np.repeat(np.arange(len(numbers)), copies)) if copies > 1 else [numbers]


def _least_ns(times: int, step: Callable[[], Any]) -> float:
    least = float("inf")
    for _ in range(times):
        begun = time.process_time_ns()
        step()
        least = min(least, time.process_time_ns() - begun)
    return least


# -- how far it scales --------------------------------------------------------------------------------------


def run(spark: Any, source: Path, make: Make, channels: int) -> dict[str, Any]:
    """The progress of the last epoch of a query over all of the source."""
    import anabranch as ab

    stream = ab.session(spark).from_files(str(source), "parquet", programs.COLUMNS, maxFilesPerTrigger=FILES)
    writer = make(stream).writeStream.format("noop").options(channels=channels, balancing="off")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = query.lastProgress
    assert progress is not None
    return progress


def scaling(size: Size) -> dict[str, dict[int, float]]:
    """Program → channels → rows per second against one channel."""
    _send_programs()
    with tempfile.TemporaryDirectory(prefix="anabranch-ordering-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        for channels in size.channels:
            rows = size.channel_rows * channels
            write_epochs(scratch / f"in-{channels}", [min(rows, max(channels * 100, 400)), rows], 100_000)
        with spark_session(max(size.channels) + 4, scratch) as spark:
            found: dict[str, dict[int, float]] = {}
            for name in ("stateless", "stateful", "shuffle"):
                rates: dict[int, float] = {}
                for channels in size.channels:
                    make = _scaling_program(name, PER_TUPLE_S)
                    progress = run(spark, scratch / f"in-{channels}", make, channels)
                    rates[channels] = progress["rows_in"] / (progress["duration_ms"]["total"] / 1000)
                    print(
                        f"{name:10} {channels:3} channels  {rates[channels]:9.1f} rows/s  "
                        f"{rates[channels] / rates[1]:6.2f} times one channel   {_where(progress, channels)}",
                        flush=True,
                    )
                found[name] = {channels: rate / rates[1] for channels, rate in rates.items()}
            return found


def _scaling_program(name: str, per_tuple_s: float) -> Make:
    return lambda stream: programs.scaling_program(name, stream, per_tuple_s)


def _where(progress: dict[str, Any], channels: int) -> str:
    """What the busiest channel allows, and where the time of an epoch went."""
    depths = sorted({each["depth"] for each in progress["stages"] if each["kind"] == "channel"})
    total_s = progress["duration_ms"]["total"] / 1000
    worked_s, worst = 0.0, 1.0
    for depth in depths:
        stage = [each for each in progress["stages"] if each["depth"] == depth]
        rows = [each["rows_in"] for each in stage]
        worst = max(worst, max(rows) * len(rows) / sum(rows))
        worked_s += max(each["busy_seconds"] for each in stage)
    first = [each for each in progress["stages"] if each["depth"] == depths[0]]
    read_s = max(each["seconds"] for each in progress["stages"] if each["kind"] == "source")
    spread_s = max(each["began_s"] for each in first) - min(each["began_s"] for each in first)
    return (
        f"(busiest channel alone: {channels / worst:5.1f}; {total_s:.2f} s, of them work {worked_s:.2f}, "
        f"splitters {read_s:.2f}, from the first channel's start to the last's {spread_s:.2f})"
    )


def _send_programs() -> None:
    """Spark's Python workers need not find this folder."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(programs)


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks ordering")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer epochs: 5 minutes")
    parser.add_argument("--mini", action="store_true", help="hardly any rows, to see that it runs")
    parts = ["python", "overhead", "selectivity", "punctuation", "scaling"]
    parser.add_argument("--part", choices=parts)
    parser.add_argument("--only", default="", help="only cases whose name contains this; gives no headline figures")
    chosen = parser.parse_args(arguments)
    size = MINI if chosen.mini else QUICK if chosen.quick else FULL
    figures: dict[str, Any] = {}
    # A process, and so a JVM, for each part: they need different masters, and none should inherit another's heap.
    for part in [chosen.part] if chosen.part else parts:
        print(f"-- {part} --", flush=True)
        if part == "python":
            figures.update(_headlines(python(size), "_python"))
            continue
        if part == "overhead":
            figures["order_ns_per_tuple"] = {name: round(found, 1) for name, found in steps(size).items()}
        if part == "scaling":
            scales, most = apart(scaling, size), size.channels[-1]
            figures.update({f"scale32_{name}": round(rates[most], 2) for name, rates in scales.items()})
            continue
        found = apart(overhead, size, part, chosen.only)
        if part == "overhead" and not chosen.only:
            figures.update(_headlines({name: median for name, (median, _, _) in found.items()}))
            figures["source_order_light"] = round(found["source"][0], 3)
        else:
            figures[part] = {name: round(median, 3) for name, (median, _, _) in found.items()}
    return figures


def _headlines(found: dict[str, float], of_what: str = "") -> dict[str, float]:
    figures: dict[str, float] = {}
    for weight, suffix in (("medium", ""), ("light", "_light")):
        of = {name: found[f"{name}, {weight}"] for name in STRATEGIES}
        figures[f"seqno_overhead{of_what}{suffix}"] = of["sequence numbers"]
        figures[f"pulse_overhead{of_what}{suffix}"] = max(of["strict and pulses"], of["relaxed and pulses"])
        figures[f"shuffle_overhead{of_what}{suffix}"] = of["shuffle"]
    return {name: round(value, 3) for name, value in figures.items()}
