"""Figures measured on Spark: kernels of `examples/` and single regions, fixed and elastic, with emulated work.

Operators sleep for a tuple, so that two cores are enough for a dozen channels; everything else is the product on
Spark, its fixed cost per epoch included, which the papers' streaming machine does not have. Files are there
beforehand, one an epoch: a region is saturated, unless a load is asked for. Fixed numbers of channels and those where
elastic runs came to rest are compared within one query, in turn (see `benchmarks._elastic_spark`).
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.sim.load import Curve
from benchmarks._elastic_spark import Case, Files, Measured, Size, example, in_turn, medians, worker
from benchmarks._spark import spark_session

SLOTS = 12
COUNTS = (1, 2, 4, 8)
POLICIES = {"paper": "paper", "ours": "default"}
PERIOD = "2 epochs"
PERIODS_MAX = 10
WARM_EPOCHS, WARM_ROWS = 6, 20
SETTLED = Size((), (), rounds=3, epochs=1)
QUICK = Size((), (), rounds=2, epochs=1)
Channels = tuple[int, ...]


@contextlib.contextmanager
def room() -> Iterator[tuple[ab.Session, Path]]:
    """A session with more slots than cores, and a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="anabranch-figures-") as root:
        settings = {"spark.sql.session.timeZone": "UTC"}
        with spark_session(SLOTS, Path(root), settings) as spark:
            yield ab.session(spark), Path(root)


@dataclass(frozen=True)
class Speeds:
    """Seconds of an epoch with fixed numbers of channels, and where each controller came to rest."""

    seconds: Mapping[Channels, float]
    rests: Mapping[str, Channels]
    ways: Mapping[str, Mapping[str, tuple[int, ...]]]
    """Policy → region → channels, period by period."""

    def fixed(self) -> dict[int, float]:
        """Speed-ups of equal numbers of channels over one per region."""
        alike = {channels[0]: s for channels, s in self.seconds.items() if len(set(channels)) == 1}
        return {count: alike[1] / alike[count] for count in sorted(alike)}

    def elastic(self, policy: str) -> float:
        """Speed-up over one channel per region, measured in turn with the others."""
        one = next(s for channels, s in self.seconds.items() if set(channels) == {1})
        return one / self.seconds[self.rests[policy]]

    def share(self, policy: str) -> float:
        """Of the best fixed number's speed."""
        return self.elastic(policy) / max(self.fixed().values())


def compare(case: Case, root: Path, quick: bool, policies: Mapping[str, str] = POLICIES) -> Speeds:
    """Both controllers from one channel on, then where they came to rest beside the fixed numbers, in turn."""
    rests, ways = {}, {}
    for name, policy in policies.items():
        most = max(case.fixed)
        run = Measured(
            case.make(), root, policy=policy, initialChannels=1, maxChannels=most, adaptationPeriod=PERIOD, spread="off"
        )
        run.wait(_done(run, 3 if quick else PERIODS_MAX), 300)
        run.query.stop()
        rests[name] = run.epochs[-1].channels
        ways[name] = {
            region: (1, *(decision.channels for decision in run.decisions_of(region))) for region in run.regions
        }
        print(f"    {case.name}, {name}: {ways[name]}", flush=True)
    rounds = in_turn(
        case, root, set(rests.values()) or {(1,) * len(Measured.regions_of(case, root))}, QUICK if quick else SETTLED
    )
    found = Speeds(medians(rounds), rests, ways)
    print(f"    {case.name}: {found.fixed()}", flush=True)
    return found


def _done(run: Measured, periods: int) -> Callable[[], bool]:
    return lambda: run.is_settled() or run.periods >= periods


# -- single regions ---------------------------------------------------------------------------------------------------


def region(session: ab.Session, root: Path, kind: str, cost_s: float, epoch_s: float, files: int) -> Case:
    """A region of one operator, whose epochs are so much work for one channel."""
    rows = min(5000, max(200, round(epoch_s / cost_s)))
    source = Files(Path(tempfile.mkdtemp(dir=root)) / "in")
    source.put(files, rows)
    return Case(f"{kind}, {cost_s * 1000:g} ms", lambda: _worked(session, source, kind, cost_s), rows, COUNTS)


def _worked(session: ab.Session, source: Files, kind: str, cost_s: float, at_once: int | None = 1) -> ab.Stream:
    limit = {} if at_once is None else {"maxFilesPerTrigger": at_once}
    rows = session.from_files(str(source.directory), "parquet", "k long", **limit)
    if kind == "stateful":
        return rows.process(worker(kind, cost_s), by="k", schema="k long, n long", name="work")
    return rows.spread().map(worker(kind, cost_s), schema="k long, n long", name="work")


# -- a load that changes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Followed:
    """How a controller followed a load: a sample per epoch."""

    at_s: list[float]
    load: list[float]
    """Tuples per second that came."""
    delivered: list[float]
    """Tuples per second that were handled."""
    channels: list[int]


def follow(
    session: ab.Session, root: Path, curve: Curve, policy: str, *, cost_s: float, seconds: float, most: int
) -> Followed:
    """Put tuples as the curve says, ten times a second, and let a controller work them off. They are stored, not lost.

    How many files an epoch takes is the product's to find out, as it is by default: from a few small epochs, before the
    load begins. One epoch of all that came while nothing was known would be as long as a tenth of the curve.
    """
    source = Files(Path(tempfile.mkdtemp(dir=root)) / "in")
    source.put(1, WARM_ROWS)
    stream = _worked(session, source, "stateful", cost_s, at_once=None)
    ended: list[tuple[float, int, int]] = []
    writer = stream.writeStream.format("noop").trigger(processingTime="1 second")
    writer = writer.options(policy=POLICIES[policy], initialChannels=1, maxChannels=most, adaptationPeriod=PERIOD)
    query = writer.option("checkpointLocation", tempfile.mkdtemp(dir=root)).start()
    (name,) = [each.name for each in query.regions]

    def note(event: Any) -> None:
        if isinstance(event, ab.EpochEnded):
            ended.append((time.monotonic(), event.progress["rows_in"], event.progress["channels"][name]))

    query.addListener(note)
    for number in range(1, WARM_EPOCHS + 1):
        while len(ended) < number:
            time.sleep(0.05)
        source.put(1, WARM_ROWS)
    ended.clear()
    started = time.monotonic()
    feeder = threading.Thread(target=_feed, args=(source, curve, started, seconds))
    feeder.start()
    feeder.join()
    query.stop()
    at = [moment - started for moment, _, _ in ended]
    spans = [after - before for before, after in zip([0.0, *at], at, strict=False)]
    return Followed(
        at,
        [curve(moment) for moment in at],
        [rows / max(span, 1e-9) for (_, rows, _), span in zip(ended, spans, strict=True)],
        [channels for _, _, channels in ended],
    )


def _feed(source: Files, curve: Curve, started: float, seconds: float) -> None:
    step = 0.1
    for number in range(int(seconds / step)):
        time.sleep(max(0.0, started + number * step - time.monotonic()))
        source.put(1, max(1, round(curve(number * step) * step)))


# -- kernels ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SlowKernel:
    """A kernel of `examples/`, whose operators sleep as long as the papers' take, times a scale.

    Attributes
    ----------
    seconds
        Of each operator of *Safe*, Table 2 that the example has, by its name in the example.
    scale
        So that a sleep is long against the system's own cost of sleeping.
    """

    name: str
    example: str
    schemas: str
    seconds: Mapping[str, float]
    scale: float
    records: int
    spread: bool = False


KERNELS = {
    "Network monitoring": SlowKernel("Network monitoring", "network_servers", "ENTRIES", {"Compare": 33e-6}, 100, 2000),
    "PageRank": SlowKernel("PageRank", "pagerank", "BLOCKS", {"Multiply": 11.0}, 0.08, 400),
    "Twitter NLP": SlowKernel("Twitter NLP", "twitter_nlp", "TWEETS", {"analyse": 133e-6}, 30, 1600, spread=True),
    "Twitter CEP": SlowKernel(
        "Twitter CEP", "twitter_cep", "LINES", {"parse": 140e-6, "match": 3.5e-3}, 2, 900, spread=True
    ),
    "Finance": SlowKernel(
        "Finance",
        "finance",
        "LINES",
        {"parse_trade": 26e-6, "parse_quote": 26e-6, "Bargains": 83.5e-6},
        60,
        1400,
        spread=True,
    ),
    "Network": SlowKernel(
        "Network",
        "network_breakins",
        "LINES",
        {"parse_line": 33e-6, "parse_failures": 23e-6, "parse_login": 0.5e-6},
        100,
        2000,
        spread=True,
    ),
}


def kernel(session: ab.Session, root: Path, slow: SlowKernel, files: int, share: float = 1.0) -> Case:
    """The kernel over generated files."""
    module = example(slow.example)
    once = slow.example == "pagerank"  # one file: the loop makes its own epochs
    for name, seconds in slow.seconds.items():
        _slow_down(module, name, seconds * slow.scale * (share if once else 1.0))
    schemas: Mapping[str, str] = getattr(module, slow.schemas)
    rows = module.generate(round(slow.records * (1 if once else share * files)), 7)
    directory = Path(tempfile.mkdtemp(dir=root))
    for source, each in rows.items():
        _write(directory / source, each, ab.from_rows([], schemas[source]).schema.arrow, 1 if once else files)

    def make() -> ab.Stream:
        sources = {
            source: session.from_files(str(directory / source), "parquet", schema, name=source, maxFilesPerTrigger=1)
            for source, schema in schemas.items()
        }
        if slow.spread:
            sources = {source: stream.spread() for source, stream in sources.items()}
        return module.program(**sources, **({"tolerance": 0.0} if once else {}))

    per_epoch = round(slow.records * share)
    return Case(slow.name, make, per_epoch, COUNTS)


def _write(directory: Path, rows: list[dict[str, Any]], schema: pa.Schema, files: int) -> None:
    directory.mkdir(parents=True)
    count = -(-len(rows) // files)
    for number, at in enumerate(range(0, len(rows), count)):
        pq.write_table(pa.Table.from_pylist(rows[at : at + count], schema=schema), directory / f"{number:05d}.parquet")


def _slow_down(module: Any, name: str, seconds: float) -> None:
    """Let an operator of an example sleep before it does what it does."""
    if name == "match":
        module.ab = _Sleeping(module.ab, seconds)
        return
    original = getattr(module, name)
    if isinstance(original, type):
        module.__dict__[name] = _slow_class(original, seconds)
    else:
        module.__dict__[name] = _slow_function(original, seconds)


def _slow_class(original: Any, seconds: float) -> Any:
    class Slow(original):  # type: ignore[misc]
        def process(self, t):  # type: ignore[no-untyped-def]
            time.sleep(seconds)
            yield from original.process(self, t)

    return Slow


def _slow_function(original: Callable[[Any], Any], seconds: float) -> Callable[[Any], Any]:
    @functools.wraps(original)
    @ab.model(state="stateless")
    def slow(t):  # type: ignore[no-untyped-def]
        time.sleep(seconds)
        return original(t)

    return slow


class _Sleeping:
    """The package, but for `step`: the first condition of a pattern is asked once for a tuple, and sleeps."""

    def __init__(self, package: Any, seconds: float) -> None:
        self._package, self._seconds = package, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._package, name)

    def step(self, name: str, condition: Callable[..., bool]) -> Any:
        seconds = self._seconds
        if name != "first":
            return self._package.step(name, condition)

        def slow(t):  # type: ignore[no-untyped-def]
            time.sleep(seconds)
            return condition(t)

        return self._package.step(name, slow)


def costs(slow: SlowKernel, session: ab.Session, root: Path, share: float = 1.0) -> dict[str, float]:
    """Microseconds that a tuple takes in each region of the kernel as it is, on one channel, by its progress."""
    found: dict[str, list[float]] = {}
    case = kernel(session, root, SlowKernel(**{**slow.__dict__, "seconds": {}, "scale": 0.0}), 6, share)
    run = Measured(case.make(), root, channels=1)
    run.wait(lambda: len(run.epochs) >= 5, 120)
    for progress in run.query.recentProgress[2:]:
        for task in progress["stages"]:
            if task["kind"] == "channel" and task["rows_in"]:
                found.setdefault(task["name"], []).append(task["busy_seconds"] / task["rows_in"] * 1e6)
    run.query.stop()
    return {name: statistics.median(values) for name, values in found.items()}
