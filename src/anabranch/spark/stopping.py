"""An epoch that is cut off because its query is stopped ends with a few words.

Spark looks into the text of what a Python function raises to tell whether it was interrupted: by a regular expression
that needs a stack frame for every character, so that the text of a Java exception, which is long, ends in a
StackOverflowError with a thousand lines on the user's screen. A short text that means the same does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.errors import AnabranchError

# How Java, Spark and Hadoop say that a thread was interrupted or that its jobs were cancelled.
_INTERRUPTED = ("SPARK_JOB_CANCELLED", "InterruptedException", "InterruptedIOException", "ClosedByInterruptException")
_SHOWN = 300


def is_interruption(problem: BaseException) -> bool:
    """Whether something failed only because its query is stopped."""
    return any(map(str(problem).__contains__, _INTERRUPTED))


class EpochInterrupted(Exception):  # noqa: N818 - an event
    """What Spark knows as an interruption. Should nobody have stopped the query, it is shown as its failure."""

    def __init__(self, problem: BaseException) -> None:
        first = str(problem).strip().partition("\n")[0][:_SHOWN]
        # What Spark looks for: the beginning, then the name of the exception.
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling the function of an epoch: "
            f"java.lang.InterruptedException ({type(problem).__name__}: {first})"
        )


def interruptible(run: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
    """A function of Spark's foreachBatch that, if it is interrupted, says so briefly."""

    def call(batch: Any, number: int) -> None:
        try:
            run(batch, number)
        except AnabranchError:
            raise
        except Exception as problem:
            if not is_interruption(problem):
                raise
            raise EpochInterrupted(problem) from None

    return call
