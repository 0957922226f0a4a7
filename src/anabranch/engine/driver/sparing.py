"""Epochs of a program that needs no shuffle before its first stages, because a source is partitioned by their key.

    an epoch ─► without the shuffle ─► each channel's tuples were read by one task, in order ─► its results
                                    └► they were not ─► once more, with the shuffle ─► its results

How Spark cuts the input is not in our hands: an epoch may have two files of one channel, in two tasks. Both tasks then
began with the channel's state before the epoch, so what they made counts for nothing. The two layouts have the same
operators, channels and state, so an epoch can be run in either. After an epoch that needed the shuffle, the next ones
are run with it at once: one, then two, four, … of them.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.compiler.explaining.running import RunningQuery
from anabranch.engine.driver.epoch_jobs import EpochJobs
from anabranch.engine.driver.results import Results
from anabranch.engine.reports import ChannelReport, Report
from anabranch.engine.table_versions import TableVersion
from anabranch.engine.worker.advances import EventTimes
from anabranch.engine.worker.sampling import Sampling
from anabranch.errors import AnabranchError, CheckpointError, InputError, ShuffleNeeded
from anabranch.operators.hot_key_parts import HotKeyParts
from anabranch.partitioning.function import PartitioningFunction
from anabranch.state.store import StateVersion

_log = logging.getLogger("anabranch")

_REMEDY = (
    "Let an epoch have one file of each partition at most (maxFilesPerTrigger), and see that Spark does not cut it "
    "(spark.sql.files.maxPartitionBytes, openCostInBytes)"
)
_WAIT_MAX = 64
"""So many epochs at most are run with the shuffle before it is tried without again."""


class SparingJobs:
    """Runs each epoch without the shuffle, if its input is so.

    Parameters
    ----------
    spared, shuffled : EpochJobs
        The epochs without and with the shuffle.
    """

    def __init__(self, spared: EpochJobs, shuffled: EpochJobs) -> None:
        self._spared = spared
        self._shuffled = shuffled
        self._wait = 0
        self._waiting = 0
        self.shuffled_because = ""
        """Why the last epoch was run with the shuffle; empty: it was not."""

    def running(self, channels: Mapping[str, int], source_tasks: int | None) -> RunningQuery:
        """What is decided about the layout, with the channels of now: as the last epoch was run."""
        if not self.shuffled_because:
            return self._spared.running(channels, source_tasks)
        found = self._shuffled.running(channels, source_tasks)
        return dataclasses.replace(found, shuffled_because=self.shuffled_because)

    def run(
        self,
        batch: Any,
        state: StateVersion,
        fed_back: list[tuple[int, int, bytes]],
        functions: Mapping[int, PartitioningFunction],
        parts: Mapping[str, HotKeyParts],
        times: EventTimes | None = None,
        sampling: Sampling | None = None,
        tables: tuple[TableVersion, ...] = (),
    ) -> Results:
        """Run an epoch's tasks over its input (None: only what was fed back)."""
        if self._waiting:
            self._waiting -= 1
            return self._shuffled.run(batch, state, fed_back, functions, parts, times, sampling, tables)
        try:
            results = self._spared.run(batch, state, fed_back, functions, parts, times, sampling, tables)
            why = _shared(results.reports)
            if not why:
                self._wait, self.shuffled_because = 0, ""
                return results
        except ShuffleNeeded as problem:
            why = str(problem)
        except (InputError, CheckpointError):
            raise
        except AnabranchError:
            # An operator may have met a state that one thread never has: another task had tuples of the channel too.
            why = ""
        results = self._shuffled.run(batch, state, fed_back, functions, parts, times, sampling, tables)
        why = why or "an operator met a state in which its channel's tuples were not all there"
        self._wait = self._waiting = min(2 * self._wait or 1, _WAIT_MAX)
        self.shuffled_because = f"{why}. {_REMEDY}"
        _log.warning("epoch %d was run with a shuffle: %s", state.epoch, self.shuffled_because)
        return results


def _shared(reports: Sequence[Report]) -> str:
    """Which channel several tasks had tuples of; empty: none."""
    seen = set()
    for report in reports:
        if isinstance(report, ChannelReport) and report.depth == 0:
            at = report.stage, report.channel
            if at in seen:
                return f"several tasks read tuples of {report.name}'s channel {report.channel}"
            seen.add(at)
    return ""
