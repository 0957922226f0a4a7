"""What an operator without state, whose calls may fail, does with a batch.

First as if none failed: over the whole batch, as fast as any. If one does, the tuples are taken again, one by one. The
operator has no state, so what it did the first time is forgotten by that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import compress
from typing import Any

from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.timing import Stopwatch
from anabranch.errors import OperatorError
from anabranch.operators.epoch_context import current
from anabranch.operators.guarding import GuardedFunction
from anabranch.program.graph import FlatMap, Node

Step = Callable[[Batch, Node], Batch]


def as_written(node: Node) -> Node:
    """The operator without its policy."""
    assert isinstance(node.logic, FlatMap) and isinstance(node.logic.function, GuardedFunction)
    guarded = node.logic.function
    return dataclasses.replace(node, logic=guarded.logic, schema=guarded.guarding.schema)


def guarded_step(node: Node, all_at_once: Step, one_by_one: Step, watch: Stopwatch | None) -> Step:
    """The step of an operator, of what takes a batch of it without its policy, and what takes it with that."""
    plain = as_written(node)

    def step(batch: Batch, node: Node) -> Batch:
        context = current()
        met = {} if context is None else dict(context.anomalies)
        try:
            made = all_at_once(batch, plain)
        except OperatorError:
            if watch is not None:
                watch.take()
            if context is not None:
                context.anomalies.clear()
                context.anomalies.update(met)
            return one_by_one(batch, node)
        if node.columns is None:
            return made
        return Batch(node.schema, made.positions, columns=[*made.columns, [None] * len(made)])

    return step


def only_tuples_step(batch: Batch, node: Node) -> Batch:
    """The tuples of an operator whose letters are beside them."""
    *columns, letters = batch.columns
    if any(letter is not None for letter in letters):
        is_tuple = [letter is None for letter in letters]
        positions: Any = list(compress(batch.positions, is_tuple))
        return Batch(node.schema, positions, columns=[list(compress(column, is_tuple)) for column in columns])
    return Batch(node.schema, batch.positions, columns=columns)
