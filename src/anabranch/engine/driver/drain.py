"""Epochs that Spark does not call for: when tuples were fed back and there is nothing to read, and when the input ends.

A thread beside the query's own.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

from anabranch.engine.driver.switching import SwitchingRunner

_LOOK_S = 0.05


class ReadingQuery(Protocol):
    """What calls the runner when there is input."""

    @property
    def isActive(self) -> bool:
        """Whether it runs."""

    @property
    def status(self) -> dict[str, Any]:
        """What it does now."""

    def exception(self) -> Exception | None:
        """What made it fail."""

    def stop(self) -> None:
        """End it."""


class Drain(threading.Thread):
    """Runs epochs for tuples that were fed back when Spark has nothing to read, and at the end until none is left.

    Spark calls only when there is input, but a tuple that was sent back must not wait for it.
    """

    def __init__(self, query: ReadingQuery, runner: SwitchingRunner, ends: bool, closes: bool = False) -> None:
        super().__init__(name="anabranch-feedback", daemon=True)
        self._query = query
        self._runner = runner
        self._ends = ends
        self._closes = closes
        self._stopped = threading.Event()
        self.problem: Exception | None = None

    def run(self) -> None:
        try:
            while self._query.isActive and not self._stopped.wait(_LOOK_S):
                status = self._query.status
                if not status["isTriggerActive"] and not status["isDataAvailable"]:
                    self._runner.drain()
            if self._ends and self._query.exception() is None:
                self._drain()
                if self._closes and not self._stopped.is_set():
                    self._runner.end()
                    self._drain()
        except Exception as problem:
            self.problem = problem
            self._query.stop()

    def _drain(self) -> None:
        while not self._stopped.is_set() and self._runner.drain():
            pass

    def stop(self) -> None:
        """End it, after the epoch that it runs."""
        self._stopped.set()
        self.wait(None)

    def wait(self, timeout: float | None) -> bool:
        """Whether it has ended, after waiting at most so long."""
        if self.ident is not None and threading.current_thread() is not self:
            self.join(None if timeout is None else max(0.0, timeout))
        return not self.is_alive()
