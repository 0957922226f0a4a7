"""What runs in Spark's Python workers: the channels of each depth. The splitters are in `splitters`.

All are callables over iterators of Arrow batches, as `mapInArrow` wants them. They carry the program as bytes
with a digest, so that a worker that stays alive unpickles a program once and not once per task.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from anabranch.compiler.layout.order_needs import check_kept_state, with_needed_order
from anabranch.compiler.layout.plan_data import PlanData
from anabranch.compiler.layout.stages import Edge, Layout, Stage
from anabranch.engine.clock import MACHINE_CLOCK, Clock
from anabranch.engine.reports import Anomaly, ChannelReport
from anabranch.engine.table_versions import Lookups, TableVersion
from anabranch.engine.worker.advances import Advances, EventTimes, at_the_start, rising
from anabranch.engine.worker.batch import Batch, column_batch, sorted_batch
from anabranch.engine.worker.exchange import (
    ADVANCES,
    DATA,
    FAILURE,
    HEADER,
    MARKS,
    Arriving,
    DriverShare,
    Outbox,
    Payload,
    Row,
    arriving_rows,
    batches_of,
    edge_of,
    is_relative,
    needs_pieces,
    task_indexes,
)
from anabranch.engine.worker.measuring import Measuring, resident_bytes
from anabranch.engine.worker.needed_columns import sent_on
from anabranch.engine.worker.output_files import OutputFiles, Target
from anabranch.engine.worker.packets import Positions, piece_of, unpack
from anabranch.engine.worker.retracing import Failure, RetracedStage
from anabranch.engine.worker.samples import StepSample
from anabranch.engine.worker.sampling import Sampling, StageSampler
from anabranch.engine.worker.stage import StageRun
from anabranch.engine.worker.stage_flow import Arrival, Flow, Leaving, by_range
from anabranch.engine.worker.trails import Trails, decoded, distinct, filled, joined, order_of
from anabranch.engine.worker.worker_pools import POOLS
from anabranch.errors import AnabranchError
from anabranch.operators.epoch_context import EpochContext, running, take_anomalies
from anabranch.operators.hot_key_parts import HotKeyParts
from anabranch.program.event_time import END
from anabranch.program.graph import Feedback, Keyed, Node, Watermark
from anabranch.program.model import OutputOrder
from anabranch.program.options import OVER_COLUMNS
from anabranch.program.travelling import Settings, unpacked
from anabranch.state.records import SegmentRecord
from anabranch.state.store import StateVersion

# Rows that go through the operators together: enough to make the work per batch small.
BATCH_ROWS = 32_768
# Tuples of each operator in each task for which what was proven is also watched.
WATCHED_TUPLES = 64
_NO_MARKS = np.empty(0, dtype=np.int64)


@dataclasses.dataclass(frozen=True)
class Program:
    """A program laid out, as every task of a query needs it.

    `orders` says for every source how its pieces are found: files, kafka, partition. `written` are the operators as
    their authors wrote them; they do not travel.
    """

    layout: Layout
    orders: Mapping[str, str]
    written: Mapping[str, Node] = dataclasses.field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "written": {}}

    @classmethod
    def of(cls, plan: PlanData, orders: Mapping[str, str], outputs: Sequence[OutputOrder] = ()) -> Program:
        """The program that a plan describes; `outputs` is the order of each output, total where nothing is said."""
        written = {operator.name: operator.node for operator in plan.operators}
        layout = with_needed_order(plan.layout, outputs)
        check_kept_state(layout, outputs)
        return cls(layout, dict(orders), written)

    @property
    def sources(self) -> list[Node]:
        """Sources and feedback edges, in the order in which their tuples come."""
        nodes = self.layout.sources
        return [n for n in nodes if isinstance(n.logic, Feedback)] + self.inputs

    @property
    def inputs(self) -> list[Node]:
        """Sources in the order of declaration."""
        return [node for node in self.layout.sources if not isinstance(node.logic, Feedback)]

    @property
    def loops(self) -> list[Node]:
        """Feedback edges in the order of declaration."""
        return [node for node in self.layout.sources if isinstance(node.logic, Feedback)]

    def stage_of(self, source: Node) -> Stage:
        """The stage that runs where a source is read."""
        return next(s for s in self.layout.stages if s.kind == "source" and s.name == source.name)

    def prefix(self, source: Node) -> bytes:
        """What the places of a source's pieces begin with: sources come one after the other."""
        return bytes([[each.name for each in self.sources].index(source.name)])


_programs: dict[str, tuple[Program, Settings]] = {}
_lookups = Lookups()


@dataclasses.dataclass(frozen=True)
class Task:
    """What all tasks of an epoch have in common."""

    program: bytes
    digest: str
    epoch: int
    clock_ms: int
    functions: Mapping[int, Any]  # stage → its partitioning function
    parts: Mapping[str, HotKeyParts]  # operator → its hot keys that are in parts
    files: Mapping[int, Target]  # exit → where whoever makes its tuples writes them, for those that need no order
    clock: Clock = dataclasses.field(default=MACHINE_CLOCK, kw_only=True)
    times: EventTimes = dataclasses.field(default=EventTimes(), kw_only=True)
    retraces: bool = dataclasses.field(default=False, kw_only=True)  # to find the first error of an epoch that failed
    sampling: Sampling | None = dataclasses.field(default=None, kw_only=True)  # which keys are to be run again
    watch: str = dataclasses.field(default="sample", kw_only=True)
    tables: tuple[TableVersion, ...] = dataclasses.field(default=(), kw_only=True)  # what changing tables hold
    columns: frozenset[str] = dataclasses.field(default=frozenset(OVER_COLUMNS), kw_only=True)
    bounds: DriverShare = dataclasses.field(default=DriverShare(), kw_only=True)  # of what passes through the driver

    @property
    def watched(self) -> int:
        """For how many tuples dicts of the user's refuse what is not their key's."""
        return {"off": 0, "sample": WATCHED_TUPLES, "all": sys.maxsize}[self.watch]

    def outbox(self, layout: Layout, depth: int, whom: int) -> Outbox:
        """What addresses what leaves a task of a depth."""
        return Outbox(layout, depth, self.functions, whom, self.epoch, self.sent, self.bounds)

    def sent(self, layout: Layout, edge: Edge) -> pa.Schema:
        """The columns of the tuples that travel on an edge."""
        # An error shows all of its tuple, and so does what is run again.
        if self.retraces or self.sampling is not None or "needed" not in self.columns:
            return layout.steps[edge.source].node.schema.arrow
        return sent_on(layout, edge)

    def sampler(self, layout: Layout, stage: Stage, tables: Mapping[str, Any]) -> StageSampler | None:
        """What takes down what a stage does with keys that are to be run again; None: none are."""
        return None if self.sampling is None else StageSampler(layout, stage, tables, self.sampling)

    def load(self) -> Program:
        found = _programs.get(self.digest)
        if found is None:
            _programs.clear()  # a worker serves one query at a time; what it served before is garbage
            found = _programs[self.digest] = unpacked(self.program)
        program, settings = found
        settings.hold()
        return program

    def context(self) -> EpochContext:
        """The epoch as operators see it in this task."""
        return EpochContext(self.clock_ms, self.parts, number=self.epoch, tables=_lookups.of(self.tables))


@dataclasses.dataclass(frozen=True)
class ChannelTask(Task):
    """The channels of a depth for one epoch, one per index: rows in, state in and out, rows out."""

    depth: int
    state: StateVersion
    mergers: int = 0
    merged: frozenset[int] = frozenset()  # exits whose tuples go to mergers

    @property
    def count(self) -> int:
        """How many tasks the depth has."""
        return task_indexes(self.load().layout, self.depth, self.functions).count

    def run(self, batches: Iterator[pa.RecordBatch], index: int, place: str = "") -> Iterator[pa.RecordBatch]:
        """The task with an index, over its rows (order, payload), sorted by order; `place` is reported."""
        return batches_of(self.rows(arriving_rows(batches), index, place))

    def rows(self, arriving: Iterator[Arriving], index: int, place: str = "") -> Iterator[Row]:
        """What the task sends."""
        with running(self.context()):
            yield from self._rows(arriving, index, place)

    def _rows(self, arriving: Iterator[Arriving], index: int, at: str) -> Iterator[Row]:
        program = self.load()
        outbox = self.outbox(program.layout, self.depth, index)
        later = self.depth < program.layout.depth
        needed = self.retraces or needs_pieces(program.layout, self.depth + 1) or (later and bool(self.merged))
        hands_on_pieces = index == 0 and needed
        place = task_indexes(program.layout, self.depth, self.functions).stage_of(index)
        files = OutputFiles(program.layout, self.files, self.epoch, place)
        try:
            channel = ChannelRun(self, self.state, program, *place)  # opens its state, which this host may lack some of
            for order, payload in arriving:
                kind = order[0]
                if kind == FAILURE:
                    yield from outbox.everywhere(order, payload.as_py())
                    return
                if kind == HEADER:
                    channel.add_pieces(payload)
                    if hands_on_pieces:
                        yield from outbox.everywhere(order, payload.as_py())
                elif kind in (DATA, MARKS, ADVANCES):
                    for leaving in channel.take(kind, *edge_of(order), payload):
                        yield from self._sent(leaving, outbox, channel, files)
                else:
                    yield outbox.handed_on(order, payload.as_py())
            for leaving in channel.finish():
                yield from self._sent(leaving, outbox, channel, files)
            if self.retraces:
                yield from (outbox.met(each) for each in [channel.failure] if each is not None)
                return
            for sample in channel.samples:
                yield outbox.sample(sample.to_bytes())
            memory = resident_bytes() if at else 0
            told = dataclasses.replace(channel.report(), files=files.close(), place=at, memory_bytes=memory)
            yield outbox.report(told)
        except AnabranchError as error:
            files.abandon()
            yield from outbox.failure(error)

    def _sent(self, leaving: Leaving, outbox: Outbox, channel: ChannelRun, files: OutputFiles) -> Iterator[Row]:
        if leaving.edge.target < 0 and leaving.edge.place in self.merged:
            for number, part in by_range(leaving, channel.total, self.mergers):
                yield outbox.result(part, number)
        elif not files.takes(leaving):
            yield from outbox.leaving(leaving)


class ChannelRun:
    """One channel of a stage for one epoch: the stage with this number, the channel with that.

    Where the tuples come straight from a source, rows arrive in order and are worked off as they come; so are those
    without trails, because whoever minds order gets them only where they come in order anyway. What else comes from
    other channels, or by several edges, is brought into order when all is there.
    """

    def __init__(self, task: Task, state: StateVersion, program: Program, stage: int, number: int) -> None:
        self._clock = task.clock
        self._began = self._clock.now_s()
        self._started = self._clock.passing_s()
        self._used = self._clock.processor_s()
        self._layout = program.layout
        self._number = number
        self._stage = program.layout.stages[stage]
        self._entry = program.layout.steps[self._stage.steps[0]]
        self._edges = {edge.number: edge for edge in program.layout.inputs_of(self._stage)}
        self._sent = {edge.number: task.sent(program.layout, edge) for edge in self._edges.values()}
        self._positions = Positions()
        self._waiting: dict[int, list[tuple[Trails, pa.RecordBatch]]] = {}
        self._marks: dict[int, list[Trails]] = {}
        self._advances: dict[str, list[tuple[int, Trails, np.ndarray]]] = {}  # watermark → edge, trails, values
        self._times = task.times
        self._size = 0
        edges = list(self._edges.values())
        simple = len(edges) == 1 and is_relative(self._layout, edges[0]) and not edges[0].punctuated
        self._streams = not self._entry.takes_arrivals and (simple or not any(edge.ordered for edge in edges))
        self._nodes = program.layout.nodes(self._stage)
        self._state = state(self._number)
        tables = self._state.open(self._nodes)
        self._measuring = Measuring(program.layout, self._stage, tables, self._clock)
        self._sampler = task.sampler(program.layout, self._stage, tables)
        self.samples: list[StepSample] = []
        place = (program.layout, self._stage, tables, task.epoch, task.clock_ms)
        self._run: StageRun | RetracedStage
        if task.retraces:
            self._run = RetracedStage(*place, times=task.times)
        else:
            pools = POOLS.step, self._sampler, task.watched, POOLS.unordered_step, task.columns
            self._run = StageRun(*place, self._measuring.watch, task.times, *pools)
        # What all channels know alike is sent by one of them.
        made_here = {node.name for node in self._nodes if isinstance(node.logic, Watermark)}
        self._sends = None if self._number == 0 else made_here
        self._rows_in = self._rows_out = 0
        self._busy = 0.0
        self._saving = 0.0
        self._segments: list[SegmentRecord] = []

    def _columns(self, edge: Edge) -> Any:
        return self._layout.steps[edge.source].node.schema

    @property
    def total(self) -> int:
        """How many rows the epoch has, of all sources."""
        return self._positions.total

    @property
    def failure(self) -> Failure | None:
        """The error that was met while retracing."""
        return self._run.failure if isinstance(self._run, RetracedStage) else None

    def add_pieces(self, payload: pa.Scalar | Payload) -> None:
        self._positions.add(msgpack.unpackb(payload.as_buffer()))

    def take(self, kind: int, number: int, coordinate: bytes, payload: pa.Scalar | Payload) -> Iterator[Any]:
        """Take rows that arrived; what leaves already."""
        edge = self._edges[number]
        buffer = payload.as_buffer()
        if kind == ADVANCES:
            self._take_advances(edge, edge.watermarks[coordinate[0]], coordinate[1:], buffer)
            return
        trails: Trails = []
        if edge.ordered:
            base = self._positions.base(piece_of(coordinate)) if is_relative(self._layout, edge) else 0
            trails = decoded(memoryview(buffer), edge.width, base)
        if kind == MARKS:
            self._marks.setdefault(number, []).append(trails)
            return
        rows = unpack(buffer, self._sent[number])
        trails = trails or [np.arange(len(rows))]
        self._waiting.setdefault(number, []).append((trails, rows))
        self._size += len(rows)
        if self._streams and self._size >= BATCH_ROWS:
            yield from self._flush()

    def _take_advances(self, edge: Edge, name: str, coordinate: bytes, buffer: pa.Buffer) -> None:
        base = self._positions.base(piece_of(coordinate)) if is_relative(self._layout, edge) else 0
        *trails, values = decoded(memoryview(buffer), edge.width + 1, base)
        self._advances.setdefault(name, []).append((edge.number, trails, values))

    def _flush(self) -> Iterator[Any]:
        waiting, self._waiting, self._size = self._waiting, {}, 0
        for number, parts in waiting.items():
            trails = joined([trails for trails, _ in parts])
            batch = column_batch(self._columns(self._edges[number]), range(len(trails[0])), [rows for _, rows in parts])
            yield from self.worked(Flow(batch, trails), len(batch))

    def worked(self, entering: Flow | Arrival, rows_in: int) -> Iterator[Any]:
        """What leaves for what enters."""
        yield from self._left(lambda: self._run.run(entering), rows_in)

    def _left(self, make: Callable[[], list[Leaving]], rows_in: int) -> Iterator[Leaving]:
        begun = self._clock.passing_s()
        leaving = make()
        if self._sends is not None:
            for each in leaving:
                each.advances = tuple(one for one in each.advances if one.name in self._sends)
        self._rows_in += rows_in
        self._rows_out += sum(len(each.trails[0]) for each in leaving)
        self._busy += self._clock.passing_s() - begun
        self._measuring.take(self._run)
        yield from leaving

    def finish(self) -> Iterator[Any]:
        """All has arrived: what leaves now; then the state is saved."""
        if self._streams:
            if self._waiting:
                yield from self._flush()
            if self._advances:
                ((_, edge),) = self._edges.items()
                nothing = Flow(Batch(self._columns(edge), [], []), _empty(edge.width))
                advances = tuple(self._rising(edge.digits))
                yield from self.worked(dataclasses.replace(nothing, advances=advances), 0)
        else:
            yield from self._worked_in_parts(self._arrival())
        if isinstance(self._run, RetracedStage):
            return  # nothing of the epoch is kept
        yield from self._left(self._run.finish, 0)
        begun = self._clock.passing_s()
        self._segments = self._state.save(self._nodes)
        self._saving = self._clock.passing_s() - begun
        if self._sampler is not None:  # what cannot be kept was refused above
            self.samples = self._sampler.samples()

    def _worked_in_parts(self, arrival: Arrival) -> Iterator[Any]:
        """What leaves for everything that arrived: as Python values only a part of it is there at a time."""
        between = len(arrival.marks) or arrival.advances or isinstance(self._run, RetracedStage)
        if between or self._entry.takes_arrivals or self._size <= BATCH_ROWS:
            yield from self.worked(arrival, self._size)
            return
        whole = Flow(next(iter(arrival.batches.values())), arrival.trails)
        for part in (whole.part(start, start + BATCH_ROWS) for start in range(0, self._size, BATCH_ROWS)):
            yield from self.worked(part, len(part.batch))

    def _arrival(self) -> Arrival:
        """Everything that arrived, in order."""
        wanted = self._entry.digits
        parts: list[Trails] = []
        spans: list[tuple[Edge, int, list[pa.RecordBatch]]] = []
        for number, edge in self._edges.items():
            waiting = self._waiting.pop(number, [])  # once it is in order nobody needs it any more
            trails = joined([t for t, _ in waiting]) if waiting else _empty(edge.width)
            parts.append(filled(trails, edge.digits, wanted))
            spans.append((edge, len(trails[0]), [rows for _, rows in waiting]))
        for number, edge in self._edges.items():
            marks = distinct(joined(self._marks[number])) if number in self._marks else _empty(edge.width)
            parts.append(filled(marks, edge.digits, wanted))
        advances = list(self._rising(wanted))
        parts += [each.trails for each in advances]
        tick = self._tick()
        if tick is not None:
            parts.append([np.full(1, tick if at == 0 else 0) for at in range(len(parts[0]))])
        trails = joined(parts)
        order = order_of(trails)
        ((edge, count, records), *others) = spans
        if not others and count == len(order):  # tuples by one edge, and nothing that happens between them
            batch = column_batch(self._columns(edge), range(count), records, order)
            return Arrival({edge.place: batch}, [digits[order] for digits in trails], _NO_MARKS)
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        batches: dict[int, list[tuple[np.ndarray, list[pa.RecordBatch], Any]]] = {}
        start = 0
        for edge, count, records in spans:
            batches.setdefault(edge.place, []).append((place[start : start + count], records, self._columns(edge)))
            start += count
        stop = len(order) - (tick is not None)
        happened: list[tuple[int, str, int]] = []
        for each in reversed(advances):
            stop -= len(each.values)
            places = place[stop : stop + len(each.values)].tolist()
            happened += zip(places, [each.name] * len(places), each.values.tolist(), strict=True)
        return Arrival(
            {at: sorted_batch(each) for at, each in batches.items()},
            [digits[order] for digits in trails],
            np.sort(place[start:stop]),
            int(place[-1]) if tick is not None else None,
            sorted(happened),
        )

    def _tick(self) -> int | None:
        """Where the start of the epoch stands, if the entry waits for it."""
        logic = self._entry.node.logic
        always = isinstance(logic, Keyed) and bool(logic.ticked or logic.timed)
        return self._entry.tick if always or (self._times.ending and self._entry.waits) else None

    def _rising(self, wanted: Any) -> Iterator[Advances]:
        """The advances of each watermark, in order."""
        ticks = self._layout.watermark_ticks() if self._times.ending and self._entry.is_timed else {}
        names = dict.fromkeys(name for edge in self._edges.values() for name in edge.watermarks)
        for name in names:
            parts = [
                (filled(trails, self._edges[number].digits, wanted), values)
                for number, trails, values in self._advances.get(name, ())
            ]
            if name in ticks:  # the input has ended: whoever made it says so at the start of the epoch
                came = [edge.digits for edge in self._edges.values() if name in edge.watermarks]
                parts.append((at_the_start(ticks[name], came, wanted), np.full(1, END)))
            if parts:
                yield rising(name, parts, self._times.value(name), name in self._times.idle)

    def report(self) -> ChannelReport:
        """What the channel did."""
        return ChannelReport(
            stage=self._stage.number,
            name=self._stage.name,
            depth=self._stage.depth,
            channel=self._number,
            began_s=self._began,
            seconds=self._clock.passing_s() - self._started,
            processor_seconds=self._clock.processor_s() - self._used,
            rows_in=self._rows_in,
            rows_out=self._rows_out,
            busy_seconds=self._busy,
            state_seconds=self._saving,
            segments=tuple(self._segments),
            damaged=tuple(self._state.damaged),
            measured=self._measuring.report(lambda: self._state.visible(self._entry.node.name)),
            operators=self._run.entered,
            anomalies=met(),
            elastic=POOLS.reports(self._nodes),
            watermarks=self._run.reached,
            fetched_bytes=self._state.fetched_bytes,
            broadcasts={} if self._number else self._run.broadcasts,
        )


def met() -> tuple[Anomaly, ...]:
    """What the operators of this task met since it began."""
    return tuple(Anomaly(operator, what, number) for (operator, what), number in take_anomalies().items())


def _empty(width: int) -> Trails:
    return [np.empty(0, dtype=np.int64) for _ in range(width)]
