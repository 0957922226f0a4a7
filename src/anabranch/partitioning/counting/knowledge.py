"""What the driver knows of a region's keys: what its tasks counted and measured, over about the last epochs.

    tallies of an epoch ──► sliding window of frequent keys ─┐
                       └──► rows per key group, fading ──────┼──► Workload
    seconds of some keys ──► their cost per row (key_costs.py)┤
    seconds per channel ──► cost per row of all others ──────┘

**Measured cost.** Channels time some rows one by one and say which keys took most; what those cost is known
(key_costs.py), also if they are rare. Of all other keys, channels only know how long they worked for all together. A
channel that took longer than expected has keys that cost more than thought, but it cannot say which: so what it took is
shared out over its keys in proportion to what was expected of them. Hot keys have a cost of their own. When keys move,
what they cost goes with them, and the next measurement tells them from their old neighbours: each function is another
equation about the same unknowns. Measured times are noisy where tasks share cores, so a step goes only a part of the
way, and costs that differ by less than a quarter between channels count as equal: then rows are the load, which are
counted and not timed.

**Measured state.** The same channels say how many bytes of state the keys have that took most, how many keys there are
and how large any other is on average. Where state is large enough to matter, that is its load, and β is not asked.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.counting.key_costs import ChannelTimes, KeyCosts
from anabranch.partitioning.counting.lossy_counter import LossyCounter
from anabranch.partitioning.counting.sliding_counter import SlidingCounter
from anabranch.partitioning.counting.tally import EPSILON, Counted
from anabranch.partitioning.counting.workload import COMPUTATION, STATE, Measured, Workload
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.resources import Growth, Resources
from anabranch.partitioning.threshold import SIGMA_DEFAULT, threshold
from anabranch.program.hashing import GROUP_COUNT, key_groups

WINDOW_EPOCHS = 6
WINDOW_ROWS_MIN = 1 << 16
PERIOD_SAMPLED = 1024
"""Sampled rows that make an adaptation period: fewer say little about the balance."""
KNOWN_MAX = 1024
_APPEARANCES_MIN = 8
"""Sampled rows that make a key known: a share estimated from fewer is mostly noise."""
_COST_STEP = 0.3
_COST_SECONDS_MIN = 0.2
"""A mean below this, per channel and epoch, is mostly the noise of timing."""
_COST_BAND = 1.25
STATE_BYTES_MIN = 1 << 20
"""Less state than this, per channel, is no load, whoever has it."""
STATE_BYTES_HEAVY = 64 << 20
"""From this much state on, per channel, it matters how many keys a channel has, beside how much there is to do."""


@dataclass(frozen=True)
class KnownKeys:
    """What is known of the keys of a region, for a restarted driver: columns are packed into texts."""

    rows: int
    """In the window."""
    window_rows: int
    share_sampled: float
    hashes: str
    appearances: str
    """Of each frequent key in the window, in rows."""
    groups: str
    """Rows of every key group, as a part of the largest."""
    group_rows_max: float
    group_costs: str
    key_costs: str
    key_cost_hashes: str
    measured_sums: Sequence[float]
    measured_hashes: str
    measured: str
    """A row of four numbers for each key that was measured: `KeyCosts.to_arrays`."""


class Knowledge:
    """The frequencies and costs of one region's keys."""

    def __init__(self) -> None:
        self._window: SlidingCounter | None = None
        self._window_rows = 0
        self._groups = np.zeros(GROUP_COUNT)
        self._share_sampled = 1.0  # sampled rows over rows, in the window
        self._sampled_since = 0
        self._group_costs = np.ones(GROUP_COUNT)
        self._key_costs: dict[int, float] = {}
        self._measured = KeyCosts()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was counted yet."""
        return self._window is None

    def take_period(self) -> bool:
        """Whether enough was counted since the last call that said so."""
        if self._sampled_since < PERIOD_SAMPLED:
            return False
        self._sampled_since = 0
        return True

    def observe(
        self,
        counted: Sequence[Counted],
        function: PartitioningFunction,
        busy_seconds: NDArray[np.float64] | None = None,
        times: Sequence[ChannelTimes] = (),
    ) -> None:
        """Take in an epoch.

        Parameters
        ----------
        counted
            What the tasks counted that routed rows to the region.
        function
            The function they routed by.
        busy_seconds
            How long each channel worked, if all said so.
        times
            What channels say about single keys.
        """
        rows = sum(each.rows for each in counted)
        if not rows:
            return
        sampled = sum(each.sampled for each in counted)
        groups = np.sum([each.groups for each in counted], axis=0).astype(np.float64)
        epoch = LossyCounter.added_up([each.counter for each in counted])
        self._widen(rows)
        assert self._window is not None
        self._window.absorb([epoch])
        stays = max(0.0, 1.0 - rows / self._window_rows)
        self._groups = self._groups * stays + groups
        # An epoch counted as if it had few samples would let noise pass for knowledge, and the other way round.
        weight = rows / max(float(self._groups.sum()), 1.0)
        self._share_sampled += weight * (sampled / rows - self._share_sampled)
        self._sampled_since += sampled
        if busy_seconds is not None and busy_seconds.mean() >= _COST_SECONDS_MIN:
            self._measured.observe(times)
            self._learn_costs(function, groups, epoch, busy_seconds)

    def _widen(self, rows: int) -> None:
        """Have a window of several epochs, also when they have grown."""
        if self._window is not None and rows <= self._window_rows:
            return
        before = self._window
        self._window_rows = max(WINDOW_ROWS_MIN, WINDOW_EPOCHS * rows)
        self._window = SlidingCounter(EPSILON, self._window_rows)
        if before is not None:
            self._window.absorb([before.current()])

    def _learn_costs(
        self,
        function: PartitioningFunction,
        groups: NDArray[np.float64],
        epoch: LossyCounter,
        busy_seconds: NDArray[np.float64],
    ) -> None:
        # Keys that are looked at one by one: the hot ones, and those whose cost was measured.
        single = np.union1d(function.hot_hashes, self._measured.hashes)
        rows = _counted(epoch, single)
        rows = np.where(rows > 0, rows, self._timed_frequencies(single) * groups.sum())
        costs, owners = self._costs_of(single), function.route(single)
        tail = groups - np.bincount(function.group_of(single), weights=rows, minlength=len(groups))
        loads = np.maximum(tail, 0.0) * self._group_costs
        expected = np.bincount(function.group_owners(), weights=loads, minlength=function.channels)
        expected += np.bincount(owners, weights=rows * costs, minlength=function.channels)
        if not expected.all() or not busy_seconds.all() or not np.isfinite(busy_seconds).all():
            return  # a channel without work says nothing about what work costs
        wrong = (busy_seconds / busy_seconds.sum()) / (expected / expected.sum())
        corrections = np.clip(wrong, 0.25, 4.0) ** _COST_STEP
        self._group_costs *= corrections[function.group_owners()]
        self._group_costs = np.clip(self._group_costs / self._group_costs.mean(), 0.02, 50.0)
        corrected = np.clip(costs * corrections[owners], 0.02, 50.0)
        hot = function.is_hot(single)
        self._key_costs = dict(zip(single[hot].tolist(), corrected[hot].tolist(), strict=True))

    def _costs_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
        """What rows of keys cost: as measured, or what is thought of the key, or else of its group."""
        of_groups = self._group_costs[key_groups(hashes)]
        known = self._measured.hashes
        measured = dict(zip(known.tolist(), self._measured.costs(known).tolist(), strict=True))
        return np.array(
            [
                measured.get(k, self._key_costs.get(k, c))
                for k, c in zip(hashes.tolist(), of_groups.tolist(), strict=True)
            ]
        )

    def _timed_frequencies(self, hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Shares of the rows by what was timed; 0 for keys of which nothing was."""
        known = self._measured.hashes
        shares = dict(zip(known.tolist(), self._measured.frequencies(known).tolist(), strict=True))
        return np.array([shares.get(key, 0.0) for key in hashes.tolist()])

    def workload(
        self,
        function: PartitioningFunction,
        channels: int,
        resources: Resources,
        sigma: float = SIGMA_DEFAULT,
    ) -> Workload:
        """What is known, for a function with so many channels that is to follow the current one."""
        if self._window is None:
            return Workload.empty()
        counter = self._window.current()
        rows = max(counter.rows, 1)
        # Half of δ: a key that is hot already stays so for a while.
        delta = max(threshold(resources, max(channels, 2), sigma=sigma) / 2, 2 * EPSILON)
        hashes, appearances = counter.frequent(delta)
        known = appearances * self._share_sampled >= _APPEARANCES_MIN
        hashes, appearances = hashes[known][:KNOWN_MAX], appearances[known][:KNOWN_MAX]
        hashes, frequencies = self._with_expensive(hashes, appearances / rows, delta)
        frequencies = frequencies / max(1.0, float(frequencies.sum()))
        shares = self._groups / max(float(self._groups.sum()), 1.0)
        return Workload(
            hashes,
            frequencies,
            rows=rows,
            group_frequencies=shares,
            state=self._state(hashes, channels, resources),
            computation=self._computation(function, hashes, frequencies, shares),
            # Time is spent on rows: that was measured, and is nothing that a key takes whatever its frequency.
            no_load=frozenset(
                {COMPUTATION} if self.state_bytes() >= STATE_BYTES_HEAVY * channels else {COMPUTATION, STATE}
            ),
        )

    def state_bytes(self) -> float:
        """About how many bytes of state all keys have; 0 where nobody measured any."""
        known, keys, mean_bytes = self._measured.state()
        return sum(known.values()) + max(0.0, keys - len(known)) * mean_bytes

    def _with_expensive(
        self, hashes: NDArray[np.uint64], frequencies: NDArray[np.float64], delta: float
    ) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
        """The frequent keys, and those that are rare but cost as much as a frequent one; most frequent first."""
        others = np.setdiff1d(self._measured.hashes, hashes)
        shares = self._timed_frequencies(others)
        # Over the cost of any other key, which is at most the mean: the share of the load is no larger than this.
        chosen = shares * self._measured.costs(others) >= delta
        hashes = np.concatenate([hashes, others[chosen]])
        frequencies = np.concatenate([frequencies, shares[chosen]])
        order = np.argsort(-frequencies, kind="stable")
        return hashes[order], frequencies[order]

    def _state(self, hashes: NDArray[np.uint64], channels: int, resources: Resources) -> Measured | None:
        """The measured state, where there is enough of it; constant state also needs a key that stands out."""
        known, keys, mean_bytes = self._measured.state()
        of_keys = np.array([known.get(key, mean_bytes) for key in hashes.tolist()])
        tail = max(0.0, keys - len(hashes)) * mean_bytes
        total = tail + float(of_keys.sum())
        if not known or total < STATE_BYTES_MIN * channels:
            return None
        if resources.state is Growth.CONSTANT and of_keys.max(initial=0.0) < total / (4 * channels):
            return None
        of_groups = np.bincount(key_groups(hashes), weights=of_keys, minlength=GROUP_COUNT)
        return Measured.of(of_keys, tail / GROUP_COUNT + of_groups)

    def _computation(
        self,
        function: PartitioningFunction,
        hashes: NDArray[np.uint64],
        frequencies: NDArray[np.float64],
        shares: NDArray[np.float64],
    ) -> Measured | None:
        """The measured load, if channels' rows differ in cost by more than measuring is off."""
        of_keys = frequencies * self._costs_of(hashes)
        places = function.group_of(hashes)
        tail = np.maximum(shares - np.bincount(places, weights=frequencies, minlength=len(shares)), 0.0)
        of_groups = tail * self._group_costs + np.bincount(places, weights=of_keys, minlength=len(shares))
        rows = np.bincount(function.group_owners(), weights=tail, minlength=function.channels)
        cost = np.bincount(function.group_owners(), weights=tail * self._group_costs, minlength=function.channels)
        owners = function.route(hashes)
        rows += np.bincount(owners, weights=frequencies, minlength=function.channels)
        cost += np.bincount(owners, weights=of_keys, minlength=function.channels)
        used = rows > 0
        per_row = cost[used] / rows[used]
        if not len(per_row) or per_row.max() <= _COST_BAND * per_row.min():
            return None
        return Measured.of(of_keys, of_groups)

    # -- for a restarted driver -----------------------------------------------------------------------------

    def to_facts(self) -> KnownKeys | None:
        """What a restarted driver needs, some ten kilobytes: frequent keys, groups, costs; None if empty."""
        if self._window is None:
            return None
        counter = self._window.current()
        hashes, appearances = counter.frequent(2 * EPSILON)
        order = np.argsort(hashes[:KNOWN_MAX])
        costs = sorted(self._key_costs.items())
        sums, measured, table = self._measured.to_arrays()
        return KnownKeys(
            rows=counter.rows,
            window_rows=self._window_rows,
            share_sampled=self._share_sampled,
            hashes=_packed(hashes[order].astype("<u8")),
            appearances=_packed(appearances[order].astype("<i8")),
            groups=_packed((self._groups / max(self._groups.max(), 1.0)).astype("<f2")),
            group_rows_max=float(self._groups.max()),
            group_costs=_packed(self._group_costs.astype("<f2")),
            key_costs=_packed(np.array([cost for _, cost in costs], dtype="<f8")),
            key_cost_hashes=_packed(np.array([key for key, _ in costs], dtype="<u8")),
            measured_sums=sums,
            measured_hashes=_packed(measured.astype("<u8")),
            measured=_packed(table.astype("<f4")),
        )

    @staticmethod
    def of_facts(facts: KnownKeys | None) -> Knowledge:
        """Read what `to_facts` wrote."""
        known = Knowledge()
        if facts is None:
            return known
        hashes = _unpacked(facts.hashes, "<u8").astype(np.uint64)
        appearances = _unpacked(facts.appearances, "<i8").astype(np.int64)
        counter = LossyCounter.of_items(EPSILON, hashes, appearances, np.zeros(len(hashes), dtype=np.int64), facts.rows)
        known._window_rows = facts.window_rows
        known._window = SlidingCounter(EPSILON, known._window_rows)
        known._window.absorb([counter])
        known._share_sampled = facts.share_sampled
        known._groups = _unpacked(facts.groups, "<f2").astype(np.float64) * max(facts.group_rows_max, 1.0)
        known._group_costs = _unpacked(facts.group_costs, "<f2").astype(np.float64)
        keys = _unpacked(facts.key_cost_hashes, "<u8").tolist()
        known._key_costs = dict(zip(keys, _unpacked(facts.key_costs, "<f8").tolist(), strict=True))
        measured = _unpacked(facts.measured_hashes, "<u8").astype(np.uint64)
        table = _unpacked(facts.measured, "<f4").astype(np.float32)
        known._measured = KeyCosts.of_arrays(facts.measured_sums, measured, table)
        return known


def _counted(epoch: LossyCounter, keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """How many rows of each key were counted."""
    hashes, appearances, _ = epoch.items()
    if not len(hashes):
        return np.zeros(len(keys))
    at = np.minimum(np.searchsorted(hashes, keys), len(hashes) - 1)
    return np.where(hashes[at] == keys, appearances[at], 0).astype(np.float64)


def _packed(array: NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(array.tobytes(), 1)).decode()


def _unpacked(text: str, kind: str) -> NDArray[Any]:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=kind)
