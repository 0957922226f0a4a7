"""A standalone Spark cluster on loopback, made of the processes that a real one is made of.

    test ─┬─ master
          ├─ worker 0 ─── executor (one for each application) ─── pyspark.daemon ─── Python workers
          ├─ worker 1 ─── executor …
          └─ driver: a Python process ─── its JVM

`spark-class` and the java shim become the JVM that they start (exec), so the process that is started here is
the JVM, and an executor is a child of its worker. Whatever ends a process names it by its id.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pyspark

import anabranch
from anabranch.spark.java import ensure_java
from tests.cheap_jvm import CHEAP_JVM

# A JVM is up in two seconds; on a machine that does much else at once, in many more.
START_SECONDS_MAX = 60
DRIVER_SECONDS_MAX = 120

_SPARK_HOME = Path(pyspark.__file__).parent
# What drivers and executors import: anabranch, and the programs of the tests.
PYTHONPATH = os.pathsep.join(map(str, [Path(anabranch.__file__).parents[1], Path(__file__).resolve().parents[2]]))
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"

Found = TypeVar("Found")


def wait_for(look: Callable[[], Found | None], what: str, seconds: float, explain: Callable[[], str]) -> Found:
    """What `look` finds, as soon as it finds something; AssertionError if it does not in time."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s\n{explain()}")
        time.sleep(0.02)
    return found


class Process:
    """A process of the cluster, with its log. It has a process group of its own."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        with open(log, "wb") as output:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=log.parent,
                start_new_session=True,
            )
        self.pid = self._popen.pid

    @property
    def runs(self) -> bool:
        return self._popen.poll() is None

    @property
    def exit_status(self) -> int | None:
        return self._popen.poll()

    def log_tail(self) -> str:
        """The end of the log, for whoever must find out what went wrong."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join([f"--- the end of {self.log} (exit status {self.exit_status}):", *lines[-60:]])

    def wait_for_line(self, pattern: str) -> re.Match[str]:
        """The first match in the log; AssertionError if the process ends or takes too long before it."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.log.read_text(errors="replace"))
            assert found or self.runs, f"{self.name} ended before it logged {pattern!r}\n{self.log_tail()}"
            return found

        return wait_for(look, f"{self.name} logs {pattern!r}", START_SECONDS_MAX, self.log_tail)

    def wait_for_success(self, seconds: float = DRIVER_SECONDS_MAX) -> None:
        """Wait for the end; AssertionError with the log if it is not a good one."""
        wait_for(lambda: not self.runs, f"{self.name} ends", seconds, self.log_tail)
        assert self.exit_status == 0, f"{self.name} failed\n{self.log_tail()}"

    def stop(self) -> None:
        """End it politely; a worker then ends its executors."""
        if self.runs:
            self._popen.terminate()
            try:
                self._popen.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """SIGKILL, for it and its group at one moment: a driver dies together with its JVM."""
        if self.runs:
            os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait()


class StandaloneCluster:
    """A master and workers of one core each, under one directory, with everything they write."""

    def __init__(self, directory: Path, workers: int) -> None:
        self.directory = directory
        self.url = ""
        self._master: Process | None = None
        self._workers: list[Process | None] = [None] * workers
        self._drivers: list[Process] = []
        self._started = 0
        ensure_java()

    @property
    def workers(self) -> list[Process]:
        """The workers that run."""
        return [worker for worker in self._workers if worker is not None and worker.runs]

    def start(self) -> None:
        # Port 0: the system chooses one that is free, without a moment in which another may take it.
        place = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self._master = self._start("master", self._spark_class("org.apache.spark.deploy.master.Master", *place))
        self.url = self._master.wait_for_line(r"Starting Spark master at (spark://\S+)")[1]
        self._master.wait_for_line("New state: ALIVE")
        self.start_missing_workers()

    def start_missing_workers(self) -> None:
        """Workers in the place of those that were killed."""
        new = []
        for number, worker in enumerate(self._workers):
            if worker is None or not worker.runs:
                own = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
                own += ["--work-dir", str(self.directory / f"work-{number}")]
                command = self._spark_class("org.apache.spark.deploy.worker.Worker", *own, self.url)
                self._workers[number] = self._start(f"worker-{number}", command)
                new.append(self._workers[number])
        for worker in new:
            worker.wait_for_line("Successfully registered with master")

    def wait_until_idle(self) -> None:
        """Until the executors of earlier drivers are gone; a worker ends them soon after their driver has."""
        wait_for(lambda: not self._executors(), "executors end", START_SECONDS_MAX, lambda: f"{self._executors()}")

    def start_driver(self, script: Path, *arguments: str) -> Process:
        """A Python program that makes a SparkSession on this cluster; it gets ``--master`` as its first argument."""
        command = [sys.executable, str(script), "--master", self.url, *arguments]
        driver = self._start("driver", command, PYTHONPATH=PYTHONPATH)
        self._drivers.append(driver)
        return driver

    def kill_executor_of(self, python_worker: int) -> None:
        """SIGKILL the executor that this Python worker belongs to."""
        os.kill(self._executor_of(python_worker)[1], signal.SIGKILL)

    def kill_executor_beside(self, python_worker: int) -> None:
        """SIGKILL the executor that this Python worker does not belong to, of the two there are."""
        (other,) = set(self._executors()) - {self._executor_of(python_worker)[1]}
        os.kill(other, signal.SIGKILL)

    def kill_worker_of(self, python_worker: int) -> None:
        """SIGKILL the executor that this Python worker belongs to, and its Spark worker before it."""
        worker, executor = self._executor_of(python_worker)
        worker.kill()
        with contextlib.suppress(ProcessLookupError):  # it may have gone with its worker
            os.kill(executor, signal.SIGKILL)

    def kill_drivers(self) -> None:
        """End what a failed test left running."""
        for driver in self._drivers:
            driver.kill()
        self._drivers.clear()

    def stop(self) -> None:
        self.kill_drivers()
        for process in [*self.workers, self._master]:
            if process is not None:
                process.stop()

    def _start(self, name: str, command: list[str], **environment: str) -> Process:
        self._started += 1
        log = self.directory / f"{self._started:02d}-{name}.log"
        return Process(name, command, {**self._environment(), **environment}, log)

    def _spark_class(self, *arguments: str) -> list[str]:
        return [str(_SPARK_HOME / "bin" / "spark-class"), *arguments]

    def _environment(self) -> dict[str, str]:
        # Nothing of a Spark that this machine or an earlier test has set up. PYTHONPATH is left out so that
        # workers hand none on: executors have what the driver gives them.
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_")) and k != "PYTHONPATH"}
        return {
            **kept,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(_SPARK_HOME),
            # No such directory: Spark's own settings; and an archive of classes fits only without one.
            "SPARK_CONF_DIR": str(self.directory / "configuration"),
            "SPARK_LOCAL_DIRS": str(self.directory / "scratch"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_PUBLIC_DNS": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{CHEAP_JVM} -Dspark.worker.timeout=10 -Dspark.master.rest.enabled=false",
        }

    def _executors(self) -> list[int]:
        workers = {worker.pid for worker in self.workers}
        # A worker has another child, dead and never reaped: a shell that spark-class had before it became the JVM.
        return [pid for pid, parent, command in _processes() if parent in workers and _EXECUTOR in command]

    def _executor_of(self, process: int) -> tuple[Process, int]:
        workers = {worker.pid: worker for worker in self.workers}
        parents = {pid: parent for pid, parent, _ in _processes()}
        line = [process]
        while (parent := parents.get(line[-1], 0)) > 1:
            if parent in workers:
                return workers[parent], line[-1]
            line.append(parent)
        raise AssertionError(f"the process {process} is below no worker {list(workers)}; its ancestors: {line}")


def _processes() -> Iterator[tuple[int, int, str]]:
    """Every process: its id, its parent's, its command; the command of one that is dead and not yet reaped is empty."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
        for line in listed.stdout.splitlines():
            pid, parent, command = line.split(None, 2)
            yield int(pid), int(parent), command
        return
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
            command = stat.with_name("cmdline").read_text()
        except OSError:
            continue  # it has just ended
        # pid (command) state parent …; the command may hold anything, brackets too.
        yield int(stat.parent.name), int(text[text.rindex(")") + 1 :].split()[1]), command
