"""What operators met and did not like: late tuples, nulls where a key or a time should be, steps backwards.

An operator that follows its policy for bad input says so here, and nothing else changes: no tuple carries the
count and no state holds it. Whoever runs a task takes the counts when the task ends and adds them to the epoch's
progress. A task that is run again counts again, so only the counts of the attempt that is committed may be kept.
"""

from __future__ import annotations

_counts: dict[tuple[str, str], int] = {}


def count(operator: str, what: str, number: int = 1) -> None:
    """Add to what an operator has met."""
    _counts[operator, what] = _counts.get((operator, what), 0) + number


def take() -> dict[tuple[str, str], int]:
    """The counts since they were last taken, by operator and what was met; they begin anew.

    Examples
    --------
    >>> count("aggregate", "late")
    >>> count("aggregate", "late", 2)
    >>> take()
    {('aggregate', 'late'): 3}
    >>> take()
    {}
    """
    taken = dict(_counts)
    _counts.clear()
    return taken
