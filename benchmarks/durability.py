"""What it costs to survive a power cut: an epoch with its files on the disk, against one with them in its cache.

The product's runner, checkpoint, segments and output, in this process (`_query_in_process`), on the disk of the
temporary directory; small epochs, so that what is measured is the files and not the work. The two are run in turn, and
the time spent flushing is measured by itself: on a machine with other work the difference of the two is mostly that.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from anabranch.state import files
from benchmarks._query_in_process import LocalQuery, keyed, rows_of

EPOCHS, WARM = 14, 3


def epochs_ms(durable: bool, place: Path) -> list[float]:
    """How long each epoch took, without the first ones."""
    query = LocalQuery(keyed(rows_of(3, EPOCHS, 50)), place, durable=durable)
    taken = []
    for number in range(EPOCHS):
        started = time.perf_counter()
        query.batches(number)
        taken.append((time.perf_counter() - started) * 1000)
    return taken[WARM:]


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks durability", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two rounds instead of eight")
    parser.add_argument("--mini", action="store_true", help="one round: that it runs")
    options = parser.parse_args(arguments)
    flushes: list[float] = []
    fsync = os.fsync

    def timed(descriptor: int) -> None:
        started = time.perf_counter()
        fsync(descriptor)
        flushes.append((time.perf_counter() - started) * 1000)

    rounds = 1 if options.mini else 2 if options.quick else 8
    found: dict[bool, list[float]] = {False: [], True: []}
    files.os.fsync = timed  # type: ignore[attr-defined]
    try:
        for number in range(rounds):
            for durable in (False, True) if number % 2 else (True, False):
                with tempfile.TemporaryDirectory(prefix="anabranch-durability-", ignore_cleanup_errors=True) as scratch:
                    found[durable] += epochs_ms(durable, Path(scratch))
    finally:
        files.os.fsync = fsync  # type: ignore[attr-defined]
    process, power = (statistics.median(found[durable]) for durable in (False, True))
    per_epoch = len(flushes) / (rounds * EPOCHS)
    print(f"an epoch takes {process:.1f} ms with durability=process, {power:.1f} ms with power")
    print(f"of which {per_epoch:.1f} flushes with a median of {statistics.median(flushes):.2f} ms")
    return {
        "process_ms": round(process, 1),
        "power_ms": round(power, 1),
        "flushes_per_epoch": round(per_epoch, 1),
        "flush_ms": round(statistics.median(flushes), 2),
        "flushing_ms_per_epoch": round(statistics.median(flushes) * per_epoch, 1),
    }
