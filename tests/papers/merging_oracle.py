"""What a merger may have released, from the definition and from nothing but the whole history.

No heap, no queue, no state: everything that ever came on every channel goes in, the longest output that is
certain comes out. An item is certain if no contract-abiding future can put anything before it. Slow and
obvious on purpose; shares no code with the mergers.
"""

from __future__ import annotations

from typing import Any

from anabranch.papers.merging.ordering import Numbered, Strategy
from anabranch.papers.merging.punctuation import Punctuation

_BEHIND_ALL = (10**9,)


def released_by_now(strategy: Strategy, history: list[list[Any]]) -> list[Any]:
    if strategy is Strategy.ROUND_ROBIN:
        return _released_in_turn(history)
    return _released_by_number(strategy, history)


def _released_in_turn(history: list[list[Any]]) -> list[Any]:
    """The j-th tuple of channel c is tuple j * channels + c of the stream: no turn is followed."""
    channels = len(history)
    tuples: dict[int, tuple[Any, int]] = {}  # position → value, punctuations before it
    punctuations: dict[tuple[int, int], Any] = {}  # (which punctuation, channel) → (kind, tuples before it)
    for c, items in enumerate(history):
        position, count = c, 0
        for item in items:
            if isinstance(item, Punctuation):
                punctuations[count, c] = (item, position)
                count += 1
            else:
                tuples[position] = (item, count)
                position += channels
    out: list[Any] = []
    position = count = 0
    while True:
        c = position % channels
        if position in tuples and tuples[position][1] == count:
            out.append(tuples[position][0])
            position += 1
        elif (count, c) in punctuations and punctuations[count, c][1] == position:
            out.append(punctuations[count, c][0])
            count += 1
        elif position in tuples and tuples[position][1] < count:
            raise AssertionError("the history breaks the contract")
        else:
            return out


def _released_by_number(strategy: Strategy, history: list[list[Numbered]]) -> list[Any]:
    indexed = strategy is Strategy.INDEXED
    repeats = strategy in (Strategy.RELAXED, Strategy.INDEXED)

    def key_of(item: Numbered) -> tuple[int, tuple[int, ...]]:
        if not indexed:
            return (item.sequence, ())
        return (item.sequence, _BEHIND_ALL if isinstance(item.value, Punctuation) else item.emission)

    keys = [[key_of(item) for item in items] for items in history]
    came: dict[Any, list[tuple[int, Numbered]]] = {}
    for channel, items in enumerate(history):
        for item in items:
            came.setdefault(key_of(item), []).append((channel, item))
    pulses = {item.sequence for items in history for item in items if item.value is Punctuation.PULSE}

    def could_come(channel: int, key: Any) -> bool:
        """Whether the channel may still deliver something new with this key."""
        mine = keys[channel]
        if mine and key < mine[-1]:
            return False
        if key in came:
            from_channel, item = came[key][0]
            is_tuple = not isinstance(item.value, Punctuation)
            return repeats and is_tuple and from_channel == channel
        return not (indexed and key[0] in pulses)

    depth = max((len(i.emission) for items in history for i in items), default=1)
    widest = max((max(i.emission, default=0) for items in history for i in items), default=0)

    def possible_keys(sequence: int) -> list[Any]:
        if not indexed:
            return [(sequence, ())]
        emissions: list[tuple[int, ...]] = [()]
        for _ in range(depth):
            emissions = [(*e, i) for e in emissions for i in range(widest + 2)]
        return [(sequence, e) for e in emissions] + [(sequence, _BEHIND_ALL)]

    out: list[Any] = []
    sure_below = 0  # numbers below this one have been looked at
    for key in sorted(came):
        for sequence in range(sure_below, key[0] + 1):
            for other in possible_keys(sequence):
                if other < key and any(could_come(c, other) for c in range(len(history))):
                    return out
        sure_below = key[0]
        first = came[key][0][1].value
        if isinstance(first, Punctuation):
            if first is not Punctuation.PULSE:
                out.append(first)
        else:
            out += [item.value for _, item in came[key]]
    return out
