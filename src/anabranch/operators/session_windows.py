"""Aggregation over sessions: tuples of a key that follow one another with less than a gap between their times.

    times   10  12 ······ 30      gap 10: two sessions, [10, 22) and [30, 40);
            10  12 ··21·· 30      a tuple with time 21 that comes late joins them to one, [10, 40)

A session closes when the watermark reaches its end: its last time and the gap. A tuple is late if it belongs to no
session that is open and its own would have closed already. What a session holds is [first time, last time, its number,
its tuples, accumulators …].

**When sessions become one** their accumulators must become what their tuples give, added in the order in which they
came. Where partial results of all aggregations combine exactly they are combined; else a session keeps what its
aggregations need of each tuple, and is added up anew.
"""

from __future__ import annotations

from anabranch.errors import ProgramError
from anabranch.operators.agg import PartialResults
from anabranch.operators.aggregation import CodeDraft
from anabranch.operators.library_operator import LATE
from anabranch.operators.window_bounds import within_bounds
from anabranch.operators.windows import Sessions
from anabranch.program.event_time import TimeScale
from anabranch.program.model import Selectivity

ACCUMULATORS = 4
"""Where they begin in what a session holds: two places for each aggregation."""


def write_sessions(draft: CodeDraft, scale: TimeScale) -> None:
    """Write the code of sessions."""
    policy = draft.window.policy
    assert isinstance(policy, Sessions)
    own = TimeScale.of(draft.schema.type_of(policy.attribute), str(draft.window))
    if own != scale:
        raise ProgramError(
            f"{draft.window}: {policy.attribute!r} is {own.unit}, but the event time of the stream is {scale.unit}; "
            "sessions follow the stream's watermark, so expected one kind"
        )
    draft.names |= {"GAP": scale.span(policy.gap), "NUMBER": scale.number, "VALUE": scale.value}
    draft.state |= {"sessions": list, "count": 0, "timer_due": None, "timer_since": None}
    draft.selectivity = Selectivity.ANY
    draft.timed, draft.takes_time = "fire", True
    begin, add, results, combined = _accumulators(draft)
    items = list(dict.fromkeys(item for at in range(len(draft.aggregations)) for item in draft.needed(at)))
    is_kept = combined is None
    lines = [
        *draft.prelude(),
        *draft.attribute(policy),
        f"at = NUMBER({draft.column(policy.attribute)})",
        *within_bounds(draft, policy.attribute, "at", "at + GAP", "at + GAP - 1"),
        "sessions = self.sessions",
        "near = [held for held in sessions if at - held[1] < GAP and held[0] - at < GAP]",
        "fresh = not near",
        "if not fresh:",
        "    held = near[0] if len(near) == 1 else self.joined(near)",
        "    if at < held[0]:",
        "        held[0] = at",
        "    elif at > held[1]:",
        "        held[1] = at",
        "elif at + GAP <= now:",
        f"    NOTE(self.operator_name, {LATE!r})",
        f"    {draft.leave_late()}",
        "else:",
        f"    held = [at, at, self.count, [], {'None, ' * 2 * len(draft.aggregations)}]",
        "    sessions.append(held)",
        *(f"    {line}" for line in [*begin, *draft.keep_key()]),
        *add,
        "self.count += 1",
    ]
    if is_kept:
        lines.append(f"held[3].append((self.count, {''.join(f'{item}, ' for item in items)}))")
    lines += ["self.timer_due = min(each[1] for each in sessions) + GAP", "return None"]
    draft.methods["process(self, t, now)"] = lines
    draft.methods["joined(self, near)"] = _joined(begin, add, items, combined)
    emit = draft.emitted([*draft.kept_key(), *results])
    draft.methods["fire(self, time)"] = [
        "sessions = self.sessions",
        "held = next(each for each in sessions if each[1] + GAP == time)",
        f"result = {emit}",
        "sessions.remove(held)",
        "if sessions:",
        "    self.timer_due = min(each[1] for each in sessions) + GAP",
        "else:",
        "    self.timer_due, self.count = None, 0",
        *(f"    {each} = None" for each in draft.kept_key()),
        "return result",
    ]


def _accumulators(draft: CodeDraft) -> tuple[list[str], list[str], list[str], list[str] | None]:
    """The code that begins, adds, gives results, and combines; the last is None if not all can be combined exactly."""
    begin: list[str] = []
    add: list[str] = []
    results: list[str] = []
    combined: list[str] | None = []
    for at, aggregation in enumerate(draft.aggregations):
        if aggregation.bound:
            bounds = {"start": "VALUE(held[0])", "end": "VALUE(held[1] + GAP)", "emission": "'close'"}
            bounds["time"] = "VALUE(held[1] + GAP - 1)"
            results.append(bounds[aggregation.bound])
            continue
        first, second = ACCUMULATORS + 2 * at, ACCUMULATORS + 2 * at + 1
        words = draft.words(at, f"held[{first}]", f"held[{second}]")
        begin += aggregation.begin.format(**words).splitlines()
        add += aggregation.add.format(**words).splitlines()
        results.append(aggregation.result.format(**words))
        combine = draft.partial_results(aggregation)
        if combine is None or combined is None:
            combined = None
        else:
            combined += _combined(draft, at, combine, words, draft.words(at, f"other[{first}]", f"other[{second}]"))
    return begin, add, results, combined


def _combined(
    draft: CodeDraft, at: int, combine: PartialResults, words: dict[str, str], others: dict[str, str]
) -> list[str]:
    """The code that takes the partial results of a session, `other`, into another, `held`."""
    parts = {f"p{number}": f"part{at}_{number}" for number in range(len(combine.columns))}
    given = [
        f"{name} = {code.format(**others)}" for name, (code, _) in zip(parts.values(), combine.columns, strict=True)
    ]
    return [*given, *combine.code.format(**words, **parts).splitlines()]


def _joined(begin: list[str], add: list[str], items: list[str], combined: list[str] | None) -> list[str]:
    """Sessions become the one of them that began first."""
    lines = [
        "near.sort(key=lambda each: each[2])",
        "held, fresh = near[0], False",
        "for other in near[1:]:",
        "    self.sessions.remove(other)",
        "    held[0], held[1] = min(held[0], other[0]), max(held[1], other[1])",
    ]
    if combined is not None:
        return [*lines, *(f"    {line}" for line in combined), "return held"]
    return [
        *lines,
        "    held[3] += other[3]",
        "held[3].sort(key=lambda each: each[0])",
        "fresh = True",
        *begin,
        f"for (_, {''.join(f'{item}, ' for item in items)}) in held[3]:",
        *(f"    {line}" for line in add),
        "    fresh = False",
        "return held",
    ]
