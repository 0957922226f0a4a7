"""The settings that user code reads without naming them: those of the thread that starts a query hold wherever it runs.

    decimal context, numpy's treatment of errors and printing,     ─► with the program to every worker of Spark's;
    context variables that user code names                            from there to every thread, process and
    locale, warnings, the longest number as text, how deep calls      event loop of a pool
    may go, time zone: of the whole process

What belongs to a process is set in others only: the process of the thread that starts a query has it already.

Not among them, because hosts differ in it for good reasons: environment variables (but for the time zone), the working
directory, settings of other libraries. The generators of chance are their own in each process.
"""

from __future__ import annotations

import contextvars
import dataclasses
import decimal
import locale
import os
import platform
import re
import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from anabranch.errors import ProgramError
from anabranch.program.context_variables import variables_named

_LOCALES = {
    name: getattr(locale, name)
    for name in ("LC_COLLATE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME", "LC_CTYPE")
    if hasattr(locale, name)  # not all systems have messages
}


def own_context() -> contextvars.Context:
    """A copy of what holds in this thread, for a call in another one: its decimal context is an object of its own."""
    copied = contextvars.copy_context()
    copied.run(decimal.setcontext, decimal.getcontext().copy())
    return copied


@dataclasses.dataclass(frozen=True)
class ProcessSettings:
    """What holds for all threads of a process."""

    process: str
    """Which one."""
    locales: Mapping[str, str]
    warning_filters: tuple[Any, ...]
    longest_number: int
    """Digits of a whole number that may be made a text, or read from one."""
    deepest_call: int
    time_zone: str | None

    @classmethod
    def here(cls) -> ProcessSettings:
        """Those of this process."""
        return cls(
            _process(),
            {name: locale.setlocale(category) for name, category in _LOCALES.items()},
            tuple(warnings.filters),
            sys.get_int_max_str_digits(),
            sys.getrecursionlimit(),
            os.environ.get("TZ"),
        )

    def hold(self) -> None:
        """Have this process hold to them."""
        if self.process == _process():
            return
        for name, value in self.locales.items():
            _set_locale(name, value)
        if tuple(map(_comparable, warnings.filters)) != tuple(map(_comparable, self.warning_filters)):
            warnings.resetwarnings()
            for action, message, category, module, line in self.warning_filters:
                warnings.filterwarnings(action, _pattern(message), category, _pattern(module), line, append=True)
        if sys.get_int_max_str_digits() != self.longest_number:
            sys.set_int_max_str_digits(self.longest_number)
        if sys.getrecursionlimit() < self.deepest_call:  # what runs around user code here may need more than there
            sys.setrecursionlimit(self.deepest_call)
        if os.environ.get("TZ") != self.time_zone:
            if self.time_zone is None:
                del os.environ["TZ"]
            else:
                os.environ["TZ"] = self.time_zone
            time.tzset()


@dataclasses.dataclass(frozen=True)
class ThreadSettings:
    """What holds in a thread, and in its process."""

    decimals: decimal.Context
    numpy_errors: Mapping[str, Any]
    numpy_call: Any
    numpy_printing: Mapping[str, Any]
    of_process: ProcessSettings
    variables: tuple[tuple[Any, Any], ...] = ()
    """Context variables that user code names, with their values."""
    context: contextvars.Context = dataclasses.field(default_factory=contextvars.copy_context, compare=False)

    @classmethod
    def here(cls) -> ThreadSettings:
        """Those of this thread."""
        numpy_errors, numpy_call, printing = np.geterr(), np.geterrcall(), np.get_printoptions()
        context = own_context()
        own: decimal.Context = context.run(decimal.getcontext)
        return cls(own, {**numpy_errors}, numpy_call, printing, ProcessSettings.here(), context=context)

    def naming(self, target: Any) -> ThreadSettings:
        """With the values of the context variables that the code of an object names."""
        found = [(told, self.context[held]) for told, held in variables_named(target) if held in self.context]
        return dataclasses.replace(self, variables=tuple(found))

    def check_named(self) -> None:
        """ProgramError if there are variables that only travel with the globals of the code."""
        for variable, _ in self.variables:
            if isinstance(variable, contextvars.ContextVar):
                raise ProgramError(
                    f"the context variable {variable.name!r} has a value in the thread that starts the query, which "
                    "does not reach the workers: a global that the code names beside it cannot be copied. Keep the "
                    "value in an attribute of the operator, or make what cannot be copied where it is used"
                )

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "context": None}

    def own_context(self) -> contextvars.Context:
        """What holds in the thread that they are of, for work that another one does for it."""
        return self.context.copy().run(own_context)

    def hold(self) -> None:
        """Have this thread, and its process, hold to them."""
        if _told(decimal.getcontext()) != _told(self.decimals):
            decimal.setcontext(self.decimals.copy())
        if np.geterr() != self.numpy_errors:
            np.seterr(**self.numpy_errors)
        if np.geterrcall() is not self.numpy_call:
            np.seterrcall(self.numpy_call)
        if np.get_printoptions() != self.numpy_printing:
            np.set_printoptions(**self.numpy_printing)
        for variable, value in self.variables:
            variable.set(value)
        self.of_process.hold()


def _process() -> str:
    return f"{platform.node()} {os.getpid()}"


def _told(context: decimal.Context) -> Any:
    """What of a context decides on results: not what was met under it."""
    return (
        context.prec,
        context.rounding,
        context.Emin,
        context.Emax,
        context.capitals,
        context.clamp,
        {signal for signal, is_raised in context.traps.items() if is_raised},
    )


def _set_locale(name: str, value: str) -> None:
    category = _LOCALES[name]
    if locale.setlocale(category) == value:
        return
    try:
        locale.setlocale(category, value)
    except locale.Error:
        if name != "LC_CTYPE":  # a matter of terminals and files: hosts have the one they are used to
            raise ProgramError(
                f"the thread that started the query has {name}={value!r}, and the host {platform.node()} of a worker "
                "has no such locale. Install it there, or format with a library that brings its own (babel)"
            ) from None


def _comparable(entry: Any) -> Any:
    action, message, category, module, line = entry
    return action, _pattern(message), category, _pattern(module), line


def _pattern(found: Any) -> str:
    """What a filter looks for, as `filterwarnings` takes it: the interpreter's own have plain names."""
    if found is None:
        return ""
    return rf"{re.escape(found)}\Z" if isinstance(found, str) else str(found.pattern)
