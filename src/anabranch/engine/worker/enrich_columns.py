"""Tuples enriched from a table, a batch at a time: see `operators/joins`.

Only the columns of the key become Python values; what is added is a list for each column, the others stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.key_slots import is_key
from anabranch.program.graph import Node

Step = Callable[[Batch, Node], Batch]


def enrich_step(node: Node, otherwise: Step) -> Step:
    """The step of `enrich` from rows; `otherwise` is what takes tuples one by one."""
    enrich: Any = node.logic.function  # type: ignore[union-attr]
    schema = node.inputs[0].schema
    width = len(schema.names)
    added = [field.type for field in node.schema.arrow][width:]
    # A list or dict of the table would be one object in several tuples.
    if any(map(pa.types.is_nested, added)) or not all(is_key(schema.arrow.types[place]) for place in enrich.places):
        return otherwise

    def step(batch: Batch, node: Node) -> Batch:
        if not isinstance(batch, ColumnBatch) or not len(batch):
            return otherwise(batch, node)
        arrays = [batch.untouched(place) for place in range(width)]
        keys = [arrays[place] for place in enrich.places]
        if any(array is None for array in arrays) or any(array.null_count for array in keys if array is not None):
            return otherwise(batch, node)
        nothing = enrich.nothing
        found = list(map(enrich.table().get, zip(*map(batch.values, enrich.places), strict=True)))
        made: Batch = batch
        if None in found:
            if nothing is None:
                mask = np.fromiter((each is not None for each in found), bool, len(found))
                made, found = batch.kept(mask), [each for each in found if each is not None]
            else:
                found = [nothing if each is None else each for each in found]
        columns = list(zip(*found, strict=True)) if found else [()] * len(added)
        new = [pa.array(column, kind) for column, kind in zip(columns, added, strict=True)]
        return ColumnBatch(node.schema, made.any_positions, [*(made.array(at) for at in range(width)), *new])

    return step
