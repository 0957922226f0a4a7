"""Testing programs without a cluster.

`run_parallel` runs a program as Spark would — splitter, packets, shuffle, channels, state, merge, the very
same code — but in this process, in milliseconds. With `run_sequential` beside it a test compares what the
program does in parallel with what it means:

>>> import anabranch as ab
>>> from anabranch.testing import run_parallel
>>> stream = ab.from_rows([("a", 1), ("b", 2), ("a", 3)], "k string, x long")
>>> totals = stream.aggregate(by="k", window=ab.tumbling(2), total=ab.agg.sum("x"))
>>> run_parallel(totals, channels=4) == totals.run_sequential()
True
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from anabranch.api.harness import Harness
from anabranch.api.stream import Stream
from anabranch.compiler.compile import compiled
from anabranch.compiler.layout.source_spread import spread_names
from anabranch.control.elastic_options import ElasticOptions
from anabranch.control.source_spreading import SpreadSettings
from anabranch.engine.driver.balancing import BalancingSettings
from anabranch.engine.driver.epoch_progress import EpochProgress
from anabranch.engine.driver.program_description import checked_description
from anabranch.engine.driver.runner import EpochRunner
from anabranch.engine.driver.setup import Backend, EpochSettings, Observer, Storage, no_digest
from anabranch.engine.driver.sink import Holder, Sink, TableSink
from anabranch.engine.driver.switching import Forms, SwitchingRunner
from anabranch.engine.driver.waiting import Surroundings
from anabranch.engine.job import Job
from anabranch.engine.sequential import input_row, run_epochs
from anabranch.engine.thread_settings import own_context
from anabranch.engine.verifying.comparing import Difference, first_difference
from anabranch.engine.verifying.difference_files import DifferenceRecord
from anabranch.engine.verifying.plain_operators import PlainCode
from anabranch.engine.verifying.verifier import VerifySettings
from anabranch.engine.worker.compact_task import CompactTask
from anabranch.engine.worker.exchange import ROWS, batches_of
from anabranch.engine.worker.output_mergers import MergerTask
from anabranch.engine.worker.tasks import ChannelTask, Program, Task
from anabranch.errors import AnabranchError, ProgramError
from anabranch.operators.epoch_context import EpochContext, running
from anabranch.program.graph import Node, Source, named
from anabranch.program.model import OutputOrder
from anabranch.program.options import OVER_COLUMNS
from anabranch.program.origins import RowsOrigin
from anabranch.program.schema import Row
from anabranch.state.backing import BackingStore
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.files import Files, LocalFiles
from anabranch.state.host_cache import CacheSettings
from anabranch.state.lineage import Compaction
from anabranch.state.manifest_facts import ManifestFacts
from anabranch.state.records import SegmentRecord
from anabranch.state.slices import CUT_BYTES

__all__ = ["Harness", "ParallelRun", "TaskDied", "replay", "run_parallel", "run_sequential"]


AnyTask = TypeVar("AnyTask", bound=Task)


def run_sequential(
    streams: Sequence[Stream], *, clocks_ms: Sequence[int] = (), epochs_max: int | None = None, ends: bool = False
) -> list[list[Row]]:
    """The program of several streams made of rows on one thread: the output of each; `ends`: with the end of input."""
    return run_epochs([stream._node for stream in streams], clocks_ms, epochs_max, ends).outputs


def run_parallel(
    stream: Stream,
    *,
    channels: int = 4,
    seed: int = 0,
    checkpoint: str | None = None,
    clocks_ms: Sequence[int] = (),
    ends: bool = False,
) -> list[Row]:
    """The program of a stream made of rows, run in parallel in this process.

    Parameters
    ----------
    channels : int
        How many channels each keyed stage has.
    seed : int
        How the input is cut into pieces and partitions; any seed must give the same output.
    checkpoint : str, optional
        A directory for state, to run several times from; a temporary one by default.
    clocks_ms : sequence of int, optional
        The time of each epoch, for programs in which time matters.
    ends : bool
        The input ends with the rows: windows close and timers are called.
    """
    with tempfile.TemporaryDirectory(prefix="anabranch-test-") as scratch:
        run = ParallelRun(stream, checkpoint or scratch, channels=channels, seed=seed, clocks_ms=clocks_ms)
        run.run_epochs()
        if ends:
            run.end()
        return run.output


def replay(streams: Stream | Sequence[Stream], file: str) -> Difference | None:
    """Run again what `verify` found to differ, through the operator that a program has now.

    Parameters
    ----------
    streams : Stream or list of Stream
        The program, as it is written now.
    file : str
        What ``VerifyError.file`` named.

    Returns
    -------
    Difference or None
        What differs between what the tasks did and what one thread does; None: nothing, so it is mended.
    """
    record = DifferenceRecord.from_json(Path(file).read_bytes())
    nodes = [stream._node for stream in ([streams] if isinstance(streams, Stream) else streams)]
    for split_hot_keys in (False, True):
        program = Program.of(compiled(nodes, split_hot_keys), {})
        steps = {step.node.name: step.node for step in program.layout.steps}
        if record.operator in steps:
            code = PlainCode(program.written[record.operator], steps[record.operator])
            with running(EpochContext(record.clock_ms)):
                return first_difference(code, record.operator_sample())
    raise ProgramError(f"replay: the program has no operator {record.operator!r}, of which {file} tells")


class TaskDied(Exception):  # noqa: N818 - an event, raised by fault handlers of tests
    """What a fault handler raises to make one attempt of a task die."""


class BatchNotes(Protocol):
    """Spark's note of what each batch has as input, for runs that play Spark's part themselves."""

    def digest(self, number: int) -> str | None:
        """What tells the input of a batch from any other."""

    def check(self, facts: ManifestFacts) -> None:
        """Raise if the notes do not fit what the last manifest says."""


class ParallelRun:
    """A program that runs epoch by epoch in this process, from a checkpoint."""

    def __init__(
        self,
        streams: Stream | Sequence[Stream],
        checkpoint: str,
        *,
        channels: int | ElasticOptions = 4,
        seed: int = 0,
        written: dict[int, Any] | None = None,
        allow_state_loss: bool = False,
        clocks_ms: Sequence[int] = (),
        shared: bool = True,
        backing: BackingStore | None = None,
        balancing: BalancingSettings | None = None,
        split_hot_keys: bool | str = False,
        orders: Sequence[str] = (),
        spread: SpreadSettings | None = None,
        surroundings: Surroundings | None = None,
        sinks: Sequence[Sink] = (),
        batches: BatchNotes | None = None,
        files: Files | None = None,
        versions_kept: int = 10,
        fresh_tasks: bool = False,
        verify: float = 0.0,
        verify_action: str = "fail",
        watch: str = "sample",
        columns: Collection[str] = OVER_COLUMNS,
        cache: CacheSettings | None = None,
        cut_bytes: int = CUT_BYTES,
        mergers: int | None = None,
    ) -> None:
        ends = [streams] if isinstance(streams, Stream) else list(streams)
        nodes = [stream._node for stream in ends]
        plan = compiled(nodes, split_hot_keys is True)
        self._sources = [o.node for o in plan.operators if isinstance(o.node.logic, Source)]
        for source in self._sources:
            if not isinstance(source.logic.origin, RowsOrigin):  # type: ignore[union-attr]
                raise ProgramError(f"run_parallel needs streams made by from_rows; {source.title} holds no rows")
        self._seed = seed
        # Every task as on a worker that never ran one before, and every one run twice, as Spark may.
        self._fresh_tasks = fresh_tasks
        self._tasks_made = 0
        self._clocks_ms = clocks_ms
        # A sink outlives the driver: whoever restarts a run passes on what it wrote.
        self._written = {} if written is None else written
        self.sinks = [_Sink(at, stream.schema, self._written) for at, stream in enumerate(ends)]
        used = list(sinks) or self.sinks
        self.progress: list[EpochProgress] = []
        files = files if files is not None else LocalFiles(f"{checkpoint}/anabranch")
        held = Checkpoint(files, versions_kept)
        self.checkpoint = held
        pieces = {source.name: "files" for source in self._sources}
        outputs = [OutputOrder(order) for order in orders]
        splitting = split_hot_keys if isinstance(split_hot_keys, str) else "on" if split_hot_keys else "off"
        forms = Forms(
            lambda form: Program.of(compiled(nodes, form.split_hot_keys, form.spread), pieces, outputs),
            splitting,
            {} if spread is None else spread_names(named(nodes)),
            spread,
        )
        description = checked_description(forms.program(forms.first(held)), held, allow_state_loss)
        if batches is not None:
            batches.check(held.latest().facts)
        for sink in used:
            sink.check(Holder(checkpoint, held.query))
        self.changes = held.bind(description, allow_state_loss)
        holder = Holder.of(checkpoint, held)
        for sink in used:
            sink.prepare(holder)

        chosen = EpochSettings(
            ElasticOptions(channels=channels) if isinstance(channels, int) else channels,
            balancing if balancing is not None else BalancingSettings(),
            verify=VerifySettings(verify, verify_action),
            watch=watch,
            columns=frozenset(columns),
            mergers=mergers,
        )
        clock = self._clock if clocks_ms else None
        digest = no_digest if batches is None else batches.digest
        around = surroundings if surroundings is not None else Surroundings()
        backend = Backend(self._executed, self._compact, used, around, epoch_time_ms=clock, batch_digest=digest)

        def runner_of(program: Program) -> EpochRunner:
            observer = Observer(self.progress.append)
            storage = Storage(held, shared, backing, cache or CacheSettings(), cut_bytes)
            return EpochRunner(program, chosen, storage, backend, observer)

        self._switching = SwitchingRunner(runner_of, forms, held)

    @property
    def runner(self) -> EpochRunner:
        """What runs the epochs."""
        return self._switching.current

    @property
    def output(self) -> list[Row]:
        """What the epochs delivered, in order."""
        return self.sinks[0].rows

    @property
    def outputs(self) -> list[list[Row]]:
        """What the epochs delivered, for each stream."""
        return [sink.rows for sink in self.sinks]

    @property
    def epochs(self) -> int:
        """How many epochs the sources hold."""
        return max(len(source.logic.origin.epochs) for source in self._sources)  # type: ignore[union-attr]

    def run_epochs(self, first: int = 0, last: int | None = None) -> None:
        """Run the epochs from first to last; all of them by default, and then until nothing is in flight."""
        for number in range(self.epochs)[first : None if last is None else last + 1]:
            rows = {
                source.name: source.logic.origin.epochs[number]  # type: ignore[union-attr]
                for source in self._sources
                if number < len(source.logic.origin.epochs)  # type: ignore[union-attr]
            }
            self.batch(rows, number)
        while last is None and self.drain():
            pass

    def batch(self, rows: Mapping[str, Sequence[Any]], number: int) -> None:
        """Run a micro-batch with this number, as Spark asks for it: source → rows."""
        self._switching(rows, number)

    def end(self) -> None:
        """The input has ended: run the epoch in which all time has come, unless it was run before."""
        self._switching.end()
        while self.drain():
            pass

    def drain(self) -> bool:
        """Run an epoch for what was fed back, if anything was; whether one was run."""
        return self._switching.drain()

    def _clock(self) -> int:
        number = self.runner.epochs_done
        last = number >= self.epochs
        return self._clocks_ms[-1 if last else min(number, len(self._clocks_ms) - 1)]

    # -- an executor ----------------------------------------------------------------------------------------

    def _executed(self, rows: Mapping[str, Sequence[Any]] | None, job: Job) -> pa.Table:
        # What holds where tasks run is the same as where the run was made, and afterwards what it was here.
        return own_context().run(self._execute, rows, job)

    def _execute(self, rows: Mapping[str, Sequence[Any]] | None, job: Job) -> pa.Table:
        random = np.random.default_rng([self._seed, job.split.epoch])
        produced: list[pa.RecordBatch] = []
        for number, part in enumerate(self._partitions(rows or {}, random)):
            if self._fresh_tasks:
                list(batches_of(self._worker(job.split).rows(iter(part), number)))
            produced += batches_of(self._worker(job.split).rows(iter(part), number))
        if job.fed_back:
            fed_back = [[*each] for each in zip(*job.fed_back, strict=True)]
            kinds = [pa.int32(), pa.int64(), pa.binary()]
            arrays = [pa.array(column, kind) for column, kind in zip(fed_back, kinds, strict=True)]
            produced += job.feedback.run(iter([pa.RecordBatch.from_arrays(arrays, ["loop", "first", "payload"])]), 0)
        for task in job.behind_shuffles:
            table = pa.Table.from_batches(produced, ROWS)
            produced = []
            for index in range(task.count):
                mine = table.filter(pa.compute.equal(table["task"], index)).select(["order", "payload"])
                # Spark delivers the blocks of a shuffle in any order.
                shuffled = mine.take(pa.array(random.permutation(len(mine)))) if len(mine) else mine
                produced += self._attempts(task, shuffled, index, random)
        return pa.Table.from_batches(produced, ROWS)

    def _attempts(self, task: ChannelTask | MergerTask, rows: pa.Table, index: int, random: np.random.Generator) -> Any:
        """A channel's results. As on Spark, a task that dies is run again, and one may run twice for nothing."""
        if random.random() < 0.05 or self._fresh_tasks:
            list(self._worker(task).run(_sorted_batches(rows), index))
        for _ in range(3):
            try:
                return list(self._worker(task).run(_sorted_batches(rows), index))
            except TaskDied:
                continue
        raise TaskDied(f"channel {index} died four times")

    def _worker(self, task: AnyTask) -> AnyTask:
        """The task as it runs: with a program unpickled for it alone, if tasks are to be fresh."""
        if not self._fresh_tasks:
            return task
        self._tasks_made += 1
        return dataclasses.replace(task, digest=f"{task.digest} {self._tasks_made}")

    def _compact(self, task: CompactTask, wanted: list[Compaction]) -> Future[list[SegmentRecord]]:
        done: Future[list[SegmentRecord]] = Future()
        try:
            done.set_result([task(each) for each in wanted])
        except AnabranchError as problem:  # as on Spark, where a merge is a job of its own
            done.set_exception(problem)
        return done

    def _partitions(
        self, rows: Mapping[str, Sequence[Any]], random: np.random.Generator
    ) -> Iterator[list[pa.RecordBatch]]:
        """The epoch cut into file splits at random, the splits dealt to partitions at random."""
        pieces = [
            self._columns(number, piece)
            for number, source in enumerate(self._sources)
            for piece in _splits(source, rows.get(source.name, ()), random)
        ]
        partitions: list[list[pa.RecordBatch]] = [[] for _ in range(int(random.integers(1, 5)))]
        for piece in [pieces[at] for at in random.permutation(len(pieces))]:
            size = int(random.integers(1, len(piece) + 2))
            into = partitions[int(random.integers(len(partitions)))]
            into += [piece.slice(at, size) for at in range(0, len(piece), size)]
        yield from partitions

    def _columns(self, number: int, piece: pa.RecordBatch) -> pa.RecordBatch:
        """A piece as splitters read it: with several sources, as a struct beside nulls."""
        if len(self._sources) == 1:
            return piece
        structs: list[pa.Array] = [pa.nulls(len(piece)) for _ in self._sources]
        structs[number] = pa.StructArray.from_arrays(piece.columns, piece.schema.names)
        arrays = [pa.array([number] * len(piece), pa.int32()), *structs]
        return pa.RecordBatch.from_arrays(arrays, ["source", *(f"s{at}" for at in range(len(structs)))])


class _Sink(TableSink):
    """Keeps what epochs deliver."""

    def __init__(self, number: int, schema: Any, written: dict[int, Any]) -> None:
        self._number = number
        self._schema = schema
        self._written = written

    @property
    def rows(self) -> list[Row]:
        tables = [self._written[epoch].get(self._number) for epoch in sorted(self._written)]
        return [row for table in tables if table is not None for row in self._schema.rows(table.columns)]

    def check(self, holder: Holder) -> None:
        """Nothing to check."""

    def prepare(self, holder: Holder) -> None:
        """Nothing to prepare."""

    def write(self, table: pa.Table, epoch: int) -> None:
        """Keep an epoch's output."""
        self._written.setdefault(epoch, {})[self._number] = table


def _splits(source: Node, rows: Sequence[Any], random: np.random.Generator) -> Iterator[pa.RecordBatch]:
    """The rows of a source as pieces of a file, cut at random."""
    schema = source.schema
    tuples = [input_row(source, row, at) for at, row in enumerate(rows)]
    cuts = sorted(random.integers(0, len(tuples) + 1, size=int(random.integers(0, 5))).tolist())
    for start, stop in zip([0, *cuts], [*cuts, len(tuples)], strict=True):
        part = tuples[start:stop]
        columns = list(zip(*part, strict=True)) if part else [() for _ in schema.names]
        order = [pa.array([v] * len(part), t) for v, t in ((0, pa.int64()), ("in", pa.string()), (start, pa.int64()))]
        arrays = [*schema.arrays(columns), *order]
        yield pa.RecordBatch.from_arrays(arrays, [f"c{at}" for at in range(len(arrays))])


def _sorted_batches(packets: pa.Table) -> Iterator[pa.RecordBatch]:
    rows = sorted(zip(packets["order"].to_pylist(), packets["payload"].to_pylist(), strict=True), key=lambda r: r[0])
    for at in range(0, len(rows), 3):
        orders, payloads = zip(*rows[at : at + 3], strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(orders, pa.binary()), pa.array(payloads, pa.binary())], ["p", "q"])
