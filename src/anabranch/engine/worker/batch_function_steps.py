"""A function of batches: it is given each batch as it is; see `operators/batch_functions`."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.errors import AnabranchError, ProgramError
from anabranch.operators.batch_functions import BatchFunction
from anabranch.program.graph import Node

Step = Callable[[Batch, Node], Batch]


def batch_function_step(function: BatchFunction, tuple_by_tuple: Step) -> Step:
    """The step; `tuple_by_tuple` says which tuple it was if a call fails."""
    is_checked = False

    def step(batch: Batch, node: Node) -> Batch:
        nonlocal is_checked
        count = len(batch)
        if not count:
            return Batch(node.schema, [], [])
        arrays = batch.arrays()
        try:
            rows, columns = function.over(arrays, count)
            differs = "" if is_checked or count == 1 else function.differs(arrays, count // 2, rows, columns)
            is_checked = is_checked or count > 1
        except AnabranchError:
            raise
        except Exception as problem:
            tuple_by_tuple(batch, node)
            raise ProgramError(
                f"{node.title}: it failed with a batch of {count} rows, but with none of them alone: "
                f"{type(problem).__name__}: {problem}. A function of batches must treat each row by itself"
            ) from problem
        if differs:
            raise ProgramError(
                f"{node.title}: what it makes of a row depends on the others of its batch, and so on how tuples are "
                f"cut into batches; of the tuple {batch.picked([count // 2])[0]!r}: {differs}"
            )
        positions = batch.positions if not function.rows_column else [batch.positions[row] for row in rows]
        return ColumnBatch(node.schema, positions, columns)

    return step
