"""Running aggregates: one window for each key, of all its tuples so far, which gives a result whenever that changes.

The results are a stream of updates with a key: each replaces the one before it of the same key. A result that is the
one before it is not given again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.errors import ProgramError, SchemaError
from anabranch.program.hashing import is_hashable
from anabranch.program.model import Selectivity

if TYPE_CHECKING:
    from anabranch.operators.agg import Aggregation
    from anabranch.operators.aggregation import CodeDraft


@dataclasses.dataclass(frozen=True)
class RunningWindow:
    """All tuples of a key so far; or, of those that agree in some columns, the latest."""

    latest_of: tuple[str, ...] = ()
    deleted: Callable[[Any], Any] | None = None
    policy: None = None

    def __str__(self) -> str:
        return f"running({f'latest of {chr(44).join(self.latest_of)}' if self.latest_of else ''})"


def running(*, latest_of: str | Sequence[str] = (), deleted: Callable[[Any], Any] | None = None) -> RunningWindow:
    """A window of all tuples so far, which gives its result each time that it changes.

    Parameters
    ----------
    latest_of : str or sequence of str, optional
        The tuples are updates: one replaces the one before it that agrees with it in these columns. So aggregates of
        updates are those of a table. Such a tuple must stay with its key (`by`): the table of another key keeps what it
        had. They count in the order in which the first of each came; all are kept.
    deleted : callable, optional
        With `latest_of`: whether a tuple says that what it replaces is gone, and does not count itself.

    Each result of a key replaces the one before it: the output is a stream of updates with that key. State grows with
    the number of keys, and with what an aggregation keeps; ``aggregate(…, ttl=…)`` forgets keys that bring nothing.

    Examples
    --------
    >>> import anabranch as ab
    >>> bids = ab.from_rows([("a", 3), ("b", 9), ("a", 2), ("a", 5)], "item string, price long")
    >>> bids.aggregate(by="item", window=ab.running(), best=ab.agg.max("price")).run_sequential()
    [(item='a', best=3), (item='b', best=9), (item='a', best=5)]
    """
    names = (latest_of,) if isinstance(latest_of, str) else tuple(latest_of)
    if not all(isinstance(name, str) for name in names):
        raise ProgramError(f"running(latest_of={latest_of!r}): expected names of columns")
    if deleted is not None and (not names or not callable(deleted)):
        raise ProgramError("running(deleted=…): expected a function of a tuple, and latest_of=…, which it takes away")
    return RunningWindow(names, deleted)


def write_running(draft: CodeDraft) -> None:
    """Write the code of a window that never closes."""
    assert isinstance(draft.window, RunningWindow)
    if draft.window.latest_of:
        _write_latest(draft, draft.window.latest_of)
        return
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
        *_told(draft, results),
    ]


def _told(draft: CodeDraft, results: Sequence[str]) -> list[str]:
    """The code that gives a result, if it is another than before."""
    return [
        f"results = ({''.join(f'{result}, ' for result in results)})",
        "if not fresh and SAME(results, self.shown):",
        "    return None",
        "self.shown = results",
        f"return ({''.join(f'{draft.column(name)}, ' for name in draft.key)}*results, )",
    ]


def _write_latest(draft: CodeDraft, latest_of: Sequence[str]) -> None:
    """Write the code of a window of updates: `held` has what is needed of the latest of each.

    Where taking a tuple out again gives what never adding it had given, that is done; else all are added up anew.
    """
    for name in latest_of:
        if name not in draft.schema:
            raise SchemaError(f"running(latest_of={name!r}): no such column; columns: {', '.join(draft.schema.names)}")
        if not is_hashable(draft.schema.type_of(name)) or pa.types.is_floating(draft.schema.type_of(name)):
            raise SchemaError(f"running(latest_of={name!r}): {draft.schema.type_of(name)} does not tell tuples apart")
    draft.state |= {"open": False, "shown": None, "held": dict}
    draft.names["SAME"] = is_same
    draft.selectivity = Selectivity.AT_MOST_ONE
    items = list(dict.fromkeys(item for at in range(len(draft.aggregations)) for item in draft.needed(at)))
    entering = f"({''.join(f'{item}, ' for item in items)})"
    slides = [each.slide(_type_of(draft, each)) for each in draft.aggregations]
    lines = [
        *draft.prelude(),
        f"mine = ({''.join(f'{draft.column(name)}, ' for name in latest_of)})",
        "is_first = not self.open",
    ]
    keep, drop = f"self.held[mine] = {entering}", "self.held.pop(mine, None)"
    gone = draft.window.deleted  # type: ignore[union-attr]
    if gone is not None:
        draft.names["GONE"] = gone
        lines += ["gone = GONE(t)", "if gone and mine not in self.held:", "    return None"]
    lines.append("self.open = True")
    results: list[str] = []
    if None in slides:
        begin: list[str] = []
        add: list[str] = []
        for at, aggregation in enumerate(draft.aggregations):
            words = draft.words(at, f"a{at}", f"b{at}")
            begin += aggregation.begin.format(**words).splitlines()
            add += aggregation.add.format(**words).splitlines()
            results.append(aggregation.result.format(**words))
        loop = [f"for ({''.join(f'{item}, ' for item in items)}) in self.held.values():" if items else _ANY]
        key = [f"key{at} = {draft.column(name)}" for at, name in enumerate(draft.key)]
        held = [keep] if gone is None else ["if gone:", f"    {drop}", "else:", f"    {keep}"]
        lines += [*held, *key, *begin, "fresh = True", *loop]
        lines += [*(f"    {line}" for line in add), "    fresh = False", "fresh = is_first"]
        told = _told(draft, results)
        told[-1] = f"return ({''.join(f'key{at}, ' for at in range(len(draft.key)))}*results, )"
        draft.methods["process(self, t)"] = [*lines, *told]
        return
    starts: list[str] = []
    adds: list[str] = []
    removes: list[str] = []
    for at, slide in enumerate(slides):
        assert slide is not None
        words = draft.words(at, f"self.a{at}", f"self.b{at}")
        starts += slide.begin.format(**words).splitlines()
        adds += slide.add.format(**words).splitlines()
        removes += slide.remove.format(**{**words, "v": f"old_{draft.value(at)}"}).splitlines()
        results.append(slide.result.format(**words))
        draft.state |= {f"{field}{at}": None for field, s in (("a", "s"), ("b", "u")) if f"{{{s}}}" in slide.begin}
    old = f"({''.join(f'old_{item}, ' for item in items)}) = old" if items else "pass"
    draft.methods["process(self, t)"] = [
        *lines,
        "if is_first:",
        *(f"    {line}" for line in starts),
        "old = self.held.get(mine)",
        "if old is not None:",
        *(f"    {line}" for line in [old, *removes]),
        *([keep, *adds] if gone is None else ["if gone:", f"    {drop}", "else:"]),
        *([] if gone is None else [f"    {line}" for line in [keep, *adds]]),
        "fresh = is_first",
        *_told(draft, results),
    ]


_ANY = "for _ in self.held:"


def _type_of(draft: CodeDraft, aggregation: Aggregation) -> pa.DataType:
    return pa.null() if aggregation.attribute is None else draft.schema.type_of(aggregation.attribute)


def is_same(one: Any, other: Any) -> bool:
    """Whether two results are equal; NaN is equal to NaN, whichever objects they are."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return is_same(_items(one), _items(other))
    return bool(one == other) or bool(one != one and other != other)


def _items(held: dict[Any, Any]) -> Sequence[Any]:
    return [part for item in held.items() for part in item]
