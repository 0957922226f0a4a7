"""What was taken down of a step, as it is kept and as it travels to the driver.

A sample may have tens of thousands of events, and is made while everything waits: so attributes are in lists of their
own, from the batch of the task to the comparison, and an `Event` is only made of what somebody looks at.
"""

from __future__ import annotations

import array
import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from anabranch.program.calling import canonical_key
from anabranch.state.codec import decode, encode

# What happened, where no tuple came by an input: inputs count from 0.
PUNCTUATION, TICK, TIME, BROADCAST = -1, -2, -3, -4


@dataclasses.dataclass(slots=True)
class Event:
    """A tuple, a punctuation or a tick, and what a key made of it."""

    place: int
    """The input that a tuple came by; else `PUNCTUATION`, `TICK`, `TIME`: how far time has come, or `BROADCAST`: a
    tuple that is for all keys."""
    key: Any
    row: tuple[Any, ...] | None
    """The tuple; of a tick its time, of time how far it has come."""
    trail: tuple[int, ...]
    outputs: list[tuple[Any, ...]] | None
    """None: together with those of the tuple that follows; or something that happened between tuples, of no key."""


class Events:
    """Events in their order: for each attribute a list."""

    __slots__ = ("keys", "outputs", "places", "rows", "trails")

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.places: list[int] = []
        self.keys: list[Any] = []
        self.rows: list[tuple[Any, ...] | None] = []
        self.trails: list[tuple[int, ...]] = []
        self.outputs: list[list[tuple[Any, ...]] | None] = []
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """One more."""
        self.extend([event.place], [event.key], [event.row], [event.trail], [event.outputs])

    def extend(
        self,
        places: Sequence[int],
        keys: Sequence[Any],
        rows: Sequence[tuple[Any, ...] | None],
        trails: Sequence[tuple[int, ...]],
        outputs: Sequence[list[tuple[Any, ...]] | None],
    ) -> None:
        """Several more."""
        self.places += places
        self.keys += keys
        self.rows += rows
        self.trails += trails
        self.outputs += outputs

    def picked(self, numbers: Sequence[int]) -> Events:
        """Some of them, in this order."""
        found = Events()
        found.extend(*([each[at] for at in numbers] for each in self._lists()))
        return found

    def in_order_of_trails(self) -> Events:
        """All of them; those with the same trail in the order that they have."""
        return self.picked(sorted(range(len(self)), key=self.trails.__getitem__))

    @classmethod
    def together(cls, several: Iterable[Events]) -> Events:
        """Those of several, one after the other."""
        found = cls()
        for each in several:
            found.extend(*each._lists())
        return found

    def _lists(self) -> tuple[list[Any], ...]:
        return self.places, self.keys, self.rows, self.trails, self.outputs

    @property
    def happened_between(self) -> bool:
        """Whether something happened between tuples."""
        return min(self.places, default=0) < 0

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, at: int) -> Event:
        return Event(self.places[at], self.keys[at], self.rows[at], self.trails[at], self.outputs[at])

    def __iter__(self) -> Iterator[Event]:
        return map(Event, *self._lists())


@dataclasses.dataclass
class StepSample:
    """What a step of a task did with the keys that were taken.

    Attributes
    ----------
    operator : str
    ordered : bool
        Whether trails say how the events of several tasks follow each other.
    events : Events
        In their order.
    states : dict
        Key → its state before and after, encoded.
    broadcast : tuple of bytes
        Its broadcast state before, and after; empty: it has none.
    """

    operator: str
    ordered: bool
    events: Events = dataclasses.field(default_factory=Events)
    states: dict[Any, tuple[bytes, bytes]] = dataclasses.field(default_factory=dict)
    broadcast: tuple[bytes, ...] = ()

    def to_bytes(self) -> bytes:
        """As it travels: in flat lists, which are packed without a call for each."""
        numbers = {key: number for number, key in enumerate(self.states)}
        events = self.events
        return encode(
            [
                self.operator,
                self.ordered,
                _packed(events.places),
                _packed([numbers.get(key, -1) for key in events.keys]),
                *_columns(events.rows),
                *_columns(events.trails),
                _packed([-1 if found is None else len(found) for found in events.outputs]),
                *_columns(list(chain.from_iterable(found for found in events.outputs if found))),
                list(self.states),
                [before for before, _ in self.states.values()],
                [after for _, after in self.states.values()],
                list(self.broadcast),
            ]
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> StepSample:
        """What travelled."""
        operator, ordered, places, numbers, *packed, keys, before, after, broadcast = decode(data)
        widths, values, lengths, digits, packed_counts, made_widths, made_values = packed
        counts = _unpacked(packed_counts)
        keys = [*map(canonical_key, keys), None]  # the last is that of no key, which has the number -1
        made = _tuples(made_widths, made_values)
        events = Events()
        events.extend(
            _unpacked(places),
            [keys[number] for number in _unpacked(numbers)],
            _tuples(widths, values),
            _tuples(lengths, digits),
            [[output] for output in made] if counts == [1] * len(made) else _shared_out(made, counts),
        )
        states = dict(zip(keys, zip(before, after, strict=True), strict=False))
        return cls(operator, ordered, events, states, tuple(broadcast))


def _packed(values: list[Any]) -> list[Any] | bytes:
    """Numbers as bytes, if they are whole and short, or floats and none a NaN, of which it counts which one it is."""
    kinds = set(map(type, values))
    try:
        if kinds == {int}:
            return b"q" + array.array("q", values).tobytes()
        if kinds == {float} and not any(map(math.isnan, values)):
            return b"d" + array.array("d", values).tobytes()
    except OverflowError:
        pass
    return values


def _unpacked(values: list[Any] | bytes) -> list[Any]:
    """What `_packed` was given."""
    return array.array(chr(values[0]), values[1:]).tolist() if isinstance(values, bytes) else values


def _columns(tuples: Sequence[tuple[Any, ...] | None]) -> tuple[Any, list[Any]]:
    """Tuples of one width as that and their columns; others as the width of each, -1 for None, and all values."""
    widths = [-1 if each is None else len(each) for each in tuples]
    if len(set(widths)) == 1 and widths[0] > 0:
        columns = zip(*(each for each in tuples if each is not None), strict=True)
        return len(tuples), [_packed(list(column)) for column in columns]
    return widths, list(chain.from_iterable(each for each in tuples if each))


def _tuples(widths: int | list[int], values: list[Any]) -> list[Any]:
    """What `_columns` was given."""
    if isinstance(widths, int):
        return list(zip(*map(_unpacked, values), strict=True))
    found: list[Any] = []
    at = 0
    for width in widths:
        found.append(None if width < 0 else tuple(values[at : at + width]))
        at += max(width, 0)
    return found


def _shared_out(made: list[tuple[Any, ...]], counts: Sequence[int]) -> list[list[tuple[Any, ...]] | None]:
    """To each event so many; None where the count is below 0."""
    found: list[list[tuple[Any, ...]] | None] = []
    at = 0
    for count in counts:
        found.append(None if count < 0 else made[at : at + count])
        at += max(count, 0)
    return found
