"""State that is where the work is, on a real cluster (the *Resources* paper).

    python -m benchmarks resources [--quick | --mini]

A standalone cluster on loopback: four workers with one core each, every executor with a cache of its own in its own
working directory, as if each were a host. The state is in an object store (moto), which executors reach only over
HTTP. A query sums 200,000 keys on four channels, 20,000 tuples an epoch, 50 epochs; then the same with `placement=off`.

sticky                        the share of channels that ran on the executor they had run on in the epoch before, from
                              the second epoch on, at Spark's own locality wait
fetched_bytes_steady          what executors fetched of state in an epoch of the second half, on average
fetched_bytes_steady_off      … without placement
epoch_vs_off                  the median epoch of the second half, over that without placement
driver_bytes_per_state_byte   what of the state passed through the driver, over what was written of it

correlated_vs_even            simulated (20 nodes, 5 seeds, `experiments/resources_allocation.py`): the share of
                              migrations that a standby assists with the correlated allocation, over that with an even
                              one; the lesser of two families of correlated loads
usable_vs_even                … of standbys on hosts that have room

An executor is killed before the last tenth of the epochs of a third run; *recovery_epochs* is how many times the median
epoch the one after it took, its state fetched from the object store.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Size:
    """How large the measurement is."""

    executors: int = 4
    epochs: int = 50
    rows: int = 20_000
    keys: int = 200_000


QUICK = Size(epochs=12, rows=5_000, keys=20_000)
MINI = Size(executors=2, epochs=4, rows=100, keys=50)


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks resources", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="12 epochs of 5,000 tuples")
    parser.add_argument("--mini", action="store_true", help="4 epochs on two executors: that it runs")
    options = parser.parse_args(arguments)
    size = MINI if options.mini else QUICK if options.quick else Size()
    from tests.cluster.standalone import StandaloneCluster
    from tests.object_store import object_store

    with tempfile.TemporaryDirectory(prefix="anabranch-resources-", ignore_cleanup_errors=True) as scratch:
        cluster = StandaloneCluster(Path(scratch), workers=size.executors)
        try:
            cluster.start()
            with object_store() as store:
                at = size.epochs - max(1, size.epochs // 10)
                placed = loose = killed = run(
                    cluster, store.endpoint, Path(scratch, "killed"), size, "--kill-at", str(at)
                )
                if not options.mini:  # there one run is all three
                    placed = run(cluster, store.endpoint, Path(scratch, "placed"), size)
                    loose = run(cluster, store.endpoint, Path(scratch, "loose"), size, "--placement", "off")
        finally:
            cluster.stop()
    written = sum(each["state_bytes"] for each in placed["progress"])
    told = [each["placement"] for each in placed["progress"]][1:]
    kept, moved = (sum(each[name] for each in told) for name in ("kept", "moved"))
    steady, ordinary = epoch_ms(placed), epoch_ms(loose)
    after = killed["progress"][at]["duration_ms"]["total"]
    figures = {
        "sticky": round(kept / (kept + moved), 3),
        "fetched_bytes_steady": round(fetched(placed)),
        "fetched_bytes_steady_off": round(fetched(loose)),
        "epoch_ms": steady,
        "epoch_vs_off": round(steady / ordinary, 2),
        "driver_bytes_per_state_byte": placed["driver_state_bytes"] / written,
        "recovery_epochs": round(after / steady, 1),
    }
    print(
        f"{written} bytes of state written in {size.epochs} epochs, {placed['driver_state_bytes']} through the driver"
    )
    print(f"channels: {kept} stayed, {moved} moved; an epoch takes {steady} ms, {ordinary} ms without placement")
    from experiments.resources_allocation import simulated_figures

    few = {"groups": (16,), "seeds": 1} if options.mini else {"groups": (16, 48), "seeds": 2} if options.quick else {}
    return figures | simulated_figures(**few)


def run(cluster: Any, endpoint: str, directory: Path, size: Size, *more: str) -> dict[str, Any]:
    """What a driver tells of a query over all its epochs."""
    from tests.cluster import placement_program
    from tests.object_store import BUCKET

    arguments = {
        "directory": directory,
        "state": f"s3a://{BUCKET}/{directory.name}",
        "endpoint": endpoint,
        **vars(size),
    }
    words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    cluster.wait_until_idle()
    driver = cluster.start_driver(Path(placement_program.__file__), *words, *more)
    driver.wait_for_success(1800)
    lines = driver.log.read_text().splitlines()
    found: dict[str, Any] = json.loads(next(line for line in lines if line.startswith('{"progress"')))
    return found


def second_half(told: dict[str, Any]) -> list[dict[str, Any]]:
    progress: list[dict[str, Any]] = told["progress"]
    return progress[len(progress) // 2 :]


def epoch_ms(told: dict[str, Any]) -> int:
    return round(statistics.median(each["duration_ms"]["total"] for each in second_half(told)))


def fetched(told: dict[str, Any]) -> float:
    return statistics.fmean(each["fetched_bytes"] for each in second_half(told))
