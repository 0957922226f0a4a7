"""A driver that kills itself at a crash point: ``dying_driver.py WORK POINT EPOCH``.

Run by test_driver_kills, which puts the root of the repository on PYTHONPATH, for the workers too.
"""

import os
import signal
import sys

import anabranch as ab
from anabranch import faults
from anabranch.api.session import from_epochs
from tests.programs import COLUMNS, build

STEPS = ["running", "jump by both"]


def epochs() -> list[list[tuple]]:
    return [[(n * k % 7, "ab"[k % 2], float(n + k)) for k in range(40)] for n in range(6)]


def main(work: str, point: str, epoch: int) -> None:
    def die(reached: str, facts: dict) -> None:
        if reached == point and facts["epoch"] == epoch:
            os.kill(os.getpid(), signal.SIGKILL)

    faults.install(die)
    stream = build(from_epochs(epochs(), COLUMNS, session=ab.session()), STEPS)
    query = (
        stream.writeStream.option("checkpointLocation", f"{work}/checkpoint")
        .option("channels", 2 + epoch % 3)
        .trigger(availableNow=True)
        .start(f"{work}/out")
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
