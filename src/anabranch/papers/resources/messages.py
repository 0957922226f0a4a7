"""What instances of operators send each other (section 4 of *Resources*).

Between two instances there is one stream of messages, first in first out. A *fast* message is handled as soon as it
comes, before everything that waits; a *normal* one waits in the queue of its key group.

    toState              fast in CPA, normal in CPAL; with the upstream buffer. Become the owner, apply this
    toCheckpoint         normal. No more data comes from me: when all have said so, your state is the checkpoint
    processedAllReplay   fast, upstream. I have caught up: stop sending to the old owner as well
    syncGroup            normal. What follows comes to you alone: keep it until all have said so
    makeCheckpoint       fast, from the controller. Direct migration: send a fresh checkpoint to that node
    checkpointed         normal, with the checkpoint;  acknowledged  fast, back
    trim                 fast, upstream: what a stored checkpoint contains;  trimmed  fast, back
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tuple:
    """⟨id, key, value, ts⟩; the id is the stream's and the number in it, from 1 on."""

    stream: int
    number: int
    key: str
    value: int
    sent_at: float


@dataclass(frozen=True)
class Message:
    """A control message, or data."""

    kind: str
    source: int
    """Number of the upstream instance; −1 for nodes and the controller."""
    fast: bool = False
    tuples: tuple[Tuple, ...] = ()
    checkpoint: Snapshot | None = None
    target: int = -1
    """Of makeCheckpoint: the node."""


@dataclass
class Snapshot:
    """The state of a key group: sums by key, and which tuples they contain."""

    values: dict[str, int] = field(default_factory=dict)
    last: dict[tuple[str, int], int] = field(default_factory=dict)
    """m: of every key and stream the last number applied."""
    reached: dict[int, int] = field(default_factory=dict)
    """Of every stream the last number applied: what may be trimmed."""

    def apply(self, each: Tuple) -> bool:
        """Apply a tuple, unless it was applied before."""
        if each.number <= self.last.get((each.key, each.stream), 0):
            return False
        self.last[each.key, each.stream] = each.number
        self.reached[each.stream] = max(each.number, self.reached.get(each.stream, 0))
        self.values[each.key] = self.values.get(each.key, 0) + each.value
        return True

    def copy(self) -> Snapshot:
        return Snapshot(dict(self.values), dict(self.last), dict(self.reached))
