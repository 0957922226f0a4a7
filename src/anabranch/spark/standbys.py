"""Standby copies on Spark: after every epoch a small job tells each executor whose state it should have.

Its tasks only hand on the order and say what is missing, so they take no slot from an epoch for longer than a moment;
the fetching is done by threads of the Python workers (`state/following`). If the job before has not ended yet, because
epochs have all slots, there is none: copies never come before the epochs.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pyspark import TaskContext
from pyspark.serializers import CPickleSerializer

from anabranch.engine.worker.follow_task import Followed, FollowTask
from anabranch.spark.placement import ChannelPlacement, here, located
from anabranch.state.store import StateVersion

_log = logging.getLogger("anabranch")


class SparkStandbys:
    """Has executors follow channels.

    Parameters
    ----------
    spark : SparkSession
    placement : ChannelPlacement
        Knows who should follow whom, and is told how far each has come.
    bytes_per_s : int
    """

    def __init__(self, spark: Any, placement: ChannelPlacement, bytes_per_s: int) -> None:
        self._context = spark.sparkContext
        self._placement = placement
        self._bytes_per_s = bytes_per_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="anabranch-standby")
        self._running: Future[None] | None = None

    def __call__(self, version: StateVersion) -> None:
        """An epoch was committed, and this is the state."""
        self._placement.sized(version)
        wanted = self._placement.followed()
        if version.store is None or not wanted or (self._running is not None and not self._running.done()):
            return
        task = FollowTask(version, dict(self._placement.operators), self._bytes_per_s)
        self._running = self._thread.submit(self._run, task, wanted)

    def _run(self, task: FollowTask, wanted: Mapping[str, Sequence[Followed]]) -> None:
        try:
            orders = [(location, pickle.dumps(list(bundles))) for location, bundles in wanted.items()]
            told = located(self._context, orders, CPickleSerializer()).mapPartitions(_told(task)).collect()
            for place, missing in told:
                self._placement.followed_by(place, missing)
        except Exception as problem:  # no copy is ever needed
            _log.warning("standby copies were not brought up to date: %s", str(problem).partition("\n")[0])


def _told(task: FollowTask) -> Any:
    """The task as Spark runs it."""

    def run(orders: Any) -> Any:
        context = TaskContext.get()
        assert context is not None, "outside a Spark task"
        for bundles in orders:
            yield here(context), task(bundles)

    return run
