"""Two running queries, fed in turn: what an epoch of one costs beside the same epoch of the other.

Queries that are started anew for every few epochs differ by a fifth, whatever they run: Spark plans them, the virtual
machine compiles them, Python loads them. So both sides run all the time, in one JVM and with the same Python workers,
and get the same files one epoch at a time, the one that is first changing with every pair:

    with order     ── epoch ──            ── epoch ──── epoch ──            ── epoch ──
    without                   ── epoch ──                        ── epoch ──             …
                   └─────── a pair ──────┘└─────── a pair ──────┘

An epoch is measured from the moment its files appear until Spark waits for the next: nothing falls between.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anabranch as ab
from benchmarks import _ordering_programs as programs
from benchmarks._spark import ProcessorTime, processor_time

PATIENCE_S = 120.0
# Spark asks sources for news every 10 ms by default, in both queries, and that is not what is measured.
SETTINGS = {"spark.sql.streaming.pollingDelay": "100ms"}


@dataclasses.dataclass(frozen=True)
class Epoch:
    """What an epoch took."""

    processor: ProcessorTime
    wall_s: float


class Fed:
    """A running query that is given an epoch's files at a time.

    Parameters
    ----------
    folder : Path
        Where it finds its files; made here.
    files : int
        How many an epoch has.
    """

    def __init__(
        self,
        spark: Any,
        folder: Path,
        files: int,
        make: Callable[[Any], Any],
        channels: int,
        options: dict[str, str],
    ) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._ended = 0
        stream = ab.session(spark).from_files(f"{folder}/*", "parquet", programs.COLUMNS, maxFilesPerTrigger=files)
        writer = make(stream).writeStream.format("noop").options(channels=channels, balancing="off", **options)
        self._query = writer.start()
        self._query.addListener(self._on_event)

    def _on_event(self, event: Any) -> None:
        if isinstance(event, ab.EpochEnded):
            self._ended += 1

    def run(self, files: list[Path]) -> Epoch:
        """Run an epoch of these files."""
        number = self._ended
        passing = self._folder.parent / f"_passing-{self._folder.name}"
        passing.mkdir()
        for file in files:
            os.link(file, passing / file.name)
        before, begun = processor_time(), time.perf_counter()
        passing.rename(self._folder / f"{number:05d}")  # all at once
        while self._ended == number or self._query.status["isTriggerActive"]:
            if time.perf_counter() - begun > PATIENCE_S:
                raise RuntimeError(f"no epoch ended within {PATIENCE_S} s")
            if self._query.awaitTermination(0.02):
                raise RuntimeError("the query ended by itself")
        if self._ended != number + 1:
            raise RuntimeError(f"the files of an epoch were read in {self._ended - number} epochs")
        return Epoch(processor_time().since(before), time.perf_counter() - begun)

    def stop(self) -> None:
        self._query.stop()


def in_turn(one: Fed, other: Fed, epochs: list[list[Path]], warm_up: int) -> tuple[list[Epoch], list[Epoch]]:
    """The epochs of both, without those in which everything is loaded and compiled."""
    sides: tuple[list[Epoch], list[Epoch]] = ([], [])
    for number, files in enumerate(epochs):
        for side in (0, 1) if number % 2 else (1, 0):
            epoch = (one, other)[side].run(files)
            if number >= warm_up:
                sides[side].append(epoch)
    return sides
