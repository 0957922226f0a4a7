"""Patterns over the tuples of a key: complex events as a sequence of steps.

    failures+  success          step("failures", lambda t: not t.ok).one_or_more(), step("success", lambda t: t.ok)

A pattern is followed by *runs*: a run is a place in the sequence with the tuples it has taken, as plain data. A tuple
may be taken by a run's current step again, or by a later one if everything between is satisfied; both ways are
followed. A tuple may also begin a run. Runs are kept in order of preference — begun earlier first; of one beginning,
the earlier step taking as much as it can first — so the first that is complete is the match that is selected.

Selection: a match is emitted with the first tuple that completes one, and all runs end with it, so matches never
overlap ("skip past last match").
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import ProgramError, SchemaError
from anabranch.operators.library_operator import (
    BACKWARDS,
    Guard,
    LibraryOperator,
    UserFunction,
    configured,
    fields,
    guard,
)
from anabranch.operators.windows import Count, Delta, amount
from anabranch.program.annotated_rows import seeing
from anabranch.program.graph import Keyed
from anabranch.program.model import Selectivity
from anabranch.program.schema import Schema, restored_row


@dataclasses.dataclass(frozen=True)
class PatternStep:
    """One step of a pattern: a name, a condition, and how many tuples it takes. Made by `step`."""

    name: str
    condition: Callable[..., Any]
    least: int = 1
    most: int | None = 1
    sees_matched: bool = False

    def one_or_more(self) -> PatternStep:
        """The same step, taking one tuple or more."""
        return dataclasses.replace(self, least=1, most=None)

    def optional(self) -> PatternStep:
        """The same step, which may take no tuple at all."""
        if self.least > 1:
            raise ProgramError(
                f"step {self.name!r}: times({self.least}, …).optional(): expected a step that takes one tuple or more"
            )
        return dataclasses.replace(self, least=0)

    def times(self, least: int, most: int | None = -1) -> PatternStep:
        """The same step, taking so many tuples: ``times(3)``, ``times(2, 5)``, ``times(3, None)`` for 3 or more."""
        most = least if most == -1 else most
        for each in (least, most):
            if each is not None and (isinstance(each, bool) or not isinstance(each, int) or each < 1):
                raise ProgramError(f"step {self.name!r}: times({least!r}, {most!r}): expected whole numbers, 1 or more")
        if most is not None and most < least:
            raise ProgramError(f"step {self.name!r}: times({least!r}, {most!r}): the most is less than the least")
        return dataclasses.replace(self, least=least, most=most)

    def __str__(self) -> str:
        if (self.least, self.most) == (1, 1):
            return self.name
        if (self.least, self.most) == (1, None):
            return f"{self.name}+"
        if (self.least, self.most) == (0, 1):
            return f"{self.name}?"
        return f"{self.name}{{{self.least},{'' if self.most is None else self.most}}}"


def step(name: str, condition: Callable[..., Any]) -> PatternStep:
    """A step of a pattern for `Stream.match`: exactly one tuple, unless it is told otherwise.

    Parameters
    ----------
    name : str
        Under which what it took is found: ``m.failures`` is a list of tuples.
    condition : callable
        ``condition(t)``, or ``condition(t, m)`` with what was matched so far.

    Examples
    --------
    >>> str(step("failures", lambda t: not t.ok).times(3, None))
    'failures{3,}'
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ProgramError(f"step({name!r}, …): expected a name made of letters, digits and _")
    if not callable(condition):
        raise ProgramError(
            f"step({name!r}, {condition!r}): expected a function of a tuple, or of a tuple and the match"
        )
    return PatternStep(name, condition, sees_matched=_parameters(condition) > 1)


def _parameters(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in kinds and each.default is inspect.Parameter.empty for each in parameters)


class Matched:
    """What a match, or a run on its way to one, has taken: the tuples of each step, as lists, by its name."""

    def __init__(self, names: Sequence[str], taken: Sequence[Sequence[Any]], columns: tuple[str, ...]) -> None:
        self._names = tuple(names)
        self._taken = taken
        self._columns = columns

    def __getattr__(self, name: str) -> list[Any]:
        if name.startswith("_") or name not in self._names:
            raise AttributeError(f"no step {name!r}; steps: {', '.join(self.__dict__.get('_names', ()))}")
        place = self._names.index(name)
        taken = self._taken[place] if place < len(self._taken) else ()
        return [restored_row(self._columns, each) for each in taken]

    @property
    def tuples(self) -> list[Any]:
        """All tuples of the match, in order."""
        return [restored_row(self._columns, each) for step in self._taken for each in step]


# A run: the step it is in, the number of the key's tuple it began with, the attribute of that tuple, and for each
# step up to the current one the tuples it took. Tuples of tuples: a run that forks shares what it has.
Run = tuple[int, int, Any, tuple[tuple[Any, ...], ...]]


class Match(LibraryOperator):
    """The runs of one key."""

    runs: list[Run]
    number: int
    newest: Any
    guard: Guard
    steps: tuple[PatternStep, ...]
    columns: tuple[str, ...]
    relaxed: bool
    most: int | None
    size: Any
    place: int | None
    simple: bool
    key_places: tuple[int, ...]
    emit: Callable[[Any], Any] | None

    def take(self, t: Any) -> Any:
        if not self.guard.admits(self, t):
            return None
        at = None
        if self.place is not None:
            at = tuple.__getitem__(t, self.place)
            if self.newest is not None and at < self.newest:
                self.note(BACKWARDS)
            else:
                self.newest = at
        self.number += 1
        held = tuple(t)
        whole = t
        if len(held) > len(self.columns):  # behind them are columns of its key, which the user did not write
            held = held[: len(self.columns)]
            t = restored_row(self.columns, held)
        followed: list[Run] = []
        for run in self.runs:
            if not self._is_over(run, at):
                continue_ = self._advance(run, t, held)
                followed += continue_ or ([run] if self.relaxed else [])
        followed += self._entered((-1, self.number, at, ()), t, held)
        for run in followed:
            if len(run[3][-1]) >= self.steps[run[0]].least and all(s.least == 0 for s in self.steps[run[0] + 1 :]):
                # A relaxed run that skipped this tuple was not complete before either.
                self.runs = []
                return self._emitted(whole, run)
        self.runs = self._distinct(followed) if self.simple else followed
        return None

    def _is_over(self, run: Run, at: Any) -> bool:
        """Whether a run would be too long with this tuple."""
        if self.most is not None and self.number - run[1] >= self.most:
            return True
        return self.place is not None and at - run[2] > self.size

    def _advance(self, run: Run, t: Any, held: tuple[Any, ...]) -> list[Run]:
        """The ways a run goes on with a tuple, what is preferred first."""
        place, number, at, taken = run
        step = self.steps[place]
        ways: list[Run] = []
        if (step.most is None or len(taken[-1]) < step.most) and self._accepts(step, t, taken):
            ways.append((place, number, at, (*taken[:-1], (*taken[-1], held))))
        if len(taken[-1]) >= step.least:
            ways += self._entered(run, t, held)
        return ways

    def _entered(self, run: Run, t: Any, held: tuple[Any, ...]) -> list[Run]:
        """The ways a run enters a later step with a tuple: the next, or one behind steps that may be left out."""
        place, number, at, taken = run
        ways: list[Run] = []
        for later in range(place + 1, len(self.steps)):
            if self._accepts(self.steps[later], t, taken):
                ways.append((later, number, at, (*taken, (held,))))
            if self.steps[later].least > 0:
                break
            taken = (*taken, ())
        return ways

    def _accepts(self, step: PatternStep, t: Any, taken: tuple[tuple[Any, ...], ...]) -> Any:
        if step.sees_matched:
            return step.condition(t, Matched([each.name for each in self.steps], taken, self.columns))
        return step.condition(t)

    def _distinct(self, runs: list[Run]) -> list[Run]:
        """One run of each kind, if no condition looks back and no limit tells beginnings apart: what such runs can
        still become is the same, and the preferred one comes first."""
        seen: dict[tuple[int, int], Run] = {}
        for run in runs:
            step, taken = self.steps[run[0]], len(run[3][-1])
            seen.setdefault((run[0], min(taken, step.least) if step.most is None else taken), run)
        return list(seen.values())

    def _emitted(self, t: Any, run: Run) -> Any:
        taken = run[3] + ((),) * (len(self.steps) - len(run[3]))
        if self.emit is not None:
            return self.emit(Matched([each.name for each in self.steps], taken, self.columns))
        key = tuple(tuple.__getitem__(t, place) for place in self.key_places)
        return key + tuple([dict(zip(self.columns, each, strict=True)) for each in step] for step in taken)


def seeing_pattern(pattern: Any, schema: Schema) -> Any:
    """The pattern with conditions that get tuples of the class which they are annotated with."""
    if isinstance(pattern, PatternStep):
        more = (None,) if pattern.sees_matched else ()
        return dataclasses.replace(pattern, condition=seeing(pattern.condition, schema, *more))
    return [seeing_pattern(each, schema) for each in pattern] if isinstance(pattern, (list, tuple)) else pattern


def match_logic(
    schema: Schema,
    key: Sequence[str],
    pattern: Any,
    within: Any,
    contiguity: str,
    emit: Callable[[Any], Any] | None,
    output: Any,
    null_key: str,
    name: str,
    written: Schema | None = None,
) -> tuple[Keyed, Schema]:
    """The operator of a pattern, and the schema of its matches; `written`: the columns that the user's code sees."""
    steps = (pattern,) if isinstance(pattern, PatternStep) else tuple(pattern)
    if not steps or not all(isinstance(each, PatternStep) for each in steps):
        raise ProgramError(f"pattern={pattern!r}: expected steps: [step('first', …), step('then', …)]")
    names = [each.name for each in steps]
    for each in names:
        if names.count(each) > 1:
            raise ProgramError(f"pattern: two steps have the name {each!r}")
    if all(each.least == 0 for each in steps):
        raise ProgramError("pattern: every step is optional, so nothing would be a match already; make one of them not")
    if contiguity not in ("strict", "relaxed"):
        raise ProgramError(f"contiguity={contiguity!r}: expected 'strict' or 'relaxed'")
    configuration: dict[str, Any] = {"most": None, "size": None, "place": None}
    attribute, nulls = None, "fail"
    if isinstance(within, Count):
        configuration["most"] = within.size
    elif isinstance(within, Delta):
        attribute, nulls = within.attribute, within.nulls
        configuration["size"] = amount(schema, within, within.attribute, within.size)
        configuration["place"] = schema.names.index(within.attribute)
    elif within is not None:
        raise ProgramError(f"within={within!r}: expected count(n), delta(attribute, size) or nothing")
    if emit is None:
        columns = _default_columns(schema, written or schema, key, names)
    elif not callable(emit):
        raise ProgramError(f"emit={emit!r}: expected a function of a match")
    elif output is None:
        raise SchemaError("the columns of what emit returns are unknown; give schema='…'")
    else:
        columns = Schema.of(output)
    matched = f"matched {' '.join(names)}"
    functions = [
        UserFunction(
            f"the condition of the step {each.name!r}",
            each.condition,
            ("tuple", matched) if each.sees_matched else ("tuple",),
        )
        for each in steps
    ]
    if emit is not None:
        functions.append(UserFunction("its emit function", emit, (matched,)))
    prototype = configured(
        Match,
        name,
        selectivity=Selectivity.AT_MOST_ONE if emit is None else Selectivity.ANY,
        forwards=key if emit is None else (),
        functions=functions,
        guard=guard(schema, key, null_key, attribute, nulls),
        steps=steps,
        columns=(written or schema).names,
        relaxed=contiguity == "relaxed",
        simple=within is None and not any(each.sees_matched for each in steps),
        key_places=tuple(schema.names.index(each) for each in key),
        emit=emit,
        description=" → ".join(names) + (f" within {within}" if within is not None else ""),
        **configuration,
    )
    return Keyed(prototype, "take", fields(runs=list, number=0, newest=None)), columns


def _default_columns(schema: Schema, written: Schema, key: Sequence[str], names: Sequence[str]) -> Schema:
    """The key, and for each step an array of the tuples it took."""
    clash = [name for name in names if name in key]
    if clash:
        raise ProgramError(f"pattern: the step {clash[0]!r} has the name of a key column; choose another name")
    record = pa.struct(list(written.arrow))
    return Schema(pa.schema([*(schema.arrow.field(each) for each in key), *((n, pa.list_(record)) for n in names)]))
