"""State that is where the work is, on a real cluster (the *Resources* paper).

    python -m benchmarks resources [--quick | --mini] [--keys 100000,1000000] [--kept DIRECTORY]

A standalone cluster on loopback: four workers with one core each, every executor with a cache of its own in its own
working directory, as if each were a host. The state is in an object store (moto), which executors reach only over
HTTP. A query sums on four channels. Its first epoch has every key, so that there is state of all of them; later ones
have 20,000 tuples. In the middle two channels are wished to each other's executor, as the plan of a period would do it;
near the end an executor is killed, three times (two with `--quick`). All of it once without and once with a standby
copy of each channel; all totals are compared with totals worked out by numpy. With `--kept` what a run told is kept in
a directory, and a run that is there already is not run again: so the whole can be stopped and gone on with.

sticky                          the share of channels that ran on the executor they had run on in the epoch before, from
                                the second epoch on and beside those two events, at Spark's own locality wait
fetched_bytes_steady            what executors fetched of state in an epoch of the second quarter, in the mean: that
                                keys were moved for an even load is behind them
cpal_added_latency_epochs       by how many median epochs the slowest of the epochs from the wish to the switch with
                                standbys (CPAL) took longer than a median one; the worst over all numbers of keys
direct_added_latency_epochs     the same without standbys
cpa_vs_direct                   what was fetched after the kills with a standby (CPA), over what was without
recovery_standby_vs_checkpoint  the time of the first complete epoch after a kill with a standby, over that without: the
                                medians of the kills, with the most keys; what it is made of is printed
recovery_added_epochs           by how many median epochs that first epoch took longer than one: with a standby, without
driver_bytes_per_state_byte     what of the state passed through the driver, over what was written of it
epoch_vs_off                    the median, over pairs of epochs in turn, of an epoch's time over that of a second query
                                with `placement=off` in the same application
correlated_vs_even              simulated (20 nodes, 5 seeds, `experiments/resources_allocation.py`): the share of
                                migrations that a standby assists with the correlated allocation, over that with an even
                                one; the lesser of two families of correlated loads
usable_vs_even                  … of standbys on hosts that have room
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Size:
    """How large the measurement is."""

    executors: int = 4
    epochs: int = 50
    rows: int = 20_000
    keys: tuple[int, ...] = (100_000, 1_000_000, 5_000_000)
    pairs: int = 25
    kills: int = 3
    rest: int = 6

    @property
    def move_at(self) -> int:
        return self.epochs // 2

    @property
    def kills_at(self) -> tuple[int, ...]:
        """So far apart that standbys are there again."""
        return tuple(range(self.epochs - self.kills * self.rest, self.epochs, self.rest))


QUICK = Size(epochs=20, rows=5_000, keys=(100_000,), pairs=8, kills=2, rest=4)
MINI = Size(executors=2, epochs=9, rows=400, keys=(300,), pairs=0, kills=1, rest=2)


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks resources", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20 epochs of 5,000 tuples, 100,000 keys")
    parser.add_argument("--mini", action="store_true", help="9 epochs on two executors: that it runs")
    parser.add_argument("--keys", help="numbers of keys, with commas between")
    parser.add_argument("--kept", type=Path, help="where what runs told is kept, and found")
    options = parser.parse_args(arguments)
    size = MINI if options.mini else QUICK if options.quick else Size()
    if options.keys:
        size = replace(size, keys=tuple(int(each) for each in options.keys.split(",")))
    from experiments.resources_allocation import simulated_figures

    few = {"groups": (16,), "seeds": 1} if options.mini else {"groups": (16, 48), "seeds": 2} if options.quick else {}
    return measured(size, options.mini, options.kept) | simulated_figures(**few)


def measured(size: Size, mini: bool, kept_in: Path | None = None) -> dict[str, Any]:
    """What a cluster shows."""
    from tests.cluster.standalone import StandaloneCluster
    from tests.object_store import object_store

    runs: dict[int, dict[str, dict[str, Any]]] = {}
    paired: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="anabranch-resources-", ignore_cleanup_errors=True) as scratch:
        cluster = StandaloneCluster(Path(scratch), workers=size.executors)
        try:
            cluster.start()
            with object_store() as store:

                def told_of(name: str, *others: Any, **more: Any) -> dict[str, Any]:
                    """What a run told, now or when it was kept."""
                    kept = None if kept_in is None else kept_in / f"{name}.json"
                    if kept is not None and kept.exists():
                        return dict(json.loads(kept.read_text()))
                    found = run(cluster, store.endpoint, Path(scratch, name), *others, **more)
                    if kept is not None:
                        kept.parent.mkdir(parents=True, exist_ok=True)
                        kept.write_text(json.dumps(found))
                    return found

                for keys in size.keys:
                    for standbys in "1" if mini else "01":  # the miniature takes one run for both
                        found = told_of(f"{keys}-{standbys}", size, keys, standbys)
                        runs.setdefault(keys, {})[standbys] = found
                        print(f"{keys} keys, standbys={standbys}: {summary(found, size)}", flush=True)
                        print_recoveries(found, size)
                if size.pairs:
                    few = replace(size, epochs=size.pairs)
                    paired = told_of("paired", few, size.keys[0], "0", paired=True)
        finally:
            cluster.stop()
    every = [each for found in runs.values() for each in found.values()]
    without = {keys: found.get("0", found["1"]) for keys, found in runs.items()}
    largest = max(runs)
    after = {name: statistics.median(recoveries_s(found, size)) for name, found in runs[largest].items()}
    longer = {name: round(after[name] / usual_s(found, size) - 1, 2) for name, found in runs[largest].items()}
    taken = {name: sum(fetched_after_kills(found, size)) for name, found in runs[largest].items()}
    written = sum(epoch["state_bytes"] for each in every for epoch in each["progress"])
    told = [epoch["placement"] for each in every for epoch in quiet_epochs(each, size)]
    kept, moved = (sum(each[name] for each in told) for name in ("kept", "moved"))
    steady = [epoch["fetched_bytes"] for each in every for epoch in steady_epochs(each, size)]
    figures = {
        "sticky": round(kept / max(1, kept + moved), 3),
        "fetched_bytes_steady": round(statistics.fmean(steady)),
        "cpal_added_latency_epochs": max(added_epochs(found["1"], size) for found in runs.values()),
        "direct_added_latency_epochs": max(added_epochs(found, size) for found in without.values()),
        "cpa_vs_direct": round(taken["1"] / max(1, taken.get("0", taken["1"])), 3),
        "recovery_standby_vs_checkpoint": round(after["1"] / after.get("0", after["1"]), 2),
        "recovery_added_epochs": [longer["1"], longer.get("0", longer["1"])],
        "driver_bytes_per_state_byte": sum(each["driver_state_bytes"] for each in every) / written,
        "moved_by": sorted({move["how"] for each in every for epoch in each["progress"] for move in moves(epoch)}),
        "exact": all(each["exact"] for each in [*every, *([paired] if paired else [])]),
    }
    if paired:
        ratios = [
            one["duration_ms"]["total"] / other["duration_ms"]["total"]
            for one, other in list(zip(paired["progress"], paired["off"], strict=True))[2:]
        ]
        figures["epoch_vs_off"] = round(statistics.median(ratios), 3)
        quarters = statistics.quantiles(ratios, n=4)
        print(f"epochs with placement over those without: quartiles {[round(each, 2) for each in quarters]}")
    return figures


def run(
    cluster: Any, endpoint: str, directory: Path, size: Size, keys: int, standbys: str, paired: bool = False
) -> dict[str, Any]:
    """What a driver tells of a query over all its epochs."""
    from tests.cluster import placement_program
    from tests.object_store import BUCKET

    arguments = {
        "directory": directory,
        "state": f"s3a://{BUCKET}/{directory.name}",
        "endpoint": endpoint,
        "executors": size.executors,
        "epochs": size.epochs,
        "rows": size.rows,
        "keys": keys,
        "standbys": standbys,
        **({} if paired else {"kill-at": ",".join(map(str, size.kills_at)), "move-at": size.move_at}),
    }
    words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    cluster.wait_until_idle()
    more = ["--fill", *(["--paired"] if paired else [])]
    driver = cluster.start_driver(Path(placement_program.__file__), *words, *more)
    driver.wait_for_success(1800)
    text = driver.log.read_text()
    found: dict[str, Any] = json.JSONDecoder().raw_decode(text, text.index('{"progress"'))[0]
    return found


def moves(epoch: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = epoch["placement"]["moves"]
    return found


def quiet_epochs(told: dict[str, Any], size: Size) -> list[dict[str, Any]]:
    """Those in which nobody asked a channel to move: beside the first, and those in which it was moved or lost."""
    return [each for each in told["progress"][1 : size.kills_at[0]] if not moves(each)]


def steady_epochs(told: dict[str, Any], size: Size) -> list[dict[str, Any]]:
    """Those of the second quarter: executors are all there, and nothing has happened yet."""
    progress: list[dict[str, Any]] = told["progress"]
    return progress[size.move_at // 2 : size.move_at]


def added_epochs(told: dict[str, Any], size: Size) -> float:
    """By how many median epochs the slowest one took longer, from the wish until two epochs behind the switch."""
    times = [each["duration_ms"]["total"] for each in told["progress"]]
    usual = statistics.median(times[2 : size.move_at])
    switched = [at for at in range(size.move_at, size.kills_at[0]) if moves(told["progress"][at])]
    last = (max(switched) if switched else size.move_at) + 1
    return round(max(times[size.move_at : last + 1]) / usual - 1, 2)


def recoveries_s(told: dict[str, Any], size: Size) -> list[float]:
    """From a kill that was noticed to the end of the first epoch, for each kill."""
    return [told["waited_s"][at] for at in size.kills_at]


def usual_s(told: dict[str, Any], size: Size) -> float:
    """What an epoch takes from its input to its end, in the median of those before anything happens."""
    return statistics.median(told["waited_s"][2 : size.move_at])


def fetched_after_kills(told: dict[str, Any], size: Size) -> list[int]:
    return [told["progress"][at]["fetched_bytes"] for at in size.kills_at]


def print_recoveries(told: dict[str, Any], size: Size) -> None:
    """What the first epochs after kills are made of."""
    for at in size.kills_at:
        epoch = told["progress"][at]
        moved = {move["channel"] for move in moves(epoch)}
        channels = [each for each in epoch["stages"] if each["kind"] == "channel"]
        lost = [each["seconds"] for each in channels if each["channel"] in moved]
        others = [each["seconds"] for each in channels if each["channel"] not in moved]
        began = [each["began_s"] for each in epoch["stages"] if each["began_s"] is not None]
        ended = [each["began_s"] + each["seconds"] for each in channels]
        seconds = {
            "all": told["waited_s"][at],
            "the epoch before": told["waited_s"][at - 1],
            "job": epoch["duration_ms"]["job"] / 1000,
            "from its first task to its last": max(ended) - min(began),
            "channels that moved": lost,
            "the others": others,
        }
        rounded = {name: np.round(each, 2).tolist() for name, each in seconds.items()}
        how = ", ".join(move["how"] for move in moves(epoch)) or "nothing moved"
        print(f"    epoch {at}, after a kill: {how}, {epoch['fetched_bytes']} bytes fetched; s: {rounded}", flush=True)


def summary(told: dict[str, Any], size: Size) -> dict[str, Any]:
    """A line for people."""
    times = [each["duration_ms"]["total"] for each in told["progress"]]
    return {
        "first_ms": times[0],
        "epoch_ms": statistics.median(times[2 : size.move_at]),
        "moved": [
            (at, move["how"], each["fetched_bytes"]) for at, each in enumerate(told["progress"]) for move in moves(each)
        ],
        "added_epochs": added_epochs(told, size),
        "after_kills_s": [round(each, 2) for each in recoveries_s(told, size)],
        "fetched_after_kills": fetched_after_kills(told, size),
        "fetched_bytes_steady": [each["fetched_bytes"] for each in steady_epochs(told, size)],
        "state_bytes": sum(each["state_bytes"] for each in told["progress"]),
        "exact": told["exact"],
    }
