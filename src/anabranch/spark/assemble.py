"""From a compiled program and its options to a query that runs: where all that makes up a query is put together.

    program, options ─► checked against checkpoint and sinks ─► sources, surroundings, runner ─► Spark's query, started

All that can be wrong is found before the first file is written.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from anabranch.compiler.plan import Plan
from anabranch.control.executor_planner import ExecutorPlan
from anabranch.engine.driver.drain import Drain
from anabranch.engine.driver.epoch_sizing import EpochSizing
from anabranch.engine.driver.program_description import checked_description
from anabranch.engine.driver.runner import EpochRunner
from anabranch.engine.driver.setup import Backend, EpochSettings, Observer, Storage
from anabranch.engine.driver.sink import Holder
from anabranch.engine.driver.switching import Form, Forms, SwitchingRunner
from anabranch.engine.driver.waiting import SparkSurroundings
from anabranch.engine.query_options import QueryOptions
from anabranch.engine.worker.tasks import Program
from anabranch.errors import ProgramError
from anabranch.program.model import OutputOrder
from anabranch.program.options import seconds_of
from anabranch.spark.batch_log import BatchLog
from anabranch.spark.cluster import QueryExecutors, executors_of
from anabranch.spark.direct_files import DirectFiles
from anabranch.spark.hadoop_files import local_path, open_files, open_state_files, qualified
from anabranch.spark.placement import ChannelPlacement
from anabranch.spark.read_limits import SparkReadLimits, sizing_of
from anabranch.spark.row_files import RowFiles
from anabranch.spark.slots import asked_once_if_local, is_local, slots_now, task_slots
from anabranch.spark.source import OrderedSources, local_directories
from anabranch.spark.spark_failures import explain_failure, start_query
from anabranch.spark.spark_job import SparkCompactions, SparkExecutor
from anabranch.spark.standbys import SparkStandbys
from anabranch.spark.stopping import interruptible
from anabranch.state.backing import open_backing_store
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.store import StateVersion


@dataclasses.dataclass(frozen=True)
class QueryDescription:
    """What is to be run."""

    plan_of: Callable[[Form], Plan]
    """The program in a form."""
    split_hot_keys: str
    """`auto`, `on` or `off`: whether the query may go over to aggregations in two steps, or begins with them."""
    spread_names: Mapping[str, str]
    """Sources that may be dealt out to channels → what does it is called."""
    sinks: Sequence[Any]
    orders: Sequence[OutputOrder]
    """What order each output must have."""
    checkpoint: str
    options: QueryOptions
    trigger: dict[str, Any]
    """Arguments of Spark's trigger."""
    name: str | None = None


@dataclasses.dataclass(frozen=True)
class StartedQuery:
    """A query that runs, with all that its handle needs."""

    query: Any
    """Spark's own."""
    runner: SwitchingRunner
    drain: Drain
    executors: QueryExecutors | None
    plans: Mapping[Form, Plan]
    """What is run, in each form that was wanted so far."""
    changes: list[str]
    """How the program differs from the one that the checkpoint had, in words."""
    explain: Callable[[Exception], Exception]
    """The error of ours that tells why Spark's own part failed, if it can be told."""


class _Running:
    """Spark's query, once there is one: asked by what must be made before it."""

    def __init__(self) -> None:
        self._query: Any = None
        self._drain: Drain | None = None

    def started(self, query: Any, drain: Drain) -> None:
        self._query, self._drain = query, drain

    def is_active(self) -> bool:
        if self._query is None or self._drain is None:
            return True
        return bool(self._query.isActive) or self._drain.is_alive()

    def last_progress(self) -> Any:
        return None if self._query is None else self._query.lastProgress


def start(
    spark: SparkSession,
    wanted: QueryDescription,
    observer: Observer,
    executors_changed: Callable[[ExecutorPlan], None],
) -> StartedQuery:
    """Check a query, and start it."""
    if wanted.options.end_of_input == "close" and "availableNow" not in wanted.trigger:
        raise ProgramError(
            "option endOfInput='close': expected a query that ends when all input was read: trigger(availableNow=True)"
        )
    options, context = wanted.options, spark.sparkContext
    location = qualified(spark, wanted.checkpoint)
    durable = options.durability == "power"
    kept = location if options.state_location is None else qualified(spark, options.state_location)
    files = open_state_files(spark, f"{kept}/anabranch", durable)
    held = Checkpoint(files, options.versions_kept)
    log = BatchLog(open_files(spark, location, durable))
    plans: dict[Form, Plan] = {}

    def program_of(form: Form) -> Program:
        plans[form] = wanted.plan_of(form)
        return Program.of(plans[form], {}, wanted.orders)

    forms = Forms(program_of, wanted.split_hot_keys, wanted.spread_names)
    first = forms.first(held)
    program = forms.program(first)
    store = options.migration_store
    backing = None if store is None else open_backing_store(store, location)
    description = checked_description(program, held, options.allow_state_loss)
    log.check(held.latest().facts)
    for sink in wanted.sinks:
        sink.check(Holder(location, held.query))
    read = {operator.node.name: operator.node for operator in plans[first].operators}
    inputs = [read[node.name] for node in program.inputs]
    interval = wanted.trigger.get("processingTime")
    interval_s = None if interval is None else seconds_of(interval)
    sizing = sizing_of(
        spark,
        "fixed" if "once" in wanted.trigger else options.elastic.epoch_size,
        local_directories(spark, inputs),
        options.elastic.epoch_s(interval_s),
        slots_now(context),
        held.latest().facts.adaptation.sizing,
    )
    rows = RowFiles(inputs)
    changes = held.bind(description, options.allow_state_loss)
    assert held.query is not None
    written = rows.written(spark, f"{location}/anabranch/sources", held.query, held.owner.check)
    sources = OrderedSources(spark, inputs, written, None if sizing is None else sizing.limits)
    read_limits = _read_limits(spark, sources, sizing)
    direct = DirectFiles(spark, inputs, sources.leaves, options.file_reading)
    running = _Running()
    executors = executors_of(context, options.elastic.executor_bounds, executors_changed, running.is_active)
    placement = (
        None
        if is_local(context) or options.placement == "off"
        else ChannelPlacement(
            spark, options.standbys, bounds=None if executors is None else options.elastic.executor_bounds, warms=True
        )
    )
    surroundings = SparkSurroundings(
        asked_once_if_local(context, lambda: task_slots(context, options.elastic.executors_max)),
        sources.limited,
        interval_s,
        sizing=sizing,
        slots_now=asked_once_if_local(context, lambda: slots_now(context)),
        executors=executors,
        last_progress=running.last_progress,
        read_by_spark=lambda: direct.why_not or "",
        placement=placement,
        input_bytes=direct.input_bytes,
    )
    backend = Backend(
        SparkExecutor(spark, sources, direct, placement),
        SparkCompactions(spark, placement),
        wanted.sinks,
        surroundings,
        follow=_no_copies if placement is None else SparkStandbys(spark, placement, options.standbys.bytes_per_s),
        sizing=sizing,
        batch_digest=log.digest,
    )
    settings = EpochSettings(
        *(options.elastic, options.balancing, options.snapshots, options.mergers),
        *(options.verify, options.watch, options.columns),
    )
    storage = Storage(held, local_path(kept) is not None, backing, options.cache)

    def runner_of(program: Program) -> EpochRunner:
        found = dataclasses.replace(program, orders=sources.orders)
        return EpochRunner(found, settings, storage, backend, observer)

    runner = SwitchingRunner(runner_of, forms, held)
    for sink in wanted.sinks:
        sink.prepare(Holder.of(location, held))
    stream = sources.unread() if direct.begun else sources.dataframe
    writer = stream.writeStream.foreachBatch(interruptible(runner)).option("checkpointLocation", location)
    if wanted.name is not None:
        writer = writer.queryName(wanted.name)
    if wanted.trigger:
        writer = writer.trigger(**wanted.trigger)
    query = start_query(writer, held, location)
    direct.attach(query)
    if read_limits is not None:
        read_limits.attach(query)
    closes = options.end_of_input == "close"
    drain = Drain(query, runner, bool(wanted.trigger.keys() & {"once", "availableNow"}), closes)
    running.started(query, drain)
    if program.loops or closes:
        drain.start()
    explain = functools.partial(explain_failure, held=held, location=location)
    return StartedQuery(query, runner, drain, executors, plans, changes, explain)


def _no_copies(version: StateVersion) -> None:
    """There is one place, or places are left to Spark."""


def _read_limits(spark: SparkSession, sources: OrderedSources, sizing: EpochSizing | None) -> SparkReadLimits | None:
    """What replaces the limits of the running query's sources, if they are ours to say."""
    if sizing is None:
        return None
    limits = SparkReadLimits(spark, {name: sources.leaves[name] for name in sizing.limits})
    if sizing.limits:
        sizing.begin(limits)
    return limits
