"""Makes epochs happen: the manifest of each, and the compaction of segments beside them.

    segments of an epoch's channels ─┐
    segments compacted beside it     ┴─► records of the next version ─► manifest ─► committed
                                                                          └► compactions that are too large for channels

All that a driver knows of the committed state is here; what it decides about the next epoch is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future

from anabranch.engine.driver.program_description import describe_program
from anabranch.engine.driver.setup import Compactor, Storage
from anabranch.engine.worker.compact_task import CompactTask
from anabranch.engine.worker.tasks import Program
from anabranch.program.graph import Keyed
from anabranch.program.options import Interval
from anabranch.state.checkpoint import Manifest
from anabranch.state.compaction import INLINE_ROWS, SnapshotInterval
from anabranch.state.files import MemoryFiles
from anabranch.state.key_owners import KeyOwners
from anabranch.state.lineage import (
    KeyRoute,
    after_compaction,
    files_of,
    large_compactions,
    pays_to_adopt,
    without_adopted,
    without_damaged,
    without_old_parts,
)
from anabranch.state.manifest_facts import ManifestFacts
from anabranch.state.object_files import ObjectFiles
from anabranch.state.records import SegmentRecord
from anabranch.state.renaming import renamed_manifest
from anabranch.state.store import FieldNames, StateVersion


class Committer:
    """The committed state of a query, from one manifest to the next."""

    def __init__(self, program: Program, storage: Storage, compact: Compactor, snapshots: Interval | None) -> None:
        self._checkpoint = storage.checkpoint
        self._storage = storage
        self._backing = None if storage.shared else storage.backing  # where files are shared nothing has to travel
        self._compact = compact
        self._snapshots = None if snapshots is None else SnapshotInterval(snapshots)
        self._compacting: Future[list[SegmentRecord]] | None = None
        self._busy: frozenset[str] = frozenset()
        self._generations: dict[str, int] = {}  # operator → the generation of its owners after the epoch before
        self.keys = key_routes(program)
        keyed = {node.name: node.logic for _, node in program.layout.stateful() if isinstance(node.logic, Keyed)}
        self._fields = {name: {f.name: f.initial() for f in logic.fields} for name, logic in keyed.items()}
        self.transient = frozenset(name for name, logic in keyed.items() if logic.transient)
        self._histories = {
            name: FieldNames(logic.version, {field.name: field.was for field in logic.fields if field.was})
            for name, logic in keyed.items()
            if logic.history is not None or any(field.was for field in logic.fields)
        }
        latest = renamed_manifest(self._checkpoint.latest(), describe_program(program).operators)
        durable = {
            operator: [record for record in records if not record.transient]
            for operator, records in latest.segments.items()
        }
        self.manifest = Manifest(latest.epoch, durable, latest.facts)
        self._checkpoint.clean()

    @property
    def is_compacting(self) -> bool:
        """Whether segments are being compacted beside the epochs."""
        return self._compacting is not None and not self._compacting.done()

    def version(self, epoch: int, clock_ms: int, owners: KeyOwners) -> StateVersion:
        """The committed state as the tasks of an epoch read it."""
        files = self._checkpoint.files
        return StateVersion(
            self._storage.state_root,
            self._storage.shared,
            epoch,
            clock_ms,
            owners.by_operator(),
            self.keys,
            self._fields,
            self.manifest.segments,
            self._histories,
            compacting=self._busy if self._compacting is not None else frozenset(),
            transient=self.transient,
            backing=self._backing,
            durable=files.durable,
            store=files if isinstance(files, MemoryFiles | ObjectFiles) else None,
            cache=self._storage.cache,
            cut_bytes=self._storage.cut_bytes,
        )

    def commit(
        self, epoch: int, facts: ManifestFacts, records: Sequence[SegmentRecord], damaged: Sequence[str]
    ) -> KeyOwners:
        """Publish an epoch with the segments that its channels wrote; the owners, without what no segment needs."""
        segments = {operator: list(known) for operator, known in self.manifest.segments.items()}
        for record in [*records, *self._compacted()]:
            if record.data is not None:
                self._checkpoint.files.write(f"state/{record.name}", record.data)
                record = dataclasses.replace(record, data=None)
            known = segments.setdefault(record.operator, [])
            segments[record.operator] = after_compaction(known, record) if record.parts else [record, *known]
        owners = facts.owners.by_operator()
        for operator, known in segments.items():
            whole = without_old_parts(without_damaged(known, damaged), epoch - self._checkpoint.kept)
            key = self.keys.get(operator)
            # State of an operator that the program does not have any more is kept as it is.
            segments[operator] = whole if key is None else without_adopted(whole, owners[operator], key.route)
        pruned = facts.owners.pruned(segments)
        manifest = Manifest(epoch, segments, dataclasses.replace(facts, owners=pruned))
        self._checkpoint.commit(manifest)
        self.manifest = manifest
        if self._backing is not None:
            self._backing.release(files_of(segments))
        return pruned

    def compact_beside(self, clock_ms: int, owners: KeyOwners) -> None:
        """Start the compactions that are too large to be made by the channels, unless some are under way."""
        by_operator = owners.by_operator()
        generations = {name: each.generation for name, each in by_operator.items()}
        before, self._generations = self._generations, generations
        if self._compacting is not None:
            return
        due = self._snapshots is not None and self._snapshots.due(self.manifest.epoch, clock_ms)
        wanted = large_compactions(self.manifest.segments, by_operator, self.keys, INLINE_ROWS, everything=due)
        if not self._storage.shared:
            # New owners first read what they take over, as the next epoch needs it: it is in their caches then.
            # Compacted at once it would be fetched twice, by tasks that hold the slots of those that fetch it, too.
            wanted = [
                (name, channel, records)
                for name, channel, records in wanted
                if before.get(name, generations[name]) == generations[name]
                and (due or pays_to_adopt(records, by_operator[name], INLINE_ROWS))
            ]
        if wanted:
            version = self.version(self.manifest.epoch + 1, clock_ms, owners)
            self._busy = frozenset(record.name for _, _, records in wanted for record in records)
            self._compacting = self._compact(CompactTask(version), wanted)

    def _compacted(self) -> list[SegmentRecord]:
        """The records of compactions that are done."""
        if self._compacting is None or not self._compacting.done():
            return []
        done, self._compacting = self._compacting, None
        try:
            return list(done.result())
        except Exception:  # none is ever needed; the next one reads the same segments and says what is wrong
            return []


def key_routes(program: Program) -> dict[str, KeyRoute]:
    """The keys of the program's operators with state."""
    return {
        node.name: KeyRoute(
            node.key, tuple(node.inputs[0].schema.type_of(name) for name in node.key), stage.routes[node.name]
        )
        for stage, node in program.layout.stateful()
    }
