"""The controllers of an elastic operator as a pool asks them: by the level, which is how many calls are under way."""

from __future__ import annotations

from typing import Any

from anabranch.control.concurrency_controller import ConcurrencyController
from anabranch.control.operator_controller import OperatorController

searching_levels = ConcurrencyController


class PaperLevels:
    """The controller of *Operators* as a pool asks it: it counts active workers, of which there is always one."""

    is_looking = False
    collapsed_below = 0.0

    def __init__(self, workers_max: int) -> None:
        self.inner = OperatorController(workers_max)

    @property
    def level(self) -> int:
        return self.inner.active

    @property
    def log(self) -> tuple[Any, ...]:
        return self.inner.log

    def handle(self, rate: float) -> Any:
        return self.inner.handle(rate)

    def to_dict(self) -> dict[str, Any]:
        return self.inner.to_dict()

    def restore(self, memory: dict[str, Any]) -> None:
        self.inner.restore(memory)
