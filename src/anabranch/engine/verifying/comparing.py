"""What the tasks of an epoch did with the keys that were taken, beside what one thread does with them.

The samples of all tasks are put together in the order of one thread (`merged`), the operator as it was written runs
over them from the state before the epoch (`plain_operators`), and outputs and states are compared as bytes:

    first difference     an output, a state, an error, or something that was kept where nobody keeps it

Where an operator is what it is believed to be, its outputs and the state of a key depend on the tuples of that key
alone, so it does not matter which others are left out. Where they do depend on others that were taken, or on what else
a task has seen, there is a difference.
"""

from __future__ import annotations

import array
import dataclasses
import heapq
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.engine.verifying.plain_operators import PlainCode, PlainOperator
from anabranch.engine.worker.samples import Event, Events, StepSample
from anabranch.errors import StateError
from anabranch.state.codec import comparable, decode


@dataclasses.dataclass(frozen=True)
class Difference:
    """Something that tasks did otherwise than one thread does.

    Attributes
    ----------
    kind : str
        ``output``, ``state``, ``error`` or ``kept elsewhere``.
    key : object
        Whose; None if it is no key's.
    at : int or None
        Which of the events, if it is one.
    tasks, one_thread : object
        What was found, and what should have been.
    """

    kind: str
    key: Any
    at: int | None
    tasks: Any
    one_thread: Any


@dataclasses.dataclass(frozen=True)
class OperatorSample:
    """What all tasks of an epoch did with the keys of an operator that were taken."""

    operator: str
    events: Events
    made_between: Mapping[tuple[int, tuple[int, ...]], Mapping[Any, list[tuple[Any, ...]]]]
    """What happened between tuples → key → what it made of that."""
    states: Mapping[Any, tuple[bytes, bytes]]
    broadcast: tuple[bytes, ...] = ()
    """Its broadcast state before, and after: one for each that differs between channels."""

    @property
    def tuples(self) -> int:
        """How many tuples there are."""
        return sum(place >= 0 for place in self.events.places)


def merged(samples: Sequence[StepSample]) -> OperatorSample:
    """The samples of the tasks of one operator, in the order of one thread as far as it is known."""
    made: dict[tuple[int, tuple[int, ...]], dict[Any, list[tuple[Any, ...]]]] = {}
    states: dict[Any, tuple[bytes, bytes]] = {}
    for sample in samples:
        states.update(sample.states)
    parts = [_without_made(sample.events, made) for sample in samples]
    events = Events.together(parts)
    if len(parts) > 1 and all(sample.ordered for sample in samples):
        ends = list(itertools.accumulate(map(len, parts), initial=0))
        numbers = [range(*both) for both in itertools.pairwise(ends)]
        events = events.picked(list(heapq.merge(*numbers, key=events.trails.__getitem__)))
    after = dict.fromkeys(data for sample in samples for data in sample.broadcast[1:])
    return OperatorSample(samples[0].operator, _once(events), made, states, (*samples[0].broadcast[:1], *after))


def _without_made(events: Events, made: dict[Any, dict[Any, list[tuple[Any, ...]]]]) -> Events:
    """Events but for what keys made of what happened between tuples, which is put into `made`."""
    if not events.happened_between:
        return events
    timeline = Events()
    for event in events:
        if event.place < 0 and event.outputs is not None:
            made.setdefault((event.place, event.trail), {}).setdefault(event.key, []).extend(event.outputs)
        else:
            timeline.add(event)
    return timeline


def _once(events: Events) -> Events:
    """Every channel sees every punctuation and tick: it happened once."""
    if not events.happened_between:
        return events
    seen: set[tuple[int, tuple[int, ...]]] = set()
    found = Events()
    for event in events:
        if event.place < 0:
            if (event.place, event.trail) in seen:
                continue
            seen.add((event.place, event.trail))
        found.add(event)
    return found


def first_difference(code: PlainCode, sample: OperatorSample) -> Difference | None:
    """Run an operator over what was taken of it; what differs first, or None."""
    before = {key: states[0] for key, states in sample.states.items()}
    of_all = zip(sample.events.places, sample.events.keys, sample.events.rows, strict=True)
    rows = [(key, row) for place, key, row in of_all if place >= 0 and row is not None]
    plain = code.begun(before, rows, *sample.broadcast[:1])
    found = _run_differs(code, plain, sample)
    where = None if found is not None else plain.kept_elsewhere()
    if where is None:
        return found
    # Something is kept that is nobody's state. A cache is harmless, a counter is not: does anything depend on it?
    plain.begin_again()
    found = _run_differs(code, plain, sample)
    if found is None and code.may_be_reordered:
        found = _run_differs(code, code.begun(before, rows, *sample.broadcast[:1]), _reordered(sample))
    if found is None:
        return None
    return dataclasses.replace(
        found, kind="kept elsewhere", at=None, one_thread=f"{found.one_thread!r}, as {where} changes what follows"
    )


def _reordered(sample: OperatorSample) -> OperatorSample:
    """The same with its keys in another order, each with its own tuples in order; without keys all the other way."""
    events = sample.events
    if events.happened_between or None in events.outputs:
        return sample
    if not sample.states:
        return dataclasses.replace(sample, events=events.picked(range(len(events))[::-1]))
    by_key: dict[Any, list[int]] = {}
    for at, key in enumerate(events.keys):
        by_key.setdefault(key, []).append(at)
    return dataclasses.replace(sample, events=events.picked([at for key in reversed(by_key) for at in by_key[key]]))


def _run_differs(code: PlainCode, plain: PlainOperator, sample: OperatorSample) -> Difference | None:
    found = _outputs_differ(plain, sample)
    return found if found is not None else _states_differ(code, plain, sample)


def _outputs_differ(plain: PlainOperator, sample: OperatorSample) -> Difference | None:
    """All tuples are fitted to the schema, and compared, at once: one by one only to find which differs first."""
    made: list[tuple[Any, ...]] = []
    ends: list[tuple[int, int]] = []  # events with outputs of their own, and how many there are so far
    problem: Difference | None = None
    events = sample.events
    of_all = zip(events.places, events.keys, events.rows, events.outputs, strict=True)
    for at, (place, key, row, outputs) in enumerate(of_all):
        try:
            if place < 0:
                problem = _between_differs(plain, sample, at, events[at])
            else:
                assert row is not None
                made += plain.take(place, key, row)
                if outputs is not None:
                    ends.append((at, len(made)))
        except Exception as error:
            problem = Difference("error", key, at, outputs, f"raises {type(error).__name__}: {error}")
        if problem is not None:
            break
    found = [output for at, _ in ends for output in events.outputs[at] or ()]
    if _counts(sample, ends) and _same_tuples(found, _fitted(plain, made)):
        return problem
    begin = 0
    for at, end in ends:
        event = sample.events[at]
        try:
            expected = plain.fitted(made[begin:end])
        except Exception as error:
            return Difference("error", event.key, at, event.outputs, f"emits what does not fit: {error}")
        if not _same_tuples(event.outputs or [], expected):
            return Difference("output", event.key, at, event.outputs, expected)
        begin = end
    return problem


def _counts(sample: OperatorSample, ends: Sequence[tuple[int, int]]) -> bool:
    """Whether each event has as many outputs as it should."""
    begin = 0
    for at, end in ends:
        if len(sample.events.outputs[at] or ()) != end - begin:
            return False
        begin = end
    return True


def _fitted(plain: PlainOperator, made: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    try:
        return plain.fitted(made)
    except Exception:  # found one by one, which also tells for which tuple
        return []


def _between_differs(plain: PlainOperator, sample: OperatorSample, at: int, event: Event) -> Difference | None:
    made = sample.made_between.get((event.place, event.trail), {})
    expected: dict[Any, list[tuple[Any, ...]]] = {}
    for key, outputs in plain.happen(event.place, *(event.row or ())):
        expected.setdefault(key, []).extend(plain.fitted(outputs))
    for key in dict.fromkeys([*expected, *made]):
        if not _same_tuples(made.get(key, []), expected.get(key, [])):
            return Difference("output", key, at, made.get(key, []), expected.get(key, []))
    return None


def _states_differ(code: PlainCode, plain: PlainOperator, sample: OperatorSample) -> Difference | None:
    expected: Mapping[Any, Any] | None = None
    kept: dict[str, list[Any]] = {}
    for key, (_, after) in sample.states.items():
        if plain.encoded(key) == after:
            continue
        expected = plain.states() if expected is None else expected
        tasks, one = code.shown(after), expected.get(key, {})
        for name, value in tasks.items():
            if name not in one:
                kept.setdefault(name, []).extend(value)
            elif not same(value, one[name]):
                return Difference("state", key, None, {name: value}, {name: one[name]})
    for name, entries in plain.together().items():
        if sorted(map(comparable, kept.get(name, []))) != sorted(map(comparable, entries)):
            return Difference("state", None, None, {name: kept.get(name, [])}, {name: entries})
    for name, entries in plain.strays().items():
        return Difference("state", None, None, {name: "kept by nobody"}, {name: entries})
    return _broadcasts_differ(plain, sample)


def _broadcasts_differ(plain: PlainOperator, sample: OperatorSample) -> Difference | None:
    """What is for all keys must be the same in every channel, and as one thread has it."""
    try:
        expected = plain.broadcast()
    except StateError as problem:
        return Difference("error", None, None, "nothing was changed", str(problem))
    for after in sample.broadcast[1:]:
        if after != expected:
            found, wanted = ({} if not data else decode(data) for data in (after, expected))
            if not same(found, wanted):
                return Difference("state", None, None, {"broadcast": found}, {"broadcast": wanted})
    return None


def _same_tuples(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    """Whether tuples of one schema are the same; -0.0 is not 0.0."""
    if len(found) == len(expected) and len({*map(len, found), *map(len, expected)}) == 1:
        columns = zip(zip(*found, strict=True), zip(*expected, strict=True), strict=True)
        if all(_same_columns(mine, theirs) for mine, theirs in columns):
            return True
    return repr(found) == repr(expected) or same(found, expected)


def _same_columns(mine: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    """Whether columns are surely the same: quickly, where each has values of one plain type."""
    kinds = {*map(type, mine), *map(type, theirs)}
    if kinds == {float}:
        return array.array("d", mine).tobytes() == array.array("d", theirs).tobytes()
    return len(kinds - {type(None)}) <= 1 and kinds <= _EQUAL_IS_SAME and mine == theirs


_EQUAL_IS_SAME = frozenset({int, str, bool, bytes, type(None)})


def same(found: Any, expected: Any) -> bool:
    """Whether two values are the same, type and all."""
    try:
        return comparable(found) == comparable(expected)
    except StateError:
        return False
