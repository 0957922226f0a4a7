"""What an epoch writes for a key whose list grows by one item, as the list gets longer.

The product's runner, tables, segments and merges, in this process; one key, one channel. Beside it is the size of the
list as the codec has it: what an epoch would write if values were written whole.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from typing import Any

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.state.codec import encode
from anabranch.testing import ParallelRun

SIZES = (1_000, 10_000, 100_000)


class Listing(ab.Operator):
    """Remembers all it saw."""

    seen: list = ab.state(factory=list)

    def process(self, t):  # type: ignore[no-untyped-def]
        self.seen.append(f"item {t.x}")
        return (t.k, len(self.seen))


def written(items: int, epochs: int) -> tuple[list[int], int]:
    """The bytes of segments that each epoch wrote, merges included, to a list of so many items; and its own bytes."""
    rows = [[(1, n) for n in range(items)], *([(1, items + n)] for n in range(epochs))]
    stream = from_epochs(rows, "k long, x long").process(Listing(), by="k", schema="k long, n long")
    with tempfile.TemporaryDirectory(prefix="anabranch-growth-") as place:
        run = ParallelRun(stream, place, channels=1)
        run.run_epochs()
        assert run.output[-1].n == items + epochs
    return [each.state_bytes for each in run.progress[1:]], len(encode([f"item {n}" for n in range(items)]))


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="64 epochs instead of 256")
    parser.add_argument("--mini", action="store_true", help="8 epochs and short lists: that it runs")
    options = parser.parse_args(arguments)
    epochs = 8 if options.mini else 64 if options.quick else 256
    figures: dict[str, Any] = {}
    for items in SIZES[:2] if options.mini else SIZES:
        found, whole = written(items, epochs)
        mean = statistics.fmean(found)
        print(
            f"{items:>7,} items, {whole:>9,} bytes: an epoch writes {mean:,.0f} bytes in the mean, "
            f"{max(found):,} at most, {statistics.median(found):,.0f} in the median"
        )
        figures[f"bytes_per_epoch_{items}"] = round(mean)
        figures[f"share_of_whole_{items}"] = round(mean / whole, 4)
    return figures
