"""What segments have of the state of one keyed operator: searched for many keys at once, read column by column."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from anabranch.errors import CheckpointError, StateError
from anabranch.program.calling import Instances
from anabranch.program.graph import Keyed, Node
from anabranch.state.codec import decode
from anabranch.state.deltas import BYTES_MIN, combined, is_delta
from anabranch.state.lineage import KeyRoute
from anabranch.state.segment import EXPIRES, Segment
from anabranch.state.shared_fields import Together, untied
from anabranch.state.user_objects import UserClasses, UserObject


class StoredState:
    """The state of an operator's keys at a version: a list of segments, newest first."""

    def __init__(
        self,
        node: Node,
        key: KeyRoute,
        segments: Sequence[Segment],
        clock_ms: int = 0,
        owns: Callable[[np.ndarray, Callable[[], Sequence[Any]]], np.ndarray] | None = None,
    ) -> None:
        assert isinstance(node.logic, Keyed)
        self.instances = Instances(node)
        self.classes = UserClasses(node)
        self.segments = segments
        self._owns = owns  # of what segments hold, what belongs to this channel; None: all of it
        self._clock_ms = clock_ms
        self._ttl_ms = node.logic.time_to_live_ms
        self._is_timed = bool(node.logic.timed)
        self._defaults = {field.name: field for field in node.logic.fields}
        self._version = node.logic.version
        self._key = key
        self._large: dict[tuple[str, Any], bytes] = {}  # field and key → the cell that was read
        self._renewed: set[Any] = set()  # keys whose state was of an earlier version: they are written in this one

    def _find_field(self, keys: list[Any], field: str) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        objects = np.fromiter(keys, dtype=object, count=len(keys))
        for at, places, rows in self._located(keys):
            mine = objects[places]
            found.update(zip(mine.tolist(), self._column(at, field, rows, mine), strict=True))
        return found

    def _find(self, keys: list[Any]) -> dict[Any, tuple[Any, ...]]:
        found: dict[Any, tuple[Any, ...]] = {}
        objects = np.fromiter(keys, dtype=object, count=len(keys))
        for at, places, rows in self._located(keys):
            mine = objects[places]
            found.update(zip(mine.tolist(), self._states(at, rows, mine), strict=True))
        return found

    def _located(self, keys: Sequence[Any]) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Where segments have keys: the segment's number, the places of the keys, their rows."""
        hashes = self._key.hashes(keys)
        order = np.argsort(hashes)
        hashes, left = hashes[order], np.fromiter(keys, dtype=object, count=len(keys))[order]
        for at, segment in enumerate(self.segments):
            if not len(left):
                break
            places, rows = segment.find(hashes, left)
            if not len(places):
                continue
            gone = self._gone(segment, rows)
            if gone is None:
                yield at, order[places], rows
            else:
                counts = ~np.array(gone, dtype=bool)
                yield at, order[places][counts], rows[counts]
            missing = np.ones(len(left), dtype=bool)
            missing[places] = False
            hashes, left, order = hashes[missing], left[missing], order[missing]

    def _states(self, at: int, rows: np.ndarray, keys: np.ndarray) -> Iterable[tuple[Any, ...]]:
        """The state of some rows of a segment, given by its number, in the version of the program."""
        segment = self.segments[at]
        if not segment.is_of(self._version):
            versions = segment.versions(rows)
            is_old = versions != self._version
            if is_old.any():
                before = iter(self._migrated(at, rows[is_old], versions[is_old].tolist(), keys[is_old]))
                now = iter(self._states_now(at, rows[~is_old], keys[~is_old]))
                return [next(before if old else now) for old in is_old.tolist()]
        return self._states_now(at, rows, keys)

    def _states_now(self, at: int, rows: np.ndarray, keys: np.ndarray) -> Iterable[tuple[Any, ...]]:
        columns = [self._column(at, name, rows, keys) for name in self.instances.names]
        states: Iterable[tuple[Any, ...]] = zip(*columns, strict=True) if columns else [()] * len(rows)
        if any(Together in set(map(type, column)) for column in columns):
            states = [tuple(untied(state, self.classes)) for state in states]
        return states

    def _migrated(
        self, at: int, rows: np.ndarray, versions: Sequence[int], keys: np.ndarray
    ) -> Iterator[tuple[Any, ...]]:
        """The state of rows of earlier versions, as the program's own steps make it."""
        segment, history = self.segments[at], self.instances.logic.history
        if history is None:
            title = self.instances.node.title
            raise StateError(f"operator {title}: its state has version {max(versions)}, and the program version 1")
        ours = [name for name in self.instances.names if name not in history.names]  # what only we know of
        held = {name: self._column(at, name, rows, keys) for name in ours}
        lenient = UserClasses(self.instances.node, is_lenient=True)
        theirs = {}
        for name in (each for each in segment.fields if not each.startswith("#") and each not in ours):
            lacking = segment.absent(f"field.{name}", rows)
            has = [True] * len(rows) if lacking is None else (~lacking).tolist()
            theirs[name] = list(zip(has, self._values(at, name, rows, keys, lenient), strict=True))
        for place, (key, version) in enumerate(zip(keys.tolist(), versions, strict=True)):
            fields = {name: column[place][1] for name, column in theirs.items() if column[place][0]}
            fields = dict(zip(fields, untied(fields.values(), self.classes), strict=True))
            made = history.migrated(fields, version, self.instances.node.title, key)
            self._refuse_records(key, made)
            self._renewed.add(key)
            made |= {name: column[place] for name, column in held.items()}
            yield tuple(made[name] if name in made else self._defaults[name].initial() for name in self.instances.names)

    def _refuse_records(self, key: Any, fields: dict[str, Any]) -> None:
        waiting = list(fields.values())
        while waiting:
            value = waiting.pop()
            if isinstance(value, UserObject):
                raise StateError(
                    f"operator {self.instances.node.title}: migrate=… passes on a {value.name} for the key {key!r}, a "
                    "class that is not what it was: make something else of it, value['field'] has its fields"
                )
            if isinstance(value, (list, tuple, set, frozenset, deque)):
                waiting.extend(value)
            elif isinstance(value, dict):
                waiting.extend(value.values())

    def _column(self, at: int, name: str, rows: np.ndarray, keys: np.ndarray) -> list[Any]:
        segment, initial = self.segments[at], self._defaults[name].initial
        if name not in segment.fields:
            return [initial() for _ in range(len(rows))]  # the program has it, the state not yet
        values = self._values(at, name, rows, keys, self.classes)
        lacking = segment.absent(f"field.{name}", rows)
        if lacking is not None and lacking.any():
            return [initial() if lacks else value for lacks, value in zip(lacking.tolist(), values, strict=True)]
        return values

    def _values(self, at: int, name: str, rows: np.ndarray, keys: np.ndarray, classes: UserClasses) -> list[Any]:
        """The values of a field, large ones with their cells kept: what becomes of them may be written as a delta."""
        segment, column = self.segments[at], f"field.{name}"
        if column not in segment.deltas and not segment.is_large(column, rows):
            return segment.values(column, rows, classes)
        cells = self._cells(at, column, rows, keys)
        for key, cell in zip(keys.tolist(), cells, strict=True):
            if cell is not None and len(cell) >= BYTES_MIN // 2 and classes is self.classes:
                self._large[name, key] = cell
        return [None if cell is None else decode(cell, classes) for cell in cells]

    def _cells(self, at: int, column: str, rows: np.ndarray, keys: np.ndarray) -> list[bytes | None]:
        """Cells of a column, deltas followed through older segments."""
        cells = self.segments[at].cells(column, rows)
        if column not in self.segments[at].deltas:
            return cells
        hashes = self.segments[at].hashes[rows]
        open_ = np.array([place for place, cell in enumerate(cells) if is_delta(cell)], dtype=np.int64)
        for older in self.segments[at + 1 :]:
            if not len(open_):
                return cells
            places, found = older.find(hashes[open_], keys[open_])
            if column in older.table.column_names:
                for place, cell in zip(open_[places].tolist(), older.cells(column, found), strict=True):
                    cells[place] = combined(cells[place] or b"", cell or b"")
            open_ = np.array([place for place in open_.tolist() if is_delta(cells[place])], dtype=np.int64)
        if len(open_):
            raise CheckpointError(
                f"operator {self.instances.node.title}: the state of the key {keys[open_[0]]!r} is damaged: what its "
                "last change was made to is missing. Restore the checkpoint, or start anew with another one."
            )
        return cells

    def _gone(self, segment: Segment, rows: np.ndarray) -> list[bool] | None:
        """Which of the rows do not count any more; None: all count."""
        if EXPIRES not in segment.fields or self._ttl_ms is None:
            return segment.dead_rows(rows) if segment.has_dead else None
        expired = [moment <= self._clock_ms for moment in segment.values(f"field.{EXPIRES}", rows)]
        return [a or b for a, b in zip(segment.dead_rows(rows), expired, strict=True)]
