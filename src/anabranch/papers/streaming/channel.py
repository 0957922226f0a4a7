"""One channel of a region: runs the operators on each tuple and keeps the tuple's number on what they emit.

A chain of operators is one function here; that is what fusion makes of it. The channel also holds the
operators to what the compiler was told about them: one tuple too many or too few would otherwise surface
as a wrong order, or a stuck merger, far away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from anabranch.papers.merging.ordering import Numbered, OrderViolation, Strategy
from anabranch.papers.merging.punctuation import OutputPort, Punctuation

Process = Callable[[Any], Iterable[Any]]
Flush = Callable[[Punctuation], Iterable[tuple[int, Any]]]

_new_tuple = tuple.__new__


class Channel:
    """Carries wire items from a splitter to a merger through `process`.

    Parameters
    ----------
    process
        From one tuple to the tuples emitted because of it, in order.
    strategy
        The strategy of the merger this channel leads to.
    depth
        The length of the emissions that merger expects. An item whose emission is one shorter gets the index
        at which it was emitted; one that has this length keeps its emission.
    flush
        What the operators emit when a window or final punctuation comes, before they pass it on: pairs of
        (order, tuple). Every channel gets the punctuation, so only the order, which has to be unique over
        all channels and rise within one, can tell what one thread would have emitted first. Needs INDEXED.
    port
        What the last operator's output port does with window punctuations.
    """

    def __init__(
        self,
        process: Process,
        strategy: Strategy,
        *,
        depth: int = 0,
        flush: Flush | None = None,
        port: OutputPort = OutputPort.PRESERVING,
    ) -> None:
        if (depth > 0) != (strategy is Strategy.INDEXED):
            raise ValueError(f"depth={depth} with {strategy}: INDEXED needs a depth ≥ 1, the others have none")
        if flush is not None and strategy is not Strategy.INDEXED:
            raise ValueError(
                f"flush with {strategy}: several channels emit at one punctuation, which only INDEXED can order"
            )
        self._process = process
        self._strategy = strategy
        # Looked up once: an enum's members and properties cost more than the rest of push.
        self._is_numbered = strategy.is_numbered
        self._count_min = strategy.emitted_min
        self._count_max = strategy.emitted_max
        self._depth = depth
        self._flush = flush
        self._port = port

    def push(self, item: Any) -> list[Any]:
        """Take the next item from the splitter; return the items for the merger."""
        if not self._is_numbered:
            if item.__class__ is Punctuation:
                # Without numbers nobody misses it: every channel removes the same ones.
                return [item] if self._port.passes(item) else []
            emitted = list(self._process(item))
            if len(emitted) != 1:
                raise self._wrong_count(item, emitted)
            return emitted
        sequence, value, emission = item
        if value.__class__ is Punctuation:
            return self._push_punctuation(item)
        emitted = list(self._process(value))
        count_max = self._count_max
        if len(emitted) < self._count_min or (count_max is not None and len(emitted) > count_max):
            raise self._wrong_count(value, emitted)
        if len(emission) == self._depth:
            return [_new_tuple(Numbered, (sequence, out, emission)) for out in emitted]
        if len(emission) != self._depth - 1:
            raise OrderViolation(
                f"emission {emission} on the way to a merger of depth {self._depth}: "
                f"its length must be {self._depth - 1} or {self._depth}",
                item=item,
            )
        return [_new_tuple(Numbered, (sequence, out, (*emission, i))) for i, out in enumerate(emitted)]

    def _push_punctuation(self, item: Numbered) -> list[Numbered]:
        sequence, punctuation, _ = item
        out: list[Numbered] = []
        if self._flush is not None and punctuation is not Punctuation.PULSE:
            padding = (0,) * (self._depth - 1)
            for order, value in self._flush(punctuation):
                out.append(Numbered(sequence, value, (order, *padding)))
        if self._port.passes(punctuation):
            out.append(item)
        else:
            # Its number must still arrive, or a 1:1 merger would wait for it for ever.
            out.append(Numbered(sequence, Punctuation.PULSE))
        return out

    def _wrong_count(self, value: Any, emitted: list[Any]) -> OrderViolation:
        allowed = "exactly one" if self._count_min else "at most one"
        return OrderViolation(
            f"the operators emitted {len(emitted)} tuples for {value!r}, but the merger's strategy is "
            f"{self._strategy.value}, which allows {allowed}: declare their selectivity as it is",
            item=value,
        )
