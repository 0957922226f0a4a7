"""A program as one thread runs it, and by the product's own path: what comes out of both, and how they compare.

The product's path is what `runnable` makes of the operators, run by the production tasks. Every task gets a program
unpickled for it alone, and every task runs twice, as Spark may: what is not kept in state is lost, what is kept outside
of it is seen twice. Errors are outcomes as well: their type, operator, tuple and text, without the epoch they name.

    outcomes = compare(stream)          # or several streams, with channels and seeds
    outcomes.verdict                    # "equal", "refused", "stopped" (refused while it ran), "different",
                                        # or "unsteady": two sequential runs differ
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Sequence
from typing import Any

from anabranch.engine.sequential import SequentialRun
from anabranch.errors import AnabranchError, OperatorError
from anabranch.testing import ParallelRun


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a run.

    `rows` are those of the epochs that ended, for each output, as text. `error` is what it raised, with its type;
    `refused` is why it never began.
    """

    rows: tuple[tuple[str, ...], ...] = ()
    error: str = ""
    refused: str = ""


@dataclasses.dataclass(frozen=True)
class Compared:
    """One program, on one thread and in parallel in several ways."""

    sequential: Outcome
    parallel: tuple[Outcome, ...]
    is_steady: bool = True

    @property
    def verdict(self) -> str:
        if any(each.refused for each in self.parallel):
            return "refused"
        if all(each == self.sequential for each in self.parallel):
            return "equal"
        if all(each == self.sequential or self._is_stopped(each) for each in self.parallel):
            return "stopped"
        return "different" if self.is_steady else "unsteady"

    def _is_stopped(self, outcome: Outcome) -> bool:
        """Whether it was refused while it ran: with a reason, and with nothing delivered that one thread had not."""
        pairs = zip(outcome.rows, self.sequential.rows, strict=True)
        is_ours = outcome.error.startswith(("StateError", "ProgramError"))
        return is_ours and all(found == expected[: len(found)] for found, expected in pairs)

    @property
    def difference(self) -> str:
        """The first outcome that is not the sequential one, for people."""
        found = next((each for each in self.parallel if each != self.sequential), None)
        return f"one thread: {self.sequential}\nin parallel: {found}"


def told(error: BaseException) -> str:
    """An error as it must be the same both ways: addresses of objects and the epoch aside."""
    text = re.sub(r", epoch \d+", "", str(error))
    fields = (error.operator, error.row) if isinstance(error, OperatorError) else ()
    return re.sub(r"0x[0-9a-f]{6,}", "0x…", f"{type(error).__name__} {fields}: {text}")


def _texts(outputs: Sequence[Sequence[Any]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(re.sub(r"0x[0-9a-f]{6,}", "0x…", repr(tuple(row))) for row in rows) for rows in outputs)


def sequential(streams: Sequence[Any], clocks_ms: Sequence[int] = (), epochs_max: int | None = None) -> Outcome:
    """What one thread gives."""
    run = SequentialRun([stream._node for stream in streams])
    error = ""
    try:
        run.run_epochs(clocks_ms, epochs_max)
    except Exception as problem:
        error = told(problem)
    return Outcome(_texts([rows[:count] for rows, count in zip(run.outputs, run.delivered, strict=True)]), error)


def parallel(
    streams: Sequence[Any],
    channels: int = 3,
    seed: int = 0,
    clocks_ms: Sequence[int] = (),
    fresh_tasks: bool = True,
    **settings: Any,
) -> Outcome:
    """What the product gives; `settings` are those of `ParallelRun`."""
    with tempfile.TemporaryDirectory(prefix="product-path-") as scratch:
        try:
            run = ParallelRun(
                streams, scratch, channels=channels, seed=seed, clocks_ms=clocks_ms, fresh_tasks=fresh_tasks, **settings
            )
        except AnabranchError as problem:
            return Outcome(refused=told(problem))
        error = ""
        try:
            run.run_epochs()
        except Exception as problem:
            error = told(problem)
        return Outcome(_texts(run.outputs), error)


def compare(
    streams: Any,
    ways: Sequence[tuple[int, int]] = ((1, 1), (3, 2)),
    clocks_ms: Sequence[int] = (),
    **settings: Any,
) -> Compared:
    """Run a program on one thread, and in parallel in these ways: (channels, seed)."""
    ends = streams if isinstance(streams, (list, tuple)) else [streams]
    expected = sequential(ends, clocks_ms)
    found = tuple(parallel(ends, channels, seed, clocks_ms, **settings) for channels, seed in ways)
    steady = all(each == expected for each in found) or sequential(ends, clocks_ms) == expected
    return Compared(expected, found, steady)
