"""Figures 5 and 6 of *Resources* on a real cluster: what a migration costs, by the size of the state and of the replay.

A standalone cluster on loopback with two executors of a core each, whose state is in an object store (moto). The replay
size is what a standby has not seen: copying rests for some epochs before a channel is wished to the other executor
(direct without standbys, CPAL with them) or its executor is killed (CPA).
"""

from __future__ import annotations

import json
import statistics
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from experiments import migrations_driver
from experiments.reproduction import Figures, Line, Panel, Reproduction, Table
from experiments.statements import Statement, at_least, at_most, compares

WAYS = ("direct", "CPA", "CPAL")
Key = tuple[str, int, int]
"""How, the number of keys, the tuples to replay."""


@dataclass(frozen=True)
class Size:
    """How large the measurement is."""

    keys: tuple[int, ...] = (100_000, 1_000_000)
    lags: tuple[int, ...] = (0, 2, 8)
    rows: int = 20_000
    rounds: int = 1


QUICK = Size(keys=(2_000, 20_000), lags=(0, 3), rows=500, rounds=1)


@dataclass(frozen=True)
class Cost:
    """Medians over rounds, if there are several."""

    takeover_s: float
    """How much longer than usual the task of the channel took that went to another executor."""
    added_epochs: float
    """By how many usual epochs the slowest one from the wish (or the loss) to the switch was longer than one."""
    completion_s: float
    """From the wish, or from when the loss was known, to the end of the first epoch at the new executor."""
    fetched: float
    """Bytes, in the epoch of the switch."""


@cache
def measured(quick: bool) -> tuple[dict[Key, Cost], bool]:
    """The costs, and whether all outputs were exact."""
    from tests.cluster.standalone import StandaloneCluster
    from tests.object_store import BUCKET, object_store

    size = QUICK if quick else Size()
    events: dict[Key, list[dict[str, Any]]] = {}
    exact = True
    with tempfile.TemporaryDirectory(prefix="anabranch-resources-", ignore_cleanup_errors=True) as scratch:
        cluster = StandaloneCluster(Path(scratch), workers=2)
        try:
            cluster.start()
            with object_store() as store:
                every = ",".join(map(str, size.lags))
                # Who had a channel before has most of its state in its cache: each direct migration has its own query.
                runs = [*(("0", "move", str(lag)) for lag in size.lags), ("1", "move,kill", every)]
                for keys in size.keys:
                    for standbys, what, lags in runs:
                        name = f"{keys}-{standbys}-{lags.replace(',', '-')}"
                        arguments = {
                            "directory": Path(scratch, name),
                            "state": f"s3a://{BUCKET}/{name}",
                            "endpoint": store.endpoint,
                            "executors": 2,
                            "rows": size.rows,
                            "keys": keys,
                            "standbys": standbys,
                            "events": what,
                            "lags": lags,
                            "rounds": size.rounds,
                        }
                        cluster.wait_until_idle()
                        words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
                        driver = cluster.start_driver(Path(migrations_driver.__file__), *words)
                        driver.wait_for_success(1800)
                        text = driver.log.read_text()
                        told = json.JSONDecoder().raw_decode(text, text.index('{"events"'))[0]
                        exact = exact and told["exact"]
                        for each in told["events"]:
                            how = "direct" if standbys == "0" else "CPA" if each["what"] == "kill" else "CPAL"
                            print(f"    {how}, {keys} keys: {each}", flush=True)
                            events.setdefault((how, keys, each["lag"] * size.rows), []).append(each)
        finally:
            cluster.stop()
    return {
        key: Cost(
            *(
                statistics.median(take(each) for each in found)
                for take in (
                    lambda each: each["takeover_s"],
                    lambda each: each["slowest_s"] / each["usual_s"] - 1,
                    lambda each: each["completion_s"],
                    lambda each: each["fetched"],
                )
            )
        )
        for key, found in events.items()
    }, exact


HOW = (
    "measured on a standalone cluster of two one-core executors on loopback, state in an object store (moto), 20,000 "
    "tuples an epoch, the replay size is what epochs wrote while nobody copied it. "
    "Latency is what the task of the channel that moves takes longer than usual; with ours a replay fetches segments, "
    "no tuple is applied twice"
)


def figure_05(quick: bool) -> Reproduction:
    """*Resources*, Figure 5, on Spark: latency of direct migration, CPA and CPAL."""
    found, exact = measured(quick)
    keys, replays = _axes(found)
    small, large, few, many = keys[0], keys[-1], replays[0], replays[-1]
    statements: tuple[Statement, ...] = (
        at_most(
            "CPAL: negligible latency whatever is to be replayed: the task that takes over, in s more than usual",
            0.25,
            max(found["CPAL", each, replay].takeover_s for each in keys for replay in replays),
        ),
        at_least(
            "direct migration's latency follows the state's size: most over fewest keys",
            2.0,
            found["direct", large, few].takeover_s / max(1e-3, found["direct", small, few].takeover_s),
            because="what a task needs for any fetch hides what the fewest keys take",
        ),
        compares(
            "both outperform direct migration where the state is large and the replay small",
            [
                (found[how, large, few].takeover_s, "<", found["direct", large, few].takeover_s)
                for how in ("CPA", "CPAL")
            ],
            ", ".join(f"{how} {found[how, large, few].takeover_s:.2f} s" for how in WAYS),
        ),
        at_least(
            "the latency of CPA depends on the amount of data to replay: bytes fetched at the switch, most over fewest",
            2.0,
            found["CPA", large, many].fetched / max(1.0, found["CPA", large, few].fetched),
        ),
        at_most(
            "ours: CPAL adds less than one epoch, whatever the state and the replay (the slowest until the switch)",
            1.0,
            max(found["CPAL", each, replay].added_epochs for each in keys for replay in replays),
            because="other processes had the two cores meanwhile",
            ours=True,
        ),
        compares("ours: all outputs are exact", [(float(exact), "≥", 1.0)], "yes" if exact else "no", ours=True),
    )
    return Reproduction("latency of state migrations", HOW, statements, (_table(found),), _panels(found, "takeover_s"))


def figure_06(quick: bool) -> Reproduction:
    """*Resources*, Figure 6, on Spark: completion time of direct migration, CPA and CPAL."""
    found, _ = measured(quick)
    keys, replays = _axes(found)
    large, few, many = keys[-1], replays[0], replays[-1]
    statements = (
        at_least(
            "completion of CPAL depends on the size of the data to replay: most over fewest",
            1.25,
            found["CPAL", large, many].completion_s / found["CPAL", large, few].completion_s,
            because="an epoch takes longer than fetching what eight of them wrote",
        ),
        compares(
            "CPA outperforms direct migration where the state is large and the replay small",
            [(found["CPA", large, few].completion_s, "<", found["direct", large, few].completion_s)],
            ", ".join(f"{how} {found[how, large, few].completion_s:.2f} s" for how in WAYS),
            because="the first complete epoch is most of either, and the executor that is left has both channels",
        ),
    )
    return Reproduction(
        "completion time of state migrations", HOW, statements, (_table(found),), _panels(found, "completion_s")
    )


def _axes(found: dict[Key, Cost]) -> tuple[list[int], list[int]]:
    return sorted({keys for _, keys, _ in found}), sorted({replay for *_, replay in found})


def _table(found: dict[Key, Cost]) -> Table:
    rows = [
        (how, keys, replay, each.takeover_s, each.added_epochs, each.completion_s, int(each.fetched))
        for (how, keys, replay), each in sorted(found.items())
    ]
    head = ("how", "keys", "to replay", "task longer by s", "epochs added", "completion s", "bytes fetched")
    return Table.of("of the channel that moves", head, rows)


def _panels(found: dict[Key, Cost], what: str) -> tuple[Panel, ...]:
    keys, replays = _axes(found)
    shown = "latency in s" if what == "takeover_s" else "completion in s"
    lines = {
        each: {how: Line(replays, [max(0.0, getattr(found[how, each, n], what)) for n in replays]) for how in WAYS}
        for each in keys
    }
    return tuple(Panel(f"{each:,} keys", "tuples to replay", shown, lines[each]) for each in keys)


FIGURES: Figures = {"resources_figure_05_spark": figure_05, "resources_figure_06_spark": figure_06}
