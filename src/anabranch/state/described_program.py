"""What of a program its checkpoint depends on: operators, keys, fields of state and types. Code is no part of it.

It is a dict only in the checkpoint's `program.json` (`to_fields`, `of_fields`): docs/checkpoint.md has the form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from anabranch.program.state_fields import FIRST_VERSION


@dataclasses.dataclass(frozen=True)
class DescribedOperator:
    """An operator as its checkpoint remembers it."""

    name: str
    kind: str
    key: tuple[str, ...]
    """The columns of the key; empty: it has no state by key."""
    key_types: tuple[str, ...]
    state: tuple[str, ...]
    """The names of the fields."""
    input: tuple[str, ...]
    """The schema of each input."""
    output: str
    was: tuple[str, ...] = ()
    """Names that it had before."""
    were: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Field → names that it had before."""
    version: int = FIRST_VERSION
    """Of what the fields mean."""
    broadcast: tuple[str, ...] | None = None
    """The fields of its broadcast state, if it has some."""

    def to_fields(self) -> dict[str, Any]:
        """As a dict of plain values; of what was before only what is said."""
        fields = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        fields["were"] = {field: list(names) for field, names in self.were.items()}
        usual = {"was": [], "were": {}, "version": FIRST_VERSION, "broadcast": None}
        return {name: value for name, value in fields.items() if name not in usual or value != usual[name]}

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> DescribedOperator:
        """From what `to_fields` gave. TypeError for anything else."""
        values: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in fields.items()}
        return cls(**{**values, "were": {field: tuple(names) for field, names in fields.get("were", {}).items()}})


@dataclasses.dataclass(frozen=True)
class DescribedProgram:
    """The operators of a program."""

    operators: tuple[DescribedOperator, ...] = ()

    def to_fields(self) -> dict[str, Any]:
        return {"operators": [each.to_fields() for each in self.operators]}

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> DescribedProgram:
        return cls(tuple(DescribedOperator.of_fields(each) for each in fields.get("operators", ())))

    def renamed(self, names: Mapping[str, str]) -> DescribedProgram:
        """The same with other names, from old to new."""
        operators = (dataclasses.replace(each, name=names.get(each.name, each.name)) for each in self.operators)
        return DescribedProgram(tuple(operators))
