"""What elastic accumulators do with a batch: its blocks are worked on at once, and merged in the order of positions.

The same folding and merging that one thread does (`operators/accumulation.py`); only who folds a block is another.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from anabranch.engine.pool.dispatch import Pool
from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.batches import Keeper, StateTable
from anabranch.operators.accumulation import Accumulate, Values, accumulation_of
from anabranch.program.calling import operator_failed
from anabranch.program.graph import Node


class Folded:
    """What became of a block: its values, what each of its tuples emitted, and what was raised by the next."""

    __slots__ = ("outputs", "problem", "values")

    def __init__(self) -> None:
        self.values: Values | None = None
        self.outputs: list[list[Any]] = []
        self.problem: Exception | None = None


class BlockCalls:
    """Folding blocks, as workers call it. A row of such a pool is a block: (values it begins with, tuples)."""

    def __init__(self, node: Node) -> None:
        found = accumulation_of(node.logic)
        assert found is not None and found.concurrency is not None
        self._accumulate: Accumulate = found
        self._keep = Keeper(node.schema)
        self.settings = found.concurrency

    def open(self) -> None:
        """There is nothing to set up."""

    def close(self) -> None:
        """Nor to give back."""

    def many(self, blocks: Sequence[Any], results: list[Any]) -> None:
        """Append what became of each block."""
        for values, rows in blocks:
            folded = Folded()
            try:
                folded.values = self._accumulate.folded(values, rows, folded.outputs, self._keep)
            except Exception as problem:
                folded.problem = problem
            results.append(folded)


def accumulating_step(
    pool: Pool, calls: BlockCalls, table: StateTable, epoch: int, check: Callable[..., Batch]
) -> Callable[[Batch, Node], Batch]:
    """What accumulators do with a batch; `check` makes a batch of outputs, or tells which does not fit."""
    keep = calls._keep

    def step(batch: Batch, node: Node) -> Batch:
        kept: Accumulate = table.load({()})[()]
        cuts = _cuts(kept.count, kept.block, len(batch))
        rows, positions = batch.rows, batch.positions
        blocks = [(kept.part if start == 0 else None, rows[start:stop]) for start, stop in cuts]
        places: list[int] = []
        outputs: list[Any] = []
        for (start, stop), folded in _combining(pool, kept, cuts, blocks):
            for at, made in enumerate(folded.outputs, start):
                places += [positions[at]] * len(made)
                outputs += made
            if folded.problem is not None:
                check(node, places, outputs, batch)  # what does not fit came before what raises
                failed = rows[start + len(folded.outputs)]
                raise operator_failed(node, failed, folded.problem, epoch) from folded.problem
            kept.part = folded.values
            try:
                results = [keep(each) for each in kept.passed(stop - start)]
            except Exception as problem:
                check(node, places, outputs, batch)
                raise operator_failed(node, rows[stop - 1], problem, epoch) from problem
            places += [positions[stop - 1]] * len(results)
            outputs += results
        return check(node, places, outputs, batch)

    return step


def _cuts(count: int, block: int, rows: int) -> list[tuple[int, int]]:
    """The blocks of a batch, from place to place: the first may have begun before it, the last may not end in it."""
    edges = [0, *range(min(rows, block - count % block), rows, block), rows]
    return [(start, stop) for start, stop in itertools.pairwise(edges) if start < stop]


def _combining(
    pool: Pool, kept: Accumulate, cuts: Sequence[tuple[int, int]], blocks: Sequence[Any]
) -> Iterator[tuple[tuple[int, int], Folded]]:
    """Blocks with what became of them, in order."""
    with contextlib.closing(pool.run(blocks, ordered=not kept.commutative)) as run:
        if not kept.commutative:
            for first, some in run:
                for at, folded in enumerate(some, first):
                    yield cuts[at], folded
            return
        # As they come: what is full is merged at once, and the last full block of a stretch stands for all of them.
        found: dict[int, Folded] = {}
        combined: dict[int, Values | None] = {}
        last: dict[int, int] = {}
        for first, some in run:
            for at, folded in enumerate(some, first):
                found[at] = folded
                end = kept.count + cuts[at][1]
                if end % kept.block == 0 and folded.problem is None:
                    stretch = (end - 1) // kept.every
                    combined[stretch] = kept.combined(combined.get(stretch), folded.values)
                    last[stretch] = max(last.get(stretch, at), at)
                    folded.values = None
        for stretch, at in last.items():
            found[at].values = combined[stretch]
        begun = kept.count
        for at in sorted(found):
            assert kept.count == begun + cuts[at][0]
            yield cuts[at], found[at]
