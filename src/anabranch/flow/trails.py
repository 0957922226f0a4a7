"""Trails: the numbers that keep tuples in the order of one thread.

A stream's trails are a list of arrays, one for each slot that is sent (see `compiler.stages`). Within a stage
tuples point to the trail of the tuple they came from; `refined` gives each a trail of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Slots = Sequence[int | None]
Trails = list[np.ndarray]

# Behind everything that has the same trail so far.
LAST = np.iinfo(np.int64).max


def emission_index(positions: np.ndarray) -> np.ndarray:
    """0, 1, 2, … within each run of equal numbers."""
    count = len(positions)
    if not count:
        return np.empty(0, dtype=np.int64)
    starts = np.concatenate([[True], positions[1:] != positions[:-1]])
    first = np.maximum.accumulate(np.where(starts, np.arange(count), 0))
    return np.arange(count) - first


def taken(trails: Trails, positions: np.ndarray) -> Trails:
    """The trails at these positions."""
    if np.array_equal(positions, np.arange(len(trails[0]))):
        return trails
    return [slot[positions] for slot in trails]


def refined(trails: Trails, positions: np.ndarray) -> Trails:
    """The trails at these positions, and which of those with an equal one each is."""
    return [*taken(trails, positions), emission_index(positions)]


def filled(trails: Trails, has: Slots, wanted: Slots) -> Trails:
    """The trails with the slots that are wanted: constants written out, missing ones 0.

    A stream that lacks a slot parted from those that have it at an earlier one, so any number will do.
    """
    if tuple(has) == tuple(wanted):
        return trails
    count = len(trails[0])
    sent = iter(trails)
    found: Trails = []
    for at, want in enumerate(wanted):
        constant = has[at] if at < len(has) else 0
        slot = next(sent) if constant is None else None
        if want is None:
            found.append(np.full(count, constant, dtype=np.int64) if slot is None else slot)
        else:
            assert want == constant, f"slot {at}: {constant} where {want} is expected"
    return found


def order_of(trails: Trails) -> np.ndarray:
    """The order of trails: the places of the first, the second, … (stable)."""
    combined = trails[0]
    for at, slot in enumerate(trails[1:], start=1):
        if not len(slot):
            break
        low, high = int(slot.min()), int(slot.max())
        if low == high:
            continue
        span = high - low + 1
        most = max(abs(int(combined.min())), abs(int(combined.max()))) + 1
        if most > LAST // span:  # the product would not fit: sort by the slots one after the other
            return np.lexsort([*reversed(trails[at:]), combined])
        combined = combined * span + (slot - low)
    # Stable sorting of what is nearly sorted (rows of one channel are) takes little more than looking at it.
    return np.argsort(combined, kind="stable")


def distinct(trails: Trails) -> Trails:
    """The trails in order, each once: a punctuation comes once from every channel it went through."""
    if not len(trails[0]):
        return trails
    order = order_of(trails)
    trails = [slot[order] for slot in trails]
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any([slot[1:] != slot[:-1] for slot in trails], axis=0)
    return [slot[new] for slot in trails]


def joined(parts: Sequence[Trails]) -> Trails:
    """Trails one after the other."""
    return [np.concatenate(slots) for slots in zip(*parts, strict=True)]
