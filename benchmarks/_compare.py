"""Did a refactoring cost anything? The library of another commit and of this one, in turn, in processor seconds.

    python -m benchmarks compare CHECKOUT NAME [--rounds 5] [--mini]

CHECKOUT is a directory with another commit (``git worktree add … COMMIT``); NAME is a workload of `_workloads`, or
``all``. Both sides run this commit's workloads, which use the public API only, each run in processes of its own: what
differs is `anabranch`. The sides take turns, and which is first changes with every round, so that a machine that slows
down slows both. Wall time says nothing on a machine that others use; processor time is that of the whole process tree.

Printed are medians with the least and the most of each side, and the median of the ratios of the rounds. A part is
*worse* if its median ratio is more than 5 % over 1 and the spreads of the two sides do not overlap so far that either
median lies within the other's range.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks import _machine

HERE = Path(__file__).resolve().parents[1]
TOLERANCE = 0.05
NAMES = ("stateful", "ordering", "state", "compiler")


@dataclass(frozen=True)
class Comparison:
    """One part of a workload on both sides, round by round."""

    base_s: list[float]
    here_s: list[float]

    @property
    def ratio(self) -> float:
        return statistics.median(here / base for here, base in zip(self.here_s, self.base_s, strict=True))

    @property
    def verdict(self) -> str:
        if self.ratio <= 1 + TOLERANCE:
            return "holds"
        base, here = statistics.median(self.base_s), statistics.median(self.here_s)
        if min(self.here_s) <= base or here <= max(self.base_s):
            return "within the spread"
        return "worse"

    def line(self) -> str:
        def shown(side: list[float]) -> str:
            return f"{statistics.median(side):8.2f} s ({min(side):.2f} … {max(side):.2f})"

        return f"{shown(self.base_s)}  {shown(self.here_s)}   × {self.ratio:.3f}  {self.verdict}"


def run(checkout: Path, name: str, mini: bool) -> dict[str, float]:
    """The processor seconds of the parts of a workload on the library of a checkout."""
    command = [sys.executable, "-m", "benchmarks._workloads", name, *(["--mini"] if mini else [])]
    # The workloads are this commit's, the library is the checkout's; editable installations come behind PYTHONPATH.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout / "src"), str(HERE)])}
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{name} on {checkout} failed:\n{done.stderr[-3000:]}")
    parts: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return parts


def compare(base: Path, name: str, rounds: int, mini: bool) -> dict[str, Comparison]:
    checkouts = {"base": base, "here": HERE}
    found: dict[str, list[dict[str, float]]] = {side: [] for side in checkouts}
    for number in range(rounds):
        for side in ("base", "here") if number % 2 == 0 else ("here", "base"):
            found[side].append(run(checkouts[side], name, mini))
        whole = ", ".join(f"{side} {each[-1]['whole']:.1f} s" for side, each in found.items())
        print(f"  {name}, round {number + 1} of {rounds}: {whole}", flush=True)
    return {
        part: Comparison([each[part] for each in found["base"]], [each[part] for each in found["here"]])
        for part in found["here"][0]
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks compare", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("checkout", type=Path, help="a directory with another commit of this repository")
    parser.add_argument("name", choices=[*NAMES, "all"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mini", action="store_true", help="hardly any rows, to see that it runs")
    given = parser.parse_args(arguments)
    base = given.checkout.resolve()
    if not (base / "src" / "anabranch").is_dir():
        parser.error(f"{base} is no checkout: it has no src/anabranch")
    begun, line = _machine.beginning()
    print(line, flush=True)
    if base == HERE:
        print("both sides are this checkout: the ratios are the noise of the machine")
    figures: dict[str, dict[str, object]] = {}
    for name in NAMES if given.name == "all" else [given.name]:
        comparisons = compare(base, name, given.rounds, given.mini)
        print(f"{name:26} {'base':>9}  {'':20} {'here':>9}  {'':20} median of {given.rounds} ratios")
        for part, each in comparisons.items():
            print(f"  {part:20} {each.line()}", flush=True)
        figures[name] = {
            part: {"ratio": round(each.ratio, 3), "verdict": each.verdict} for part, each in comparisons.items()
        }
    print(_machine.ending(begun))
    print("figure: " + json.dumps(figures))
    return 0
