"""What a channel says about single keys: how long their tuples took, how large their state is.

Only of the keys that took most, a bounded number (`key_costs.py`): the driver places those by what they
cost, and all others by how frequent they are.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.compiler.layout.stages import Layout, Stage
from anabranch.engine.clock import Clock
from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.batches import keys_of
from anabranch.engine.worker.retracing import RetracedStage
from anabranch.engine.worker.stage import StageRun
from anabranch.engine.worker.timing import Stopwatch
from anabranch.partitioning.counting.key_costs import KeyTimes, KeyTimesReport, approximate_bytes
from anabranch.program.graph import Node
from anabranch.program.hashing import hash_columns
from anabranch.state.records import SegmentRecord
from anabranch.state.table import Table

_SAMPLED = 32
"""Keys whose state stands for that of all others."""


class Measuring:
    """Measures the keys of one channel of a stage in one epoch."""

    def __init__(self, layout: Layout, stage: Stage, tables: Mapping[str, Table], clock: Clock) -> None:
        self._tables = tables
        self._times = KeyTimes()
        self._keys: dict[int, Any] = {}  # hash → the key, as tables have it
        self._entry: Node = layout.nodes(stage)[0]
        route = stage.routes.get(self._entry.name, ())
        self._places = tuple(self._entry.key.index(name) for name in route)  # in the key
        # State is looked up by the whole key, so it can be told for a key of the route only if they are one.
        self._whole = self._places == tuple(range(len(self._entry.key)))
        self.watch = Stopwatch(clock.passing_s) if self._places and stage.is_balanced else None

    def take(self, run: StageRun | RetracedStage) -> None:
        """Take what a stage timed since the last call."""
        timed, run.timed = run.timed, []
        for tuples, seconds in timed:
            if len(seconds):
                hashes, keys = self._of_batch(tuples) if isinstance(tuples, Batch) else self._of_keys(tuples)
                for at in self._times.add(hashes, seconds).tolist():
                    self._keys[int(hashes[at])] = keys[at]

    def _of_batch(self, batch: Batch) -> tuple[np.ndarray, list[Any]]:
        places = tuple(batch.schema.names.index(name) for name in self._entry.key_of(0))
        routed = [places[at] for at in self._places]
        columns = [batch.array(place) for place in routed]
        return hash_columns(columns), keys_of(batch, places)

    def _of_keys(self, keys: list[Any]) -> tuple[np.ndarray, list[Any]]:
        schema = self._entry.inputs[0].schema
        kinds = [schema.type_of(name) for name in self._entry.key]
        columns = [keys] if len(kinds) == 1 else list(zip(*keys, strict=True))
        return hash_columns([pa.array(columns[at], kinds[at]) for at in self._places]), keys

    def report(self, segments: Callable[[], Iterable[SegmentRecord]]) -> KeyTimesReport | None:
        """What the driver is told, of a channel that sees these segments; None where nothing was timed."""
        if self.watch is None:
            return None
        state_rows = sum(segment.rows for segment in segments())  # how many keys the channel has state of, about
        size: dict[int, int] = {}
        if self._whole:
            size = {key: self._bytes_of(self._keys[key]) for key, _, _ in self._times.reported()}
        table = self._tables.get(self._entry.name)
        live: list[Any] = [] if table is None else [table.live, table.slots, *(block.keys for block in table.blocks)]
        told = {self._keys[key] for key in size}
        touched = islice(chain.from_iterable(live), _SAMPLED + len(told))
        others = [key for key in touched if key not in told][:_SAMPLED]
        mean = sum(map(self._bytes_of, others)) / len(others) if others else 0.0
        return self._times.to_report(size, max(state_rows, sum(map(len, live))), mean)

    def _bytes_of(self, key: Any) -> int:
        found = 0
        for table in self._tables.values():
            instance = table.live.get(key)
            if instance is not None:
                found += sum(map(approximate_bytes, table.instances.values(instance)))
            found += sum(map(approximate_bytes, table.slots.of(key) or ()))
            found += sum(block.bytes_of(key) for block in table.blocks)
        return found


def resident_bytes() -> int:
    """What of this process is in memory; 0 where the system does not tell (Linux does)."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0
