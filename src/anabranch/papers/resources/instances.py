"""The two sides of a key group in *Resources*: who sends it tuples, and who has its state or its checkpoint.

Numbers of lines are those of Algorithm 1 (CPA) and Algorithm 2 (CPAL).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Literal

from anabranch.papers.resources.messages import Message, Snapshot, Tuple

if TYPE_CHECKING:
    from anabranch.papers.resources.migrating import MigrationWorld

Way = Literal["direct", "cpa", "cpal"]


class Upstream:
    """An instance of the operator before: routes, and keeps what no checkpoint contains yet."""

    def __init__(self, world: MigrationWorld, number: int) -> None:
        self._world = world
        self.number = number
        self.buffer: list[Tuple] = []
        self._targets: tuple[int, ...] = (world.owner,)
        self._sent = 0
        self._moving: tuple[int, int] = (world.owner, world.owner)

    def keep(self, key: str, value: int = 1) -> Tuple:
        """One tuple more for the group, in the buffer."""
        self._sent += 1
        each = Tuple(self.number, self._sent, key, value, self._world.now)
        self._world.sent.append(each)
        self.buffer.append(each)
        return each

    def emit(self, key: str, value: int) -> None:
        """One tuple more for the group, to whoever runs it."""
        each = self.keep(key, value)
        for node in self._targets:
            self._world.send_down(self, node, Message("data", self.number, tuples=(each,)))

    def inform(self, way: Way, old: int, new: int) -> None:
        """The controller says: the group moves from old to new. Direct migration ends as CPA does."""
        self._moving = (old, new)
        buffered = tuple(self.buffer)
        if way == "cpal":
            self._send(new, "toState", tuples=buffered)  # 2, line 3
            self._targets = (old, new)  # 4
        else:
            self._send(new, "toState", fast=True, tuples=buffered)  # 1, line 3
            self._targets = (new,)  # 4
            self._send(old, "toCheckpoint")  # 5

    def receive(self, message: Message) -> None:
        """What comes from a node is fast."""
        old, new = self._moving
        if message.kind == "processedAllReplay":
            self._send(new, "syncGroup")  # 2, line 11
            self._targets = (new,)  # 12
            self._send(old, "toCheckpoint")  # 13
        elif message.kind == "trim":
            assert message.checkpoint is not None
            reached = message.checkpoint.reached.get(self.number, 0)
            self.buffer = [each for each in self.buffer if each.number > reached]
            self._world.trimmed(message.checkpoint)
        else:
            raise ValueError(f"an upstream instance does not know {message.kind}")

    def _send(self, node: int, kind: str, *, fast: bool = False, tuples: tuple[Tuple, ...] = ()) -> None:
        self._world.send_down(self, node, Message(kind, self.number, fast, tuples))


class Instance:
    """The operator's instance on a node: it runs the group, holds its checkpoint, or neither."""

    def __init__(self, world: MigrationWorld, node: int) -> None:
        self._world = world
        self.node = node
        self.state: Snapshot | None = None
        self.checkpoint: Snapshot | None = None
        self._urgent: deque[Message] = deque()
        self._queue: deque[Message] = deque()
        self._busy = False
        self._paused = False
        self._to_state: set[int] = set()
        self._to_checkpoint: set[int] = set()
        self._synchronised: set[int] = set()
        self._kept: list[Message] = []
        """Data of those who have sent syncGroup, while others have not."""

    @property
    def idle(self) -> bool:
        """Whether nothing waits here."""
        return not (self._busy or self._urgent or self._queue or self._kept)

    def receive(self, message: Message) -> None:
        (self._urgent if message.fast else self._queue).append(message)
        self._next()

    def pause(self) -> None:
        """Leave normal messages in the queue: direct migration, while the checkpoint is made and sent."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._next()

    def _next(self) -> None:
        if self._busy or not (self._urgent or (self._queue and not self._paused)):
            return
        message = self._urgent.popleft() if self._urgent else self._queue.popleft()
        if message.kind == "data" and message.source in self._synchronised:
            self._kept.append(message)  # 2, line 17
            self._next()
            return
        self._busy = True
        self._world.after(self._world.processing_time(message), lambda: self._done(message))

    def _done(self, message: Message) -> None:
        self._busy = False
        self._handle(message)
        self._next()

    def _handle(self, message: Message) -> None:
        everyone = len(self._world.upstreams)
        if message.kind == "data":
            self._apply(message.tuples)
        elif message.kind == "toState":
            if self.state is None:  # 1, line 9; 2, line 6
                self.state, self.checkpoint = self.checkpoint or Snapshot(), None
            self._apply(message.tuples)  # 1, line 10; 2, line 7
            self._to_state.add(message.source)
            if len(self._to_state) == everyone:
                self._to_state.clear()
                self._world.replayed(self)  # with CPAL: 2, line 9
        elif message.kind == "toCheckpoint":
            self._to_checkpoint.add(message.source)
            if len(self._to_checkpoint) == everyone:  # 1, line 7; 2, line 15
                self._to_checkpoint.clear()
                self.state, self.checkpoint = None, self.state
                self._world.converted(self)
        elif message.kind == "syncGroup":
            self._synchronised.add(message.source)
            if len(self._synchronised) == 1:
                self._world.synchronising()
            if len(self._synchronised) == everyone:  # 2, line 19
                self._synchronised.clear()
                self._urgent.extend(self._kept)
                self._urgent.append(Message("synchronised", -1))
                self._kept.clear()
        elif message.kind == "synchronised":
            self._world.synchronised()
        elif message.kind == "checkpointed":
            if self.state is None:  # who has become the owner meanwhile has something newer
                self.checkpoint = message.checkpoint
                self._world.acknowledged(self, message)
        else:
            raise ValueError(f"an instance does not know {message.kind}")

    def _apply(self, tuples: tuple[Tuple, ...]) -> None:
        if self.state is None:
            raise AssertionError(f"node {self.node} has no state of the group, and was sent {tuples[:1]}")
        for each in tuples:
            if self.state.apply(each):
                self._world.emitted(self, each)
            else:
                self._world.duplicates += 1
