"""A world as Python text, to be pasted into a test."""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import Any


def source_of(description: Any) -> str:
    """An expression whose value is this description; fields with their default are left out."""
    return _text(description)


def test_of(name: str, description: Any, complaints: list[str]) -> str:
    """A test that fails as long as the world does."""
    what = "".join(letter if letter.isalnum() else "_" for letter in name)
    said = complaints[0].splitlines()[0]
    return f"def test_{what}():\n    # {said}\n    world = {_text(description)}\n    assert failures(world) == []\n"


def _text(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if dataclasses.is_dataclass(value):
        fields = []
        for field in dataclasses.fields(value):
            held = getattr(value, field.name)
            default = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            if default is dataclasses.MISSING or held != default:
                fields.append(f"{field.name}={_text(held)}")
        return f"{type(value).__name__}({', '.join(fields)})"
    return repr(value)
