"""What becomes of a tuple for which a call of user code fails: it fails the epoch, is skipped, or is a dead letter.

**A call that fails has had no effect**: what it had emitted does not leave, and the state of its key is what it was
before the call. So everything is as if the tuple had not come to this operator. The same holds in the sequential run
and in tasks, which is why both use what is here:

    Guarding       an operator's name, its columns and its policy: makes outputs, or a letter, of a call
    HeldBefore     what an instance held before a call, to be put back
    guarded        an operator's logic with all that around it, as tasks run it

Where somebody reads an operator's letters, it emits them beside its tuples in a column more, the last, as text; two
operators take them apart again (`compiler/layout/error_policies.py`).
"""

from __future__ import annotations

import base64
import copy
import dataclasses
import datetime
import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import AnabranchError
from anabranch.operators.epoch_context import count_anomaly, epoch_number, moment
from anabranch.operators.library_operator import LibraryOperator, configured
from anabranch.program.calling import all_exact, exact, kept
from anabranch.program.elastic import ElasticFunction
from anabranch.program.graph import (
    Filter,
    FlatMap,
    Keyed,
    Logic,
    Map,
    Node,
    Process,
    Punctuate,
    Route,
    Watermark,
    is_ours,
)
from anabranch.program.model import Selectivity
from anabranch.program.schema import Row, Schema
from anabranch.program.showing import frames_of, told

POLICIES = ("fail", "skip", "dead_letter")
LETTERS = Schema.of("tuple string, operator string, line string, error string, epoch long")
"""The columns of dead letters."""

_LASTING = frozenset(
    {type(None), bool, int, float, complex, str, bytes, datetime.date, datetime.datetime, datetime.timedelta}
)


@dataclasses.dataclass(frozen=True)
class Guarding:
    """An operator whose calls may fail.

    Attributes
    ----------
    operator, location : str
        How letters name it: by what the user called it, and the line that put it into the program.
    kind : {"map", "filter", "many"}
        What the result of a call stands for.
    schema : Schema
        The columns of its tuples.
    policy : str
    tagged : bool
        Its letters are emitted, in a column more.
    """

    operator: str
    location: str
    kind: str
    schema: Schema
    policy: str
    tagged: bool = False

    @classmethod
    def of(cls, node: Node, schema: Schema | None = None) -> Guarding:
        """That of an operator; `schema` is that of its tuples where they have a column more for letters."""
        kind = {Map: "map", Filter: "filter"}.get(type(node.logic), "many")
        columns = node.schema if schema is None else schema
        return cls(node.part_of or node.name, str(node.location), kind, columns, node.on_error, schema is not None)

    def outputs(self, row: Any, call: Callable[[], Any]) -> list[Any]:
        """What a call emits for a tuple; or what is made of its failure."""
        try:
            return self.made(row, call())
        except AnabranchError:
            raise
        except Exception as problem:
            return self.failed(row, problem)

    def made(self, row: Any, result: Any) -> list[Any]:
        """What a result stands for, as tuples; raises what user code raises on the way, or what does not fit."""
        if self.kind == "filter":
            made: list[Any] = [tuple(tuple.__iter__(row))] if kept(result) else []
        elif self.kind == "map":
            made = [exact(self.schema, result)]
        else:
            made = all_exact(self.schema, result)
        return [(*tuple.__iter__(each), None) for each in made] if self.tagged else made

    def failed(self, row: Any, problem: Exception) -> list[Any]:
        """What is emitted instead, if anything."""
        count_anomaly(self.operator, "skipped" if self.policy == "skip" else "dead_letters")
        return [(*(None,) * len(self.schema.names), json.dumps(self.letter(row, problem)))] if self.tagged else []

    def letter(self, row: Any, problem: Exception) -> tuple[Any, ...]:
        """The letter for a tuple; None stands for the key that is called without one."""
        about = json.dumps(_plain({"key": moment().key} if row is None else _as_dict(row)), ensure_ascii=False)
        return about, self.operator, _line(problem) or self.location, told(problem), epoch_number()


def _as_dict(row: Any) -> Any:
    return dict(zip(row._fields, tuple.__iter__(row), strict=True)) if isinstance(row, Row) else row


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {each if isinstance(each, str) else str(each): _plain(held) for each, held in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each) for each in value]
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime.date, datetime.datetime, datetime.time)):
        return value.isoformat()
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _line(problem: BaseException) -> str:
    """The line of the user's code that raised; empty if none did."""
    notes = getattr(problem, "__notes__", [])  # where it was raised, if that was in another process
    if notes and ":" in notes[-1] and " in " in notes[-1]:
        return str(notes[-1]).strip().split(" in ", 1)[0]
    stopped = problem.__cause__ if isinstance(problem.__cause__, StopIteration) else None
    frames = [frame for frame in frames_of(stopped or problem) if not is_ours(frame.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


class HeldBefore:
    """What an instance held before a call. What can change in place is copied: that costs as much as there is of it."""

    __slots__ = ("_copies", "_held", "_instance")

    def __init__(self, instance: Any, states: Sequence[str]) -> None:
        self._instance = instance
        self._held = held = dict(instance.__dict__)
        changing = {name: held[name] for name in states if name in held and type(held[name]) not in _LASTING}
        self._copies = copy.deepcopy(changing) if changing else changing

    def put_back(self) -> None:
        """Give it back what it held."""
        held = self._instance.__dict__
        held.clear()
        held.update(self._held)
        held.update(self._copies)


def as_written(operator: Any, row: Any) -> Any:
    """The tuple as the user's code sees it: without columns that were added for a key."""
    function = getattr(operator, "as_written", None)
    return row if function is None else function(row)


def may_give_up(instance: Any) -> bool:
    """Whether a call for a time or a punctuation may fail without failing the epoch: that of an operator of the user's.

    Where the library closes a window, say, it cannot be left open and not be closed either.
    """
    return hasattr(type(instance), "give_up")


# -- an operator as tasks run it ----------------------------------------------------------------------------------


class GuardedFunction:
    """A function without state, of one tuple: what it is called for emits, skips, or makes a letter."""

    def __init__(self, logic: Map | Filter | FlatMap, guarding: Guarding) -> None:
        self.logic = logic
        self.guarding = guarding

    def __call__(self, t: Any) -> Any:
        return self.guarding.outputs(t, lambda: self.logic.function(t))


class GuardedElastic(ElasticFunction):
    """The same of a function that may have several calls under way."""

    def __init__(self, called: Any, guarding: Guarding) -> None:
        super().__init__(called.function, called.settings)
        self.called = called
        self.guarding = guarding

    def __call__(self, t: Any) -> Any:
        return self.guarding.outputs(t, lambda: self.called(t))

    def close(self) -> None:
        self.called.close()


def guarded(logic: Logic, guarding: Guarding) -> Logic:
    """What an operator does, with its policy for calls that fail."""
    if isinstance(logic, Keyed):
        return dataclasses.replace(logic, prototype=_guarded_prototype(logic, guarding))
    assert isinstance(logic, (Map, Filter, FlatMap)), f"a {type(logic).__name__} calls no code of the user's"
    if isinstance(logic.function, ElasticFunction):
        return FlatMap(GuardedElastic(logic.function, guarding))
    return FlatMap(GuardedFunction(logic, guarding))


def _guarded_prototype(logic: Keyed, guarding: Guarding) -> Any:
    """The prototype of a class like that of the operator, whose methods follow the policy."""
    was = type(logic.prototype)
    taking = {*(logic.methods or (logic.method,)), *(("watched",) if hasattr(was, "watched") else ())}
    waiting = {name for name in (logic.punctuated, logic.ticked, logic.timed) if name}
    states = tuple(field.name for field in logic.fields)
    held: dict[str, Any] = {name: _taking(getattr(was, name), guarding, states) for name in taking}
    held |= {name: _waiting(getattr(was, name), guarding, states) for name in waiting}
    kind = type(was.__name__, (was,), {**held, "__module__": was.__module__})
    made: Any = object.__new__(kind)
    made.__dict__.update(logic.prototype.__dict__)
    return made


def _taking(method: Callable[..., Any], guarding: Guarding, states: tuple[str, ...]) -> Callable[..., Any]:
    def take(self: Any, t: Any, *more: Any) -> Any:
        before = HeldBefore(self, states)
        try:
            return guarding.made(t, method(self, t, *more))
        except AnabranchError:
            raise
        except Exception as problem:
            before.put_back()
            return guarding.failed(as_written(self, t), problem)

    return take


def _waiting(method: Callable[..., Any], guarding: Guarding, states: tuple[str, ...]) -> Callable[..., Any]:
    """What is called for a time or a punctuation; what the library itself does there fails the epoch."""

    def call(self: Any, *arguments: Any) -> Any:
        if not may_give_up(self):
            return guarding.made(None, method(self, *arguments))
        before = HeldBefore(self, states)
        try:
            return guarding.made(None, method(self, *arguments))
        except AnabranchError:
            raise
        except Exception as problem:
            before.put_back()
            self.give_up(*arguments)
            return guarding.failed(None, problem)

    return call


# -- letters beside tuples ------------------------------------------------------------------------------------------


def with_letters(schema: Schema) -> Schema:
    """The columns of tuples with letters beside them."""
    return _with_text(schema, "dead_letter")


def _with_text(schema: Schema, name: str) -> Schema:
    while name in schema:
        name += "_"
    fields = [field.with_nullable(True) for field in schema.arrow]
    return Schema(pa.schema([*fields, pa.field(name, pa.string())]))


def with_unreadable(schema: Schema) -> Schema:
    """The columns of rows as Spark reads them, with the text of those that it cannot read beside them."""
    return _with_text(schema, "unreadable")


class Readable(LibraryOperator):
    """The rows that could be read, without the column of those that could not."""

    def __call__(self, t: Any) -> Any:
        text = tuple.__getitem__(t, -1)
        if text is not None:
            raise ValueError(f"the row cannot be read with the columns of the source: {text[:200]}")
        return tuple(t)[:-1]


def readable(name: str) -> Map:
    """The operator behind a source whose rows may be unreadable."""
    return Map(configured(Readable, name, selectivity=Selectivity.ONE))


class OnlyTuples(LibraryOperator):
    """The tuples, without the column of letters."""

    def __call__(self, t: Any) -> Any:
        return None if tuple.__getitem__(t, -1) is not None else tuple(t)[:-1]


class OnlyLetters(LibraryOperator):
    """The letters."""

    def __call__(self, t: Any) -> Any:
        letter = tuple.__getitem__(t, -1)
        return None if letter is None else tuple(json.loads(letter))


class Checked(LibraryOperator):
    """The tuples for which an operator behind it will not fail: it is asked."""

    asks: Callable[[Any], Any]

    def __call__(self, t: Any) -> Any:
        self.asks(t)
        return t


def only_tuples(schema: Schema, name: str) -> FlatMap:
    """The operator that takes letters away."""
    return FlatMap(configured(OnlyTuples, name, selectivity=Selectivity.AT_MOST_ONE, forwards=schema.names))


def only_letters(name: str) -> FlatMap:
    """The operator that gives letters only."""
    return FlatMap(configured(OnlyLetters, name, selectivity=Selectivity.AT_MOST_ONE))


def checked(node: Node, asks: Callable[[Any], Any], name: str) -> FlatMap:
    """The operator that is put before one that chooses or punctuates, and which fails in its stead."""
    schema = node.inputs[0].schema
    return FlatMap(configured(Checked, name, selectivity=Selectivity.ONE, forwards=schema.names, asks=asks))


def can_fail(logic: Logic) -> bool:
    """Whether an operator calls code that may fail for a tuple."""
    return isinstance(logic, (Map, Filter, FlatMap, Process, Keyed)) or is_asked(logic)


def is_asked(logic: Logic) -> bool:
    """Whether an operator's calls are tried before it, because it gives on the tuples it took."""
    return isinstance(logic, (Route, Punctuate, Watermark))
