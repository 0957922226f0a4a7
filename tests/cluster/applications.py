"""Drivers that run one job after the other, as the tests want it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from tests.cluster.standalone import DRIVER_SECONDS_MAX, Process, StandaloneCluster, wait_for


@dataclasses.dataclass(frozen=True)
class StartedJob:
    """A job that a driver was given."""

    driver: Process
    told: Path
    logged: int
    """How long the driver's log was before."""

    @property
    def runs(self) -> bool:
        return self.driver.runs and not self.told.exists()

    def log_tail(self) -> str:
        """The end of the driver's log, for whoever must find out what went wrong."""
        return self.driver.log_tail()

    def log(self) -> str:
        """What the driver has logged since."""
        return self.driver.log.read_bytes()[self.logged :].decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL the driver."""
        self.driver.kill()

    def wait_for_success(self) -> None:
        """Wait for its end; AssertionError with the log if it is not a good one."""
        wait_for(lambda: not self.runs, "the job ends", DRIVER_SECONDS_MAX, self.log_tail)
        assert self.told.exists(), f"the driver failed\n{self.log_tail()}"
        failure = json.loads(self.told.read_text()).get("failure")
        assert not failure, f"{failure}\n{self.log_tail()}"


class Application:
    """A driver with its executors. With `stays` it has job after job; otherwise it ends with the first."""

    def __init__(self, cluster: StandaloneCluster, directory: Path, cores: int = 2, stays: bool = True) -> None:
        self._directory = directory
        self._jobs: list[StartedJob] = []
        words = ["--jobs", str(directory), "--cores", str(cores), *(["--stays"] if stays else [])]
        self.driver = cluster.start_driver(Path(__file__).with_name("driver_program.py"), *words)

    @property
    def is_idle(self) -> bool:
        """It lives, and has done all that it was given."""
        return self.driver.runs and not any(job.runs for job in self._jobs)

    def start(self, wanted: dict[str, Any]) -> StartedJob:
        """Give it a job."""
        path = self._directory / f"{len(self._jobs)}.json"
        job = StartedJob(self.driver, path.with_suffix(".told"), self.driver.log.stat().st_size)
        passing = path.with_suffix(".passing")
        passing.write_text(json.dumps(wanted))
        passing.rename(path)
        self._jobs.append(job)
        return job
