"""What an operator keeps for each key, and what became of it from one version of the program to the next.

A name is a stable id: state is found again by the names of its operator and its field. What a field was called before
is said beside it; what else changed is a migration, a function for each step from one version of the state to the next:

    version 1 ── steps[1] ──► version 2 ── steps[2] ──► version 3        of one key, when it is first read

State says which version it is of, so that each step is taken once, by whoever reads the key first; what is
written from then on is of the new version.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from anabranch.errors import StateError
from anabranch.program.showing import shown, told

FIRST_VERSION = 1


@dataclasses.dataclass(frozen=True)
class StateField:
    """An attribute of a keyed operator that is kept per key."""

    name: str
    default: Any = None
    factory: Callable[[], Any] | None = None
    was: tuple[str, ...] = ()
    """What it was called in earlier versions of the program, latest first."""

    def initial(self) -> Any:
        return self.factory() if self.factory is not None else self.default


@dataclasses.dataclass(frozen=True)
class StateHistory:
    """Which version of its state an operator has, and how to come there.

    Attributes
    ----------
    version : int
        The version of now.
    steps : mapping
        Version → the function that makes the next one of it: takes the fields of a key by name, and gives them.
    names : tuple of str
        The fields that steps see: those that the user declared.
    """

    version: int
    steps: Mapping[int, Callable[[dict[str, Any]], Any]]
    names: tuple[str, ...]

    def missing_step(self, version: int) -> int | None:
        """The first version on the way from this one for which there is no step; None: all are there."""
        return next((each for each in range(version, self.version) if each not in self.steps), None)

    def migrated(self, fields: dict[str, Any], version: int, operator: str, key: Any) -> dict[str, Any]:
        """The fields of a key as they are now, from those of an earlier version.

        StateError if a step raises, or gives what is no field.
        """
        for each in range(version, self.version):
            place = f"operator {operator}: migrating the state of the key {key!r} from version {each} to {each + 1}"
            try:
                made = self.steps[each](dict(fields))
            except Exception as problem:
                raise StateError(
                    f"{place} raised {told(problem)}\nfor the state {shown(fields):.300}\n"
                    "The epoch failed and nothing of it was written; mend the function that is given as migrate=…, and "
                    "start again."
                ) from problem
            if not isinstance(made, dict):
                raise StateError(f"{place} gave {shown(made):.100}; expected a dict: field → value")
            fields = made
        unknown = [name for name in fields if name not in self.names]
        if unknown:
            raise StateError(
                f"operator {operator}: migrate=… gave {', '.join(map(str, unknown))} for the key {key!r}, which the "
                f"operator does not declare as state; its state: {', '.join(self.names) or 'none'}"
            )
        return fields
