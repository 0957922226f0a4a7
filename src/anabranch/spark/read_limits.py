"""How many files each source of a running query gives an epoch: looked up and replaced without a restart.

Spark fixes ``maxFilesPerTrigger`` when a query starts, but asks its table of limits anew for every epoch, and that
table can be replaced while an epoch runs:

    StreamExecution.uniqueSources    source → limit, read when the next epoch is put together
    StreamExecution.logicalPlan      the sources, as leaves from left to right
    StreamExecution.lastExecution    the plan of the epoch that runs: the same leaves, each with the files it reads

Nothing of that is public. So it is asked first whether this Spark has it, and any surprise later means that limits
stay as they are: it is never a reason for a query to fail.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from anabranch.engine.driver.epoch_sizing import EpochSizing
from anabranch.state.adaptation_facts import SizingFacts

_log = logging.getLogger("anabranch")

# Where Spark keeps it: since 4.1, and before.
_PLACES = (
    "org.apache.spark.sql.execution.streaming.runtime.StreamExecution",
    "org.apache.spark.sql.execution.streaming.StreamExecution",
)
_ATTACHED_S_MAX = 30.0
_NEEDED = {"uniqueSources", "uniqueSources_$eq", "logicalPlan", "lastExecution"}


def why_not_replaceable(spark: SparkSession) -> str | None:
    """Why limits of this Spark cannot be replaced while a query runs; None if they can."""
    try:
        utilities = spark._jvm.org.apache.spark.util.Utils  # type: ignore[union-attr]
        for place in _PLACES:
            try:
                methods = utilities.classForName(place, False, False).getMethods()
            except Exception:  # no such class in this version
                continue
            missing = _NEEDED - {method.getName() for method in methods}
            return f"Spark {spark.version} has no {', '.join(sorted(missing))} in {place}" if missing else None
        return f"Spark {spark.version} has no {' nor '.join(_PLACES)}"
    except Exception as problem:  # no JVM at hand, as with Spark Connect
        return f"the internals of Spark {spark.version} cannot be reached: {problem}"


class SparkReadLimits:
    """The limits of a query that runs.

    Parameters
    ----------
    spark : SparkSession
    leaves : mapping
        Source → which leaf of the query's plan it is, counted from the left.
    """

    def __init__(self, spark: SparkSession, leaves: Mapping[str, int]) -> None:
        self._spark = spark
        self._leaves = dict(leaves)
        self._query: Any = None
        self._started = threading.Event()

    def attach(self, query: Any) -> None:
        """The query has started. Its first epoch may run already."""
        self._query = query
        self._started.set()

    def taken(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many files of each source the epoch that runs has, those without rows counted; the newest one's time.

        The time is in milliseconds, and missing for a source that has no file in this epoch.
        """
        if not self._started.wait(_ATTACHED_S_MAX):
            raise TimeoutError(f"the query did not start in {_ATTACHED_S_MAX} s")
        leaves = self._execution().lastExecution().logical().collectLeaves()
        counts, newest = dict.fromkeys(self._leaves, 0), {}
        for source, at in self._leaves.items():
            leaf = leaves.apply(at)
            if leaf.getClass().getSimpleName() != "LogicalRelation":
                continue  # a source that has nothing new is an empty relation in its place
            files = leaf.relation().location().allFiles()
            counts[source] = files.size()
            if counts[source]:
                newest[source] = files.last().getModificationTime()  # they are in the order of their times
        return counts, newest

    def replace(self, limits: Mapping[str, int]) -> None:
        """Have the next epoch take so many files at most."""
        execution = self._execution()
        kinds = self._spark._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit  # type: ignore[union-attr]
        leaves = execution.logicalPlan().collectLeaves()
        table = execution.uniqueSources()
        for source, files in limits.items():
            stream = leaves.apply(self._leaves[source]).source()
            if not table.contains(stream):
                raise LookupError(f"Spark reads {source} through something else than its file source")
            table = table.updated(stream, kinds.maxFiles(files))
        getattr(execution, "uniqueSources_$eq")(table)

    def _execution(self) -> Any:
        return self._query._jsq.streamingQuery()


def sizing_of(
    spark: SparkSession,
    choice: str,
    directories: Mapping[str, str | None],
    target_s: float,
    slots: int,
    facts: SizingFacts | None,
) -> EpochSizing | None:
    """The sizing of a query; None: epochs are as Spark and the user's options make them."""
    if choice != "auto" or not directories:
        return None
    problem = why_not_replaceable(spark)
    if problem is not None:
        _log.warning("epochSize: the size of epochs is not adapted, they take all there is: %s", problem)
        none = EpochSizing({}, target_s, slots)
        none.reason = f"fixed: {problem}"
        return none
    return EpochSizing(directories, target_s, slots, facts)
