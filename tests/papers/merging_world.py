"""A small world for the merger's tests: operators, their sequential meaning, and regions run in parallel.

`sequential` shares nothing with the code under test: it is the loop that one thread would run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from anabranch.papers.merging.merger import make_merger
from anabranch.papers.merging.ordering import Strategy
from anabranch.papers.merging.punctuation import Punctuation
from anabranch.papers.streaming.channel import Channel
from anabranch.papers.streaming.splitter import ShuffleSplitter, Splitter

Value = tuple[int, ...]
"""A tuple of the stream: its first field is the key of the first region, its second that of the next."""


class Stateless:
    """One out per in."""

    def __call__(self, value: Value) -> list[Value]:
        return [(*value, value[0] * 31 + value[1])]


class RunningSum:
    """One out per in, with state per key."""

    def __init__(self, key: int = 0) -> None:
        self.key = key
        self.sums: dict[int, int] = {}

    def __call__(self, value: Value) -> list[Value]:
        key = value[self.key]
        self.sums[key] = self.sums.get(key, 0) * 3 % 1009 + value[1]
        return [(*value, self.sums[key])]


class Jump(RunningSum):
    """At most one out per in: only when the sum of the key is not a multiple of `every`."""

    def __init__(self, key: int = 0, every: int = 2) -> None:
        super().__init__(key)
        self.every = every

    def __call__(self, value: Value) -> list[Value]:
        return [out for out in super().__call__(value) if out[-1] % self.every == 0]


class Burst(RunningSum):
    """Any number out per in: 0 to `most`, by the sum of the key. Copies get new keys for a next region."""

    def __init__(self, key: int = 0, most: int = 3) -> None:
        super().__init__(key)
        self.most = most

    def __call__(self, value: Value) -> list[Value]:
        (out,) = super().__call__(value)
        return [(value[0] + i, value[1] + 2 * i + out[-1], i, out[-1]) for i in range(out[-1] % (self.most + 1))]


def sequential(stream: Iterable[Any], *operators: Callable[[Value], list[Value]]) -> list[Any]:
    """What one thread delivers."""
    out = []
    for value in stream:
        if isinstance(value, Punctuation):
            out.append(value)
            continue
        values = [value]
        for operator in operators:
            values = [result for one in values for result in operator(one)]
        out += values
    return out


@dataclass(frozen=True)
class Region:
    """One parallel region and the strategy of the joint behind it."""

    operator: Callable[[], Callable[[Value], list[Value]]]
    channels: int
    strategy: Strategy
    depth: int = 0
    key: int | None = 0
    """The field tuples are routed by; None: in turn."""

    def route(self) -> Callable[[Value], int] | None:
        if self.key is None:
            return None
        key, channels = self.key, self.channels
        return lambda value: value[key] % channels


@dataclass
class Network:
    """Regions in a row, joined by shuffles, with a FIFO link wherever items travel.

    A schedule picks, step by step, which link delivers its oldest item.
    """

    regions: list[Region]
    pulse_every: int | None = None
    mutate_send: Callable[[int, Any], bool] = lambda channel, item: True
    """Whether the first splitter's send is made at all; a way to plant a fault."""
    out: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        first = self.regions[0]
        self.splitter = Splitter(first.strategy, first.channels, route=first.route(), pulse_every=self.pulse_every)
        self.channels = [
            [Channel(r.operator(), r.strategy, depth=r.depth) for _ in range(r.channels)] for r in self.regions
        ]
        self.shuffles = [
            [ShuffleSplitter(right.channels, right.route()) for _ in range(left.channels)]
            for left, right in zip(self.regions, self.regions[1:], strict=False)
        ]
        # mergers[i] follows region i: one per right channel in a shuffle, a single one at the end.
        self.mergers = [
            [
                make_merger(left.strategy, left.channels, depth=left.depth, in_shuffle=True)
                for _ in range(right.channels)
            ]
            for left, right in zip(self.regions, self.regions[1:], strict=False)
        ]
        last = self.regions[-1]
        self.mergers.append([make_merger(last.strategy, last.channels, depth=last.depth)])
        self.links: dict[tuple[Any, ...], deque[Any]] = {}

    def run(self, stream: Iterable[Any], schedule: Iterator[int]) -> list[Any]:
        self.links[("source",)] = deque(stream)
        finished = False
        while True:
            ready = [name for name, link in self.links.items() if link]
            if not ready and finished:
                break
            if not ready:
                self._send_first(self.splitter.finish())
                finished = True
                continue
            name = ready[next(schedule) % len(ready)]
            self._deliver(name, self.links[name].popleft())
        self.out += self.mergers[-1][0].finish()
        return self.out

    def _link(self, *name: Any) -> deque[Any]:
        return self.links.setdefault(name, deque())

    def _send_first(self, sends: list[tuple[int, Any]]) -> None:
        for channel, item in sends:
            if self.mutate_send(channel, item):
                self._link("channel", 0, channel).append(item)

    def _deliver(self, name: tuple[Any, ...], item: Any) -> None:
        match name:
            case ("source",):
                self._send_first(self.splitter.push(item))
            case ("channel", region, channel):
                self._run_channel(region, channel, [item])
            case ("merger", region, left, right):
                released = self.mergers[region][right].push(left, item)
                if region + 1 == len(self.regions):
                    self.out += released
                else:
                    self._run_channel(region + 1, right, released)

    def _run_channel(self, region: int, channel: int, items: list[Any]) -> None:
        for item in items:
            for emitted in self.channels[region][channel].push(item):
                if region + 1 == len(self.regions):
                    self._link("merger", region, channel, 0).append(emitted)
                else:
                    for right, sent in self.shuffles[region][channel].push(emitted):
                        self._link("merger", region, channel, right).append(sent)


def cycle(picks: list[int]) -> Iterator[int]:
    """The picks, then a fixed pattern for ever."""
    yield from picks
    step = 0
    while True:
        step += 7
        yield step % 11
