"""The driver of `resources_on_spark.py`: channels are moved, and executors killed, while copies lag.

Two executors of a core each, as if each were a host; state in an object store. Before an event nobody copies for some
epochs, so that the standby lacks what these wrote: that is the replay size. Prints in JSON what each event took.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from anabranch.spark.standbys import SparkStandbys
from tests.cluster import placement_program as program
from tests.cluster.driver_program import start_session, wait_for_executors

SETTLING, SETTLED_MAX, SWITCHED_MAX = 3, 9, 8


class Query:
    """A query that is given an epoch at a time, on executors that may be told to copy nothing."""

    def __init__(self, given: Any) -> None:
        self.given, self.number, self.copies = given, 0, True
        self.directory = Path(given.directory)
        self.spark = start_session(given.master, given.executors)
        wait_for_executors(self.spark, given.executors)
        program.reach_store(self.spark, given.endpoint)
        following = SparkStandbys.__call__
        SparkStandbys.__call__ = (  # type: ignore[method-assign]
            lambda copier, version: following(copier, version) if self.copies else None
        )
        placements = program.seen_placements()
        self.query = program.start_query(self.spark, given, self.directory, "", "auto")
        (self.placement,) = placements

    def epoch(self) -> dict[str, Any]:
        """Run one; how long it took, and what it tells."""
        began = time.monotonic()
        given = self.given
        program.write_file(self.directory / "input", self.number, given.rows, given.keys, fill=True)
        self.query.processAllAvailable()
        took = time.monotonic() - began
        self.number += 1
        if given.standbys != "0":
            time.sleep(program.PAUSE_S)
        told = self.query.lastProgress
        channels = {each["channel"]: each["seconds"] for each in told["stages"] if each["kind"] == "channel"}
        return {"s": took, "channels": channels, "fetched": told["fetched_bytes"], **told["placement"]}

    def settle(self) -> tuple[float, float]:
        """Go on until all has been where it should be for some epochs; what an epoch takes then, and a channel."""
        wait_for_executors(self.spark, self.given.executors)
        found: list[dict[str, Any]] = []
        calm = 0
        while len(found) < SETTLED_MAX:
            epoch = self.epoch()
            placing = self.placement._placing
            spread = len({identity for identity, _ in placing._held.values()}) == self.given.executors
            found.append(epoch)
            calm = 0 if epoch["moves"] or not spread else calm + 1
            if calm >= SETTLING:
                break
        last = found[-SETTLING:]
        return (
            statistics.median(each["s"] for each in last),
            statistics.median(seconds for each in last for seconds in each["channels"].values()),
        )

    def event(self, what: str, lag: int) -> dict[str, Any]:
        """Have something happen while copies lack what some epochs wrote; what it took until channels had moved."""
        usual, channel = self.settle()
        self.copies = False
        for _ in range(lag):
            self.epoch()
        if what == "kill":
            program.kill_an_executor(self.spark, self.placement)
        else:
            program.wish_a_move(self.placement)
        self.copies, began, epochs = True, time.monotonic(), list[dict[str, Any]]()
        while len(epochs) < SWITCHED_MAX and not (epochs and epochs[-1]["moves"]):
            epochs.append(self.epoch())
        pause = program.PAUSE_S if self.given.standbys != "0" else 0.0  # behind the last epoch
        moved = {move["channel"]: move["how"] for move in epochs[-1]["moves"]}
        return {
            "how": sorted(set(moved.values())),
            "lag": lag,
            "usual_s": usual,
            "completion_s": time.monotonic() - began - pause,
            "slowest_s": max(each["s"] for each in epochs),
            "takeover_s": max((epochs[-1]["channels"][each] for each in moved), default=0.0) - channel,
            "fetched": epochs[-1]["fetched"],
            "epochs": len(epochs),
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--master", "--directory", "--state", "--endpoint", "--standbys", "--events", "--lags"):
        parser.add_argument(name, required=True)
    for name in ("--executors", "--rows", "--keys", "--rounds"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--bundles", default="auto")
    given = parser.parse_args()
    query = Query(given)
    query.epoch()
    told = [
        {"what": what, **query.event(what, int(lag))}
        for _ in range(given.rounds)
        for what in given.events.split(",")
        for lag in given.lags.split(",")
    ]
    exact = program.is_exact(query.directory / "output", query.number, given.rows, given.keys, True)
    query.query.stop()
    print(json.dumps({"events": told, "exact": exact}))
    query.spark.stop()


if __name__ == "__main__":
    sys.exit(main())
