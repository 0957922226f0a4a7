"""What happens if a file that a restart reads is damaged: every kind of file × every kind of damage.

A query (`_query_in_process`) is stopped in the middle, in three ways: between two epochs, after an epoch's output and
before its manifest, after its manifest and before Spark heard of it. Then one file is damaged, and the query is
started again, in a process of its own, because damage may kill it. It must deliver and hold at the end what one thread
does (recovered), or stop with an error that names what is damaged and says what to do (stopped); and when that file is
put back, go on as if nothing had been. Anything else is counted as silent, crashed or raw.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch import faults
from anabranch.api.session import from_epochs
from anabranch.errors import CheckpointError, SinkError
from anabranch.state.host_cache import CacheSettings
from benchmarks import _query_in_process
from benchmarks._query_in_process import COLUMNS, LocalQuery, Total, expected, expected_state, rows_of

STOPS = ("between epochs", "sink written", "manifest written")
EPOCHS, ROWS, STOPPED_AFTER, OLDER_AFTER = 9, 10, 6, 3
PATIENCE_S = 120
TOLD_EVERY = 25
OURS = "checkpoint/anabranch"
PRICES = {key: key / 4 for key in range(5)}


def table(epochs: list[list[Any]]) -> list[ab.Stream]:
    """A table that is read again with every epoch, beside an operator with state."""
    stream = from_epochs(epochs, COLUMNS, name="rows")
    prices = ab.table(lambda: PRICES, schema="k long, price double", refresh=0)
    priced = stream.enrich(prices, by="k").map(lambda t: (t.k, t.s, t.x + (t.price or 0.0)), schema=COLUMNS)
    return [priced.process(Total(), by="k", schema=COLUMNS, name="total")]


# `hosted` is `keyed` with segments that only the driver reaches: hosts keep copies of them, in slices.
PROGRAMS = {**_query_in_process.PROGRAMS, "table": table, "hosted": _query_in_process.keyed}


def driver(program: str, place: Path, seed: int = 5, *, chance: int = 0, **how: Any) -> LocalQuery:
    """A driver of a program; `seed` makes its input, `chance` how it runs."""
    how |= {"seed": chance}
    if program == "hosted":
        how |= {"shared": False, "cache": CacheSettings(str(place / "cache")), "cut_bytes": 0}
    return LocalQuery(PROGRAMS[program](rows_of(seed, EPOCHS, ROWS)), place, **how)


WAYS_OUT = ("Restore", "restore", "start the query again", "Choose another", "another checkpointLocation")

# Kind → where such files are, and which of them, by their names.
KINDS: dict[str, tuple[str, str, int]] = {
    "program": (OURS, "program.json", -1),
    "owner": (f"{OURS}/owners", "*.json", -1),
    "manifest": (f"{OURS}/epochs", "*.json", -1),
    "manifest before": (f"{OURS}/epochs", "*.json", -2),
    "begun": (f"{OURS}/epochs", "*.begun", -1),
    "feedback": (f"{OURS}/feedback", "*.arrow", -1),
    "segment": (f"{OURS}/state/total", "*.segment", -1),
    "older segment": (f"{OURS}/state/total", "*.segment", 0),
    "rescaling": (OURS, "rescale.json", -1),
    "table": (f"{OURS}/tables/*", "*.arrow", -1),
    "copy on a host": ("cache/*/total", "*.segment*", -1),
    "output mark": ("out-0", "_anabranch.json", -1),
    "rows": (f"{OURS}/sources/*", "*.parquet", -1),
    "older rows": (f"{OURS}/sources/*", "*.parquet", 0),
    "rows index": (f"{OURS}/sources/*", "_rows.json", -1),
    "Spark's offsets": ("checkpoint/offsets", "*", -1),
    "Spark's sources": ("checkpoint/sources/0", "*", -1),
    "Spark's commits": ("checkpoint/commits", "*", -1),
}
# Directories, of which a restore may have brought another version than of the rest.
DIRECTORIES = {
    "all manifests": [f"{OURS}/epochs"],
    "all state": [f"{OURS}/state"],
    "all feedback": [f"{OURS}/feedback"],
    "all owners": [f"{OURS}/owners"],
    "all of ours": [OURS],
    "all tables": [f"{OURS}/tables"],
    "all copies on a host": ["cache"],
    "all rows": [f"{OURS}/sources"],
    "Spark's log": ["checkpoint/offsets", "checkpoint/commits", "checkpoint/sources"],
    "Spark's offsets and commits": ["checkpoint/offsets", "checkpoint/commits"],
    "all of the checkpoint": ["checkpoint"],
}
# What Spark itself checks: here it only matters whether it is there.
UNREAD = {"Spark's commits", "Spark's sources"}


class Died(BaseException):
    """A driver dies here."""


@dataclasses.dataclass(frozen=True)
class Damage:
    """One damage: to what, how, and the function that does it."""

    kind: str
    how: str
    paths: tuple[str, ...]
    do: Callable[[Path], None]


@dataclasses.dataclass
class Copies:
    """The query as it was stopped, as it was earlier, and another query of the same program."""

    whole: Path
    older: Path
    other: Path


def prepared(program: str, stop: str, work: Path) -> Copies:
    """Run a query to where it stops."""
    place = work / "place"
    copies = Copies(work / "whole", work / "older", work / "other")
    driver(program, place, 8).batches(STOPPED_AFTER)
    place.rename(copies.other)
    driver(program, place).batches(OLDER_AFTER)
    shutil.copytree(place, copies.older)
    query = driver(program, place)
    query.batches(STOPPED_AFTER)
    if stop == "between epochs":
        query.run.runner.rescale("total", 3)
    else:

        def die(point: str, facts: dict[str, Any]) -> None:
            if point == stop:
                raise Died

        faults.install(die)
        try:
            query.batches(STOPPED_AFTER + 1)
        except Died:
            pass
        finally:
            faults.install(None)
    shutil.copytree(place, copies.whole)
    return copies


# -- damages -------------------------------------------------------------------------------------------------------


def damages(copies: Copies, flips: int, seed: int) -> Iterator[Damage]:
    """Every damage of every file and directory that there is."""
    chance = random.Random(seed)
    for kind in KINDS:
        path = found(copies.whole, kind)
        if path is None:
            continue
        relative = str(path.relative_to(copies.whole))
        data = path.read_bytes()
        for how, other in (
            ("another query's", found(copies.other, kind)),
            ("older version", found(copies.older, kind)),
        ):
            if other is not None and other.read_bytes() != data and kind not in UNREAD:
                yield Damage(kind, how, (relative,), put(relative, other.read_bytes()))
        yield Damage(kind, "deleted", (relative,), deleted(relative))
        if kind in UNREAD:
            continue
        yield Damage(kind, "directory in its place", (relative,), directory(relative))
        yield Damage(kind, "empty", (relative,), put(relative, b""))
        for _ in range(flips):
            flipped = bytearray(data)
            flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            yield Damage(kind, "bit flip", (relative,), put(relative, bytes(flipped)))
        for _ in range(max(1, flips // 2)):
            yield Damage(kind, "truncation", (relative,), put(relative, data[: chance.randrange(1, len(data))]))
    for kind, names in DIRECTORIES.items():
        present = tuple(name for name in names if (copies.whole / name).exists())
        if present:
            yield Damage(kind, "deleted", present, replaced(present, None))
            yield Damage(kind, "older version", present, replaced(present, copies.older))
            yield Damage(kind, "another query's", present, replaced(present, copies.other))


def found(copy: Path, kind: str) -> Path | None:
    """The file of a kind."""
    place, pattern, which = KINDS[kind]
    there = sorted(path for path in copy.glob(f"{place}/{pattern}") if path.is_file())
    if pattern == "*":
        there.sort(key=lambda path: int(path.name))
    return there[which] if len(there) >= abs(which) and there else None


def put(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda place: (place / name).write_bytes(data) and None


def deleted(name: str) -> Callable[[Path], None]:
    return lambda place: (place / name).unlink()


def directory(name: str) -> Callable[[Path], None]:
    def do(place: Path) -> None:
        (place / name).unlink()
        (place / name).mkdir()
        (place / name / "something").write_bytes(b"else")

    return do


def replaced(names: tuple[str, ...], copy: Path | None) -> Callable[[Path], None]:
    def do(place: Path) -> None:
        for name in names:
            shutil.rmtree(place / name)
            if copy is not None and (copy / name).exists():
                shutil.copytree(copy / name, place / name)

    return do


# -- one damage ----------------------------------------------------------------------------------------------------


def outcome(program: str, place: Path, copies: Copies, damage: Damage) -> tuple[str, str]:
    """What becomes of a query with a damage, in a process that may die of it."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(copies.whole, place)
    damage.do(place)
    answer = place.parent / "answer"
    answer.unlink(missing_ok=True)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            answer.write_text(json.dumps(tried(program, place, copies, damage)))
        except BaseException as problem:
            answer.write_text(json.dumps(["raw", f"{type(problem).__name__}: {problem}"]))
        os._exit(0)
    until = time.monotonic() + PATIENCE_S
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    if status or not answer.exists():
        return "crashed", f"status {status}"
    kind, text = json.loads(answer.read_text())
    return kind, text


def tried(program: str, place: Path, copies: Copies, damage: Damage) -> tuple[str, str]:
    """Start the query on what is there."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - warnings of a process that ends at once
    streams = PROGRAMS[program](rows_of(5, EPOCHS, ROWS))
    went_on = False
    try:
        query = driver(program, place, channels=3, chance=1)
        query.batches()
        went_on = True
        query.state()  # a segment of which a host has a copy is read here first
    except (CheckpointError, SinkError) as problem:
        text = str(problem)
        names = {Path(name).name for name in damage.paths} | {"checkpoint", "Spark"}
        if not any(name in text for name in names) or not any(way in text for way in WAYS_OUT):
            return "raw", f"says too little: {text}"
        for name in damage.paths:
            whole, here = copies.whole / name, place / name
            if not (went_on and whole.is_dir()):  # else it holds what was made since
                shutil.rmtree(here) if here.is_dir() else here.unlink(missing_ok=True)
            if whole.is_dir():
                shutil.copytree(whole, here, dirs_exist_ok=True)
            else:
                here.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(whole, here)
        query = driver(program, place, channels=2, chance=2)
        query.batches()
        return judged(query, streams, "stopped", text)
    return judged(query, streams, "recovered", "")


def judged(query: LocalQuery, streams: list[Any], good: str, text: str) -> tuple[str, str]:
    """Compare with one thread."""
    if query.outputs() != expected(streams):
        return "silent", f"other output {text}"
    held = query.state()
    for operator, values in expected_state(streams).items():
        if held[operator] != values:
            return "silent", f"other state of {operator} {text}"
    return good, text


def scenario(arguments: tuple[str, str, int, int, int]) -> list[tuple[str, str, str, str, str, str]]:
    """All damages, or every nth, of a program that was stopped in one way."""
    program, stop, flips, seed, every = arguments
    results = []
    with tempfile.TemporaryDirectory(prefix="anabranch-damage-", ignore_cleanup_errors=True) as scratch:
        work = Path(scratch)
        copies = prepared(program, stop, work)
        wanted = list(damages(copies, flips, seed))[::every]
        for number, damage in enumerate(wanted, 1):
            kind, text = outcome(program, work / "place", copies, damage)
            results.append((program, stop, damage.kind, damage.how, kind, text))
            if not number % TOLD_EVERY or number == len(wanted):
                print(f"{program}, {stop}: {number} of {len(wanted)} damages", flush=True)
    return results


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks damage", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one way to stop for each program, fewer bits flipped")
    parser.add_argument("--mini", action="store_true", help="a few damages of one program: that it runs")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    flips = 1 if options.quick or options.mini else 5
    cases = [(program, stop) for program in PROGRAMS for stop in STOPS]
    if options.quick:
        cases = [(program, STOPS[at % len(STOPS)]) for at, program in enumerate(PROGRAMS)]
    if options.mini:
        cases = [("loop", "sink written")]
    every = 9 if options.mini else 1
    work = [(program, stop, flips, options.seed + at, every) for at, (program, stop) in enumerate(cases)]
    results: list[tuple[str, str, str, str, str, str]] = []
    with multiprocessing.get_context("fork").Pool(min(2, os.cpu_count() or 1)) as pool:
        for found_here in pool.imap_unordered(scenario, work):
            results += found_here
    for program, stop, kind, how, became, text in results:
        if became in ("silent", "crashed", "raw"):
            print(f"{became}: {kind}, {how} ({program}, {stop}): {text[:300]}")
    table: dict[str, Counter[str]] = {}
    for _, _, kind, _, became, _ in results:
        table.setdefault(kind, Counter())[became] += 1
    print(f"{'':30}{'recovered':>10}{'stopped':>10}{'silent':>10}{'crashed':>10}{'raw':>10}")
    for kind, counted in table.items():
        columns = "".join(f"{counted[name]:>10}" for name in ("recovered", "stopped", "silent", "crashed", "raw"))
        print(f"{kind:30}{columns}")
    total = Counter(became for *_, became, _ in results)
    return {
        "damages": len(results),
        "silent": total["silent"],
        "crashed": total["crashed"],
        "raw_errors": total["raw"],
        "recovered": total["recovered"],
        "stopped": total["stopped"],
    }
