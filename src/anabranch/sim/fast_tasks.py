"""The tasks of an epoch, not run but worked out: for experiments with more tuples than one process can take.

No user code runs and no tuple exists. How many tuples reach which operator follows from the selectivities, which
channel gets how many from drawing keys and asking the region's own partitioning function. What the driver gets are the
reports that tasks would have sent, in the types they are sent in: counts of keys by the production's `Tally`, times of
keys by its `KeyTimes`, records of segments as channels write them, compacted when its tiers say so. So everything the
driver does with them is what it does on Spark; only the segments' files are not there, and nobody opens them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import numpy as np
import pyarrow as pa

from anabranch.compiler.layout.stages import Layout, Stage, Step
from anabranch.engine.job import Job
from anabranch.engine.reports import ChannelReport, Report, RoutedKeys, SplitReport
from anabranch.engine.worker.compact_task import CompactTask
from anabranch.engine.worker.exchange import ROWS, report_row
from anabranch.engine.worker.tasks import ChannelTask
from anabranch.engine.worker.timing import timed_rows
from anabranch.partitioning.counting.key_costs import KeyTimes, KeyTimesReport
from anabranch.partitioning.counting.tally import Tally, TallyReport
from anabranch.program.graph import Keyed, Port, Route
from anabranch.program.hashing import hash_columns
from anabranch.sim.inputs import InputFile
from anabranch.sim.job_time import JobTime
from anabranch.sim.real_tasks import timed, with_busy_sources, work_s
from anabranch.sim.situation import Keys, Situation
from anabranch.state.compaction import INLINE_ROWS
from anabranch.state.lineage import Compaction, inline_compaction, own, visible
from anabranch.state.records import SegmentRecord
from anabranch.state.store import StateVersion

_TIMED_MAX = 4096
"""Tuples of a channel that are timed one by one, at most: enough to know what the frequent keys take."""


class _Drawn:
    """The keys of a region: which there are, and how many tuples of an epoch each has."""

    def __init__(self, keys: Keys) -> None:
        ranks = np.arange(1, keys.count + 1, dtype=float)
        self.hashes = hash_columns([pa.array(np.arange(keys.count), pa.int64())])
        self._shares = ranks**-keys.skew / (ranks**-keys.skew).sum()
        self.factors = np.ones(keys.count)
        for key, factor in keys.slow:
            self.factors[key] = factor
        self.state_bytes = keys.state_bytes

    def counts(self, rows: int, chance: np.random.Generator) -> np.ndarray:
        return chance.multinomial(rows, self._shares)


class FastTasks:
    """Works out what the tasks of jobs report."""

    def __init__(self, situation: Situation, time: JobTime, chance: np.random.Generator) -> None:
        self._situation = situation
        self._time = time
        self._costs = time.costs
        self._chance = chance
        self._drawn: dict[Keys, _Drawn] = {}
        self._names = itertools.count()
        self.rows_out = 0
        """Tuples that left the program in the last job."""

    def __call__(self, batch: Mapping[str, Sequence[InputFile]] | None, job: Job) -> pa.Table:
        layout = job.split.load().layout
        self._time.plan()
        files = {name: list(each) for name, each in (batch or {}).items()}
        leaving: dict[int, float] = {}  # step → tuples that leave it
        reports: list[Report] = self._sources(layout, job, files, leaving)
        for task in job.depths:
            reports += self._depth(layout, task, leaving)
        self.rows_out = round(sum(leaving[edge.source] for edge in layout.edges if edge.target < 0))
        rows = [report_row(report) for report in reports]
        arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), ROWS, strict=True)]
        return pa.Table.from_arrays(arrays, schema=ROWS)

    # -- counts -----------------------------------------------------------------------------------------------

    def _selectivity(self, layout: Layout, step: Step) -> float:
        node = step.node
        given = self._situation.selectivities.get(node.name)
        if given is not None:
            return given
        if isinstance(node.logic, Port) and isinstance(node.inputs[0].logic, Route):
            ports = sum(1 for e in layout.steps[layout.edges[step.inputs[0]].source].outputs)
            return 1 / max(1, ports)
        return 1.0

    def _through(
        self, layout: Layout, stage: Stage, entering: float, leaving: dict[int, float] | None
    ) -> tuple[dict[str, int], int]:
        """Tuples that enter each operator of a stage, and how many leave the stage."""
        made: dict[int, float] = {}
        counts: dict[str, int] = {}
        left = 0.0
        for at, number in enumerate(stage.steps):
            step = layout.steps[number]
            arrived = entering if at == 0 else sum(made[layout.edges[e].source] for e in step.inputs)
            counts[step.node.name] = round(arrived)
            made[number] = arrived * self._selectivity(layout, step)
            out = [layout.edges[e] for e in step.outputs]
            left += made[number] * sum(1 for edge in out if edge.crosses or edge.target < 0)
        if leaving is not None:
            leaving.update(made)
        return counts, round(left)

    def _sources(
        self, layout: Layout, job: Job, files: Mapping[str, list[InputFile]], leaving: dict[int, float]
    ) -> list[Report]:
        """The splitters. Spark packs the small files of a source evenly, so that all tasks run at once."""
        slots = self._time.slots()
        parts: list[list[InputFile]] = []
        for mine in files.values():
            packed = max(1, math.ceil(len(mine) / slots))
            parts += [mine[at : at + packed] for at in range(0, len(mine), packed)]
        parts = parts or [[]]
        reports = []
        for stage in layout.at_depth(0):
            rows = sum(file.rows for file in files.get(stage.name, ()))
            self._through(layout, stage, rows, leaving)
        for part in parts:
            read: dict[str, int] = {}
            for file in part:
                read[file.source] = read.get(file.source, 0) + file.rows
            counts: dict[str, int] = {}
            rows_out = 0
            for stage in layout.at_depth(0):
                through, left = self._through(layout, stage, read.get(stage.name, 0), None)
                counts |= through
                rows_out += left
            oldest = min((file.written_ms for file in part), default=None)
            reports.append(SplitReport(0.0, 0.0, rows_out, read, oldest, operators=counts))
        works = [
            work_s(report, self._costs) + len(part) * self._costs.file_s
            for report, part in zip(reports, parts, strict=True)
        ]
        return [with_busy_sources(report, layout, self._costs) for report in self._timed(reports, works)]

    def _timed(self, reports: Sequence[Report], works: Sequence[float]) -> list[Report]:
        return [
            timed(report, work, where, self._costs)
            for report, work, where in zip(reports, works, self._time.stage(works), strict=True)
        ]

    def _depth(self, layout: Layout, task: ChannelTask, leaving: dict[int, float]) -> list[Report]:
        reports: list[ChannelReport] = []
        works: list[float] = []
        routed: list[RoutedKeys] = []
        for stage in layout.at_depth(task.depth):
            entering = round(sum(leaving.get(edge.source, 0.0) for edge in layout.inputs_of(stage)))
            self._through(layout, stage, entering, leaving)
            function = task.functions[stage.number]
            keyed = stage.kind == "keyed"
            counts, drawn = None, None
            if keyed:
                drawn = self._keys_of(stage.name)
                counts = drawn.counts(entering, self._chance)
                owners = function.route(drawn.hashes)
                per_channel = np.bincount(owners, weights=counts, minlength=function.channels)
                routed.append(RoutedKeys(stage.number, self._tally(task, stage, drawn, counts)))
            elif stage.kind == "spread":
                per_channel = np.full(function.channels, entering / function.channels)
            else:
                per_channel = np.array([float(entering)])
            for channel, rows in enumerate(per_channel.tolist()):
                through, left = self._through(layout, stage, rows, None)
                mine = None
                if keyed and counts is not None and drawn is not None:
                    mine = np.flatnonzero((owners == channel) & (counts > 0))
                report = ChannelReport(
                    stage.number, stage.name, stage.depth, channel, 0.0, 0.0, round(rows), left,
                    segments=self._segments(layout, stage, channel, task.state, mine, drawn),
                    operators=through,
                )  # fmt: skip
                work = work_s(report, self._costs) + rows * self._situation.row_bytes * self._costs.byte_s
                if mine is not None and counts is not None and drawn is not None and len(mine):
                    factor = float((counts[mine] * drawn.factors[mine]).sum() / counts[mine].sum())
                    busy = sum(self._costs.of_operator(name) * n for name, n in through.items())
                    work += busy * (factor - 1)
                    measured = self._measured(drawn, mine, counts, busy / max(rows, 1))
                    report = dataclasses.replace(report, measured=measured)
                reports.append(report)
                works.append(work)
        if routed:
            # Who counted what does not matter to the driver: it adds up what all tasks counted.
            reports[0] = dataclasses.replace(reports[0], keys=tuple(routed))
        return self._timed(reports, works)

    def _keys_of(self, region: str) -> _Drawn:
        keys = self._situation.keys.get(region, self._situation.keys_default)
        known = self._drawn.get(keys)
        if known is None:
            known = self._drawn[keys] = _Drawn(keys)
        return known

    def _tally(self, task: ChannelTask, stage: Stage, drawn: _Drawn, counts: np.ndarray) -> TallyReport:
        tally = Tally(task.epoch << 24 ^ stage.number)
        hashes = np.repeat(drawn.hashes, counts)
        self._chance.shuffle(hashes)
        tally.add(hashes)
        return tally.to_report()

    def _measured(self, drawn: _Drawn, mine: np.ndarray, counts: np.ndarray, tuple_s: float) -> KeyTimesReport:
        rows = int(counts[mine].sum())
        wanted = min(_TIMED_MAX, rows if tuple_s > 20e-6 else timed_rows(rows))
        chosen = self._chance.choice(mine, wanted, p=counts[mine] / rows)
        times = KeyTimes()
        times.add(drawn.hashes[chosen], tuple_s * drawn.factors[chosen])
        sizes = {key: drawn.state_bytes for key, _, _ in times.reported()}
        return times.to_report(sizes, len(mine), float(drawn.state_bytes))

    # -- state ------------------------------------------------------------------------------------------------

    def _segments(
        self,
        layout: Layout,
        stage: Stage,
        channel: int,
        state: StateVersion,
        touched: np.ndarray | None,
        drawn: _Drawn | None,
    ) -> tuple[SegmentRecord, ...]:
        """The records of what the channel would have written, compacted as its tiers say."""
        written = []
        for node in layout.nodes(stage):
            if not isinstance(node.logic, Keyed):
                continue
            rows = 1 if touched is None else len(touched)
            if not rows:
                continue
            each = 64 if drawn is None else drawn.state_bytes
            record = self._record(node.name, channel, state, rows, each, state.epoch, state.epoch)
            written.append(record)
            mine = own([record, *self._seen(state, node.name, channel)], channel, state.owners[node.name])
            count = inline_compaction(mine, INLINE_ROWS, state.compacting)
            if count:
                written.append(self._compacted(node.name, channel, state, mine[:count]))
        return tuple(written)

    def _seen(self, state: StateVersion, operator: str, channel: int) -> list[SegmentRecord]:
        records = state.segments.get(operator, ())
        return visible(records, channel, state.owners[operator], state.keys[operator].route)

    def _record(
        self, operator: str, channel: int, state: StateVersion, rows: int, each: int, first: int, last: int
    ) -> SegmentRecord:
        return SegmentRecord(
            name=f"{operator}/{last:012d}-{channel:05d}-{next(self._names):012x}.segment",
            operator=operator,
            channel=channel,
            generation=state.owners[operator].generation,
            route=state.keys[operator].route,
            first=first,
            last=last,
            rows=rows,
            bytes=rows * each,
            checksum=0,
        )

    def _compacted(
        self, operator: str, channel: int, state: StateVersion, records: Sequence[SegmentRecord]
    ) -> SegmentRecord:
        """The record of a compaction: about as many keys as the largest part."""
        rows = max(record.rows for record in records)
        each = max(1, round(records[0].bytes / max(1, records[0].rows)))
        first, last = min(record.first for record in records), max(record.last for record in records)
        compacted = self._record(operator, channel, state, rows, each, first, last)
        foreign = {r.name for r in records if r.generation != state.owners[operator].generation}
        adopted = {name for record in records for name in record.adopted}
        parts = tuple(dataclasses.replace(record, parts=()) for record in records)
        return dataclasses.replace(compacted, adopted=tuple(sorted(adopted | foreign)), made=state.epoch, parts=parts)

    def compact(self, task: CompactTask, wanted: list[Compaction]) -> Future[list[SegmentRecord]]:
        """Merges beside the epochs, done at once."""
        done: Future[list[SegmentRecord]] = Future()
        done.set_result(
            [self._compacted(operator, channel, task.state, records) for operator, channel, records in wanted]
        )
        return done
