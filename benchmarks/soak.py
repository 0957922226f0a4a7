"""A long life: whether anything grows with the age of a query, that should not.

    5,000 epochs of one query on Spark            memory of driver, JVM and workers, files, time of an epoch
    50 restarts of Spark                          time of recovery, files
    5,000 epochs of one driver, in this process   memory, files, time of an epoch
    1,000 restarts of the runner, most cut off    time of recovery, files
    3,000,000 keys                                time of an epoch that touches few, of recovery

Each is looked at some 25 times; the last fifth of the looks is compared with the second (the first warms up), by
medians. Output and state are compared with one thread's. `--report DIRECTORY` keeps all looks: soak.md, soak.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import _machine
from benchmarks._soak_in_process import drivers_of_one_query, epochs_of_one_driver, many_keys
from benchmarks._soak_measuring import Sample, growth
from benchmarks._soak_spark import epochs_of_one_query, restarts_of_spark

MEMORY_MAX, TIME_MAX = 0.05, 0.10


@dataclasses.dataclass(frozen=True)
class Size:
    """How much is run."""

    spark_epochs: int
    spark_restarts: int
    epochs: int
    restarts: int
    keys: int
    key_epochs: int


FULL = Size(5_000, 50, 5_000, 1_000, 3_000_000, 250)
QUICK = Size(150, 3, 400, 100, 200_000, 50)
MINI = Size(6, 2, 25, 10, 3_000, 5)


@dataclasses.dataclass(frozen=True)
class Part:
    """One of the runs.

    Attributes
    ----------
    name : str
        What it is called in the report.
    key : str
        What its figures begin with.
    samples : sequence of Sample
    is_right : bool
        Output and state are those of one thread.
    measures : tuple of str
        What must not grow: names of fields of `Sample`.
    """

    name: str
    key: str
    samples: Sequence[Sample]
    is_right: bool
    measures: tuple[str, ...]

    def growths(self) -> dict[str, float]:
        return {measure: growth([getattr(each, measure) for each in self.samples]) for measure in self.measures}


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks soak", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="minutes instead of hours")
    parser.add_argument("--mini", action="store_true", help="that it runs")
    parser.add_argument("--only", choices=[name for name, _ in _PARTS], help="one of the runs")
    parser.add_argument("--report", type=Path, help="a directory for soak.md and soak.json")
    options = parser.parse_args(arguments)
    size = MINI if options.mini else QUICK if options.quick else FULL
    begun, line = _machine.beginning()
    parts: list[Part] = []
    figures: dict[str, Any] = {}
    for name, run in _PARTS:
        if options.only not in (None, name):
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="anabranch-soak-", ignore_cleanup_errors=True) as scratch:
            part = run(size, Path(scratch))
        parts.append(part)
        grown = part.growths()
        figures |= {f"{part.key}_{measure}_growth": value for measure, value in grown.items()}
        figures[f"{part.key}_done"] = part.samples[-1].done
        shown = ", ".join(f"{measure} {value:+.1%}" for measure, value in grown.items())
        took = time.monotonic() - started
        print(f"{part.name}: {shown}; {'right' if part.is_right else 'WRONG'}; {took:.0f} s", flush=True)
        figures["is_right"] = figures.get("is_right", True) and part.is_right
        if options.report is not None:  # after every part: a night may end early
            _write_report(options.report, parts, figures, [line, _machine.ending(begun)])
    return figures


def _spark(size: Size, place: Path) -> Part:
    samples, is_right = epochs_of_one_query(size.spark_epochs, place)
    measures = (
        "driver_mib",
        "jvm_mib",
        "worker_mib",
        "seconds",
        "processor_seconds",
        "files",
        "manifest_bytes",
        "left",
    )
    return Part(f"{size.spark_epochs} epochs on Spark", "spark", samples, is_right, measures)


def _spark_restarts(size: Size, place: Path) -> Part:
    samples, is_right = restarts_of_spark(size.spark_restarts, place)
    measures = ("recovery_seconds", "seconds", "files", "manifest_bytes", "left")
    return Part(f"{size.spark_restarts} restarts of Spark", "spark_restarts", samples, is_right, measures)


def _driver(size: Size, place: Path) -> Part:
    samples, is_right = epochs_of_one_driver(size.epochs, place)
    measures = ("driver_mib", "seconds", "processor_seconds", "files", "manifest_bytes", "left")
    return Part(f"{size.epochs} epochs in process", "driver", samples, is_right, measures)


def _drivers(size: Size, place: Path) -> Part:
    samples, is_right = drivers_of_one_query(size.restarts, place)
    measures = ("driver_mib", "recovery_seconds", "seconds", "processor_seconds", "files", "manifest_bytes", "left")
    return Part(f"{size.restarts} restarts in process", "restarts", samples, is_right, measures)


def _keys(size: Size, place: Path) -> Part:
    samples, is_right = many_keys(size.keys, size.key_epochs, place)
    measures = ("driver_mib", "recovery_seconds", "seconds", "processor_seconds", "files", "manifest_bytes")
    return Part(f"epochs over {size.keys} keys", "keys", samples, is_right, measures)


_PARTS: list[tuple[str, Callable[[Size, Path], Part]]] = [
    ("driver", _driver),
    ("restarts", _drivers),
    ("keys", _keys),
    ("spark_restarts", _spark_restarts),
    ("spark", _spark),
]


def _write_report(directory: Path, parts: Sequence[Part], figures: dict[str, Any], machine: Sequence[str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    body = {"figures": figures, "machine": machine, "parts": [dataclasses.asdict(part) for part in parts]}
    (directory / "soak.json").write_text(json.dumps(body, indent=1) + "\n")
    lines = ["# Soak", "", *(f"- {each}" for each in machine), ""]
    lines += [
        f"Growth: the median of the last fifth against that of the second. Wanted: memory within {MEMORY_MAX:.0%}, "
    ]
    lines += [f"time within {TIME_MAX:.0%}.", ""]
    for part in parts:
        lines += [f"## {part.name}: {'right' if part.is_right else 'WRONG'}", ""]
        lines += [f"- {measure}: {value:+.1%}{_remark(measure, value)}" for measure, value in part.growths().items()]
        shown = [name for name in part.measures if name != "left"]
        lines += ["", f"| done | {' | '.join(shown)} | load |", "|---" * (len(shown) + 2) + "|"]
        for sample in part.samples:
            cells = [f"{getattr(sample, name):.4g}" for name in shown]
            lines.append(f"| {sample.done} | {' | '.join(cells)} | {sample.load:.1f} |")
        lines.append("")
    (directory / "soak.md").write_text("\n".join(lines))


def _remark(measure: str, value: float) -> str:
    bound = MEMORY_MAX if measure.endswith("_mib") else TIME_MAX
    return " (more than wanted)" if value > bound else ""
