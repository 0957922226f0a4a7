"""Sliding windows in panes: a tuple is added once, however many windows hold it.

    panes     ├ 0 ┤├ 1 ┤├ 2 ┤├ 3 ┤     a pane is as long as windows begin apart
    windows   └─── 0 ───┘
                   └─── 1 ───┘         a window is what its panes give together, all aggregations at once

Only where partial results of all aggregations combine to the very same value (`PartialResults`): counts, sums of
integers, minima and maxima of anything but floats, the first value. Panes are combined in the order of their first
tuples.
"""

from __future__ import annotations

from anabranch.operators.aggregation import CodeDraft
from anabranch.operators.library_operator import LATE, PARTLY_LATE
from anabranch.operators.window_bounds import within_bounds


def has_panes(draft: CodeDraft) -> bool:
    """Whether windows of a draft can be made of panes: they overlap, are whole panes, and all aggregations combine."""
    width, step = draft.names["WIDTH"], draft.names["STEP"]
    if width == step or width % step:
        return False
    return all(each.bound or draft.partial_results(each) is not None for each in draft.aggregations)


def write_panes(draft: CodeDraft, sees_to: list[str], attribute: str) -> None:
    """Write the code of windows in panes; `sees_to` is the code that sees to a missing time."""
    value = draft.column(attribute)
    draft.state |= {"panes": dict, "count": 0}
    del draft.state["windows"]
    draft.names["MANY"] = draft.names["WIDTH"] // draft.names["STEP"]
    begin: list[str] = []
    add: list[str] = []
    combined: list[str] = []
    results: list[str] = []
    places = 1  # the first is the number of the pane
    for at, aggregation in enumerate(draft.aggregations):
        if aggregation.bound:
            bounds = {"start": "ORIGIN + index * EVERY", "emission": "'close'"}
            bounds["end"] = "ORIGIN + (index * EVERY + SIZE)"
            bounds["time"] = "VALUE(index * STEP + WIDTH - 1)"
            results.append(bounds[aggregation.bound])
            continue
        words = draft.words(at, f"held[{places}]", f"held[{places + 1}]")
        others = draft.words(at, f"other[{places}]", f"other[{places + 1}]")
        places += 2
        begin += aggregation.begin.format(**words).splitlines()
        add += aggregation.add.format(**words).splitlines()
        combine = draft.partial_results(aggregation)
        assert combine is not None
        parts = {f"p{number}": f"part{at}_{number}" for number in range(len(combine.columns))}
        for name, (code, _) in zip(parts.values(), combine.columns, strict=True):
            combined.append(f"{name} = {code.format(**others)}")
        combined += combine.code.format(**words, **parts).splitlines()
        results.append(aggregation.result.format(**words))
    draft.methods["process(self, t, now)"] = [
        *draft.prelude(),
        *sees_to,
        f"pane = INDEX({value} - ORIGIN, EVERY)",
        "gone = (now - WIDTH) // STEP",
        "first = pane - MANY + 1",
        "if first <= gone:",
        "    if pane <= gone:",
        f"        NOTE(self.operator_name, {LATE!r})",
        f"        {draft.leave_late()}",
        f"    NOTE(self.operator_name, {PARTLY_LATE!r})",
        "    first = gone + 1",
        *within_bounds(draft, attribute, "first * STEP", "pane * STEP + WIDTH", "pane * STEP + WIDTH - 1"),
        "held = self.panes.get(pane)",
        "fresh = held is None",
        "if fresh:",
        f"    held = self.panes[pane] = [None] * {places}",
        "    held[0] = self.count",
        "    self.count += 1",
        "    end = first * STEP + WIDTH",
        "    if self.timer_due is None or end < self.timer_due:",
        "        self.timer_due = end",
        *(f"    {line}" for line in [*begin, *draft.keep_key()]),
        *add,
        "return None",
    ]
    draft.methods["fire(self, time)"] = [
        "panes = self.panes",
        "index = (time - WIDTH) // STEP",
        f"held, fresh = [None] * {places}, True",
        *begin,
        "for other in sorted((panes[at] for at in range(index, index + MANY) if at in panes), key=FIRST):",
        *(f"    {line}" for line in combined),
        "    fresh = False",
        f"result = {draft.emitted([*draft.kept_key(), *results])}",
        "panes.pop(index, None)",
        "if panes:",
        "    self.timer_due = max(min(panes) - MANY + 1, index + 1) * STEP + WIDTH",
        "else:",
        "    self.timer_due, self.count = None, 0",
        *(f"    {each} = None" for each in draft.kept_key()),
        "return result",
    ]
