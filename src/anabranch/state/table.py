"""The state of one keyed operator as one channel sees it in one epoch.

A table is opened at a version (a list of segments, newest first), loads the keys a batch touches, lends
out their instances, and at the end gives the segment of what changed. Keys that were not touched are not
read, keys that were not changed are not written.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress, repeat
from operator import is_, is_not
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import StateError
from anabranch.program.calling import canonical_key
from anabranch.program.graph import Node
from anabranch.state.codec import comparable
from anabranch.state.lineage import KeyRoute
from anabranch.state.maps import StateMap, StateMaps
from anabranch.state.segment import EXPIRES, Segment, write_block, write_segment
from anabranch.state.shared_fields import IMMUTABLE, tied
from anabranch.state.slot_lists import SlotLists, are_plain
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
from anabranch.state.stored_state import StoredState

_ANOTHER = object()  # what no value is


def _is_unchanged(value: Any) -> bool:
    """Whether a value that is the same object is sure to be the same value."""
    return type(value) in IMMUTABLE or (isinstance(value, (StateMap, StateMaps)) and not value.changed)


class Table(StoredState):
    """State of a keyed operator: load touched keys, hand out instances, collect the changes."""

    def __init__(
        self,
        node: Node,
        key: KeyRoute,
        segments: Sequence[Segment],
        clock_ms: int = 0,
        owns: Callable[[np.ndarray, Callable[[], Sequence[Any]]], np.ndarray] | None = None,
    ) -> None:
        super().__init__(node, key, segments, clock_ms, owns)
        self.live: dict[Any, Any] = {}
        self.blocks: list[StateBlock] = []  # of keys that are not live: a key is an instance, or a row of columns
        self.slots = SlotLists(len(self.instances.names))  # … or has a slot
        self._stored: set[Any] = set()  # keys of blocks that segments have
        self._loaded: dict[Any, tuple[Any, ...]] = {}
        self.needs_instances = self._must_be_instances()
        """Whether no key may have a slot."""
        self._loaded_bytes: dict[Any, bytes] = {}  # of what can change in place, where it matters whether it did

    def load(self, touched: Iterable[Any]) -> dict[Any, Any]:
        """Make sure the instances of these keys are live; all live ones, by key."""
        live = self.live
        wanted = [key for key in touched if key not in live]
        if wanted:
            with _no_collections():
                if self.blocks:
                    wanted = self._taken_over(wanted)
                if len(self.slots):
                    wanted = self._without_slots(wanted)
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
        if len(self.slots):
            self._without_slots(list(keys))
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

    def slots_of(self, keys: Sequence[Any]) -> np.ndarray | None:
        """The slots of keys, each named once; they are instances no more. None if their state must be in instances."""
        if self.needs_instances or self.blocks:
            return None
        slots = self.slots.places(keys)
        new = np.flatnonzero(slots < 0)
        if len(new):
            with _no_collections():
                added = self._given_slots([keys[at] for at in new.tolist()])
            if added is None:
                self.needs_instances = True  # for the rest of the epoch: to and fro would cost more than it saves
                return None
            slots[new] = added
        return slots

    def _must_be_instances(self) -> bool:
        """Whether time or punctuations reach keys, fields are made anew, or state is of an earlier version or ends."""
        logic = self.instances.logic
        made = any(field.factory is not None for field in logic.fields)
        is_met_between = self._is_timed or bool(logic.waiting) or logic.broadcast is not None
        is_older = not all(segment.is_of(self._version) for segment in self.segments)
        return self._ttl_ms is not None or made or is_met_between or is_older

    def _given_slots(self, keys: list[Any]) -> np.ndarray | None:
        """Slots for keys that have none; None if values of theirs can change in place."""
        initial = tuple(field.initial() for field in self._defaults.values())
        slots = np.full(len(keys), -1, dtype=np.int64)
        states: list[tuple[np.ndarray, list[Any], list[Any], bool]] = []
        mine = [at for at, key in enumerate(keys) if key in self.live] if self.live else []
        for stored in (False, True):
            chosen = [at for at in mine if (keys[at] in self._loaded) == stored]
            if chosen:
                now = [list(each) for each in zip(*(self._values_of(keys[at]) for at in chosen), strict=True)]
                olds = zip(*(self._loaded.get(keys[at], initial) for at in chosen), strict=True)
                states.append((np.array(chosen), now, [list(each) for each in olds], stored))
        slots[mine] = 0
        rest = np.flatnonzero(slots < 0)
        searched = [keys[at] for at in rest.tolist()]
        objects = np.fromiter(searched, dtype=object, count=len(searched))
        for number, places, rows in self._located(searched) if searched and self.segments else ():
            found = [list(self._column(number, name, rows, objects[places])) for name in self.instances.names]
            states.append((rest[places], found, found, True))
            slots[rest[places]] = 0
        new = np.flatnonzero(slots < 0)
        if len(new):
            fresh = [[value] * len(new) for value in initial]
            states.append((new, fresh, fresh, False))
        if not all(are_plain(values) for _, columns, _, _ in states for values in columns):
            return None
        for places, columns, before, stored in states:
            slots[places] = self.slots.add([keys[at] for at in places.tolist()], columns, before, stored)
        for at in mine:
            del self.live[keys[at]]
            self._loaded.pop(keys[at], None)
        return slots

    def _values_of(self, key: Any) -> tuple[Any, ...]:
        return self.instances.values(self.live[key])

    def _without_slots(self, keys: list[Any]) -> list[Any]:
        """Make keys that have slots instances; the others."""
        for key, values, before in self.slots.taken_out(keys):
            self.live[key] = self.instances.restored(values)
            if before is not None:
                self._loaded[key] = before
        return [key for key in keys if key not in self.live]

    def states(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """The keys that are instances or have slots, and their state."""
        for key in self.live:
            yield key, self._values_of(key)
        for key in self.slots:
            yield key, self.slots.of(key) or ()

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
        if not self.live and not blocks and not len(self.slots):
            return None
        with _no_collections():
            keys, columns = self._changed() if self.live else ([], [[] for _ in self.instances.names])
            if len(self.slots):
                more, values = self.slots.changed()
                keys = [*keys, *more]
                columns = [[*one, *other] for one, other in zip(columns, values, strict=True)] if columns else []
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
