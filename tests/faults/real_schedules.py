"""Drivers that are processes, each with a Spark of its own, to which everything happens that may happen.

One after the other, or two at once, they run one query: killed and frozen at named points and at any moment, thawed
when others have gone on, on a disk that is full for a while, rescaled. A seed decides: ``schedule(seed, place)``. At
the end output and state are those of one thread, and nothing changes when the last of the frozen have woken up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from anabranch import faults
from anabranch.program.graph import Source, upstream
from anabranch.program.origins import RowsOrigin
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.files import LocalFiles
from anabranch.state.reader import CheckpointReader
from benchmarks._query_in_process import PROGRAMS, expected, expected_state
from tests.cheap_jvm import CHEAP_JVM
from tests.faults.driver_process import Plan, descendants

# That a driver makes no step, on a machine of its own; on one with much to do it is given more.
PATIENCE_S = 240.0
LIVES = (
    "killed at a point",
    "killed",
    "frozen at a point",
    "frozen",
    "two at once",
    "full disk",
    "rescaled and killed",
)
# In tasks, which are not in the driver's process; and where the layout or the program changes, which these do not.
_ELSEWHERE = ("segment written", "program replaced")
POINTS = [point for point in faults.POINTS if point not in _ELSEWHERE]
_ROOM = 24 * 2**20
# How drivers that were fenced, cut off or without room may end; everything else is a bug.
_FAIR = ("has taken over", "Make room", "start the query again")


class DriverProcess:
    """A driver that was started."""

    def __init__(self, work: Path, plan: Plan) -> None:
        self._notes = Path(plan.notes)
        self._notes.touch()
        self._log = open(f"{plan.notes}.log", "wb")  # noqa: SIM115 - closed when it has ended
        root = str(Path(__file__).parents[2])
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
            "JDK_JAVA_OPTIONS": CHEAP_JVM,
        }
        command = [sys.executable, Path(__file__).with_name("driver_process.py"), work]
        self._process = subprocess.Popen(
            [*command, json.dumps(dataclasses.asdict(plan))], stdout=self._log, stderr=self._log, env=environment
        )
        self._tree: list[int] = []

    @property
    def code(self) -> int | None:
        """How it ended; None: it did not."""
        return self._process.poll()

    @property
    def is_frozen(self) -> bool:
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False

    def epochs(self) -> int:
        """The highest epoch that it has begun, counted from 1."""
        found = [int(line.split()[0]) + 1 for line in self._notes.read_text().splitlines()]
        return max(found, default=0)

    def until(self, epoch: int) -> None:
        """Wait until it has begun an epoch, or has ended."""
        self._wait(lambda: self.epochs() > epoch)

    def until_still(self) -> None:
        """Wait until it has ended, or is frozen."""
        self._wait(lambda: self.is_frozen)

    def _wait(self, happened) -> None:
        waited, looked = 0.0, time.monotonic()
        while self.code is None and not happened():
            assert waited < PATIENCE_S, "a driver hangs"
            time.sleep(0.03)
            now = time.monotonic()
            waited += (now - looked) * min(1.0, (os.cpu_count() or 1) / max(0.1, os.getloadavg()[0]))
            looked = now

    def freeze(self) -> None:
        """Stop all of it: the workers, the JVM, the driver; and wait until it stands, which takes a moment."""
        for each in (*descendants(self._process.pid), self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGSTOP)
        self.until_still()

    def thaw(self) -> None:
        for each in (*descendants(self._process.pid), self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)
        self._wait(lambda: not self.is_frozen)

    def kill(self) -> None:
        """Kill the driver. Its JVM notices, a little later."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Kill what is left of it."""
        if self.code is None:
            self.freeze()
            for each in descendants(self._process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            self.kill()
        self._log.close()

    def said(self) -> str:
        return Path(self._log.name).read_text(errors="replace")

    def story(self) -> str:
        """What became of it, for whoever reads of a failure."""
        points = ", ".join(self._notes.read_text().splitlines()[-8:])
        said = [line for line in self.said().splitlines() if line.strip() and not line.lstrip().startswith("at ")]
        return f"{self._notes.name}: code {self.code}; points: {points}\n" + "\n".join(said[-60:])[-6000:]


class RealSchedule:
    """One query, and all drivers that it has had."""

    def __init__(self, seed: int, place: Path) -> None:
        self.chance = random.Random(seed)
        self.work = place / "work"
        self.work.mkdir(parents=True)
        self._notes = place
        program = sorted(PROGRAMS)[seed % len(PROGRAMS)]
        self.plan = Plan(program, seed, self.chance.randrange(5, 8), 6, 2, "")
        self.name = f"schedule({seed}), {program}"
        self.drivers: list[DriverProcess] = []
        self.frozen: list[DriverProcess] = []
        self.epoch = 0

    def start(self, *happens: tuple[str, int, str]) -> DriverProcess:
        notes = str(self._notes / f"driver-{len(self.drivers):02d}")
        channels = self.chance.choice([1, 2, 3])
        plan = dataclasses.replace(self.plan, channels=channels, notes=notes, happens=happens)
        self.drivers.append(DriverProcess(self.work, plan))
        return self.drivers[-1]

    def live(self, life: str) -> str:
        """A driver, or two, and what happens to them; it ends with none that runs. What came of it, in words."""
        point = self.chance.choice(POINTS)
        at = min(self.epoch + self.chance.randrange(2), self.plan.epochs - 1)
        if life == "two at once":
            both = [self.start(), self.start()]
            for each in both:
                each.until_still()
        elif life == "killed at a point":
            self.start((point, at, "kill")).until_still()
        elif life == "frozen at a point":
            self.start((point, at, "freeze")).until_still()
        elif life == "rescaled and killed":
            happens = [("epoch begun", at, "rescale 3"), ("manifest written", at, "rescale 4"), (point, at + 1, "kill")]
            self.start(*happens).until_still()
        else:
            driver = self.start()
            driver.until(at)
            time.sleep(self.chance.random() * 0.4)
            if life == "killed":
                driver.kill()
            elif life == "frozen":
                driver.freeze()
            else:
                with self._full():
                    driver.until_still()
        self.frozen += [each for each in self.drivers if each.is_frozen and each not in self.frozen]
        self.epoch = max(each.epochs() for each in self.drivers)
        last = self.drivers[-1]
        end = {None: "frozen", 0: "at its end", -signal.SIGKILL: "killed"}.get(last.code, "failed")
        return f"{life}{f' ({point})' if 'point' in life else ''}: {end} in epoch {last.epochs() - 1}"

    @contextlib.contextmanager
    def _full(self) -> Iterator[None]:
        """The disk is full."""
        filler = self.work / "filler"
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            while os.statvfs(self.work).f_bavail:
                file.write(b"\0" * 4096)
        try:
            yield
        finally:
            filler.unlink()

    def thaw(self, driver: DriverProcess) -> None:
        """One that was frozen wakes up, and goes on to its end."""
        self.frozen.remove(driver)
        driver.thaw()
        driver.until_still()

    def check(self) -> None:
        """Output and state are what one thread leaves."""
        meant = self._meant()
        parts = [sorted((self.work / f"out-{at}").glob("part-*")) for at in range(len(meant))]
        delivered = [
            [repr(row) for path in paths for row in stream.schema.rows(pq.read_table(path).columns)]
            for paths, stream in zip(parts, meant, strict=True)
        ]
        assert delivered == expected(meant), f"output of {self.name}"
        reader = CheckpointReader(LocalFiles(f"{self.work}/checkpoint/anabranch"))
        for operator, values in expected_state(meant).items():
            held = {repr(key): repr(tuple(value.values())) for key, value in reader.items(operator)}
            assert held == values, f"state of {operator} of {self.name}"
        left = [path for path in self.work.rglob("*") if path.name.endswith(".tmp") or path.name.startswith("_stag")]
        assert not [path for path in left if "anabranch" in path.parts or path.parent.name.startswith("out-")], left

    def forget_batch(self, number: int) -> None:
        """As if the driver had died when Spark had noted the next file of the first source, and nothing else yet."""
        checkpoint = self.work / "checkpoint"
        (checkpoint / f"anabranch/epochs/{number:012d}.begun").unlink()
        for folder in (checkpoint / "offsets", checkpoint / "sources/1"):
            (folder / str(number)).unlink()
            (folder / f".{number}.crc").unlink()

    def story(self) -> str:
        return "\n\n".join(each.story() for each in self.drivers)

    def _meant(self) -> list[Any]:
        """The program as one thread sees it: over its input as it was cut.

        Epochs that only had what was fed back had no input. And a driver that dies when Spark has noted the next file
        of a source, and not yet the batch, leaves a batch of two.
        """
        streams = self.plan.streams()
        nodes = {node.name: node for stream in streams for node in upstream(stream._node)}
        for node in (each for each in nodes.values() if isinstance(each.logic, Source)):
            given = node.logic.origin.epochs
            cut = self.files_of_epochs(node.name)
            read = [number for files in cut for number in files]
            assert read == list(range(len(given))), f"source {node.name} has {len(given)} files, read were {cut}"
            epochs = [[row for number in files for row in given[number]] for files in cut]
            object.__setattr__(node.logic, "origin", RowsOrigin(epochs))  # of this program alone, made above
        return streams

    def files_of_epochs(self, source: str) -> list[list[int]]:
        """Which of a source's files each epoch read, by the logs of Spark's and the manifests."""
        checkpoint = self.work / "checkpoint"
        steps: dict[str, dict[int, set[int]]] = {}  # of each log that has the source's files: step → files
        for path in checkpoint.glob("sources/*/[0-9]*"):
            lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
            files = [Path(line["path"]) for line in lines if Path(line["path"]).parent.name == source]
            for file, line in zip(files, lines, strict=False):
                steps.setdefault(path.parent.name, {}).setdefault(line["batchId"], set()).add(int(file.stem))
        (log, found), *others = steps.items()
        assert not others, f"source {source} has several logs"
        known = Checkpoint(LocalFiles(str(checkpoint / "anabranch")))
        epochs: list[list[int]] = []
        batch, step = -1, -1
        for number in range(known.latest().epoch + 1):
            manifest = known.version(number)
            assert manifest is not None
            before = step
            if manifest.facts.batch != batch:
                batch = manifest.facts.batch
                line = (checkpoint / f"offsets/{batch}").read_text().splitlines()[2 + int(log)]
                step = before if line == "-" else json.loads(line)["logOffset"]
            epochs.append(sorted(file for at in range(before + 1, step + 1) for file in found.get(at, [])))
        return epochs


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[bool]:
    """A small disk of its own at a place, if that may be made; whether it was."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_ROOM}", "anabranch-test", str(place)]
    made = os.getuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield made
    finally:
        if made:
            subprocess.run(["umount", "-l", str(place)], check=True)


def schedule(seed: int, place: Path, lives: tuple[str, ...] = ()) -> list[str]:
    """Run one schedule and check it; what happened."""
    run = RealSchedule(seed, place)
    happened = list(lives) or run.chance.choices(LIVES, k=run.chance.choice([1, 2, 2, 3]))
    try:
        with small_disk(run.work) if "full disk" in happened else contextlib.nullcontext(True) as made:
            lived = [life for life in happened if made or life != "full disk"]
            happened = []
            for life in lived:
                happened.append(run.live(life))
                if run.frozen and run.chance.random() < 0.4:
                    run.thaw(run.frozen[0])
            last = run.start()
            last.until_still()
            assert last.code == 0, f"{run.name}: the last driver failed"
            run.check()
            if run.frozen:
                for driver in list(run.frozen):
                    run.thaw(driver)
                run.check()
            for driver in run.drivers:
                fair = driver.code in (0, -signal.SIGKILL) or any(each in driver.said() for each in _FAIR)
                assert fair, f"{run.name}: a driver failed: {driver.story()}"
    except BaseException as problem:
        problem.add_note(f"{run.name}: {'; '.join(happened)}\n\n{run.story()}")
        raise
    finally:
        for driver in run.drivers:
            driver.end()
    return happened
