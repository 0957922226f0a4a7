"""Aggregation over event time that all keys share: windows close when the watermark of the stream reaches their end.

    windows   [0, 60) [60, 120) [120, 180) …      watermark 110: the first is closed, for every key; a tuple with
              closed   open      open             time 50 is late, one with 70 is not

A key waits for the end of the first of its windows that are open (`timer_due`), and is called then: so a key that falls
silent gives its last window, and keeps nothing. A window may also give results early, every so often, and stay for a
while when it has closed, to take late tuples and give its result again. Then it holds, last, what it waits for next.
"""

from __future__ import annotations

import decimal
import operator
from typing import Any

from anabranch.errors import ProgramError
from anabranch.operators.aggregation import CodeDraft
from anabranch.operators.event_windows import _decimal_index, _index
from anabranch.operators.library_operator import LATE, PARTLY_LATE
from anabranch.operators.window_bounds import within_bounds, within_times
from anabranch.operators.window_panes import has_panes, write_panes
from anabranch.operators.windows import EventTime, Sliding, amount, measure
from anabranch.program.event_time import TimeScale
from anabranch.program.model import Selectivity

EARLY, CLOSE, AGAIN = "early", "close", "late"
"""Why a result is emitted: see `agg.emission`."""


def write_shared_windows(draft: CodeDraft, scale: TimeScale) -> None:
    """Write the code of windows that the watermark closes."""
    policy = draft.window.policy
    assert isinstance(policy, EventTime)
    shown, attribute = draft.window, policy.attribute
    own = TimeScale.of(draft.schema.type_of(attribute), str(shown))
    if own != scale:
        raise ProgramError(
            f"{shown}: {attribute!r} is {own.unit}, but the event time of the stream is {scale.unit}; windows follow "
            "the stream's watermark, so expected one kind (or windows of each key's own time: per_key=True)"
        )
    every = draft.window.every if isinstance(draft.window, Sliding) else policy.size
    origin = measure(draft.schema, shown, attribute).origin
    draft.names |= {
        "SIZE": amount(draft.schema, shown, attribute, policy.size, aligned=True),
        "EVERY": amount(draft.schema, shown, attribute, every, aligned=True),
        "WIDTH": scale.span(policy.size),
        "STEP": scale.span(every),
        "STAY": scale.span(policy.lateness),
        "EARLY": scale.span(policy.early or 0),
        "ORIGIN": origin,
        "VALUE": scale.value,
        "INDEX": _decimal_index if isinstance(origin, decimal.Decimal) else _index,
    }
    draft.state |= {"windows": dict, "timer_due": None, "timer_since": None}
    draft.selectivity = Selectivity.ANY
    draft.timed, draft.takes_time = "fire", True
    is_simple = not policy.lateness and not policy.early
    if is_simple and has_panes(draft):
        draft.names["FIRST"] = operator.itemgetter(0)
        write_panes(draft, [*draft.attribute(policy), *within_times(draft, attribute)], attribute)
        return
    begin: list[str] = []
    add: list[str] = []
    results: list[str] = []
    places = 0
    for at, aggregation in enumerate(draft.aggregations):
        if aggregation.bound == "emission":
            results.append("why")
        elif aggregation.bound == "time":
            results.append("VALUE(index * STEP + WIDTH - 1)")
        elif aggregation.bound:
            results.append(f"ORIGIN + (index * EVERY{' + SIZE' if aggregation.bound == 'end' else ''})")
        else:
            words = draft.words(at, f"held[{places}]", f"held[{places + 1}]")
            places += 2
            begin += aggregation.begin.format(**words).splitlines()
            add += aggregation.add.format(**words).splitlines()
            results.append(aggregation.result.format(**words))
    value = draft.column(attribute)
    first = f"INDEX({value} - ORIGIN - SIZE, EVERY) + 1" if every != policy.size else "last"
    fresh_key = draft.keep_key()
    late = [f"NOTE(self.operator_name, {LATE!r})", draft.leave_late()]
    closed = "now - WIDTH" if is_simple else "now - WIDTH - STAY"
    took = _TOOK if is_simple else _TOOK_WAITING
    opening = [
        f"        held = windows[index] = [None] * {places if is_simple else places + 1}",
        *(f"        {line}" for line in begin),
        *(f"        {line}" for line in took["fresh"]),
        *(f"        {line}" for line in fresh_key),
    ]
    whole = [
        *draft.prelude(),
        *draft.attribute(policy),
        *within_times(draft, attribute),
        f"last = INDEX({value} - ORIGIN, EVERY)",
        f"first = {first}",
        f"gone = ({closed}) // STEP",
        "if first <= gone:",
        "    if last <= gone:",
        *(f"        {line}" for line in late),
        f"    NOTE(self.operator_name, {PARTLY_LATE!r})",
        "    first = gone + 1",
        *within_bounds(draft, attribute, "first * STEP", "last * STEP + WIDTH", "last * STEP + WIDTH - 1"),
        "windows = self.windows",
        *([] if is_simple else ["results = None"]),
        "for index in range(first, last + 1):",
        "    held = windows.get(index)",
        "    fresh = held is None",
        "    if fresh:",
        *opening,
        *(f"    {line}" for line in add),
        *(f"    {line}" for line in took["added"]),
        *took["end"],
    ]
    if is_simple and every == policy.size:  # a tuple is in one window, and that is open or not
        is_decimal = isinstance(origin, decimal.Decimal)
        whole = [
            *draft.prelude(),
            *draft.attribute(policy),
            *within_times(draft, attribute),
            f"index = INDEX({value} - ORIGIN, EVERY)" if is_decimal else f"index = ({value} - ORIGIN) // EVERY",
            "if index * STEP + WIDTH <= now:",
            *(f"    {line}" for line in late),
            *within_bounds(draft, attribute, "index * STEP", "index * STEP + WIDTH", "index * STEP + WIDTH - 1"),
            "windows = self.windows",
            "held = windows.get(index)",
            "fresh = held is None",
            "if fresh:",
            *(line[4:] for line in opening),
            *add,
            "return None",
        ]
    draft.methods["process(self, t, now)"] = whole
    emit = draft.emitted([*draft.kept_key(), *results])
    if not is_simple:
        draft.methods["result(self, held, index, why)"] = [f"return {emit}"]
    forget = [f"{each} = None" for each in draft.kept_key()]
    done = ["if windows:", f"    self.timer_due = {took['next']}", "else:", "    self.timer_due = None"]
    done += [f"    {line}" for line in forget]
    if is_simple:
        draft.methods["fire(self, time)"] = [
            "windows = self.windows",
            "index = (time - WIDTH) // STEP",
            "held = windows.pop(index)",
            *([f"why = {CLOSE!r}"] if "why" in results else []),
            f"result = {emit}",
            *done,
            "return result",
        ]
    else:
        draft.methods["fire(self, time)"] = [*_FIRE_WAITING, *done, "return results"]


_TOOK: dict[str, Any] = {
    "fresh": [
        "end = index * STEP + WIDTH",
        "if self.timer_due is None or end < self.timer_due:",
        "    self.timer_due = end",
    ],
    "added": [],
    "end": ["return None"],
    "next": "min(windows) * STEP + WIDTH",
}

# A window that waits for more than its end holds, last, the time it waits for next.
_TOOK_WAITING: dict[str, Any] = {
    "fresh": ["held[-1] = index * STEP + WIDTH"],
    "added": [
        "end = index * STEP + WIDTH",
        "if end <= now:",  # it has closed, and takes the tuple all the same
        "    held[-1] = end + STAY",
        "    results = results or []",
        f"    results.append(self.result(held, index, {AGAIN!r}))",
        "elif EARLY and held[-1] == end:",
        "    begun = index * STEP",
        "    early = begun + (max(now - begun, 0) // EARLY + 1) * EARLY",
        "    held[-1] = min(early, end)",
        "if self.timer_due is None or held[-1] < self.timer_due:",
        "    self.timer_due = held[-1]",
    ],
    "end": ["return results"],
    "next": "min(held[-1] for held in windows.values())",
}
_FIRE_WAITING = [
    "windows = self.windows",
    "results = []",
    "for index in sorted(windows):",
    "    held = windows[index]",
    "    if held[-1] != time:",
    "        continue",
    "    end = index * STEP + WIDTH",
    "    if time < end:",
    f"        results.append(self.result(held, index, {EARLY!r}))",
    "        held[-1] = end",
    "        continue",
    "    if time == end:",
    f"        results.append(self.result(held, index, {CLOSE!r}))",
    "        if STAY:",
    "            held[-1] = end + STAY",
    "            continue",
    "    del windows[index]",
]
