"""The driver of the test of executors that follow the channels: input comes as long as it takes, channels by hand.

    one channel    the second executor, which the application started with, is given back
    two channels   it is asked for again, comes, and gets work
    one channel    one goes

The plan is told that nobody else uses the hosts: on a machine that does other work it would ask for an executor more,
which is what it should do (`tests/control/test_period_plan.py`) and not what is looked at here.

Prints what happened as one line of JSON.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.engine.driver.placing import Placing
from tests.cluster.driver_program import start_session
from tests.cluster.gated_programs import build_gated
from tests.cluster.test_executors_follow import write_rows
from tests.programs import COLUMNS

PHASE_SECONDS_MAX = 120
EPOCHS_AFTERWARDS = 3


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--master", "--input", "--checkpoint", "--output", "--gate"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    gate = Path(given.gate)
    (gate / "released").touch()
    use_hosts_alone()
    spark = start_session(given.master, cores=2)
    source = ab.session(spark).from_files(given.input, "parquet", COLUMNS, maxFilesPerTrigger=1)
    stream = build_gated(source, ["running", "gate"], given.gate)
    writer = stream.writeStream.format("parquet").option("checkpointLocation", given.checkpoint)
    # The controller keeps out of it; executors that are idle go soon.
    writer = writer.options(initialChannels=1, maxChannels=2, adaptationPeriod="1000000 epochs")
    query = writer.options(maxExecutors=2, executorIdleTimeout="2 seconds").start(given.output)
    changes: list[ab.ExecutorsChanged] = []
    query.addListener(lambda event: changes.append(event) if isinstance(event, ab.ExecutorsChanged) else None)
    files = 0

    def run_epoch() -> dict:
        nonlocal files
        write_rows(Path(given.input), files)
        files += 1
        query.processAllAvailable()
        return query.lastProgress

    def used_in(seconds: float, enough: Callable[[set[str]], bool]) -> set[str]:
        """The executors that get work from now on."""
        for path in gate.glob("executor-*"):
            path.unlink()
        deadline = time.monotonic() + seconds
        for epoch in range(1000):
            run_epoch()
            found = {path.name for path in gate.glob("executor-*")}
            if time.monotonic() > deadline or (epoch >= EPOCHS_AFTERWARDS and enough(found)):
                break
        return found

    phases = []
    for channels in (1, 2, 1):
        if phases:
            query.rescale("Running", channels)
        started, first = time.monotonic(), files
        progress = run_epoch()
        while progress["channels"] != {"Running": channels} or progress["executors"]["present"] != channels:
            assert time.monotonic() < started + PHASE_SECONDS_MAX, f"{channels} channels: {progress['executors']}"
            progress = run_epoch()
        took = time.monotonic() - started
        used = used_in(20, lambda found, channels=channels: len(found) >= channels)
        phases.append({"channels": channels, "used": len(used), "seconds": took, "epochs": files - first})
    query.stop()
    told = [[change.target, change.present, len(change.given_back), change.reason] for change in changes]
    print(json.dumps({"files": files, "phases": phases, "told": told}))
    spark.stop()


def use_hosts_alone() -> None:
    """Have the plan not see what else the hosts do."""
    settled = Placing.settled

    def settling(self: Placing, reports: Any, identity_of: Any, busy: Any = None) -> Any:
        return settled(self, reports, identity_of)

    Placing.settled = settling  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main())
