"""The state of one keyed operator as one channel sees it in one epoch.

A table is opened at a version (a list of segments, newest first), loads the keys a batch touches, lends
out their instances, and at the end gives the segment of what changed. Keys that were not touched are not
read, keys that were not changed are not written.
"""

from __future__ import annotations

import contextlib
import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress, repeat
from operator import is_, is_not
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import CheckpointError, StateError
from anabranch.program.calling import Instances, canonical_key
from anabranch.program.graph import Keyed, Node
from anabranch.state.codec import comparable, decode
from anabranch.state.deltas import BYTES_MIN, combined, is_delta
from anabranch.state.lineage import KeyRoute
from anabranch.state.maps import StateMap, StateMaps
from anabranch.state.segment import EXPIRES, Segment, write_block, write_segment
from anabranch.state.shared_fields import IMMUTABLE, Together, tied, untied
from anabranch.state.state_columns import (
    ColumnForm,
    StateBlock,
    StateColumns,
    UnfitError,
    all_values,
    decoded,
    joined,
    with_values,
)
from anabranch.state.user_objects import UserClasses, UserObject

_ANOTHER = object()  # what no value is


def _is_unchanged(value: Any) -> bool:
    """Whether a value that is the same object is sure to be the same value."""
    return type(value) in IMMUTABLE or (isinstance(value, (StateMap, StateMaps)) and not value.changed)


class Table:
    """State of a keyed operator: load touched keys, hand out instances, collect the changes."""

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
        self.live: dict[Any, Any] = {}
        self.blocks: list[StateBlock] = []  # of keys that are not live: a key is an instance, or a row of columns
        self._stored: set[Any] = set()  # keys of blocks that segments have
        self._loaded: dict[Any, tuple[Any, ...]] = {}
        self._large: dict[tuple[str, Any], bytes] = {}  # field and key → the cell that was read
        self._renewed: set[Any] = set()  # keys whose state was of an earlier version: they are written in this one
        self._loaded_bytes: dict[Any, bytes] = {}  # of what can change in place, where it matters whether it did

    def load(self, touched: Iterable[Any]) -> dict[Any, Any]:
        """Make sure the instances of these keys are live; all live ones, by key."""
        live = self.live
        wanted = [key for key in touched if key not in live]
        if wanted:
            with _no_collections():
                if self.blocks:
                    wanted = self._taken_over(wanted)
                found = self._find(wanted) if wanted and self.segments else {}
                new, restored = self.instances.new, self.instances.restored
                for key, values in found.items():
                    live[key] = restored(values)
                    if self._ttl_ms is not None and not IMMUTABLE.issuperset(map(type, values)):
                        self._loaded_bytes[key] = comparable(list(values), self.classes)
                if len(found) < len(wanted):
                    for key in wanted:
                        if key not in found:
                            live[key] = new()
                self._loaded.update(found)
        return live

    def columns(self, keys: Sequence[Any], forms: dict[str, ColumnForm]) -> StateColumns | None:
        """The state of keys, each named once, as columns; they are instances no more. None if it does not fit these.

        Whoever takes it gives it back with `put`, where it was changed, or moved here.
        """
        if self._ttl_ms is not None or not all(segment.is_of(self._version) for segment in self.segments):
            return None
        parts: dict[str, list[pa.Array]] = {name: [] for name in forms}
        at = np.full(len(keys), -1, dtype=np.int64)
        is_live = np.fromiter(map(self.live.__contains__, keys), bool, len(keys)) if self.live else at >= 0
        wanted, mine = np.flatnonzero(~is_live).tolist(), np.flatnonzero(is_live).tolist()
        count = 0
        try:
            if mine:
                states = [self.instances.values(self.live[keys[place]]) for place in mine]
                for name, values in zip(self.instances.names, zip(*states, strict=True), strict=True):
                    parts[name].append(forms[name].array(values))
                at[mine] = np.arange(len(mine))
                count = len(mine)
            taken: list[tuple[StateBlock, Any]] = []
            for block in self.blocks:
                rows = block.places()
                here = [place for place in wanted if keys[place] in rows]
                if here:
                    chosen = pa.array([rows[keys[place]] for place in here])
                    for name, array in block.arrays.items():
                        parts[name].append(array.take(chosen))
                    taken += [(block, keys[place]) for place in here]
                    at[here] = np.arange(count, count + len(here))
                    count += len(here)
                    wanted = [place for place in wanted if at[place] < 0]
            moved = at >= 0
            searched = keys if len(wanted) == len(keys) else [keys[place] for place in wanted]
            for number, places, found in self._located(searched) if searched and self.segments else ():
                here = [searched[place] for place in places.tolist()]
                for name, form in forms.items():
                    parts[name].append(self._array(number, name, found, here, form))
                at[np.array(wanted)[places]] = np.arange(count, count + len(here))
                count += len(here)
                self._stored.update(here)
        except UnfitError:
            return None
        self._stored.update(keys[place] for place in mine if keys[place] in self._loaded)
        for place in mine:
            del self.live[keys[place]]
        for block, key in taken:
            del block.places()[key]
        chosen = pa.array(np.where(at < 0, count, at))
        arrays = {
            name: pa.concat_arrays([*parts[name], pa.nulls(1, form.kind)]).take(chosen) for name, form in forms.items()
        }
        return StateColumns(at >= 0, moved, arrays)

    def put(self, block: StateBlock) -> None:
        """State of keys that are not live, as columns, in the order of the operator's fields."""
        assert tuple(block.arrays) == self.instances.names
        kept = ~block.ended | np.fromiter(map(self._stored.__contains__, block.keys), bool, len(block.keys))
        self.blocks.append(block if kept.all() else block.kept(kept))

    def _array(self, at: int, name: str, rows: np.ndarray, keys: Sequence[Any], form: ColumnForm) -> pa.Array:
        """A field of some rows of a segment, as a column."""
        segment = self.segments[at]
        if name in segment.fields and segment.encoding(f"field.{name}") == form.encoding:
            found = segment.column(f"field.{name}", rows)
            if found.type == form.kind:
                return found
        objects = np.fromiter(keys, dtype=object, count=len(keys))
        return form.array(self._column(at, name, rows, objects))

    def _taken_over(self, keys: list[Any]) -> list[Any]:
        """Make keys that are in blocks instances; the others."""
        for block in self.blocks:
            rows = block.places()
            here = [key for key in keys if key in rows]
            if here:
                chosen = pa.array([rows.pop(key) for key in here])
                columns = [
                    decoded(each.take(chosen), block.forms[name].encoding) for name, each in block.arrays.items()
                ]
                for key, values in zip(here, zip(*columns, strict=True), strict=True):
                    self.live[key] = self.instances.restored(values)
                    if key in self._stored:
                        self._loaded[key] = (_ANOTHER,) * len(values)
                keys = [key for key in keys if key not in self.live]
        return keys

    def due(self, field: str, after: int, until: int, only: str = "") -> list[Any]:
        """The keys whose `field`, a number, is above one and up to another; nothing becomes live.

        With `only`, a field, those of which that is true.
        """
        wanted = list(self._may_be_due(field, after, until, only))
        if not wanted:
            return []
        found = self._find_field(wanted, field)
        truths = self._find_field(wanted, only) if only else found
        return [
            key
            for key, value in found.items()
            if value is not None and after < value <= until and (truths[key] or not only)
        ]

    def _find_field(self, keys: list[Any], field: str) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        objects = np.fromiter(keys, dtype=object, count=len(keys))
        for at, places, rows in self._located(keys):
            mine = objects[places]
            found.update(zip(mine.tolist(), self._column(at, field, rows, mine), strict=True))
        return found

    def load_waiting(self, field: str) -> dict[Any, Any]:
        """Make sure the instances whose `field` is true are live; all live ones, by key.

        Looks at every key there is: only operators that are called at punctuations or ticks need it.
        """
        seen: set[Any] = set(self.live)
        wanted: list[Any] = []
        for segment in self.segments:
            rows = np.arange(len(segment))
            keys = [canonical_key(key) for key in segment.values("key")]
            gone = self._gone(segment, rows) or repeat(False)
            owned = repeat(True) if self._owns is None else self._owns(segment.hashes, partial(list, keys))
            values = segment.values(f"field.{field}") if field in segment.fields else [None] * len(rows)
            for key, dead, mine, value in zip(keys, gone, owned, values, strict=False):
                if key not in seen:
                    seen.add(key)
                    if value and mine and not dead:
                        wanted.append(key)
        return self.load(wanted)

    def load_due(self, field: str, after: int, until: int) -> dict[Any, Any]:
        """Make sure the instances whose `field`, a number, is above one and up to another are live; all live ones.

        Looks at the numbers of every key there is, all at once, and at nothing else of those that are not due.
        """
        wanted = self._may_be_due(field, after, until)
        if wanted:
            # A newer segment may say something else of a key; such keys are not made live.
            place = self.instances.names.index(field)
            found = self._find(list(wanted))
            due = [key for key, state in found.items() if state[place] is not None and after < state[place] <= until]
            self.load(due)
        return self.live

    def _may_be_due(self, field: str, after: int, until: int, only: str = "") -> set[Any]:
        """Keys that are not live of which some segment says so."""
        wanted: set[Any] = set()
        for segment in self.segments if until > after else ():
            rows = segment.between(field, after, until)
            if only:
                rows = rows[np.array(segment.values(f"field.{only}", rows), dtype=bool)]
            if not len(rows):
                continue
            keys = [canonical_key(key) for key in segment.values("key", rows)]
            if self._owns is not None:
                owned = self._owns(segment.hashes[rows], partial(list, keys))
                keys = list(compress(keys, owned.tolist()))
            wanted.update(key for key in keys if key not in self.live)
        return wanted

    def routes(self, keys: Sequence[Any]) -> tuple[np.ndarray, Any]:
        """The hashes that tuples of these keys are routed by, and one that another channel owns; None: all are ours."""
        hashes = self._key.hashes(keys)
        owned = np.ones(len(keys), dtype=bool) if self._owns is None else self._owns(hashes, lambda: keys)
        others = np.flatnonzero(~np.asarray(owned, dtype=bool))
        return self._key.route_hashes(hashes, lambda: keys), keys[int(others[0])] if len(others) else None

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

    def _differs(self, key: Any, values: tuple[Any, ...], initial: tuple[Any, ...]) -> bool:
        """Whether a key's state is another value than at the start of the epoch (for a new key: the initial one)."""
        before = self._loaded_bytes.get(key)
        if before is None:
            before = comparable(list(self._loaded.get(key, initial)), self.classes)
        return comparable(list(values), self.classes) != before

    def _tied(self, columns: list[Sequence[Any]]) -> list[Sequence[Any]]:
        """The columns as they are written: what is in two places of a key's state is kept as one."""
        if all(IMMUTABLE.issuperset(map(type, values)) for values in columns):
            return columns
        states = list(zip(*columns, strict=True))
        ties = [tied(self.instances.names, state, self.classes) for state in states]
        return columns if all(map(is_, ties, states)) else list(zip(*ties, strict=True))

    def changes(self) -> tuple[pa.Buffer, int] | None:
        """The segment of what this epoch changed and its number of rows, or None if nothing did."""
        blocks = [left for block in self.blocks if len((left := block.left()).keys)]
        if not self.live and not blocks:
            return None
        with _no_collections():
            keys, columns = self._changed() if self.live else ([], [[] for _ in self.instances.names])
            ended = self._ended(columns) if keys and self._is_timed else None
            if ended is not None and ended.any():
                # A key that came and went within the epoch leaves nothing; others leave a note that they are gone.
                kept = [not gone or key in self._loaded for key, gone in zip(keys, ended.tolist(), strict=True)]
                keys, columns = list(compress(keys, kept)), [list(compress(values, kept)) for values in columns]
                ended = ended[kept]
            if not keys and not blocks:
                return None
            names = list(self.instances.names)
            before = {name: [self._large.get((name, key)) for key in keys] for name in {n for n, _ in self._large}}
            try:
                columns = self._tied(columns)
                if blocks:
                    found = with_values(joined(blocks), keys, columns, ended)
                    if found is not None:
                        return write_block(self._key.hashes(found.keys), found, self._version), len(found.keys)
                    keys, columns, ended = all_values(joined(blocks), keys, columns, ended)
                    before = {}
                if self._ttl_ms is not None:
                    names.append(EXPIRES)
                    columns = [*columns, (self._clock_ms + self._ttl_ms,) * len(keys)]
                segment = write_segment(
                    self._key.hashes(keys), keys, names, columns, ended, self.classes, self._version, before
                )
                return segment, len(keys)
            except StateError as problem:
                raise StateError(f"operator {self.instances.node.title}: {problem}") from None

    def _ended(self, columns: Sequence[Sequence[Any]]) -> np.ndarray:
        """Which keys are as if they were never seen: those of operators that wait for times go when nothing is left."""
        initial = self.instances.values(self.instances.new())
        return np.fromiter((state == initial for state in zip(*columns, strict=True)), bool, len(columns[0]))

    def _changed(self) -> tuple[list[Any], list[Sequence[Any]]]:
        """The keys whose state changed, and their state by field.

        Column by column, without Python work per key: this is what an epoch does for every key it touched.
        """
        keys = list(self.live)
        initial = self.instances.values(self.instances.new())
        now: list[Sequence[Any]] = list(zip(*map(self.instances.values, self.live.values()), strict=True))
        before = zip(*map(self._loaded.get, keys, repeat(initial)), strict=True)
        changed = np.zeros(len(keys), dtype=bool)
        for values, olds in zip(now, before, strict=True):
            changed |= np.fromiter(map(is_not, values, olds), dtype=bool, count=len(keys))
            if not IMMUTABLE.issuperset(map(type, values)):
                changed |= np.fromiter((not _is_unchanged(value) for value in values), bool, len(keys))
        if self._ttl_ms is not None:
            # Time to live counts from the last epoch that left another value, not merely another object.
            changed = np.fromiter(map(self._differs, keys, zip(*now, strict=True), repeat(initial)), bool, len(keys))
        elif self._renewed:
            changed |= np.fromiter(map(self._renewed.__contains__, keys), bool, len(keys))
        if not changed.all():
            keys, now = list(compress(keys, changed)), [list(compress(values, changed)) for values in now]
        return keys, now


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Without garbage collection: of many objects that all stay, it would look at each again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
