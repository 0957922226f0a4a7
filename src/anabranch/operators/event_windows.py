"""Aggregation over event time: aligned windows, several of them open at a time, closed by the key's watermark.

    windows   [0, 60) [60, 120) [120, 180) …      of a key whose largest time is 130, with a lateness of 20:
              closed   open      open             watermark 110; a tuple with time 50 is late, one with 70 is not

State is the largest time seen and, for each open window, a list of accumulators. A tuple is added to the open windows
that hold its time; then, if it moved the watermark, the windows that ended are emitted, in the order of their starts.
"""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa

from anabranch.operators.aggregation import CodeDraft
from anabranch.operators.library_operator import LATE, PARTLY_LATE
from anabranch.operators.window_bounds import within_bounds
from anabranch.operators.windows import EventTime, Sliding, amount, measure
from anabranch.program.event_time import TimeScale
from anabranch.program.model import Selectivity


def write_event_windows(draft: CodeDraft) -> None:
    """Write the code of windows over event time."""
    policy = draft.window.policy
    assert isinstance(policy, EventTime)
    shown, attribute = draft.window, policy.attribute
    every = draft.window.every if isinstance(draft.window, Sliding) else policy.size
    origin = measure(draft.schema, shown, attribute).origin
    draft.names |= {
        "SIZE": amount(draft.schema, shown, attribute, policy.size, aligned=True),
        "EVERY": amount(draft.schema, shown, attribute, every, aligned=True),
        "LATENESS": amount(draft.schema, shown, attribute, policy.lateness, aligned=True),
        "ORIGIN": origin,
        "INDEX": _decimal_index if isinstance(origin, decimal.Decimal) else _index,
    }
    draft.state |= {"newest": None, "windows": dict}
    draft.selectivity = Selectivity.ANY
    begin: list[str] = []
    add: list[str] = []
    results: list[str] = []
    places = 0
    for at, aggregation in enumerate(draft.aggregations):
        if aggregation.bound:
            end = " + SIZE" if aggregation.bound == "end" else ""
            results.append(f"ORIGIN + (index * EVERY{end})")
            continue
        words = draft.words(at, f"held[{places}]", f"held[{places + 1}]")
        places += 2
        begin += aggregation.begin.format(**words).splitlines()
        add += aggregation.add.format(**words).splitlines()
        results.append(aggregation.result.format(**words))
    value = draft.column(attribute)
    emit = "(" + "".join(f"{each}, " for each in [*map(draft.column, draft.key), *results]) + ")"
    first = f"INDEX({value} - ORIGIN - SIZE, EVERY) + 1" if every != policy.size else "last"
    draft.methods["process(self, t)"] = [
        *draft.prelude(),
        *draft.attribute(policy),
        f"last = INDEX({value} - ORIGIN, EVERY)",
        f"first = {first}",
        "newest = self.newest",
        "if newest is not None:",
        "    gone = INDEX(newest - ORIGIN - LATENESS - SIZE, EVERY)",
        "    if first <= gone:",
        "        if last <= gone:",
        f"            NOTE(self.operator_name, {LATE!r})",
        "            return None",
        f"        NOTE(self.operator_name, {PARTLY_LATE!r})",
        "        first = gone + 1",
        *_within_bounds(draft, attribute, every),
        "windows = self.windows",
        "for index in range(first, last + 1):",
        "    held = windows.get(index)",
        "    fresh = held is None",
        "    if fresh:",
        f"        held = windows[index] = [None] * {places}",
        *(f"        {line}" for line in begin),
        *(f"    {line}" for line in add),
        f"if newest is not None and not {value} > newest:",
        "    return None",
        f"self.newest = {value}",
        f"gone = INDEX({value} - ORIGIN - LATENESS - SIZE, EVERY)",
        "if min(windows) > gone:",
        "    return None",
        "closed = []",
        "for index in sorted(windows):",
        "    if index > gone:",
        "        break",
        "    held = windows.pop(index)",
        f"    closed.append({emit})",
        "return closed",
    ]


def _within_bounds(draft: CodeDraft, attribute: str, every: Any) -> list[str]:
    kind = draft.schema.type_of(attribute)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return []
    scale, policy = TimeScale.of(kind, attribute), draft.window.policy
    step, width = scale.span(every), scale.span(policy.size)  # type: ignore[union-attr]
    end = f"last * {step} + {width}"
    return within_bounds(draft, attribute, f"first * {step}", end, f"{end} - 1")


def _index(distance: Any, every: Any) -> int:
    """How many windows begin, the first at 0, up to and with a distance from where time begins; less one."""
    return int(distance // every)


def _decimal_index(distance: decimal.Decimal, every: decimal.Decimal) -> int:
    """The same for decimals, whose // goes towards zero."""
    return int((distance / every).to_integral_value(decimal.ROUND_FLOOR))
