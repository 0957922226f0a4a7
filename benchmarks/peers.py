"""The same workloads on other systems, each in an environment that is made for it and thrown away.

    python -m benchmarks peers [--quick | --mini] [--only SYSTEM,…] [--workloads q1,…] [--page FILE]

*Workloads*: Nexmark's query 1 (a value is computed for each bid) and query 2 (some bids are kept), over nested events
in Parquet files, and ``stateful``: the volume-weighted mean price of each key so far, for each trade (as in
`benchmarks stateful`). *Systems*: one thread of plain Python; Anabranch; Spark's own operators; transformWithState with
rows and with pandas, applyInPandasWithState; bytewax, pathway, PyFlink. Two workers each, and state that is durable.

Each program runs over the first group of files alone and over all of them; what is told is the difference, so that
starting and compiling count for nobody: rows of the input per processor second (of all processes of a program) and
per second of the clock. What a system wrote is compared with what one thread wrote: rows, the sums of their first and
last columns, and for the stateful workload the last value of each key. With ``--page`` the results become a page.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import math
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks._peer_environments import CannotRunError, Environment, Spent, watched
from benchmarks._vwap_input import FILES_PER_EPOCH, make_epochs, write_epochs
from benchmarks.nexmark import Size, write_files

SCRIPTS = Path(__file__).parent / "_peer_scripts"
WORKERS = 2
NEXMARK = ("q1", "q2")
WORKLOADS = (*NEXMARK, "stateful")


@dataclasses.dataclass(frozen=True)
class Peer:
    """A system, and what of it is not like for like."""

    name: str
    title: str
    script: str
    workloads: tuple[str, ...]
    environment: Environment = dataclasses.field(default_factory=Environment)
    ordered: str = "no"
    durable: str = "yes"
    unlike: str = ""
    is_slow: bool = False
    updates: bool = False
    """It tells the value of a key when it changes, not for each row."""

    @property
    def arguments(self) -> list[str]:
        return [self.name] if self.script == "spark_program.py" else []


SPARK = "spark_program.py"
PEERS = (
    Peer("one_thread", "plain Python, one thread", SPARK, WORKLOADS, ordered="yes", durable="no"),
    Peer("anabranch", "Anabranch", SPARK, WORKLOADS, ordered="yes"),
    Peer("native", "Spark's own operators", SPARK, WORKLOADS, unlike="stateful: a row per key and epoch", updates=True),
    Peer(
        "transform_with_state", "transformWithState (Row)", SPARK, ("stateful",), ordered="within a key", is_slow=True
    ),
    Peer(
        "transform_with_state_pandas",
        "transformWithStateInPandas",
        SPARK,
        ("stateful",),
        ordered="within a key",
        is_slow=True,
    ),
    Peer("apply_in_pandas", "applyInPandasWithState", SPARK, ("stateful",), ordered="within a key", is_slow=True),
    Peer(
        "bytewax",
        "bytewax",
        "bytewax_program.py",
        WORKLOADS,
        Environment(("bytewax", "pyarrow")),
        ordered="within a key",
        unlike="one reader for `stateful`, or order within a key is lost; output is CSV, not replaced after a crash",
    ),
    Peer(
        "pathway",
        "pathway",
        "pathway_program.py",
        WORKLOADS,
        Environment(("pathway", "pyarrow")),
        unlike="rows are handed over by one Python connector; q1 computes floats; stateful: a row per key and batch",
        updates=True,
    ),
    Peer(
        "flink",
        "PyFlink",
        "flink_program.py",
        WORKLOADS,
        Environment(("apache-flink",)),
        ordered="within a key and split",
        unlike="reads JSON lines of the needed columns, writes CSV; q1 and q2 are SQL in the JVM",
    ),
)


@dataclasses.dataclass(frozen=True)
class Sizes:
    events: int
    trades: int
    keys: int
    groups: int
    rounds: int
    slow_groups: int


@dataclasses.dataclass
class Found:
    """What was measured of a system on a workload."""

    rows: int
    spent: list[Spent] = dataclasses.field(default_factory=list)
    problem: str = ""

    @property
    def per_processor_s(self) -> float | None:
        return _rate(self.rows, [each.processor_s for each in self.spent])

    @property
    def per_s(self) -> float | None:
        return _rate(self.rows, [each.seconds for each in self.spent])


def _rate(rows: int, seconds: list[float]) -> float | None:
    middle = statistics.median(seconds) if seconds else 0.0
    return rows / middle if middle > 0 else None


# -- input --------------------------------------------------------------------------------------------------------


def write_input(place: Path, sizes: Sizes) -> None:
    """Parquet for all, and lines of JSON for those who read no Parquet."""
    size = Size(NEXMARK, sizes.events, sizes.groups, FILES_PER_EPOCH, 1, False)
    write_files(place / "events", size)
    write_epochs(make_epochs([sizes.trades // sizes.groups] * sizes.groups, sizes.keys), place / "trades")
    for workload, columns in (
        ("q1", ("auction", "bidder", "price", "dateTime", "extra")),
        ("q2", ("auction", "price")),
    ):
        for path in sorted((place / "events").glob("*.parquet")):
            bids = pq.ParquetFile(path).read([f"bid.{name}" for name in columns]).column("bid").combine_chunks()
            _write_lines(bids.filter(bids.is_valid()).to_pylist(), place / f"{workload}-lines" / f"{path.stem}.json")
    for path in sorted((place / "trades").glob("*.parquet")):
        _write_lines(pq.read_table(path).to_pylist(), place / "stateful-lines" / f"{path.stem}.json")


def _write_lines(rows: list[dict[str, Any]], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))


def input_of(peer: Peer, workload: str, groups: int, place: Path, scratch: Path) -> Path:
    """A directory with the first groups of files: links, not copies."""
    source = place / ("events" if workload in NEXMARK else "trades")
    if peer.name == "flink":
        source = place / f"{workload}-lines"
    chosen = scratch / "input"
    chosen.mkdir(parents=True)
    for path in sorted(source.iterdir())[: groups * FILES_PER_EPOCH]:
        os.link(path, chosen / path.name)
    return chosen


def rows_of(workload: str, place: Path, first: int, last: int) -> int:
    """How many rows groups of files have: events, or trades."""
    source = place / ("events" if workload in NEXMARK else "trades")
    paths = sorted(source.iterdir())[first * FILES_PER_EPOCH : last * FILES_PER_EPOCH]
    return sum(pq.read_metadata(path).num_rows for path in paths)


# -- what came out ------------------------------------------------------------------------------------------------


def read_output(output: Path) -> pa.Table:
    """All rows that a system wrote, in the order of its files: the first column and the last value."""
    names = sorted(path for path in output.rglob("*") if path.is_file() and not path.name.startswith((".", "_")))
    tables = []
    for path in names:
        if "_spark_metadata" in path.parts or path.stat().st_size == 0:
            continue
        if path.suffix == ".parquet":
            table = pq.ParquetFile(path).read()
        else:
            headed = path.read_text().partition("\n")[0].startswith(("auction,", "key,", '"'))
            options = pyarrow.csv.ReadOptions(autogenerate_column_names=not headed)
            table = pyarrow.csv.read_csv(path, read_options=options)
            if "diff" in table.column_names:  # changes: what is taken back is no row
                table = table.filter(pc.equal(table["diff"], 1)).drop_columns(["diff", "time"])
        tables.append(pa.table({"first": table.column(0).cast(pa.int64()), "last": _number(table.column(-1))}))
    return pa.concat_tables(tables) if tables else pa.table({"first": pa.array([], pa.int64())})


def _number(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.float64())


def problem_of(peer: Peer, workload: str, found: pa.Table, wanted: pa.Table) -> str:
    """What is wrong with what a system wrote; empty: nothing."""
    if workload == "stateful":
        mine, truth = _last_values(found), _last_values(wanted)
        if mine.keys() != truth.keys():
            return f"{len(mine)} keys instead of {len(truth)}"
        worst = max(abs(mine[key] - value) / abs(value) for key, value in truth.items())
        if worst > 1e-9:
            return f"a key's last value is off by {worst:.1e}"
        if peer.updates:
            return ""
    if found.num_rows != wanted.num_rows:
        return f"{found.num_rows} rows instead of {wanted.num_rows}"
    if pc.sum(found["first"]).as_py() != pc.sum(wanted["first"]).as_py():
        return "other rows than one thread gives"
    sums = [pc.sum(each["last"]).as_py() for each in (found, wanted)]
    return "" if math.isclose(*sums, rel_tol=1e-9) else f"values add up to {sums[0]}, not {sums[1]}"


def _last_values(table: pa.Table) -> dict[int, float]:
    return dict(zip(table["first"].to_pylist(), table["last"].to_pylist(), strict=True))


# -- runs ---------------------------------------------------------------------------------------------------------


def run_once(peer: Peer, python: str, workload: str, groups: int, place: Path, scratch: Path, limit_s: float) -> Spent:
    chosen = input_of(peer, workload, groups, place, scratch)
    paths = [str(chosen), str(scratch / "output"), str(scratch / "state")]
    command = [python, str(SCRIPTS / peer.script), *peer.arguments, workload, *paths, str(WORKERS)]
    source = str(Path(__file__).resolve().parents[1] / "src")
    return watched(command, {} if peer.environment.packages else {"PYTHONPATH": source}, scratch / "log", limit_s)


def measure(peer: Peer, python: str, workload: str, sizes: Sizes, place: Path, scratch: Path, limit_s: float) -> Found:
    """Runs over the first group and over all of them, in turn."""
    groups = min(sizes.groups, sizes.slow_groups) if peer.is_slow else sizes.groups
    found = Found(rows_of(workload, place, 1, groups))
    for number in range(sizes.rounds):
        whole = scratch / f"{number}-whole"
        (scratch / f"{number}-first").mkdir(parents=True)
        whole.mkdir()
        first = run_once(peer, python, workload, 1, place, scratch / f"{number}-first", limit_s)
        found.spent.append(run_once(peer, python, workload, groups, place, whole, limit_s).less(first))
    if peer.name != "one_thread":
        wanted = _wanted(workload, groups, place, scratch)
        found.problem = problem_of(peer, workload, read_output(whole / "output"), wanted)
    return found


def _wanted(workload: str, groups: int, place: Path, scratch: Path) -> pa.Table:
    """What one thread writes for the first groups."""
    held = place / f"wanted-{workload}-{groups}"
    if not held.exists():
        (scratch / "wanted").mkdir()
        run_once(PEERS[0], sys.executable, workload, groups, place, scratch / "wanted", 600)
        shutil.move(str(scratch / "wanted" / "output"), held)
    return read_output(held)


def measured(chosen: list[Peer], workloads: list[str], sizes: Sizes, scratch: Path, limit_s: float) -> dict[str, Any]:
    """What was found, by system and workload; a system that cannot be run has the reason instead."""
    results: dict[str, Any] = {}
    for peer in chosen:
        try:
            python = peer.environment.python(scratch / "environments" / peer.name, limit_s)
        except CannotRunError as why:
            print(f"  {peer.title}: passed over: {why}", flush=True)
            results[peer.name] = str(why)
            continue
        mine: dict[str, Any] = {"versions": peer.environment.versions(python)}
        for workload in (each for each in workloads if each in peer.workloads):
            place = scratch / f"{peer.name}-{workload}"
            try:
                found = measure(peer, python, workload, sizes, scratch / "source", place, limit_s)
                mine[workload] = found
                print(f"  {peer.title}, {workload}: {_line(found)}", flush=True)
            except CannotRunError as why:
                mine[workload] = str(why)
                print(f"  {peer.title}, {workload}: passed over: {why}", flush=True)
            shutil.rmtree(place, ignore_errors=True)
        results[peer.name] = mine
    return results


def _line(found: Found) -> str:
    rates = [
        f"{rate:,.0f} rows per {what}" if rate is not None else f"too little to be measured per {what}"
        for rate, what in ((found.per_processor_s, "processor second"), (found.per_s, "second"))
    ]
    return ", ".join(rates) + (f"; WRONG: {found.problem}" if found.problem else "")


# -- the page -----------------------------------------------------------------------------------------------------


def page(results: dict[str, Any], workloads: list[str], sizes: Sizes) -> str:
    """The results as a page of the docs."""
    import pyspark

    cores, day = len(os.sched_getaffinity(0)), datetime.datetime.now(datetime.UTC).date()
    lines = [
        "# Beside other systems",
        "",
        "Written by `python -m benchmarks peers --page FILE`: the command makes an environment for each system that is",
        "not in ours, and says what it cannot install. Rows of the input per second, of the processors that all",
        "processes of a program used and of the clock; what a program takes for the first group of files (starting,",
        "compiling) is left out for all.",
        "",
        f"{day}; {cores} cores ({platform.machine()}), Linux, Python {platform.python_version()}, PySpark "
        f"{pyspark.__version__}; {sizes.events:,} events, {sizes.trades:,} trades of {sizes.keys:,} keys, "
        f"{sizes.groups} groups of files, median of {sizes.rounds}; load average at the end {os.getloadavg()[0]:.1f}.",
        "",
        "| system | "
        + " | ".join(f"{each}: rows per processor s, per s" for each in workloads)
        + " | order | durable |",
        "|---|" + "---|" * (len(workloads) + 2),
    ]
    for peer in PEERS:
        if peer.name in results:
            mine = results[peer.name]
            cells = [_cell(mine if isinstance(mine, str) else mine.get(each)) for each in workloads]
            lines.append(f"| {peer.title} | {' | '.join(cells)} | {peer.ordered} | {peer.durable} |")
    lines += ["", "What is not like for like:", ""]
    lines += [f"- {peer.title}: {peer.unlike}." for peer in PEERS if peer.unlike and peer.name in results]
    lines += ["", "Versions: " + "; ".join(_versions(results)) + "."]
    problems = list(_problems(results))
    if problems:
        lines += ["", "Passed over:", "", *(f"- {each}" for each in problems)]
    return "\n".join(lines) + "\n"


def _cell(found: Any) -> str:
    if found is None or isinstance(found, str):
        return "–"
    rates = [f"{rate:,.0f}" if rate is not None else "?" for rate in (found.per_processor_s, found.per_s)]
    return ", ".join(rates) + (f" (wrong: {found.problem})" if found.problem else "")


def _versions(results: dict[str, Any]) -> Iterator[str]:
    for mine in results.values():
        if not isinstance(mine, str) and mine["versions"]:
            yield mine["versions"]


def _problems(results: dict[str, Any]) -> Iterator[str]:
    titles = {peer.name: peer.title for peer in PEERS}
    for name, mine in results.items():
        if isinstance(mine, str):
            yield f"{titles[name]}: {mine}"
        else:
            yield from (
                f"{titles[name]}, {each}: {why}"
                for each, why in mine.items()
                if each in WORKLOADS and isinstance(why, str)
            )


def ratio(results: dict[str, Any], other: str, workload: str, what: Callable[[Found], float | None]) -> float | None:
    """Ours over another's."""
    pair = [results.get(name) for name in ("anabranch", other)]
    found = [each.get(workload) if isinstance(each, dict) else None for each in pair]
    ours, theirs = (what(each) if isinstance(each, Found) else None for each in found)
    return None if ours is None or theirs is None else round(ours / theirs, 3)


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows, one round")
    parser.add_argument("--mini", action="store_true", help="one system, hardly any rows, nothing is installed")
    parser.add_argument("--only", help="systems, with commas between: " + ", ".join(peer.name for peer in PEERS))
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--limit", type=float, default=900.0, help="seconds that an installation or a run may take")
    parser.add_argument("--page", type=Path, help="where the results are written as a page")
    options = parser.parse_args(arguments)
    sizes = Sizes(600_000, 2_000_000, 100_000, 5, 3, 2)
    if options.quick:
        sizes = Sizes(200_000, 400_000, 20_000, 4, 1, 2)
    elif options.mini:
        sizes = Sizes(400, 400, 20, 2, 1, 2)
    names = options.only.split(",") if options.only else [peer.name for peer in PEERS]
    workloads = options.workloads.split(",")
    unknown = [*({*names} - {peer.name for peer in PEERS}), *({*workloads} - {*WORKLOADS})]
    if unknown:
        raise SystemExit(f"there is no {', '.join(sorted(unknown))}")
    chosen = [peer for peer in PEERS if peer.name in names]
    if options.mini:
        chosen, workloads = [peer for peer in chosen if peer.name == "one_thread"], ["q2"]
    with tempfile.TemporaryDirectory(prefix="anabranch-peers-", ignore_cleanup_errors=True) as held:
        scratch = Path(held)
        (scratch / "source").mkdir()
        write_input(scratch / "source", sizes)
        results = measured(chosen, workloads, sizes, scratch, options.limit)
    if options.page is not None:
        options.page.write_text(page(results, workloads, sizes))
    return {
        "systems": sum(not isinstance(each, str) for each in results.values()),
        "passed_over": sorted(name for name, each in results.items() if isinstance(each, str)),
        "vs": {
            f"{peer.name} {workload}": [
                ratio(results, peer.name, workload, lambda found: found.per_processor_s),
                ratio(results, peer.name, workload, lambda found: found.per_s),
            ]
            for peer in chosen
            for workload in peer.workloads
            if peer.name != "anabranch" and workload in workloads
        },
    }
