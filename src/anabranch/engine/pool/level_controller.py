"""What a pool asks of whoever decides on its level (`control/`)."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


class LevelController(Protocol):
    """What decides on the level, from the rate of each period."""

    @property
    def level(self) -> int: ...

    @property
    def is_looking(self) -> bool: ...

    @property
    def collapsed_below(self) -> float: ...

    @property
    def log(self) -> tuple[Any, ...]: ...

    def handle(self, rate: float) -> Any: ...

    def to_dict(self) -> dict[str, Any]: ...

    def restore(self, memory: dict[str, Any]) -> None: ...


@runtime_checkable
class SharingController(Protocol):
    """One that looks after other pools, too."""

    is_shared: bool
    others_level: float
    has_turn: bool

    @property
    def is_at_rest(self) -> bool: ...

    @property
    def wants_turn(self) -> bool: ...
