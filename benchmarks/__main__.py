"""Runs a benchmark, or all of them, and prints the figures as the very last line: ``figure: {json}``.

``python -m benchmarks compare CHECKOUT NAME`` runs the library of another commit and this one in turn (`_compare`).
"""

import importlib
import json
import pkgutil
import subprocess
import sys
import time
from typing import Any

import benchmarks
from benchmarks import _machine

PREFIX = "figure: "
ONLY_BY_NAME = {"peers", "resources"}
"""What ``all`` leaves out: the first installs other systems, the second starts a cluster of four executors."""


def names() -> list[str]:
    return sorted(
        module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")
    )


def run(name: str, arguments: list[str]) -> dict[str, Any]:
    begun, line = _machine.beginning()
    print(line, flush=True)
    figures = importlib.import_module(f"benchmarks.{name}").main(arguments)
    print(_machine.ending(begun), flush=True)
    if not isinstance(figures, dict):
        raise TypeError(f"benchmarks.{name}.main must return a dict of figures, but returned {figures!r}")
    return figures


def run_all(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """The figures of every benchmark that ran, and the names of those that failed.

    Each has a process of its own: a JVM keeps its settings and its heap, and would carry them from one
    measurement to the next.
    """
    figures: dict[str, Any] = {}
    failed: list[str] = []
    took: dict[str, float] = {}
    for name in (each for each in names() if each not in ONLY_BY_NAME):
        print(f"== {name} ==", flush=True)
        command = [sys.executable, "-m", "benchmarks", name, *arguments]
        last, begun = "", time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                last = line
        if process.returncode == 0 and last.startswith(PREFIX):
            figures[name] = json.loads(last.removeprefix(PREFIX))
        else:
            failed.append(name)
        took[name] = time.monotonic() - begun
    slowest = sorted(took.items(), key=lambda each: -each[1])
    print(f"{sum(took.values()) / 60:.1f} minutes: {', '.join(f'{name} {each:.0f} s' for name, each in slowest)}")
    return figures, failed


def main(arguments: list[str]) -> int:
    name, *rest = arguments or [""]
    if name == "compare":
        return importlib.import_module("benchmarks._compare").main(rest)
    if name not in ("all", *names()):
        found = f"no benchmark is named {name!r}" if name else "no benchmark was named"
        print("usage: python -m benchmarks NAME [--quick | --mini] …", file=sys.stderr)
        print("       python -m benchmarks compare CHECKOUT NAME [--rounds N]", file=sys.stderr)
        print(f"{found}; NAME is one of: {', '.join(['all', *names()])}", file=sys.stderr)
        return 2
    failed: list[str] = []
    if name == "all":
        figures, failed = run_all(rest)
    else:
        figures = run(name, rest)
    # Before the figures, which are last whatever happens.
    if failed:
        print(f"failed: {', '.join(failed)}", flush=True)
    print(PREFIX + json.dumps(figures, allow_nan=False), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
