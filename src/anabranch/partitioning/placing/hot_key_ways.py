"""Which keys are too hot for one channel, and over how many channels to split them.

No placement can balance a key with more than a fair share of the load: at z = 1 over 10⁶ keys the hottest
has 0.0695 of all rows, more than a channel's share from 15 channels on. Where the partial results of an
aggregation combine exactly, such a key can be worked on by several channels, and this says by how many.

The parts of a split key are keys of their own, (key, 0), (key, 1), …; a key that is not split is (key, 0). They are
what is counted, placed and moved. So a workload that was counted with some keys split is first put together again
(`resplit`), and then cut as the next splits will cut it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from anabranch.partitioning.counting.workload import Workload
from anabranch.partitioning.threshold import check_channels
from anabranch.program.hashing import key_groups, with_part, without_part


@dataclass(frozen=True)
class Split:
    """A key to be split."""

    hash: int
    share: float
    """Its share of the load, of the resource of which it takes most."""
    ways: int
    """Over how many channels, at least 2."""


def plan_splits(workload: Workload, channels: int) -> tuple[Split, ...]:
    """The keys that exceed a fair share, most loaded first, each with as few ways as bring it below one.

    Splitting makes work (partial results must be combined), so a key of just a fair share is left whole: the
    ring can keep all other keys off its channel. A load measured, or linear, splits in proportion; that of
    a quadratic resource does not split by sharing out rows, so only measured computation counts for it.
    """
    check_channels(channels)
    if channels == 1:
        return ()
    shares = workload.frequencies
    for measured in (workload.state, workload.computation):
        if measured is not None:
            shares = shares.clip(min=measured.keys)
    # A hair's breadth above the fair share is rounding.
    wide = [(i, float(share)) for i, share in enumerate(shares) if share * channels > 1 + 1e-9]
    wide.sort(key=lambda one: -one[1])
    return tuple(
        Split(int(workload.hashes[i]), share, min(channels, math.ceil(share * channels - 1e-9))) for i, share in wide
    )


_SLACK = 0.1
"""By how much of a fair share a part may exceed one: shares are estimates."""
_KEEP_SHARE = 0.5
"""A key stays split down to this part of a fair share: one that hovers around it would go to and fro."""


def resplit(workload: Workload, ways: Mapping[int, int], channels: int) -> tuple[Workload, dict[int, int]]:
    """The workload as the next splits will cut it, and those: hash of the key → number of parts.

    Parameters
    ----------
    workload
        Of keys with their part behind them, as counted; measured loads are not carried over.
    ways
        The splits it was counted under.
    """
    whole = dict(zip(workload.hashes.tolist(), workload.frequencies.tolist(), strict=True))
    shares: dict[int, float] = {}
    for key, count in ways.items():
        parts = _parts(key, count)
        found = [whole.pop(part, 0.0) for part in parts]
        shares[key] = sum(found)
    keys = np.array(list(whole), dtype=np.uint64)
    shares.update(zip(without_part(keys, 0).tolist(), whole.values(), strict=True))
    after = {key: _ways(share, ways.get(key, 1), channels) for key, share in shares.items()}
    groups = None if workload.group_frequencies is None else workload.group_frequencies.copy()
    pieces: dict[int, float] = {}
    for key, share in shares.items():
        before, now = _parts(key, ways.get(key, 1)), _parts(key, after[key])
        for part in now:
            pieces[part] = share / len(now)
        if groups is not None and before != now:
            for group in _groups_of(before):
                groups[group] = max(0.0, groups[group] - share / len(before))
            for group in _groups_of(now):
                groups[group] += share / len(now)
    order = sorted(pieces, key=lambda part: (-pieces[part], part))
    cut = replace(
        workload,
        hashes=np.array(order, dtype=np.uint64),
        frequencies=np.array([pieces[part] for part in order]),
        group_frequencies=groups,
        state=None,
        computation=None,
    )
    return cut, {key: count for key, count in after.items() if count > 1}


def _ways(share: float, before: int, channels: int) -> int:
    """Into how many parts a key is cut: as few as bring each below a fair share; a change must be worth it."""
    fair = share * channels
    wanted = max(1, min(channels, math.ceil(fair - _SLACK)))
    if before > 1 and wanted < before <= channels and fair > _KEEP_SHARE * before:
        return before
    return wanted


def _parts(key: int, ways: int) -> list[int]:
    hashed = np.array([key], dtype=np.uint64)
    return [int(with_part(hashed, part)[0]) for part in range(ways)]


def _groups_of(parts: list[int]) -> list[int]:
    groups: list[int] = key_groups(np.array(parts, dtype=np.uint64)).tolist()
    return groups
