"""What it costs to run keys again: the program of `stateful` with the option `verify`, and without.

    python -m benchmarks verify [--quick | --mini] [--chance 0.01]

The same query over the same files in one Spark session, after one to warm up, in turn with `verify` and without; which
is first changes with every round. What is compared is the processor time of the whole process tree: of the driver,
which runs the sample again, of the JVM, and of the workers, which take it down. There are 21 epochs, of which keys of
two are taken at a chance of 0.01: about as many as in a query without end.

The JVM only carries the sample, and its own time differs by some percent between two runs of one query (compilation,
garbage), which is more than all that `verify` does. So there is a second figure, `cost_python`: what driver and workers
needed more, as a share of the whole tree's time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import _vwap_systems
from benchmarks._spark import ProcessorTime, apart, processor_time, spark_session
from benchmarks._vwap_input import make_epochs, write_epochs


def run(spark: Any, source: Path, scratch: Path, chance: float) -> tuple[ProcessorTime, list[Any]]:
    """The processor time of a query, and its progress."""
    before = processor_time()
    trades = _vwap_systems.read_trades(spark, source)
    query = _vwap_systems.start_anabranch(trades, scratch / "out", scratch / "checkpoint", verify=str(chance))
    query.awaitTermination()
    return processor_time().since(before), query.recentProgress


def measure(rows: int, epochs: int, rounds: int, chance: float, scratch: Path) -> dict[str, Any]:
    """Run in a process of its own."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(_vwap_systems)  # Spark's Python workers need not find this folder
    write_epochs(make_epochs([rows] * epochs, 50_000), scratch / "in")
    without: list[ProcessorTime] = []
    verified: list[ProcessorTime] = []
    again = seen = differences = 0
    with spark_session(2, scratch, {"spark.sql.shuffle.partitions": "2"}) as spark:
        for number in range(rounds + 1):
            for chosen in (0.0, chance) if number % 2 else (chance, 0.0):
                place = scratch / f"{number}-{chosen}"
                place.mkdir()
                used, progress = run(spark, scratch / "in", place, chosen)
                if number == 0:
                    continue  # to warm up
                (verified if chosen else without).append(used)
                for each in progress if chosen else ():
                    seen += each["rows_in"]
                    if each["verify"] is not None:
                        again += each["verify"]["tuples"]
                        differences += each["verify"]["differences"]
            if number:
                shown = [
                    f"{each.total_s:.2f} s (driver {each.driver_s:.2f}, JVM {each.jvm_s:.2f})"
                    for each in (without[-1], verified[-1])
                ]
                print(f"  round {number}: {shown[0]} without, {shown[1]} with verify", flush=True)
    return {
        "without": without,
        "verified": verified,
        "tuples_again": again,
        "tuples": seen,
        "differences": differences,
    }


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks verify", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three rounds instead of six")
    parser.add_argument("--mini", action="store_true", help="hardly any rows, one round: that it runs")
    parser.add_argument("--chance", type=float, default=0.01)
    options = parser.parse_args(arguments)
    rounds = 1 if options.mini else 3 if options.quick else 6
    rows, epochs = (200, 2) if options.mini else (50_000 if options.quick else 100_000, 21)
    with tempfile.TemporaryDirectory(prefix="anabranch-verify-", ignore_cleanup_errors=True) as scratch:
        found = apart(measure, rows, epochs, rounds, options.chance, Path(scratch))
    pairs = list(zip(found["verified"], found["without"], strict=True))
    ratios = [a.total_s / b.total_s for a, b in pairs]
    python = [(a.driver_s + a.workers_s - b.driver_s - b.workers_s) / b.total_s for a, b in pairs]
    print(
        f"verify={options.chance}: ratios {', '.join(f'{each:.3f}' for each in ratios)}; of them driver and workers "
        f"{', '.join(f'{each:+.3f}' for each in python)}"
    )
    print(f"{found['tuples_again']} of {found['tuples']} tuples were run again; {found['differences']} differences")
    return {
        "chance": options.chance,
        "cost": round(statistics.median(ratios) - 1, 4),  # of runs side by side: the machine changes between rounds
        "cost_python": round(statistics.median(python), 4),
        "ratios": [round(each, 4) for each in ratios],
        "tuples_again": found["tuples_again"],
        "tuples": found["tuples"],
        "differences": found["differences"],
        "rounds": rounds,
    }
