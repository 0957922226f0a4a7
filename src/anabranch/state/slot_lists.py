"""State of users' operators without an instance of any key: a list for each field, by slot.

    slot     0      1      2            a key has a slot from when it is first met in an epoch; the loop that is
    keys     "b"    "a"    "x"          generated of the operator's method reads and writes values[field][slot]
    values   3.5    0.0    1.25
    before   3.0    0.0    1.25         what was there at the start of the epoch: another object is another value

Only values that cannot change in place are held so: for these, as for those of instances, the same object means that
nothing changed. A key is an instance, or has a slot: who asks for the other takes it over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import is_not
from typing import Any

import numpy as np

from anabranch.state.shared_fields import IMMUTABLE


class SlotLists:
    """The state of some keys.

    Parameters
    ----------
    fields : int
        How many fields each has.
    """

    def __init__(self, fields: int) -> None:
        self.values: list[list[Any]] = [[] for _ in range(fields)]
        self._before: list[list[Any]] = [[] for _ in range(fields)]
        self._keys: list[Any] = []
        self._stored: list[bool] = []  # whether segments have them
        self._places: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Any]:
        """The keys that have slots."""
        return iter(self._places)

    def of(self, key: Any) -> tuple[Any, ...] | None:
        """The state of a key, if it has a slot."""
        at = self._places.get(key)
        return None if at is None else tuple(values[at] for values in self.values)

    def places(self, keys: Sequence[Any]) -> np.ndarray:
        """The slots of keys; -1 for those that have none."""
        if not self._places:
            return np.full(len(keys), -1, dtype=np.int64)
        return np.array([-1 if at is None else at for at in map(self._places.get, keys)], dtype=np.int64)

    def add(
        self, keys: Sequence[Any], columns: Sequence[Sequence[Any]], before: Sequence[Sequence[Any]], stored: bool
    ) -> range:
        """Give keys that have none slots, with their state field by field; `before`: at the start of the epoch."""
        added = range(len(self._keys), len(self._keys) + len(keys))
        self._places.update(zip(keys, added, strict=True))
        self._keys += keys
        self._stored += [stored] * len(keys)
        for values, held, new, old in zip(self.values, self._before, columns, before, strict=True):
            values += new
            held += old
        return added

    def taken_out(self, keys: Iterable[Any]) -> Iterator[tuple[Any, tuple[Any, ...], tuple[Any, ...] | None]]:
        """Take keys out: each that is here with its state, and with that which segments have, if they have some."""
        for key in keys:
            at = self._places.pop(key, None)
            if at is not None:
                before = tuple(held[at] for held in self._before) if self._stored[at] else None
                yield key, tuple(values[at] for values in self.values), before

    def changed(self) -> tuple[list[Any], list[list[Any]]]:
        """The keys whose state changed, and their state by field."""
        changed = np.zeros(len(self._keys), dtype=bool)
        for values, held in zip(self.values, self._before, strict=True):
            changed |= np.fromiter(map(is_not, values, held), dtype=bool, count=len(values))
            if not are_plain(values):
                changed |= np.fromiter((type(value) not in IMMUTABLE for value in values), bool, len(values))
        if len(self._places) < len(self._keys):
            here = np.zeros(len(self._keys), dtype=bool)
            here[list(self._places.values())] = True
            changed &= here
        if changed.all():
            return self._keys, self.values
        return list(compress(self._keys, changed)), [list(compress(values, changed)) for values in self.values]


def are_plain(values: Iterable[Any]) -> bool:
    """Whether none of the values can change in place."""
    return IMMUTABLE.issuperset(map(type, values))
