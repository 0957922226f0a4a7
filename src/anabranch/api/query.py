"""The handle of a running query, with Spark's names."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from anabranch.compiler.plan import Plan
from anabranch.errors import AnabranchError, ProgramError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.spark.runner import EpochProgress

_PROGRESS_KEPT = 100


class StreamingQuery:
    """A query that runs. Made by ``stream.writeStream.….start()``."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        sink: Any,
        checkpoint: str,
        channels: int,
        trigger: dict[str, Any],
        name: str | None,
        options: dict[str, str],
    ) -> None:
        from anabranch.spark.files import local_path, open_files, qualified
        from anabranch.spark.runner import EpochRunner, SparkExecutor, SparkMerges, describe_program
        from anabranch.spark.source import ordered
        from anabranch.spark.tasks import Program
        from anabranch.state.checkpoint import Checkpoint
        from anabranch.state.compaction import SnapshotInterval

        location = qualified(spark, checkpoint)
        local = local_path(location)
        self.plan = plan
        self._lock = threading.Lock()
        self._progress: deque[EpochProgress] = deque(maxlen=_PROGRESS_KEPT)
        self.sink = sink
        files = open_files(spark, f"{location}/anabranch")
        held = Checkpoint(files, versions_kept(options))
        reading = plan.operators[0].node
        description = describe_program(Program.of(plan, ""))
        allow_state_loss = options.get("allowstateloss") == "true"
        # All that can be wrong is found before the first file is written.
        snapshots = SnapshotInterval.parse(options["snapshotinterval"]) if "snapshotinterval" in options else None
        held.check(description, allow_state_loss)
        sink.check(location)
        source = ordered(spark, reading, f"{location}/anabranch/sources")
        program = Program.of(plan, source.order)
        self._runner = EpochRunner(
            program,
            SparkExecutor(source.sort),
            channels,
            held,
            f"{files.root}/state",
            local is not None,
            sink,
            self._progress.append,
            SparkMerges(spark),
            snapshots,
        )
        self.changes = held.bind(description, allow_state_loss)
        sink.prepare(location)
        writer = source.dataframe.writeStream.foreachBatch(self._runner).option("checkpointLocation", location)
        if name is not None:
            writer = writer.queryName(name)
        if trigger:
            writer = writer.trigger(**trigger)
        self._query = writer.start()

    # -- Spark's names ----------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The same for every run from one checkpoint."""
        return self._query.id

    @property
    def runId(self) -> str:
        """Different for every run."""
        return self._query.runId

    @property
    def name(self) -> str | None:
        return self._query.name

    @property
    def isActive(self) -> bool:
        """Whether it is still running."""
        return self._query.isActive

    @property
    def status(self) -> dict[str, Any]:
        """What it is doing now."""
        return self._query.status

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """What the last epochs did, oldest first: counts, times, channels."""
        return [dataclasses.asdict(each) for each in list(self._progress)]

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """What the last epoch did, or None before the first has ended."""
        recent = list(self._progress)
        return dataclasses.asdict(recent[-1]) if recent else None

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait until the query ends; raise what made it fail. With a timeout: whether it ended in time."""
        try:
            if timeout is None:
                self._query.awaitTermination()
                return None
            return self._query.awaitTermination(timeout)  # type: ignore[arg-type]  # it takes fractions
        except Exception as problem:
            raise self._explained(problem) from None

    def processAllAvailable(self) -> None:
        """Wait until everything that is there has been processed. For tests."""
        try:
            self._query.processAllAvailable()
        except Exception as problem:
            raise self._explained(problem) from None

    def stop(self) -> None:
        """Stop; an epoch that is cut off runs again at the next start."""
        self._query.stop()

    def exception(self) -> Exception | None:
        """What made the query fail, or None."""
        found = self._query.exception()
        return None if found is None else self._explained(found)

    def explain(self, form: str = "text") -> None:
        """Print the plan, as text, json, mermaid or svg."""
        print(self.plan.explain(form))

    # -- ours -------------------------------------------------------------------------------------------

    def _explained(self, problem: Exception) -> Exception:
        """Our own error, if one was the cause, instead of Spark's wrapping of it."""
        failure: AnabranchError | None = self._runner.failure
        return failure if failure is not None else problem

    def __repr__(self) -> str:
        return f"StreamingQuery({json.dumps({'id': self.id, 'name': self.name, 'active': self.isActive})})"


def versions_kept(options: dict[str, str]) -> int:
    """The option versionsKept."""
    text = options.get("versionskept", "10")
    if not text.isdigit() or int(text) < 2:
        raise ProgramError(f"option versionsKept={text!r}: expected a whole number, 2 or more")
    return int(text)
