"""Calls that change a setting of the thread or of the process: later calls work by it, whatever key their tuples have.

Settings of the thread that starts a query hold wherever its operators run (`engine/thread_settings.py`). What a call
changes of them does not: other channels do not see it, and the next epoch begins with those of the start. So it is seen
as something that outlives the call and that cannot be kept.
"""

from __future__ import annotations

import ast
import contextvars
import dataclasses
import decimal
import sys
from typing import Any

from anabranch.compiler.reading.facts import Kind
from anabranch.compiler.reading.reading_state import Reading
from anabranch.compiler.reading.values import PLAIN_VALUE, Shared, Value
from anabranch.program.object_parts import is_library

CHANGES = "changes "
"""Begins what is told of such a call."""
_CONTEXT = "the decimal context of the thread"
#: What changes a setting, by name, so that nothing is loaded for it; which; and what changes it for a while only.
_SETTERS = {
    "decimal.setcontext": (_CONTEXT, "with decimal.localcontext()"),
    "numpy.seterr": ("how numpy treats errors", "with numpy.errstate(…)"),
    "numpy.seterrcall": ("how numpy treats errors", "with numpy.errstate(…)"),
    "numpy.setbufsize": ("numpy's buffers", ""),
    "numpy.set_printoptions": ("how numpy prints", "with numpy.printoptions(…)"),
    "sys.setrecursionlimit": ("how deep calls may go", ""),
    "sys.set_int_max_str_digits": ("how long a number may be as text", ""),
    "os.chdir": ("the working directory", ""),
    "os.fchdir": ("the working directory", ""),
    "os.umask": ("the rights of new files", ""),
    "os.putenv": ("an environment variable", ""),
    "os.unsetenv": ("an environment variable", ""),
    "locale.setlocale": ("the locale", ""),
    "time.tzset": ("the time zone", ""),
    "socket.setdefaulttimeout": ("the time-out of all sockets", ""),
}
_LAST_NAMES = {name.rpartition(".")[2] for name in _SETTERS}


def look_at_setting(reading: Reading, found: Any, given: int, node: ast.AST) -> None:
    """Take down that a function that is called with so many arguments changes a setting, if it does."""
    if not is_library(type(found).__module__):
        return  # an object of the user's, which may answer whatever it is asked for, and count that
    name = getattr(found, "__name__", "")
    if name not in _LAST_NAMES or (name == "setlocale" and given < 2):  # that only asks
        return
    for name, (what, instead) in _SETTERS.items():
        module, _, last = name.rpartition(".")
        if getattr(sys.modules.get(module), last, None) is found:
            _changes(reading, node, what, instead)


def look_at_variable(reading: Reading, receiver: Value, name: str, node: ast.AST) -> None:
    """Take down that a method that is called changes a context variable, or puts it back."""
    if name not in ("set", "reset"):
        return
    for each in receiver.objects:
        variable = reading.facts.objects.get(each.identity) if isinstance(each, Shared) else None
        if isinstance(variable, contextvars.ContextVar):
            if name == "reset":
                reading.settings.append(("", reading.place(node), variable.name))
            else:
                what = f"the context variable {variable.name}"
                _changes(reading, node, what, "reset() in a finally", variable.name)


def decimal_context(reading: Reading, arguments: Any, keywords: Any, node: ast.AST) -> Value:
    """`decimal.getcontext()`: what is assigned to it is a setting of the thread."""
    return dataclasses.replace(PLAIN_VALUE, objects=frozenset({Shared(id(decimal.getcontext), _CONTEXT)}))


def _changes(reading: Reading, node: ast.AST, what: str, instead: str, variable: str = "") -> None:
    if is_library(reading.frame.globals.get("__name__")):
        return  # a library is believed to put back what it changes
    text = CHANGES + what + (f" ({instead} changes it for a while only)" if instead else "")
    reading.settings.append((text, reading.place(node), variable))


def settings_changed(reading: Reading) -> None:
    """Facts about the settings that stay changed."""
    restored = {variable for text, _, variable in reading.settings if not text}
    for text, place, variable in reading.settings:
        if text and variable not in restored:
            reading.facts.add(Kind.WRITE, f"{text}: it outlives the call", place)
            reading.facts.not_kept.setdefault(text, place)
    if id(decimal.getcontext) in reading.facts.written:
        at = next(fact for fact in reading.facts.of(Kind.WRITE) if _CONTEXT in fact.text)
        text = f"{CHANGES}{_CONTEXT} (with decimal.localcontext() changes it for a while only)"
        reading.facts.not_kept.setdefault(text, at.location)
