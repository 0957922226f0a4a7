"""What an elastic operator does with a batch where nobody minds the order of its results: they leave as they come.

    batch 1 ─► calls ─► those of batch 1 that have ended
    batch 2 ─► calls ─► those of batch 1 and 2 that have ended by now
    the end ─►          all others

No batch waits for its slowest call, so workers have work over the whole task, however small its batches are. What
leaves has no place in the batch it leaves with: it is numbered anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anabranch.engine.pool.dispatch import Feeding, Pool
from anabranch.engine.pool.pool_run import CallFailed, Results
from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.elastic_steps import Calls, guarding_of, opened, output_batch
from anabranch.program.calling import operator_failed
from anabranch.program.graph import Node


class UnorderedStep:
    """The calls of one operator in one task.

    Parameters
    ----------
    pool_of : callable
        The pool of the operator, and what its workers call: asked for when there are tuples.
    check : callable
        Makes a batch of outputs, or tells which does not fit.
    """

    def __init__(
        self, node: Node, pool_of: Callable[[], tuple[Pool, Calls]], epoch: int, check: Callable[..., Batch]
    ) -> None:
        self._node = node
        self._pool_of = pool_of
        self._epoch = epoch
        self._check = check
        self._guarding = guarding_of(node)
        self._feeding: Feeding | None = None

    def take(self, rows: Sequence[Any]) -> tuple[Batch, int]:
        """Begin calls; what has ended by then, with positions among so many tuples."""
        if self._feeding is None:
            pool, calls = self._pool_of()
            opened(calls, self._node, self._epoch)
            self._feeding = pool.feeding(keeps_failures=self._guarding is not None)
        feeding = self._feeding
        return self._made(lambda: feeding.feed(rows))

    def finish(self) -> tuple[Batch, int]:
        """All tuples were taken: what is still under way."""
        feeding, self._feeding = self._feeding, None
        return self._made(feeding.finish if feeding is not None else list)

    def _made(self, some: Callable[[], list[Results]]) -> tuple[Batch, int]:
        try:
            found = some()
        except CallFailed as failure:
            self._feeding = None
            raise operator_failed(self._node, failure.row, failure.problem, self._epoch) from failure.problem
        rows = [row for _, chunk, results in found for row in chunk[: len(results)]]
        ended = Batch(self._node.inputs[0].schema, range(len(rows)), rows)
        results = [result for _, _, some in found for result in some]
        return output_batch(ended, self._node, results, self._guarding, self._check), len(rows)
