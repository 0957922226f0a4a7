"""The program of the skew benchmark: a running total per key, with work of a given length for every tuple.

The work is emulated: a channel sleeps. So eight channels work at once on a machine with two cores, as they would on
one with eight, and what is measured is how long channels wait for the busiest. Sleeps are collected, because a sleep
of microseconds lasts a hundred of them; what one was too long is taken off the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import anabranch as ab

SLEEP_SECONDS = 0.005


class Total(ab.Operator):
    """A running total per key."""

    total: int = ab.state(default=0)

    def process(self, t: Any) -> Any:
        self.total += t.value
        yield t.key, self.total


def working(seconds: float) -> Callable[[Any], Any]:
    """A function that gives back the tuple it gets, after being busy for so long, on average."""
    debt = [0.0]

    # Declared: what it keeps between calls (how long it overslept) has no part in what it gives back.
    @ab.model(state="stateless", selectivity="1:1", forwards="*")
    def busy(t: Any) -> Any:
        debt[0] += seconds
        if debt[0] >= SLEEP_SECONDS:
            begun = time.perf_counter()
            time.sleep(debt[0])
            debt[0] -= time.perf_counter() - begun
        return t

    return busy
