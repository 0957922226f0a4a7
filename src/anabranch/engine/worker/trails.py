"""Trails: the numbers that keep tuples in the order of one thread.

A stream's trails are a list of arrays, one for each digit that is sent (see `compiler.layout.stages`). Within a stage
tuples point to the trail of the tuple they came from; `refined` gives each a trail of its own.

On the wire (`encoded`, `decoded`) a digit takes as few bytes as its numbers need. Those of one packet rise by small
steps, or lie close together, so that a byte per tuple nearly always does; where they rise by one and the same step,
as they do where tuples are only passed on, they take none.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

Digits = Sequence[int | None]
Trails = list[np.ndarray]

# Behind everything that has the same trail so far.
LAST = np.iinfo(np.int64).max


# How the numbers of a digit are written: by one step, by their steps, by what they are above the least, as they are.
_EVEN, _STEPS, _ABOVE, _PLAIN = range(4)
_DIGIT = struct.Struct("<BBqq")  # how, bytes per number, what to begin with, the step
_COUNT = struct.Struct("<q")
_NONE = np.empty(0, dtype=np.int64)


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
    return [digit[positions] for digit in trails]


def refined(trails: Trails, positions: np.ndarray) -> Trails:
    """The trails at these positions, and which of those with an equal one each is."""
    return [*taken(trails, positions), emission_index(positions)]


def filled(trails: Trails, has: Digits, wanted: Digits) -> Trails:
    """The trails with the digits that are wanted: constants written out, missing ones 0.

    A stream that lacks a digit parted from those that have it at an earlier one, so any number will do.
    """
    if tuple(has) == tuple(wanted):
        return trails
    count = len(trails[0])
    sent = iter(trails)
    found: Trails = []
    for at, want in enumerate(wanted):
        constant = has[at] if at < len(has) else 0
        digit = next(sent) if constant is None else None
        if want is None:
            found.append(np.full(count, constant, dtype=np.int64) if digit is None else digit)
        else:
            assert want == constant, f"digit {at}: {constant} where {want} is expected"
    return found


def order_of(trails: Trails) -> np.ndarray:
    """The order of trails: the places of the first, the second, … (stable)."""
    combined = trails[0]
    for at, digit in enumerate(trails[1:], start=1):
        if not len(digit):
            break
        low, high = int(digit.min()), int(digit.max())
        if low == high:
            continue
        span = high - low + 1
        most = max(abs(int(combined.min())), abs(int(combined.max()))) + 1
        if most > LAST // span:  # the product would not fit: sort by the digits one after the other
            return np.lexsort([*reversed(trails[at:]), combined])
        combined = combined * span + (digit - low)
    # Stable sorting of what is nearly sorted (rows of one channel are) takes little more than looking at it.
    return np.argsort(combined, kind="stable")


def distinct(trails: Trails) -> Trails:
    """The trails in order, each once: a punctuation comes once from every channel it went through."""
    if not len(trails[0]):
        return trails
    order = order_of(trails)
    trails = [digit[order] for digit in trails]
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any([digit[1:] != digit[:-1] for digit in trails], axis=0)
    return [digit[new] for digit in trails]


def joined(parts: Sequence[Trails]) -> Trails:
    """Trails one after the other."""
    return [np.concatenate(digits) for digits in zip(*parts, strict=True)]


def encoded(trails: Trails) -> bytes:
    """Trails as bytes: the numbers of all digits, then how to read them."""
    written, notes = [], []
    for digit in trails:
        values, note = _encoded(digit)
        written.append(values)
        notes.append(note)
    return b"".join([*written, *notes, _COUNT.pack(len(trails[0]))])


def _encoded(digit: np.ndarray) -> tuple[bytes, bytes]:
    if len(digit) < 2:
        return b"", _DIGIT.pack(_EVEN, 0, int(digit[0]) if len(digit) else 0, 0)
    # A difference that overflows comes back right: what adds it up overflows as well.
    steps = digit[1:] - digit[:-1]
    least, most = int(steps.min()), int(steps.max())
    if least == most:
        return b"", _DIGIT.pack(_EVEN, 0, int(digit[0]), least)
    if least >= 0 and most < 1 << 8:
        return _narrow(steps, 1), _DIGIT.pack(_STEPS, 1, int(digit[0]), 0)
    low = int(digit.min())
    above = int(digit.max()) - low
    if least >= 0 and most < 1 << 16 and above >= 1 << 16:
        return _narrow(steps, 2), _DIGIT.pack(_STEPS, 2, int(digit[0]), 0)
    for width in (1, 2, 4):
        if above < 1 << 8 * width:
            return _narrow(digit - low, width), _DIGIT.pack(_ABOVE, width, low, 0)
    return digit.astype("<i8").tobytes(), _DIGIT.pack(_PLAIN, 8, 0, 0)


def _narrow(values: np.ndarray, width: int) -> bytes:
    return values.astype(f"<u{width}").tobytes()


def decoded(data: memoryview, width: int, base: int = 0) -> Trails:
    """The trails of so many digits that stand at the end of `data`; `base` is added to the first digit."""
    (count,) = _COUNT.unpack_from(data, len(data) - _COUNT.size)
    end = notes = len(data) - _COUNT.size - width * _DIGIT.size
    found: Trails = []
    for at in reversed(range(width)):
        how, size, first, step = _DIGIT.unpack_from(data, notes + at * _DIGIT.size)
        held = count - 1 if how == _STEPS else count
        values = _NONE
        if size:
            end -= held * size
            values = np.frombuffer(data, "<i8" if how == _PLAIN else f"<u{size}", held, end)
        if at == 0:
            first = (first + base + LAST + 1) % (2 * (LAST + 1)) - LAST - 1  # as the sum of two columns overflows
        found.append(_decoded(how, values, first, step, count))
    return found[::-1]


def _decoded(how: int, values: np.ndarray, first: int, step: int, count: int) -> np.ndarray:
    if how == _EVEN:
        return np.arange(count, dtype=np.int64) * step + first
    if how == _STEPS:
        digit = np.zeros(count, dtype=np.int64)
        np.cumsum(values, out=digit[1:])
        digit += first
        return digit
    digit = values.astype(np.int64)
    digit += first
    return digit
