"""What travels between a splitter and a merger, and the strategies that put it back in order.

A numbered item is ⟨sequence, value, emission⟩. The splitter gives the sequence number; every tuple that an
operator emits because of it inherits it. The emission is empty except behind a prolific region that ends in
a shuffle: there tuples with one number part ways, so each gets the index at which it was emitted, and the
last merger orders by ⟨sequence, emission⟩. The next such region appends a second index, and so on: at one
joint all emissions have the same length, its *depth*.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple


class Strategy(Enum):
    """How a merger finds the order again (*Safe*, table 1; INDEXED is ours)."""

    ROUND_ROBIN = "round-robin"
    """Stateless, 1:1. Tuples are dealt in turn and taken back in turn; no numbers on the wire."""
    SEQUENCE = "sequence"
    """Any state, 1:1. Every number arrives, so the merger waits for the next one."""
    STRICT = "strict"
    """At most one tuple out per tuple in: gaps. Pulses tell that a number was dropped."""
    RELAXED = "relaxed"
    """Any number of tuples out: gaps and duplicates; one number's duplicates stay on one channel."""
    INDEXED = "indexed"
    """As RELAXED, and a number's tuples may come on several channels, ordered by their emission."""

    @property
    def is_numbered(self) -> bool:
        """Whether items carry sequence numbers."""
        return self is not Strategy.ROUND_ROBIN

    @property
    def is_pulsed(self) -> bool:
        """Whether the merger needs pulses, because a number may never arrive."""
        return self in (Strategy.STRICT, Strategy.RELAXED, Strategy.INDEXED)

    @property
    def emitted_min(self) -> int:
        """How many tuples an operator must emit per tuple at least."""
        return 0 if self.is_pulsed else 1

    @property
    def emitted_max(self) -> int | None:
        """How many tuples an operator may emit per tuple at most; None if any number."""
        return None if self in (Strategy.RELAXED, Strategy.INDEXED) else 1


class Numbered(NamedTuple):
    """One item on a channel of a region whose strategy needs numbers.

    A named tuple and not a dataclass: mergers unpack millions of them.
    """

    sequence: int
    value: Any
    """A tuple of the stream, or a `Punctuation`."""
    emission: tuple[int, ...] = ()


class OrderViolation(RuntimeError):  # noqa: N818 — it names what happened, as distributed's InvalidTransition
    """A channel broke the contract of its ordering strategy. Carries what the joint knew at that moment."""

    def __init__(self, message: str, *, channel: int | None = None, item: Any = None, state: Any = None) -> None:
        super().__init__(message if state is None else f"{message}\n  state: {state}")
        self.channel = channel
        self.item = item
        self.state = state
