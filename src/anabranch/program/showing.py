"""Values and errors of the user's as text: what fails when it is asked to show itself is shown by its type."""

from __future__ import annotations

import dis
import traceback
import types
from typing import Any

_AWAIT = "which nobody awaits: an async function is given as it is, with elastic=True, or called by an async function"
_LATER = {
    types.CoroutineType: ("a coroutine", _AWAIT),
    types.AsyncGeneratorType: ("an asynchronous generator", _AWAIT),
    types.GeneratorType: ("a generator", "which nobody goes through: many tuples are emitted by flat_map"),
}
"""What is made when somebody asks for it, and what is wrong where it stands for a value."""


def shown(value: Any) -> str:
    """The `repr` of a value."""
    later = _LATER.get(type(value))
    if later is not None:
        return f"{later[0]} of {value.__qualname__}(), {later[1]}"
    try:
        return repr(value)
    except Exception as problem:
        return f"<{_named(value)}, whose repr() raises {type(problem).__name__}>"


def told(problem: BaseException) -> str:
    """What an error says, behind its type; halves of characters, which no column and no file takes, as escapes."""
    try:
        return f"{type(problem).__name__}: {problem}".encode("utf-8", "backslashreplace").decode()
    except Exception as another:
        return f"{type(problem).__name__}: <its str() raises {type(another).__name__}>"


def _named(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def frames_of(problem: BaseException) -> list[traceback.FrameSummary]:
    """Where an error was raised, outermost first; the same however often the code has run.

    Python joins two instructions where the first puts a local variable and the second takes one, once code has run a
    few times. If the one that is taken has no value, the line that it then tells is that of the first.
    """
    trace = problem.__traceback__
    frames = list(traceback.extract_tb(trace))
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is not None and isinstance(problem, UnboundLocalError):
        line = _line_of_load(trace.tb_frame.f_code, trace.tb_lasti, str(problem))
        if line is not None:
            frames[-1] = traceback.FrameSummary(frames[-1].filename, line, frames[-1].name)
    return frames


def _line_of_load(code: types.CodeType, last: int, told: str) -> int | None:
    """The line of the instruction behind another, if it takes the variable that has no value."""
    instructions = iter(dis.get_instructions(code))
    before = next((each for each in instructions if each.offset == last), None)
    behind = next(instructions, None)
    if before is None or behind is None or not before.opname.startswith(("STORE_FAST", "LOAD_FAST")):
        return None
    is_meant = behind.opname.startswith("LOAD_FAST") and f"'{behind.argval}'" in told
    if not is_meant or f"'{before.argval}'" in told or behind.positions is None:
        return None
    return behind.positions.lineno
