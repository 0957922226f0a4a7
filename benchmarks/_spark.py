"""Spark as the benchmarks start it, and the processor time of all that it started.

Wall time of short epochs on a machine that others use too says little: two runs of one program differ by a fifth. The
processor time that a job used, over all of its processes, differs by a few percent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

Result = TypeVar("Result")


def start_spark(slots: int, scratch: Path, settings: Mapping[str, str] | None = None) -> Any:
    """A SparkSession on this machine that runs so many tasks at once and leaves nothing outside `scratch`."""
    from pyspark.sql import SparkSession

    from anabranch.spark.java import ensure_java
    from anabranch.spark.spark_session import JVM_OPTIONS, LOG_WRITER

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    ensure_java()
    common = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        # Between the JVM and the Python workers: transformWithState was a fifth faster in two trials on a busy machine.
        "spark.python.unix.domain.socket.enabled": "true",
        # As ab.session() has it, for all who are compared: Spark's own operators use no more processor time with it.
        "spark.driver.defaultJavaOptions": JVM_OPTIONS,
        "spark.sql.streaming.checkpointFileManagerClass": LOG_WRITER,
    }
    builder = SparkSession.builder.master(f"local[{slots}]").config(map={**common, **(settings or {})})
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def running() -> Any | None:
    """The session of this process, if it has one: that of the tests, which run benchmarks in miniature."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


@contextlib.contextmanager
def spark_session(slots: int, scratch: Path, settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A session of its own, stopped in the end; or the running one, with those settings that can be changed."""
    spark = running()
    if spark is None:
        spark = start_spark(slots, scratch, settings)
        try:
            yield spark
        finally:
            spark.stop()
        return
    changed = {name: value for name, value in (settings or {}).items() if spark.conf.isModifiable(name)}
    before = {name: spark.conf.get(name, None) for name in changed}
    try:
        for name, value in changed.items():
            spark.conf.set(name, value)
        yield spark
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


@contextlib.contextmanager
def ended_batches(spark: Any, query: str, ended: Callable[[], None]) -> Iterator[None]:
    """Calls a function when a batch of a query has ended (a moment later: Spark tells it from a thread of its own)."""
    from pyspark.sql.streaming import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            if str(event.progress.id) == query and "addBatch" in event.progress.durationMs:
                ended()

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            pass

    listener = Listener()
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)


def apart(work: Callable[..., Result], *arguments: Any) -> Result:
    """What the work gives in a process, and so with a JVM, of its own; in this one, if it has a session already."""
    if running() is not None:
        return work(*arguments)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


@dataclasses.dataclass(frozen=True)
class ProcessorTime:
    """User and system seconds so far: of this process, of the JVM, and of the Python workers."""

    driver_s: float
    jvm_s: float
    workers_s: float

    @property
    def total_s(self) -> float:
        return self.driver_s + self.jvm_s + self.workers_s

    def since(self, before: ProcessorTime) -> ProcessorTime:
        return ProcessorTime(
            self.driver_s - before.driver_s, self.jvm_s - before.jvm_s, self.workers_s - before.workers_s
        )


def processor_time() -> ProcessorTime:
    """What this process and all that descend from it have used.

    A process that ended is in the account of the one that waited for it: a worker that Spark let go is not lost.
    """
    if not Path("/proc/self/stat").exists():
        raise SystemExit("processor time of other processes is read from /proc: this benchmark needs Linux")
    seconds: dict[int, float] = {}
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:  # not by pathlib, whose processor time would be that of the program that is measured
            with open(f"/proc/{entry}/stat", "rb", 0) as file:
                text = file.read().decode(errors="replace")
        except OSError:  # it has just ended
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        pid = int(entry)
        names[pid], parents[pid] = name, int(fields[1])
        seconds[pid] = sum(map(int, fields[11:15])) / _TICKS_PER_SECOND
    me = os.getpid()
    totals = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
    for pid, used in seconds.items():
        line = [pid]
        while line[-1] in parents and line[-1] != me:
            line.append(parents[line[-1]])
        if line[-1] != me:
            continue
        # What the JVM starts are the workers; it is itself a descendant of this process.
        if any(names[each] == "java" for each in line[1:]):
            totals["workers"] += used
        else:
            totals["jvm" if names[pid] == "java" else "driver"] += used
    return ProcessorTime(totals["driver"], totals["jvm"], totals["workers"])
