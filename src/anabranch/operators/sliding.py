"""Aggregation over a sliding window: the key's last tuples, with a result at every trigger.

The window is a queue of what the aggregations need of each tuple. A tuple first pushes out what no longer belongs,
then joins, then may trigger a result. Aggregations that can take a tuple out again keep an accumulator beside the
queue; the others are computed from the queue when a result is due.
"""

from __future__ import annotations

from collections import deque

from anabranch.errors import ProgramError
from anabranch.operators.agg import Slide
from anabranch.operators.aggregation import CodeDraft
from anabranch.operators.library_operator import BACKWARDS
from anabranch.operators.windows import Count, Delta, Punctuated, Sliding, Time, amount, measure
from anabranch.program.model import Selectivity


def write_sliding(draft: CodeDraft) -> None:
    """Write the code of a window that moves along."""
    window = draft.window
    assert isinstance(window, Sliding)
    policy, every = window.policy, window.every
    draft.state |= {"window": deque}
    if isinstance(every, Delta) and not (isinstance(policy, Delta) and policy.attribute == every.attribute):
        # Two attributes that both move could each go backwards in their own way: one is enough.
        raise ProgramError(
            f"{window}: every=delta({every.attribute!r}, …) needs a window delta({every.attribute!r}, …)"
        )
    columns, measured = _columns(draft)
    add, remove, begin = _accumulators(draft, columns)
    draft.methods["result(self, key)"] = _result(draft, columns)
    entering = "(" + "".join(f"{column}, " for column in columns) + ")"
    leaving = "".join(f"old_{column}, " for column in columns)
    key = "(" + "".join(f"{draft.column(name)}, " for name in draft.key) + ")"
    push_out = [f"({leaving}) = self.window.popleft()", *remove] if remove else ["self.window.popleft()"]
    lines = draft.prelude()
    closed = "None"
    if isinstance(policy, Delta):
        value = draft.column(policy.attribute)
        draft.names["SIZE"] = amount(draft.schema, window, policy.attribute, policy.size)
        lines += draft.attribute(policy)
        lines += [f"if self.window and {value} < self.window[-1][0]:", f"    NOTE(self.operator_name, {BACKWARDS!r})"]
    elif isinstance(policy, Time):
        draft.names["SIZE"] = policy.size_ms
        lines.append("now = NOW()")
    else:
        assert isinstance(policy, Count)
        draft.names["SIZE"] = policy.size
    if isinstance(every, Delta):
        draft.names["EVERY"] = amount(draft.schema, window, every.attribute, every.size)
        draft.state["anchor"] = None
        closed = "closed"
        lines += [
            "closed = None",
            "if self.anchor is None:",
            f"    self.anchor = {value}",
            f"elif {value} - self.anchor > EVERY:",
            f"    closed = self.result({key})",
            f"    self.anchor = {value}",
        ]
    condition = {
        Count: "if len(self.window) == SIZE:",
        Delta: f"while self.window and {measured} - self.window[0][0] > SIZE:",
        Time: "while self.window and now - self.window[0][0] > SIZE:",
    }[type(policy)]
    evict = [condition, *(f"    {line}" for line in push_out)]
    lines += evict
    if begin:
        lines += ["if not self.window:", *(f"    {line}" for line in begin)]
    lines += [f"self.window.append({entering})", *add]
    if isinstance(every, Count):
        draft.names["EVERY"] = every.size
        draft.selectivity = Selectivity.AT_MOST_ONE
        if every.size == 1:
            draft.selectivity = Selectivity.AT_MOST_ONE if draft.may_drop else Selectivity.ONE
            lines.append(f"return self.result({key})")
        else:
            draft.state["since"] = 0
            lines += ["self.since += 1", "if self.since == EVERY:", "    self.since = 0"]
            lines += [f"    return self.result({key})", "return None"]
    else:
        if not isinstance(every, Delta):
            lines += _wait(draft, evict if isinstance(policy, Time) else [])
        draft.selectivity = Selectivity.AT_MOST_ONE if isinstance(every, Delta) else Selectivity.ANY
        lines.append(f"return {closed}")
    draft.methods["process(self, t)"] = lines


def _columns(draft: CodeDraft) -> tuple[list[str], str]:
    """What the queue holds of a tuple, what is measured first; and the variable that is measured."""
    policy = draft.window.policy
    measured = ""
    columns: list[str] = []
    if isinstance(policy, Delta):
        measure(draft.schema, draft.window, policy.attribute)
        measured = draft.column(policy.attribute)
        columns = [measured]
    elif isinstance(policy, Time):
        measured = "now"
        columns = [measured]
    for at in range(len(draft.aggregations)):
        columns += [item for item in draft.needed(at) if item not in columns]
    return columns, measured


def _slide(draft: CodeDraft, at: int) -> Slide | None:
    aggregation = draft.aggregations[at]
    kind = None if aggregation.attribute is None else draft.schema.type_of(aggregation.attribute)
    return aggregation.slide(kind)


def _accumulators(draft: CodeDraft, columns: list[str]) -> tuple[list[str], list[str], list[str]]:
    add: list[str] = []
    remove: list[str] = []
    begin: list[str] = []
    for at in range(len(draft.aggregations)):
        slide = _slide(draft, at)
        if slide is None:
            continue
        words = draft.words(at, f"self.a{at}", f"self.b{at}")
        begin += slide.begin.format(**words).splitlines()
        add += slide.add.format(**words).splitlines()
        old = draft.words(at, f"self.a{at}", f"self.b{at}", f"old_{draft.value(at)}")
        remove += slide.remove.format(**old).splitlines()
        draft.state |= {f"{field}{at}": None for field, s in (("a", "s"), ("b", "u")) if f"{{{s}}}" in slide.begin}
    return add, remove, begin


def _result(draft: CodeDraft, columns: list[str]) -> list[str]:
    begin: list[str] = []
    add: list[str] = []
    results: list[str] = []
    for at, aggregation in enumerate(draft.aggregations):
        slide = _slide(draft, at)
        if slide is not None:
            results.append(slide.result.format(**draft.words(at, f"self.a{at}", f"self.b{at}")))
        elif aggregation.at is not None:
            results.append(f"self.window[{aggregation.at}][{columns.index(draft.value(at))}]")
        else:
            words = draft.words(at, f"a{at}", f"b{at}")
            begin += aggregation.begin.format(**words).splitlines()
            add += aggregation.add.format(**words).splitlines()
            results.append(aggregation.result.format(**words))
    lines: list[str] = []
    if add:
        entering = "".join(f"{column}, " for column in columns)
        lines = [*begin, f"for ({entering}) in self.window:", *(f"    {line}" for line in add)]
    return [*lines, f"return (*key, {''.join(f'{each}, ' for each in results)})"]


def _wait(draft: CodeDraft, evict: list[str]) -> list[str]:
    """The methods for triggers that are no tuples; what a tuple does so that its key is triggered."""
    assert isinstance(draft.window, Sliding)
    every = draft.window.every
    draft.waiting = "open"
    draft.state["open"] = False
    kept = "(" + "".join(f"{each}, " for each in draft.kept_key()) + ")"
    # A window of the last tuples stays as it is until the next tuple; a window of the last seconds does not.
    stop = ["self.open = False"] if not evict else ["self.open = bool(self.window)"]
    gone = [*evict, "if not self.window:", "    self.open = False", "    return None"] if evict else []
    emit = [*gone, *stop, f"return self.result({kept})"]
    keep = draft.keep_key()
    if isinstance(every, Time):
        draft.names["EVERY"] = every.size_ms
        draft.state["anchor"] = None
        draft.ticked = "ticked"
        draft.methods["ticked(self, now)"] = [
            "if now - self.anchor < EVERY:",
            "    return None",
            "self.anchor = now",
            *emit,
        ]
        keep = [*keep, "self.anchor = NOW()"]
    else:
        assert isinstance(every, Punctuated)
        draft.punctuated = "punctuated"
        draft.methods["punctuated(self)"] = ["now = NOW()", *emit] if evict else emit
    return ["if not self.open:", "    self.open = True", *(f"    {line}" for line in keep)]
