"""Calling user code: what an operator may return, how its failure is told, how instances are made.

Shared by the sequential run and the channels, because it is the contract with the user and not a way of
executing: what counts as "no tuple", "one tuple" and "many tuples", and what an error says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from keyword import iskeyword
from operator import itemgetter
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from anabranch.errors import OperatorError, StateError
from anabranch.program.broadcasting import HELD, Held, initial_values
from anabranch.program.elastic import OpenFailed
from anabranch.program.graph import Keyed, Node, Route, is_ours
from anabranch.program.misfits import MisfitError, ShapeError
from anabranch.program.not_a_number import one_nan
from anabranch.program.schema import Row, Schema
from anabranch.program.showing import frames_of, shown, told


def emitted(result: Any) -> Any:
    """The tuples in what a `process` or `flat_map` returned: None is none, a list or iterator is many.

    A named tuple, tuple, dict or anything else is one tuple.
    """
    if result is None:
        return ()
    if type(result) is GeneratorType or isinstance(result, (list, Iterator)):
        return result
    if isinstance(result, (tuple, dict, str, bytes)) or not hasattr(result, "__iter__"):
        return (result,)
    return result


def kept(result: Any) -> bool:
    """Whether a filter keeps a tuple, by what its function returned.

    What is still to be made, a coroutine say, would always be true.
    """
    if result is True or result is False:
        return result
    if isinstance(result, (CoroutineType, GeneratorType, AsyncGeneratorType)):
        raise ShapeError(f"expected what is true or false; found {shown(result)}")
    return bool(result)


def route_of(logic: Route, row: Row) -> int:
    """The output that a tuple goes to."""
    way = logic.function(row)
    if isinstance(way, bool):
        way = int(way)
    if not isinstance(way, int) or not 0 <= way < logic.ways:
        raise ValueError(f"the route must be a whole number from 0 to {logic.ways - 1}, found {way!r}")
    return way


def operator_failed(node: Node, row: Any, problem: BaseException, epoch: int | None = None) -> OperatorError:
    """The error for an operator that raised or returned what does not fit."""
    if isinstance(problem, OpenFailed):
        row, problem = "none yet: it was raised by open()", problem.problem
    where = f"operator {node.written_as}"
    if epoch is not None:
        where += f", epoch {epoch}"
    text = row if isinstance(row, str) else shown(_as_written(node, row))
    if len(text) > 500:
        text = text[:497] + "…"
    if isinstance(problem, (ShapeError, MisfitError)):
        what = f"returned the wrong type: {problem}"
        hint = "Return what the output schema says, or change the schema."
    else:
        # Python turns a StopIteration that leaves a generator into another error, which does not know the line.
        stopped = problem.__cause__ if isinstance(problem.__cause__, StopIteration) else None
        lines = [
            f"  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
            for frame in frames_of(stopped or problem)
            if not is_ours(frame.filename)
        ]
        notes = getattr(problem, "__notes__", [])  # where it was raised, if that was in another process
        lines += [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []
        what = f"raised {told(problem)}" + "".join("\n" + line for line in lines[-3:])
        hint = "The epoch failed and nothing of it was written."
    return OperatorError(f"{where}: {what}\nfor the tuple {text}\n{hint}", node.written_as, text, epoch)


def _as_written(node: Node, row: Any) -> Any:
    """The tuple as the user's operator would have met it: without columns that only we know of."""
    as_written = getattr(getattr(node.logic, "prototype", None), "as_written", None)
    if as_written is not None and isinstance(row, Row):
        return as_written(row)
    before = node.inputs[0] if node.inputs else None
    if before is None or not (node.part_of and before.part_of and isinstance(row, Row)):
        return row
    return before.inputs[0].schema.row_class(tuple(row)[: len(before.inputs[0].schema.names)])


def next_tuple(schema: Schema, outputs: Any) -> Row | None:
    """The next tuple that an operator emits, as one of its schema; None: there is none."""
    for item in outputs:
        return exact(schema, item)
    return None


def exact(schema: Schema, value: Any) -> Row:
    """A tuple of a schema; MisfitError or ShapeError if the value is none."""
    return schema.exact_row(schema.unpack(value))


def all_exact(schema: Schema, result: Any) -> list[Row]:
    """All tuples in what a call returned.

    If one does not fit, a generator is closed there: what it does on its way out belongs to the call that failed.
    """
    outputs = emitted(result)
    try:
        return [exact(schema, each) for each in outputs]
    except BaseException:
        if hasattr(outputs, "close"):
            outputs.close()
        raise


def failing(node: Node, call: Callable[[Row], Any]) -> Callable[[Row], Any]:
    """The call, with errors that name the operator and the tuple."""

    def guarded(row: Row) -> Any:
        try:
            return call(row)
        except OperatorError:
            raise
        except Exception as problem:
            raise operator_failed(node, row, problem) from problem

    return guarded


class Instances:
    """Makes the per-key instances of a keyed operator, and reads their state back.

    An instance is a copy of the prototype whose state fields are set. Whatever else user code writes
    on `self` would be lost between epochs, so it is refused, by the same rule in every way of running.
    """

    def __init__(self, node: Node) -> None:
        assert isinstance(node.logic, Keyed)
        self.node = node
        self.logic = node.logic
        self.names = tuple(field.name for field in self.logic.fields)
        self.kind = type(self.logic.prototype)
        held = vars(self.logic.prototype)
        self.configuration = {name: value for name, value in held.items() if name not in self.names}
        self.held: Held | None = None
        """The broadcast state, if it has some: one for all instances that are made here."""
        if self.logic.broadcast is not None:
            self.held = self.configuration[HELD] = Held(initial_values(self.logic.broadcast.fields))
        self.size = len(self.configuration) + len(self.names)
        # Made once: instances are made by the ten thousand.
        self._template = {**self.configuration, **{f.name: f.default for f in self.logic.fields}}
        self._factories = [(f.name, f.factory) for f in self.logic.fields if f.factory is not None]
        self._state_of = _getter(self.names)
        self._set = _setter(self.kind, self.names)

    def new(self) -> Any:
        """An instance for a key that was never seen."""
        instance = object.__new__(self.kind)
        attributes = vars(instance)
        attributes.update(self._template)
        for name, factory in self._factories:
            attributes[name] = factory()
        return instance

    def restored(self, values: tuple[Any, ...]) -> Any:
        """An instance with the state it had."""
        instance = object.__new__(self.kind)
        self._set(instance, values)
        if self.configuration:
            instance.__dict__.update(self.configuration)
        return instance

    def values(self, instance: Any) -> tuple[Any, ...]:
        """The state of an instance; StateError if something else was changed on it."""
        attributes = instance.__dict__
        if len(attributes) != self.size:
            extra = [name for name in attributes if name not in self.names and name not in self.configuration]
            if not extra:
                gone = next(name for name in (*self.names, *self.configuration) if name not in attributes)
                raise StateError(
                    f"operator {self.node.title}: process() deleted self.{gone}, which every key has. "
                    f"Assign it instead: self.{gone} = None"
                )
            self._refuse(extra[0])
        for name, value in self.configuration.items():
            if attributes.get(name, self) is not value:
                self._refuse(name)
        return self._state_of(attributes)

    def _refuse(self, name: str) -> None:
        raise StateError(
            f"operator {self.node.title}: process() changed self.{name}, which is not declared as state, so its "
            f"value would be lost. Declare it in the class: {name} = ab.state(default=…)"
        )


def _getter(names: tuple[str, ...]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    if not names:
        return lambda attributes: ()
    if len(names) == 1:
        only = names[0]
        return lambda attributes: (attributes[only],)
    return itemgetter(*names)


def _setter(kind: type, names: tuple[str, ...]) -> Callable[[Any, tuple[Any, ...]], None]:
    """A function that gives an instance these attributes.

    Generated: an assignment that is written out takes a third of the time of a loop over names, and instances
    stay without a dict of their own, which makes user code faster too.
    """
    is_plain = kind.__setattr__ is object.__setattr__ and not any(
        hasattr(getattr(kind, name, None), "__set__") for name in names
    )
    if not is_plain or not names or any(not name.isidentifier() or iskeyword(name) for name in names):
        return lambda instance, values: instance.__dict__.update(zip(names, values, strict=True))
    targets = "".join(f"instance.{name}, " for name in names)
    namespace: dict[str, Any] = {}
    exec(f"def set_state(instance, values):\n    {targets}= values", namespace)
    return namespace["set_state"]


def canonical(value: Any) -> Any:
    """The key a value stands for: every NaN is one key (a dict would tell them apart)."""
    return one_nan(value)


def canonical_key(key: Any) -> Any:
    """The key that a stored one stands for: a single value, or a tuple of them."""
    return tuple(map(canonical, key)) if isinstance(key, tuple) else canonical(key)


def key_of(row: Row, places: tuple[int, ...]) -> Any:
    """The key of a tuple: the value of its key column, or a tuple of them."""
    if len(places) == 1:
        return canonical(tuple.__getitem__(row, places[0]))
    return tuple(canonical(tuple.__getitem__(row, place)) for place in places)
