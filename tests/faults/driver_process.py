"""A driver with a Spark of its own, to which things happen at named points: ``driver_process.py WORK PLAN``.

Run by real_schedules, which puts the root of the repository on PYTHONPATH, for the workers too. PLAN is JSON: see
`Plan`. Every point that is reached is noted in a file, so that whoever started the process knows where it is.
"""

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch import faults
from benchmarks._query_in_process import PROGRAMS, rows_of


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a driver runs, and what becomes of it.

    Attributes
    ----------
    program : str
        One of `PROGRAMS`.
    seed, epochs, rows : int
        Its input, see `rows_of`.
    channels : int
    notes : str
        A file: a line for every point, with its epoch.
    happens : tuple
        (point, epoch, what): `kill`, `freeze` or `rescale N`, when the point is first reached in that epoch or later.
    """

    program: str
    seed: int
    epochs: int
    rows: int
    channels: int
    notes: str
    happens: tuple[tuple[str, int, str], ...] = ()

    def streams(self, session: ab.Session | None = None) -> list[ab.Stream]:
        """The program over its input."""
        found = PROGRAMS[self.program](rows_of(self.seed, self.epochs, self.rows))
        for stream in found:
            stream._session = session
        return found


def descendants(process: int) -> list[int]:
    """All processes that a process has started, and those that they have."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                rest = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            parents.setdefault(int(rest[1]), []).append(int(entry))
    found = list(parents.get(process, ()))
    for each in found:
        found += parents.get(each, ())
    return found


def main(work: str, plan: Plan) -> None:
    waiting = list(plan.happens)
    started: list[Any] = []
    notes = os.open(plan.notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def happen(what: str) -> None:
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "freeze":
            for each in descendants(os.getpid()):  # the JVM and its workers, then the driver itself
                os.kill(each, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
        elif started:
            for region in started[0].regions:
                if region.channels_max > 1:
                    started[0].rescale(region.name, int(what.split()[1]))

    def reached(point: str, facts: dict[str, Any]) -> None:
        os.write(notes, f"{facts['epoch']} {point}\n".encode())
        for each in [each for each in waiting if each[0] == point and facts["epoch"] >= each[1]]:
            waiting.remove(each)
            happen(each[2])

    faults.install(reached)
    first, *others = plan.streams(ab.session())
    writer = first.writeStream.option("checkpointLocation", f"{work}/checkpoint").option("channels", plan.channels)
    # Which epochs had no input but what was fed back is read from the checkpoint, afterwards.
    writer = writer.option("versionsKept", 1000).trigger(availableNow=True)
    for at, other in enumerate(others, 1):
        writer = writer.also(other.writeStream.option("path", f"{work}/out-{at}"))
    query = writer.start(f"{work}/out-0")
    started.append(query)
    query.awaitTermination()


if __name__ == "__main__":
    fields = json.loads(sys.argv[2])
    fields["happens"] = tuple(tuple(each) for each in fields["happens"])
    main(sys.argv[1], Plan(**fields))
