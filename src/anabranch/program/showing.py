"""Values and errors of the user's as text: what fails when it is asked to show itself is shown by its type."""

from __future__ import annotations

from typing import Any


def shown(value: Any) -> str:
    """The `repr` of a value."""
    try:
        return repr(value)
    except Exception as problem:
        return f"<{_named(value)}, whose repr() raises {type(problem).__name__}>"


def told(problem: BaseException) -> str:
    """What an error says, behind its type."""
    try:
        return f"{type(problem).__name__}: {problem}"
    except Exception as another:
        return f"{type(problem).__name__}: <its str() raises {type(another).__name__}>"


def _named(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
