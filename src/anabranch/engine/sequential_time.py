"""Time in the sequential run: which keys wait for which times, and which streams are idle. Part of the definition."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from anabranch.program.event_time import LeastWatermark, Timetable, idle_watermarks
from anabranch.program.graph import Node, Watermark


class WaitingKeys:
    """The keys of an operator that wait for times, and how far its time has come.

    They are called by their times, then since when they wait. A key begins to wait with the call that has it wait for a
    time at all, whichever that is, and ends when it waits for none.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.watermark = LeastWatermark(names, {}, ())
        self._timetable = Timetable()
        self._orders = itertools.count()
        self._since: dict[Any, tuple[int, int | None]] = {}  # since when, and for which time; None while it is called

    def go_on_from(self, before: WaitingKeys, names: Mapping[str, str]) -> None:
        """Take over what another held, its watermarks under other names."""
        self.watermark.go_on_from(before.watermark, names)
        self._timetable, self._orders, self._since = before._timetable, before._orders, before._since

    def settle(self, key: Any, due: int | None) -> None:
        """What a key waits for, after a call."""
        order, before = self._since.get(key, (None, None))
        if due is None:
            self._since.pop(key, None)
        elif due != before:
            order = next(self._orders) if order is None else order
            self._since[key] = order, due
            self._timetable.add(due, order, key)

    def due(self) -> Iterator[tuple[int, Any]]:
        """The times that have come, with the key of each, in order; whoever calls a key settles it before the next."""
        while (found := self._timetable.next(self.watermark.value)) is not None:
            due, order, key = found
            if self._since.get(key) == (order, due):  # else it waits for another time now, or not at all
                self._since[key] = order, None
                yield due, key


class Idleness:
    """Which streams with event time are idle: those of which nothing came for so long by the clock of the epochs."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._limits = {node.name: node.logic.idle_ms for node in nodes if isinstance(node.logic, Watermark)}
        self._heard_ms: dict[str, int] = {}
        self._idle: set[str] = set()
        self._made: list[tuple[str, tuple[str, ...], LeastWatermark]] = []

    def reads(self, name: str, names: tuple[str, ...], watermark: LeastWatermark) -> None:
        """A watermark is made of others."""
        self._made.append((name, names, watermark))

    def heard(self, name: str, clock_ms: int) -> bool:
        """A stream has a tuple: whether it was idle."""
        self._heard_ms[name] = clock_ms
        was_idle = name in self._idle
        self._idle.discard(name)
        return was_idle

    def go_on_from(self, before: Idleness, names: Mapping[str, str]) -> None:
        """Take over which streams were heard of when."""
        self._heard_ms = {names.get(name, name): heard_ms for name, heard_ms in before._heard_ms.items()}
        self._idle = {names.get(name, name) for name in before._idle}

    def begin(self, clock_ms: int) -> None:
        """An epoch begins."""
        for name, limit_ms in self._limits.items():
            heard_ms = self._heard_ms.setdefault(name, clock_ms)
            if limit_ms is not None and clock_ms - heard_ms >= limit_ms:
                self._idle.add(name)
        idle = idle_watermarks([(name, names) for name, names, _ in self._made], self._idle)
        for _, _, watermark in self._made:
            watermark.set_idle(idle)
