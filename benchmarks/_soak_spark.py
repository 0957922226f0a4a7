"""A long life on Spark: thousands of small epochs of one query, and a query whose Spark is started again and again.

A feeder keeps a few files ahead of the query and removes those that were read, as a user's log rotation would: Spark
lists the directory before every epoch. The channels of the program are rescaled now and then.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.api.session import from_epochs
from benchmarks._query_in_process import COLUMNS, Total, expected
from benchmarks._soak_in_process import LOOKS, small_rows
from benchmarks._soak_measuring import Sample, checkpoint_files, driver_mib, heap_mib, worker_mib
from benchmarks._spark import apart, processor_time, spark_session

AHEAD, BEHIND = 6, 30
RESCALED_EVERY = 100
STALLED_S = 3600.0
# A machine that sleeps, or a run that is stopped for a while to make room, is no reason to give an executor up.
PATIENT = {"spark.network.timeout": "36000s", "spark.executor.heartbeatInterval": "60s"}
_FIRST_DATE = 1_700_000_000


def program(rows: ab.Stream) -> ab.Stream:
    """One region: what is soaked is what happens once an epoch, and epochs should be short."""
    return rows.process(Total(), by="k", schema=COLUMNS, name="total")


class Feeder:
    """The input directory: a file an epoch, a few ahead, those that were read removed."""

    def __init__(self, place: Path, written: int = 0) -> None:
        self._place = place
        self.written = written
        self._removed = 0
        place.mkdir(parents=True, exist_ok=True)

    def up_to(self, last: int, read: int = 0) -> None:
        """Have the files of all epochs before `last` there, or there before; `read` epochs are done."""
        for number in range(self.written, last):
            columns = zip(*small_rows(number), strict=True)
            name = f"{number:09d}.parquet"
            table = pa.table([pa.array(column) for column in columns], names=["k", "s", "x"])
            pq.write_table(table, self._place / f"_{name}")
            os.utime(self._place / f"_{name}", (_FIRST_DATE + number,) * 2)
            os.replace(self._place / f"_{name}", self._place / name)
            self.written = number + 1
        for number in range(self._removed, read - BEHIND):
            (self._place / f"{number:09d}.parquet").unlink(missing_ok=True)
            self._removed = number + 1


class Looking:
    """Listens to a query: how long its epochs take, from the end of one to the end of the next."""

    def __init__(self) -> None:
        self.done = self.rescaled = 0
        self._taken: list[float] = []
        self._last = 0.0
        self._passed = threading.Condition()

    def __call__(self, event: Any) -> None:
        self.rescaled += isinstance(event, ab.Rescaled)
        if isinstance(event, ab.EpochEnded) and not event.progress.get("skipped"):
            with self._passed:
                now = time.perf_counter()
                if self._last:
                    self._taken.append(now - self._last)
                self._last = now
                self.done += 1
                self._passed.notify_all()

    def wait_past(self, done: int, query: Any) -> None:
        """Wait until more than so many epochs have ended."""
        until = time.monotonic() + STALLED_S
        with self._passed:
            while self.done <= done:
                self._passed.wait(1.0)
                if not query.isActive:
                    query.awaitTermination()  # raises what made it fail
                    raise RuntimeError(f"the query ended after {self.done} epochs")
                if time.monotonic() > until:
                    raise RuntimeError(f"no epoch has ended for {STALLED_S} s, after {self.done}")

    def median_s(self) -> float:
        """Of the epochs since the last look. The one that goes on now is not counted: it is looked at."""
        with self._passed:
            taken, self._taken, self._last = self._taken, [], 0.0
        return statistics.median(taken or [0.0])


def epochs_of_one_query(epochs: int, place: Path, slots: int = 2) -> tuple[list[Sample], bool]:
    """So many epochs of one query; and whether what came out is what one thread gives."""
    with spark_session(slots, place / "spark", PATIENT) as spark:
        return _epochs(spark, epochs, place)


def _epochs(spark: Any, epochs: int, place: Path) -> tuple[list[Sample], bool]:
    looking = Looking()
    session = ab.session(spark)
    session.addListener(looking)
    feeder = Feeder(place / "in")
    feeder.up_to(min(AHEAD, epochs))
    rows = session.from_files(str(place / "in"), "parquet", COLUMNS, name="rows", maxFilesPerTrigger=1)
    writer = program(rows).writeStream.option("checkpointLocation", str(place / "checkpoint")).option("channels", 2)
    query = writer.start(str(place / "out"))
    every = max(1, epochs // LOOKS)
    samples: list[Sample] = []
    used, looked = processor_time().total_s, 0
    try:
        while looking.done < epochs:
            looking.wait_past(looking.done, query)
            done = looking.done
            feeder.up_to(min(done + AHEAD, epochs), done)
            if done % RESCALED_EVERY == RESCALED_EVERY // 2:
                query.rescale("total", 3 if done // RESCALED_EVERY % 2 else 2)
            if done - looked >= every:
                now = processor_time().total_s
                samples.append(_sample(spark, place, done, looking.median_s(), (now - used) / (done - looked)))
                used, looked = processor_time().total_s, done
                print(f"  {samples[-1]}, {looking.rescaled} times rescaled", flush=True)
    finally:
        query.stop()
    meant = program(from_epochs([small_rows(number) for number in range(epochs)], COLUMNS, name="rows"))
    return samples, _delivered(place, meant) == expected([meant])[0]


def _sample(spark: Any, place: Path, done: int, seconds: float, processor_seconds: float) -> Sample:
    files, manifest_bytes, left = checkpoint_files(place)
    return Sample(
        done,
        seconds,
        processor_seconds,
        driver_mib=driver_mib(),
        jvm_mib=heap_mib(spark),
        worker_mib=worker_mib(),
        files=files,
        manifest_bytes=manifest_bytes,
        left=left,
        load=os.getloadavg()[0],
    )


def _delivered(place: Path, stream: ab.Stream) -> list[str]:
    parts = sorted((place / "out").glob("part-*"))
    return [repr(row) for part in parts for row in stream.schema.rows(pq.read_table(part).columns)]


def restarts_of_spark(restarts: int, place: Path) -> tuple[list[Sample], bool]:
    """A query whose Spark, with its JVM and driver, is started again for every few epochs; and whether it is right."""
    samples = []
    for number in range(restarts):
        seconds, recovery = apart(_one_life, str(place), 2 * number + 2)
        files, manifest_bytes, left = checkpoint_files(place)
        counts = {"files": files, "manifest_bytes": manifest_bytes, "left": left}
        samples.append(Sample(number + 1, seconds, recovery_seconds=recovery, load=os.getloadavg()[0], **counts))
    meant = program(from_epochs([small_rows(number) for number in range(2 * restarts)], COLUMNS, name="rows"))
    return samples, _delivered(place, meant) == expected([meant])[0]


def _one_life(where: str, epochs: int) -> tuple[float, float]:
    """A Spark that runs what there is to read: seconds of its last epoch, and from the start of the query to ready."""
    place = Path(where)
    with spark_session(2, place / "spark") as spark:
        looking = Looking()
        session = ab.session(spark)
        session.addListener(looking)
        Feeder(place / "in", epochs - 2).up_to(epochs, epochs)
        rows = session.from_files(str(place / "in"), "parquet", COLUMNS, name="rows", maxFilesPerTrigger=1)
        writer = program(rows).writeStream.option("checkpointLocation", str(place / "checkpoint"))
        begun = time.perf_counter()
        query = writer.option("channels", 2).trigger(availableNow=True).start(str(place / "out"))
        recovery = time.perf_counter() - begun
        query.awaitTermination()
        return looking.median_s(), recovery
