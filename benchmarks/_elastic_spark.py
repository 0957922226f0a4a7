"""The elastic benchmark on Spark: elastic against every fixed number of channels, and three loads told apart.

First an elastic query runs until it has settled. Where it came to rest is then compared with every fixed number, in
queries that go through all of these in turn, each in another order, with a few epochs of each. Two queries differ by a
tenth on a machine that others use, whatever their channels: within one query that is nobody's advantage. Compared are
medians of whole epochs, Spark's own overhead included. Adaptation periods are the library's default, of 5 s at least.
"""

from __future__ import annotations

import importlib.util
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.papers.fluid.saso import reversals

SLOTS = 16
PERIOD_EPOCHS = 3  # of the three loads
SETTLED_PERIODS = 3
NOT_THE_BEST = 0.95  # of the best number's speed: below it a run says how it decided

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
# Kernel → (schemas of its sources by name, records an epoch). Without emulated work: two cores are two cores, so
# numbers of channels beyond them can only be as good, and the controller has to find that out.
KERNELS = {
    "opmon": ("USAGE", 60_000),
    "network_servers": ("ENTRIES", 30_000),
    "network_breakins": ("LINES", 60_000),
    "twitter_cep": ("LINES", 30_000),
    "twitter_nlp": ("TWEETS", 20_000),
    "finance": ("LINES", 30_000),
}
# Without state it would run where the source is read, as Spark cuts that; spread gives it channels.
STATELESS = ("twitter_nlp",)


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes
    ----------
    kinds
        Cases that sleep: with state or without, and for how long per tuple.
    kernels, kernel_fixed, kernel_epochs, kernel_share
        Examples; numbers of channels they are compared with; files of each; the share of their records.
    rows, fixed
        Of an epoch of the cases that sleep, and numbers of channels they are compared with.
    periods_max
        When an elastic run that does not settle is given up.
    period
        The adaptation period; the library's default, if it is empty.
    rounds, epochs
        Queries that go through all numbers of channels, and epochs of each number in each.
    signal_periods
        Decisions to wait for in each of the three loads.
    """

    kinds: tuple[tuple[str, float], ...]
    kernels: tuple[str, ...]
    kernel_fixed: tuple[int, ...] = (1, 2, 3, 4)
    kernel_epochs: int = 80
    kernel_share: float = 1.0
    rows: int = 1_000
    fixed: tuple[int, ...] = (1, 2, 4, 8, 16)
    periods_max: int = 14
    period: str = ""
    rounds: int = 6
    epochs: int = 4
    signal_periods: int = 5


FULL = Size(tuple((kind, cost_s) for kind in ("stateful", "stateless") for cost_s in (0.001, 0.004)), tuple(KERNELS))
QUICK = Size(
    (("stateful", 0.004),),
    ("opmon",),
    kernel_fixed=(1, 2, 4),
    periods_max=10,
    rounds=2,
    epochs=2,
    signal_periods=2,
)
MINI = Size(
    (("stateful", 0.001),),
    ("opmon",),
    kernel_fixed=(1, 2),
    kernel_epochs=20,
    kernel_share=0.002,
    rows=20,
    fixed=(1, 2),
    periods_max=1,
    period="1 epochs",
    rounds=2,
    epochs=1,
    signal_periods=1,
)


@dataclass(frozen=True)
class Epoch:
    """An epoch of a measured query: how many channels, and from the end of the one before to its end."""

    channels: tuple[int, ...]
    seconds: float


class Measured:
    """A query whose epochs and decisions are kept."""

    def __init__(self, stream: ab.Stream, root: Path, sink: Callable[..., Any] | None = None, **options: Any) -> None:
        self.epochs: list[Epoch] = []
        self.decisions: list[tuple[str, Any]] = []
        self._last = time.perf_counter()
        writer = stream.writeStream.options(**options).option("checkpointLocation", tempfile.mkdtemp(dir=root))
        writer = writer.format("noop") if sink is None else writer.foreachBatch(sink)
        self.query = writer.start()
        self.query.addListener(self._on_event)
        # Those whose number of channels may change: what needs all tuples has one for ever.
        self.regions = [each.name for each in self.query.regions if each.channels_max > 1]

    def _on_event(self, event: Any) -> None:
        if isinstance(event, ab.EpochEnded):
            now = time.perf_counter()
            channels = event.progress["channels"]
            self.epochs.append(Epoch(tuple(channels[region] for region in self.regions), now - self._last))
            self._last = now
        elif isinstance(event, ab.Decided) and event.decision.observation is not None:
            self.decisions.append((event.region, event.decision))

    @staticmethod
    def regions_of(case: Case, root: Path) -> list[str]:
        """The regions of a program whose number of channels may change."""
        run = Measured(case.make(), root)
        run.query.stop()
        return run.regions

    def decisions_of(self, region: str) -> list[Any]:
        return [decision for name, decision in self.decisions if name == region]

    @property
    def periods(self) -> int:
        return min(len(self.decisions_of(region)) for region in self.regions)

    def is_settled(self) -> bool:
        """No region has changed for some periods."""
        last = [self.decisions_of(region)[-SETTLED_PERIODS:] for region in self.regions]
        return self.periods > SETTLED_PERIODS and not any(decision.changed for each in last for decision in each)

    def rescale(self, channels: tuple[int, ...]) -> None:
        for region, count in zip(self.regions, channels, strict=True):
            self.query.rescale(region, count)

    def wait(self, done: Callable[[], bool], seconds_max: float) -> None:
        deadline = time.monotonic() + seconds_max
        while not done() and time.monotonic() < deadline:
            if self.query.awaitTermination(0.1):
                raise RuntimeError(f"the query ended: {self.query.exception()}")

    def of(self, channels: tuple[int, ...]) -> list[float]:
        """The seconds of the epochs with so many channels, without the first of each stay."""
        return [
            after.seconds for before, after in pairwise(self.epochs) if before.channels == after.channels == channels
        ]


@dataclass(frozen=True)
class Case:
    """A program over files that are there beforehand, one an epoch: the region is saturated."""

    name: str
    make: Callable[[], ab.Stream]
    rows: int
    fixed: tuple[int, ...]
    # More input, while the elastic run is still looking.
    refill: Callable[[], None] = field(default=lambda: None)


@dataclass(frozen=True)
class Rest:
    """Where an elastic run came to rest, and how it got there."""

    channels: tuple[int, ...]
    settling: int
    reversals: int
    ways: Mapping[str, tuple[int, ...]]
    query: Measured


def rest_of(case: Case, root: Path, size: Size) -> Rest:
    """Run elastically, from one channel on, until nothing changes any more."""
    options = {"adaptationPeriod": size.period} if size.period else {}
    elastic = Measured(case.make(), root, initialChannels=1, maxChannels=max(case.fixed), **options)

    def settled() -> bool:
        if not elastic.periods % 5:
            case.refill()
        return elastic.is_settled() or elastic.periods >= size.periods_max

    elastic.wait(settled, 600)
    elastic.query.stop()
    ways = {
        region: (1, *(decision.channels for decision in elastic.decisions_of(region))) for region in elastic.regions
    }
    settling = 1 + max(
        (
            period
            for region in elastic.regions
            for period, decision in enumerate(elastic.decisions_of(region), 1)
            if decision.changed
        ),
        default=0,
    )
    final = tuple(way[-1] for way in ways.values())
    return Rest(final, settling, max(reversals(way) for way in ways.values()), ways, elastic)


def compare(case: Case, root: Path, size: Size) -> dict[str, Any]:
    """Elastic against every fixed number of channels."""
    rest = rest_of(case, root, size)
    final, settling, elastic = rest.channels, rest.settling, rest.query
    rounds = in_turn(case, root, {final}, size)
    seconds_of = medians(rounds)
    found = {"vs_best": _against_best(rounds, final), "settling": settling, "reversals": rest.reversals}
    shown = ", ".join(f"{_shown(channels)}: {case.rows / seconds:,.0f}/s" for channels, seconds in seconds_of.items())
    print(f"  {case.name}. In turn: {shown}")
    for region, way in rest.ways.items():
        print(f"    {region}: {' → '.join(map(str, way))}")
    alone = elastic.of(final)
    print(
        f"    settled in period {settling}, {found['reversals']} reversals; with {_shown(final)} channels "
        f"{case.rows / seconds_of[final]:,.0f}/s, {found['vs_best']:.1%} of the best of {size.rounds} rounds "
        f"(in the elastic run {case.rows / statistics.median(alone) if alone else 0:,.0f}/s)",
        flush=True,
    )
    for region, decision in elastic.decisions:
        print(f"      {region}: {decision.describe()}", flush=True)
    return found


def repeat(case: Case, root: Path, size: Size, runs: int) -> dict[str, Any]:
    """Several elastic runs; after each the number it rested at and the best fixed one, alternately, in one query.

    Which number is the best is found before, from all of them in turn, and holds for all runs: a run is compared with
    what was chosen without it.
    """
    regions = len(Measured.regions_of(case, root))
    before = medians(in_turn(case, root, {(1,) * regions}, size))
    best = min(before, key=lambda channels: before[channels])
    shown = ", ".join(f"{_shown(channels)}: {case.rows / seconds:,.0f}/s" for channels, seconds in before.items())
    print(f"  {case.name}. Fixed, in turn: {shown}; the best is {_shown(best)}", flush=True)
    shares, settlings, most = [], [], 0
    for number in range(1, runs + 1):
        rest = rest_of(case, root, size)
        share = 1.0 if rest.channels == best else _alternately(case, root, rest.channels, best, size)
        shares.append(share)
        settlings.append(rest.settling)
        most = max(most, rest.reversals)
        print(
            f"    run {number}: {'; '.join(' → '.join(map(str, way)) for way in rest.ways.values())}; settled in "
            f"period {rest.settling}, {rest.reversals} reversals; {_shown(rest.channels)} channels do {share:.1%} of "
            f"what {_shown(best)} do",
            flush=True,
        )
        for region, decision in rest.query.decisions if share < NOT_THE_BEST else ():
            print(f"      {region}: {decision.describe()}", flush=True)
    return {
        "best_fixed": _shown(best),
        "vs_best_median": round(statistics.median(shares), 3),
        "vs_best_worst": round(min(shares), 3),
        "vs_best": [round(share, 3) for share in shares],
        "settling": settlings,
        "reversals": most,
    }


def _alternately(case: Case, root: Path, mine: tuple[int, ...], best: tuple[int, ...], size: Size) -> float:
    """How much faster or slower one number is than another, by epochs of both in turn."""
    measured = Measured(case.make(), root, channels=mine[0])
    for turn in range(2 * size.rounds):
        channels = (mine, best)[turn % 2]
        measured.rescale(channels)
        wanted = size.epochs * (turn // 2 + 1)
        measured.wait(lambda: len(measured.of(channels)) >= wanted, 240)  # noqa: B023 - used at once
    share = statistics.median(measured.of(best)) / statistics.median(measured.of(mine))
    measured.query.stop()
    return share


Round = dict[tuple[int, ...], list[float]]
"""Channels → seconds of epochs with so many."""


def in_turn(case: Case, root: Path, rests: set[tuple[int, ...]], size: Size) -> list[Round]:
    """Every fixed number of channels, and where elastic runs came to rest: all in each query, in another order."""
    regions = len(next(iter(rests)))
    every = sorted({*rests, *((count,) * regions for count in case.fixed)})
    rounds = []
    for number in range(size.rounds):
        order = random.Random(number).sample(every, len(every))
        measured = Measured(case.make(), root, channels=order[0][0])
        for channels in order:
            measured.rescale(channels)
            measured.wait(lambda: len(measured.of(channels)) >= size.epochs, 240)  # noqa: B023 - used at once
        rounds.append({channels: measured.of(channels)[: size.epochs] for channels in every})
        measured.query.stop()
    return rounds


def medians(rounds: Sequence[Round]) -> dict[tuple[int, ...], float]:
    """Channels → seconds of an epoch."""
    return {channels: statistics.median(s for each in rounds for s in each[channels]) for channels in rounds[0]}


def _against_best(rounds: Sequence[Round], final: tuple[int, ...]) -> float:
    """How fast it is with these channels, as a share of the best number's speed.

    The best of several noisy medians is better than it will be the next time. So which number is the best is found in
    one half of the queries, and how good it is in the other, and the other way round.
    """
    found = []
    for chosen_by, judged_by in ((rounds[::2], rounds[1::2]), (rounds[1::2], rounds[::2])):
        chosen, judged = medians(chosen_by), medians(judged_by)
        found.append(judged[min(chosen, key=lambda channels: chosen[channels])] / judged[final])
    return statistics.mean(found)


def _shown(channels: tuple[int, ...]) -> str:
    return "+".join(map(str, channels)) if len(set(channels)) > 1 else str(channels[0])


# -- operators that sleep -----------------------------------------------------------------------------------------


def worker(kind: str, cost_s: float) -> Any:
    """An operator that takes so long for a tuple. Within a function, so that it is pickled by value."""

    class Work(ab.Operator):
        seen: int = ab.state(default=0)

        def process(self, t):  # type: ignore[no-untyped-def]
            time.sleep(cost_s)
            self.seen += 1
            yield t.k, self.seen

    @ab.model(state="stateless", selectivity="1:1", forwards=())
    def work(t):  # type: ignore[no-untyped-def]
        time.sleep(cost_s)
        return t.k, 1

    return Work() if kind == "stateful" else work


class Files:
    """A directory of input files, and a way to add to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self._count = 0

    def put(self, files: int, rows: int) -> None:
        for _ in range(files):
            keys = pa.array([(self._count * 7919 + at) * 2654435761 % 100_003 for at in range(rows)], pa.int64())
            passing = self.directory / "_passing"
            pq.write_table(pa.table({"k": keys}), passing)
            passing.rename(self.directory / f"{time.time_ns()}-{self._count}.parquet")
            self._count += 1


def stream_of(session: ab.Session, files: Files, kind: str, cost_s: float) -> ab.Stream:
    rows = session.from_files(str(files.directory), "parquet", "k long", maxFilesPerTrigger=1)
    if kind == "stateful":
        return rows.process(worker(kind, cost_s), by="k", schema="k long, n long", name="work")
    return rows.spread().map(worker(kind, cost_s), schema="k long, n long", name="work")


def sleeping(session: ab.Session, root: Path, kind: str, cost_s: float, size: Size) -> Case:
    """A region of one operator that sleeps: emulated work, so that two cores suffice for sixteen channels."""
    files = Files(root / f"{kind}-{cost_s}")
    files.put(60, size.rows)  # more than the elastic run needs, unless it goes on looking; then `refill` adds some
    return Case(
        f"{kind}, {cost_s * 1000:g} ms a tuple",
        lambda: stream_of(session, files, kind, cost_s),
        size.rows,
        size.fixed,
        lambda: files.put(1, size.rows),
    )


# -- the kernels --------------------------------------------------------------------------------------------------


def kernel(session: ab.Session, root: Path, name: str, size: Size) -> Case:
    """An application kernel of `examples/`, with its own generated data."""
    module = example(name)
    columns, records = KERNELS[name]
    schemas: Mapping[str, str] = getattr(module, columns)
    rows = module.generate(round(records * size.kernel_share) * size.kernel_epochs, 7)
    for source, each in rows.items():
        directory = root / name / source
        directory.mkdir(parents=True)
        count = -(-len(each) // size.kernel_epochs)
        arrow = ab.from_rows([], schemas[source]).schema.arrow
        for number, at in enumerate(range(0, len(each), count)):
            path = directory / f"{number:05d}.parquet"
            pq.write_table(pa.Table.from_pylist(each[at : at + count], schema=arrow), path)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))

    def make() -> ab.Stream:
        sources = {
            source: session.from_files(str(root / name / source), "parquet", schema, name=source, maxFilesPerTrigger=1)
            for source, schema in schemas.items()
        }
        if name in STATELESS:
            sources = {source: stream.spread() for source, stream in sources.items()}
        return module.program(**sources)

    total = sum(len(each) for each in rows.values()) // size.kernel_epochs
    return Case(f"kernel {name}", make, total, size.kernel_fixed)


def example(name: str) -> Any:
    """A module of `examples/`, loaded anew."""
    from pyspark import cloudpickle

    specification = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # the compiler asks for the source of its functions
    specification.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # Spark's Python workers need not find that folder
    return module


# -- three loads --------------------------------------------------------------------------------------------------


def signals(session: ab.Session, root: Path, size: Size) -> dict[str, float]:
    """What the controllers are told of three loads: saturated, under-loaded, a slow sink."""
    found = {}
    options = {"initialChannels": 2, "maxChannels": SLOTS, "adaptationPeriod": f"{PERIOD_EPOCHS} epochs"}
    hurry = size == MINI
    for name in ("saturated", "under-loaded", "slow sink"):
        files = Files(root / name)
        sink = (lambda frame, epoch: time.sleep(0.1 if hurry else 3.0)) if name == "slow sink" else None
        if name != "under-loaded":
            files.put(40, size.rows if name == "saturated" else 50)
        query = Measured(stream_of(session, files, "stateful", 0.004), root, sink, **options)

        def judged(query: Measured = query, name: str = name, files: Files = files) -> bool:
            if name == "under-loaded" and len(query.epochs) < 60:
                files.put(1, 20)
                time.sleep(0.1 if hurry else 2.0)
            return len(query.decisions) >= (1 if name == "saturated" else size.signal_periods)

        query.wait(judged, 300)
        query.query.stop()
        decisions = [decision for _, decision in query.decisions]
        seen = [decision.observation for decision in decisions if decision.observation.valid]
        found[name] = statistics.median(each.congestion for each in seen) if seen else float("nan")
        most = max((decision.channels for decision in decisions), default=0)
        print(f"  {name}: congestion {found[name]:.2f}, at most {most} channels (began with 2)")
        for decision in decisions:
            print(f"      {decision.describe()}", flush=True)
        found[f"{name}, channels"] = most
    return found
