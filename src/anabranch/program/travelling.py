"""A program on its way to the workers, with the settings its code was written under.

Code of the user's is sent with the globals it names, as they are when the query starts: a worker that imported the
module anew would have those of the file, and not what a script has set since. The decimal context of the thread that
starts the query goes along for the same reason. What no copy can be made of (a lock, a connection) stays a matter of
the worker's own import, and so do the other globals of that program.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable
from typing import Any

from anabranch.errors import ProgramError, StateError
from anabranch.program.graph import Node
from anabranch.program.whole_copies import loaded, pickled_whole


def packed(program: Any, nodes: Iterable[Node], context: decimal.Context) -> bytes:
    """A program as bytes; `nodes` are its operators, `context` is the decimal one that they run under."""
    names = [node.title for node in nodes]
    try:
        found, _ = pickled_whole((program, context), [node.logic for node in nodes])
        return found
    except StateError as problem:
        for node in nodes:
            try:
                target = getattr(node.logic, "prototype", getattr(node.logic, "function", node.logic))
                pickled_whole(node.logic, target)
            except StateError as own:
                raise ProgramError(f"operator {node.title}: {own}") from problem
        raise ProgramError(f"the program with the operators {', '.join(names)}: {problem}") from problem


def unpacked(data: bytes) -> tuple[Any, decimal.Context]:
    """The program, and the decimal context it runs under."""
    program, context = loaded(data)
    return program, context


def run_under(context: decimal.Context) -> None:
    """Make the decimal context of this thread equal to another, if it is not."""
    if repr(decimal.getcontext()).split("flags=")[0] != repr(context).split("flags=")[0] or (
        decimal.getcontext().traps != context.traps
    ):
        decimal.setcontext(context.copy())
