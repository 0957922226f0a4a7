"""Running aggregates: one window for each key, of all its tuples so far, which gives a result whenever that changes.

The results are a stream of updates with a key: each replaces the one before it of the same key. A result that is the
one before it is not given again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anabranch.program.model import Selectivity

if TYPE_CHECKING:
    from anabranch.operators.aggregation import CodeDraft


@dataclasses.dataclass(frozen=True)
class RunningWindow:
    """All tuples of a key so far."""

    policy: None = None

    def __str__(self) -> str:
        return "running()"


def running() -> RunningWindow:
    """A window of all tuples so far, which gives its result each time that it changes.

    Each result of a key replaces the one before it: the output is a stream of updates with that key. State grows with
    the number of keys, and with what an aggregation keeps; ``aggregate(…, ttl=…)`` forgets keys that bring nothing.

    Examples
    --------
    >>> import anabranch as ab
    >>> bids = ab.from_rows([("a", 3), ("b", 9), ("a", 2), ("a", 5)], "item string, price long")
    >>> bids.aggregate(by="item", window=ab.running(), best=ab.agg.max("price")).run_sequential()
    [(item='a', best=3), (item='b', best=9), (item='a', best=5)]
    """
    return RunningWindow()


def write_running(draft: CodeDraft) -> None:
    """Write the code of a window that never closes."""
    draft.state |= {"open": False, "shown": None}
    draft.names["SAME"] = is_same
    draft.selectivity = Selectivity.AT_MOST_ONE
    begin: list[str] = []
    add: list[str] = []
    results: list[str] = []
    for at, aggregation in enumerate(draft.aggregations):
        words = draft.words(at, f"self.a{at}", f"self.b{at}")
        begin += aggregation.begin.format(**words).splitlines()
        add += aggregation.add.format(**words).splitlines()
        results.append(aggregation.result.format(**words))
        draft.state |= {
            f"{field}{at}": None for field, s in (("a", "s"), ("b", "u")) if f"{{{s}}}" in aggregation.begin
        }
    draft.methods["process(self, t)"] = [
        *draft.prelude(),
        "fresh = not self.open",
        "if fresh:",
        "    self.open = True",
        *(f"    {line}" for line in begin),
        *add,
        f"results = ({''.join(f'{result}, ' for result in results)})",
        "if not fresh and SAME(results, self.shown):",
        "    return None",
        "self.shown = results",
        f"return ({''.join(f'{draft.column(name)}, ' for name in draft.key)}*results, )",
    ]


def is_same(one: Any, other: Any) -> bool:
    """Whether two results are equal; NaN is equal to NaN, whichever objects they are."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return is_same(_items(one), _items(other))
    return bool(one == other) or bool(one != one and other != other)


def _items(held: dict[Any, Any]) -> Sequence[Any]:
    return [part for item in held.items() for part in item]
