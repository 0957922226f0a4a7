"""What single keys cost, as measured: seconds per row and bytes of state, from the channels to the driver.

    channel   some rows timed one by one ──► KeyTimes ──► the 64 keys that took most   (engine/worker/timing.py)
    driver    reports of an epoch ──► KeyCosts, fading over some epochs ──► cost of a key over that of any other

Which keys are expensive cannot be told from how frequent they are: one that is rare may take a hundred times as long
per row. So channels report the keys that took most time, whether they are frequent or not, and whether they are hot
already or not. β remains what is assumed about all others.

**Noise.** A call during which the task had to wait for a core says nothing about its key, so the longest call of each
key and epoch is left out; a key is believed after eight calls; and a cost is drawn towards that of all other keys, as
if two of its calls had cost just that. Measurements decide only where keys are placed. Whatever they say, even
nonsense, the functions built from them are valid: what is not finite or negative is left out, and costs have limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEYS_REPORTED = 64
"""Per channel and epoch."""
KEYS_KEPT = 512
"""By the driver, per region."""
CALLS_MIN = 8
COST_LIMIT = 1000.0
_CALLS_DRAWN = 2
_STAYS = 0.8
"""What stays of earlier epochs: about the last five count."""
_SOUND_MAX = 1e15
_TAIL_MIN = 0.05
"""With fewer rows than this part outside of the reported keys, the mean of all stands for the others."""


@dataclass(frozen=True)
class KeyTimesReport:
    """What a channel found out about its keys, as it travels: columns as bytes, little-endian, 64 bits each."""

    rows: int
    """Rows that were timed."""
    seconds: float
    """Of these."""
    hashes: bytes
    """Of the keys that took most."""
    calls: bytes
    spent: bytes
    """Seconds of each."""
    state_bytes: bytes
    """How large the state of each is; negative: not known."""
    keys: int
    """How many keys have state in the channel…"""
    mean_bytes: float
    """…and how large that of one is that is not reported."""


class KeyTimes:
    """What one channel found out in one epoch."""

    def __init__(self) -> None:
        self._rows = 0
        self._seconds = 0.0
        self._keys: dict[int, list[float]] = {}  # hash → calls, seconds, the longest

    def add(self, hashes: NDArray[np.uint64], seconds: NDArray[np.float64]) -> NDArray[np.int64]:
        """Take in rows that were timed; which of them stand for the keys that took most."""
        if not len(hashes):
            return np.empty(0, dtype=np.int64)
        distinct, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        calls = np.bincount(inverse, minlength=len(distinct))
        sums = np.bincount(inverse, weights=seconds, minlength=len(distinct))
        longest = np.zeros(len(distinct))
        np.maximum.at(longest, inverse, seconds)
        self._rows += len(hashes)
        self._seconds += float(sums.sum())
        # Twice as many as are reported: a key may come second in every batch and first in all of them together.
        most = np.argsort(-sums, kind="stable")[: 2 * KEYS_REPORTED]
        for at in most.tolist():
            known = self._keys.setdefault(int(distinct[at]), [0, 0.0, 0.0])
            known[0] += int(calls[at])
            known[1] += float(sums[at])
            known[2] = max(known[2], float(longest[at]))
        return first[most]

    def reported(self) -> list[tuple[int, int, float]]:
        """The keys to report: hash, calls, seconds, both without the longest call; those that took most first."""
        found = [(key, int(calls) - 1, spent - longest) for key, (calls, spent, longest) in self._keys.items()]
        found = [each for each in found if each[1] > 0]
        return sorted(found, key=lambda each: (-each[2], each[0]))[:KEYS_REPORTED]

    def to_report(self, state: Mapping[int, int], keys: int, mean_bytes: float) -> KeyTimesReport:
        """What travels with the channel's report.

        Parameters
        ----------
        state
            Bytes of state of reported keys, by hash.
        keys, mean_bytes
            How many keys have state in the channel, and how many bytes one of them has that is not reported.
        """
        chosen = self.reported()
        # What is left out of a key must not pass for the cost of others.
        left_out = sum(self._keys[key][2] for key, _, _ in chosen)
        return KeyTimesReport(
            rows=self._rows,
            seconds=max(0.0, self._seconds - left_out),
            hashes=np.array([key for key, _, _ in chosen], dtype="<u8").tobytes(),
            calls=np.array([calls for _, calls, _ in chosen], dtype="<f8").tobytes(),
            spent=np.array([spent for _, _, spent in chosen], dtype="<f8").tobytes(),
            state_bytes=np.array([state.get(key, -1) for key, _, _ in chosen], dtype="<f8").tobytes(),
            keys=keys,
            mean_bytes=mean_bytes,
        )


@dataclass(frozen=True, eq=False)
class ChannelTimes:
    """What a channel reported, as the driver reads it; nonsense is left out."""

    part: float
    """Timed rows over all rows of the channel."""
    rows: float
    """All rows of the channel."""
    seconds: float
    """In calls of user code, for all rows."""
    busy_seconds: float
    """In operators, with all that is done around the calls."""
    hashes: NDArray[np.uint64]
    calls: NDArray[np.float64]
    """Timed calls of each reported key."""
    spent: NDArray[np.float64]
    """Seconds of these."""
    bytes: NDArray[np.float64]
    """State of each reported key; negative: not known."""
    keys: float
    mean_bytes: float

    @staticmethod
    def of_report(report: KeyTimesReport, rows: int, busy_seconds: float) -> ChannelTimes | None:
        """Read what `KeyTimes.to_report` wrote, of a channel with so many rows; None if it says nothing."""
        timed, seconds = _sound(report.rows), _sound(report.seconds)
        if timed < 1 or rows < 1:
            return None
        hashes = np.frombuffer(report.hashes, dtype="<u8").astype(np.uint64)
        calls, spent, size = (
            np.frombuffer(each, dtype="<f8") for each in (report.calls, report.spent, report.state_bytes)
        )
        good = (calls >= 1) & (calls <= timed) & (spent >= 0) & (spent <= _SOUND_MAX)  # false for NaN
        part = min(1.0, timed / rows)
        return ChannelTimes(
            part,
            float(rows),
            seconds / part,
            _sound(busy_seconds),
            hashes[good],
            calls[good],
            spent[good],
            np.where((size >= 0) & (size <= _SOUND_MAX), size, -1.0)[good],
            _sound(report.keys),
            _sound(report.mean_bytes),
        )


class KeyCosts:
    """What the keys of a region cost, over about the last epochs."""

    def __init__(self) -> None:
        self._rows = self._seconds = self._busy = 0.0
        self._state_keys = self._mean_bytes = 0.0
        # Hash → timed calls, rows, seconds, bytes of state. Rows and seconds are of all rows, timed or not.
        self._keys: dict[int, NDArray[np.float64]] = {}

    def observe(self, channels: Sequence[ChannelTimes]) -> None:
        """Take in an epoch."""
        if not channels:
            return
        self._rows = self._rows * _STAYS + sum(each.rows for each in channels)
        self._seconds = self._seconds * _STAYS + sum(each.seconds for each in channels)
        self._busy = self._busy * _STAYS + sum(each.busy_seconds for each in channels)
        self._state_keys = sum(each.keys for each in channels)
        weighted = sum(each.mean_bytes * each.keys for each in channels)
        self._mean_bytes = weighted / self._state_keys if self._state_keys > 0 else 0.0
        for known in self._keys.values():
            known[:3] *= _STAYS
        for channel in channels:
            for at, key in enumerate(channel.hashes.tolist()):
                known = self._keys.setdefault(key, np.array([0.0, 0.0, 0.0, -1.0]))
                calls, spent = channel.calls[at], channel.spent[at]
                known[:3] += calls, calls / channel.part, spent / channel.part
                known[3] = channel.bytes[at] if channel.bytes[at] >= 0 else known[3]
        kept = sorted(self._keys, key=lambda key: (-self._keys[key][2], key))[:KEYS_KEPT]
        # A key that was not heard of for some ten epochs is forgotten.
        self._keys = {key: self._keys[key] for key in kept if self._keys[key][0] >= 0.5}

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """The keys whose cost is known, ascending."""
        return np.array(sorted(key for key, known in self._keys.items() if known[0] >= CALLS_MIN), dtype=np.uint64)

    def frequencies(self, hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
        """The shares of the rows that known keys have, by what was timed of them."""
        if self._rows <= 0:
            return np.zeros(len(hashes))
        return np.array([min(1.0, self._keys[key][1] / self._rows) for key in hashes.tolist()])

    def costs(self, hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
        """What a row of each known key costs, over what one of all other keys does."""
        calls, rows, seconds = self._sums(hashes)
        _, all_rows, all_seconds = self._sums(np.array(sorted(self._keys), dtype=np.uint64))
        others_rows, others_seconds = self._rows - all_rows.sum(), self._seconds - all_seconds.sum()
        if others_rows < _TAIL_MIN * self._rows or others_seconds < 0:
            others_rows, others_seconds = self._rows, self._seconds
        # What is done around the calls is the same for all rows.
        around = max(0.0, self._busy - self._seconds) / max(self._rows, 1.0)
        usual = others_seconds / max(others_rows, 1.0) + around
        if usual <= 0 or not len(hashes):
            return np.ones(len(hashes))
        own = seconds / np.maximum(rows, 1e-9) + around
        drawn = (own * calls + usual * _CALLS_DRAWN) / (calls + _CALLS_DRAWN)
        return np.clip(drawn / usual, 1 / COST_LIMIT, COST_LIMIT)

    def _sums(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.float64], ...]:
        known = np.array([self._keys[key][:3] for key in hashes.tolist()]).reshape(-1, 3)
        return known[:, 0], known[:, 1], known[:, 2]

    def state(self) -> tuple[dict[int, float], float, float]:
        """Bytes of state of the keys known, how many keys have state, and how many bytes any other key has."""
        return {key: known[3] for key, known in self._keys.items() if known[3] >= 0}, self._state_keys, self._mean_bytes

    # -- for a restarted driver -----------------------------------------------------------------------------

    def to_arrays(self) -> tuple[list[float], NDArray[np.uint64], NDArray[np.float32]]:
        """What a restarted driver needs: the sums; the keys, and a row of four numbers for each."""
        sums = [self._rows, self._seconds, self._busy, self._state_keys, self._mean_bytes]
        keys = sorted(self._keys)
        table = np.array([self._keys[key] for key in keys], dtype=np.float32).reshape(-1, 4)
        return sums, np.array(keys, dtype=np.uint64), table

    @staticmethod
    def of_arrays(sums: Sequence[float], keys: NDArray[np.uint64], table: NDArray[np.float32]) -> KeyCosts:
        """Read what `to_arrays` gave."""
        costs = KeyCosts()
        costs._rows, costs._seconds, costs._busy, costs._state_keys, costs._mean_bytes = sums
        costs._keys = dict(zip(keys.tolist(), table.reshape(-1, 4).astype(np.float64), strict=True))
        return costs


def _sound(number: Any) -> float:
    """A number that can be an amount of anything; else 0."""
    value = float(number)
    return value if 0 <= value <= _SOUND_MAX else 0.0


def approximate_bytes(value: Any, nesting: int = 4) -> int:
    """About how many bytes a value of state has when it is written; of a long list, from its first elements.

    Examples
    --------
    >>> approximate_bytes(1), approximate_bytes("abc"), approximate_bytes([1.5] * 1000)
    (8, 7, 8008)
    """
    if isinstance(value, (str, bytes, bytearray)):
        return 4 + len(value)
    if hasattr(value, "nbytes"):  # arrays, of no dimension too
        return 16 + int(value.nbytes)
    if hasattr(value, "names") and hasattr(value, "__getitem__"):  # named maps
        return sum(approximate_bytes(value[name], nesting - 1) for name in value.names())
    entries = getattr(value, "items", None)
    if nesting and hasattr(value, "__len__") and hasattr(value, "__iter__"):
        looked_at = []
        for element in entries() if callable(entries) else value:
            looked_at.append(approximate_bytes(element, nesting - 1))
            if len(looked_at) == 16:
                break
        return 8 + round(len(value) * sum(looked_at) / max(len(looked_at), 1))
    return 8
