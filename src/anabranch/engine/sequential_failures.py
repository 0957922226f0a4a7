"""Calls that fail in the sequential run: which fail the epoch, and what becomes of the others. Part of the definition.

A call that fails is undone: the state of its key, or whatever the operator keeps, is put back. Then its letter is
emitted, and goes down the graph to whoever reads letters, before anything else happens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from anabranch.errors import AnabranchError, OperatorError
from anabranch.operators.epoch_context import moment
from anabranch.operators.guarding import LETTERS, Guarding, HeldBefore, as_written, may_give_up
from anabranch.program.belongings import Belongings
from anabranch.program.calling import exact, failing, operator_failed
from anabranch.program.elastic import ElasticFunction, LoopBlocked, OpenFailed
from anabranch.program.graph import DeadLetters, Keyed, Node, Process
from anabranch.program.schema import Row


class Skipped(Exception):  # noqa: N818 - an event: a tuple goes no further
    """The call for a tuple failed, and has been dealt with."""


class Failures:
    """What becomes of calls that fail, by the policies of their operators."""

    def __init__(self, nodes: Iterable[Node], emit: Callable[[Node, Row], None]) -> None:
        self._emit = emit
        self._readers: dict[int, list[Node]] = {}
        self._undo: dict[int, Callable[[], None]] = {}  # operator whose key is called → what puts its state back
        for node in nodes:
            for source in node.inputs if isinstance(node.logic, DeadLetters) else ():
                self._readers.setdefault(source.id, []).append(node)

    def calling(self, node: Node, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The call, whose failure fails the epoch or raises `Skipped`."""
        if node.on_error == "fail":
            return failing(node, call)
        guarding = Guarding.of(node)
        kept, prototype = _kept(node), getattr(node.logic, "prototype", None)

        def called(row: Any) -> Any:
            before = None if kept is None else Belongings([kept])
            try:
                return call(row)
            except OpenFailed as problem:
                raise operator_failed(node, row, problem) from problem.problem
            except LoopBlocked as problem:
                raise operator_failed(node, row, problem) from problem
            except OperatorError:
                raise
            except AnabranchError as problem:  # what the library refuses is no tuple's failure
                raise operator_failed(node, row, problem) from problem
            except Exception as problem:
                undo = self._undo.get(node.id)
                waits = isinstance(row, str)
                if waits and undo is None:
                    raise operator_failed(node, row, problem) from problem
                if before is not None:
                    before.put_back()
                if undo is not None:
                    undo()
                letter = exact(LETTERS, guarding.letter(None if waits else as_written(prototype, row), problem))
                for reader in self._readers.get(node.id, ()):
                    self._emit(reader, letter)
                raise Skipped from None

        return called

    def skipping(self, node: Node, consume: Callable[[Row], None]) -> Callable[[Row], None]:
        """What takes a tuple, which goes no further if the call for it failed."""
        if node.on_error == "fail":
            return consume

        def consumed(row: Row) -> None:
            with contextlib.suppress(Skipped):
                consume(row)

        return consumed

    @contextlib.contextmanager
    def of_key(self, node: Node, instance: Any) -> Iterator[None]:
        """Around a call of a key."""
        with self._undoing(node, lambda: HeldBefore(instance, _states(node)).put_back):
            yield

    @contextlib.contextmanager
    def of_waiting(self, node: Node, instance: Any, key: Any, *arguments: Any) -> Iterator[None]:
        """Around a call for a time or a punctuation, which is not made again if it failed."""

        def undo() -> Callable[[], None]:
            before = HeldBefore(instance, _states(node))

            def undone() -> None:
                before.put_back()
                instance.give_up(*arguments)

            return undone

        moment().key = key
        if not may_give_up(instance):
            yield
            return
        with self._undoing(node, undo):
            yield

    @contextlib.contextmanager
    def _undoing(self, node: Node, undo: Callable[[], Callable[[], None]]) -> Iterator[None]:
        if node.on_error == "fail":
            yield
            return
        self._undo[node.id] = undo()
        try:
            with contextlib.suppress(Skipped):
                yield
        finally:
            del self._undo[node.id]


def _kept(node: Node) -> Any:
    """What an operator of the user's may keep, by itself; None: nothing, or what is kept for it by key."""
    logic = node.logic
    if isinstance(logic, Process):
        return logic.operator
    function = getattr(logic, "function", None)
    return None if isinstance(logic, Keyed) or isinstance(function, ElasticFunction) else function


def _states(node: Node) -> tuple[str, ...]:
    assert isinstance(node.logic, Keyed)
    return tuple(field.name for field in node.logic.fields)
