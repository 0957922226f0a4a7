"""What is wrong with what user code returned: it is no tuple of the schema, or a value does not fit its column."""

from __future__ import annotations

from typing import Any

from anabranch.program.showing import shown


class ShapeError(Exception):
    """What user code returned is not a tuple of the schema."""


class MisfitError(Exception):
    """A value does not fit its column: (place in the batch, column, type, value, why)."""

    def __init__(self, at: int, column: str, kind: str, value: Any, why: str) -> None:
        super().__init__(f"column {column!r} is {kind}; found {short(value)} ({type(value).__name__}): {why}")
        self.at = at

    def __reduce__(self) -> tuple[Any, ...]:
        return _misfit_again, (self.args, self.at)


def _misfit_again(texts: tuple[str, ...], at: int) -> MisfitError:
    """A misfit that has travelled: what was found need not be able to."""
    made = MisfitError.__new__(MisfitError, *texts)
    made.at = at
    return made


def short(value: Any) -> str:
    """A value for people, in a few words."""
    text = shown(value)
    return text if len(text) <= 200 else text[:197] + "…"
