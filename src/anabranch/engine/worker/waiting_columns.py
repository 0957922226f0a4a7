"""Since when keys wait, of all keys at once: it orders what comes out of those that are due at one time.

A key waits until all it holds is gone; a tuple that comes then begins anew. A waiting is numbered: by the slot of its
key if it began before this epoch, behind all slots if a tuple of this epoch begins it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.engine.worker.key_slots import running_maxima, starting
from anabranch.state.state_columns import lengths_of, lists


def waitings(
    slots: np.ndarray, until: np.ndarray, reached: np.ndarray, before: int, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """For each row which waiting of its key it belongs to; and for those that begin here, the tuple with which.

    The first `before` rows are what keys hold, the others tuples in their order; there are `count` slots.

    Parameters
    ----------
    until : numpy array
        Until when each row is held.
    reached : numpy array
        How far time had come when it came, in the same measure: what is held until then, or less, is gone.
    """
    order = np.argsort(slots, kind="stable")
    ordered, until = slots[order], until[order]
    is_start = starting(ordered)
    starts, dense = np.flatnonzero(is_start), np.cumsum(is_start) - 1
    highest, _ = running_maxima(dense, starts, until)
    begins = is_start.copy()
    begins[1:] |= highest[:-1] <= reached[order][1:]
    begins[order < before] = False  # what the state has is one waiting
    runs = np.where(begins, count + np.cumsum(begins) - 1, ordered)
    # The latest that began, within the key: numbers rise within a key.
    runs, _ = running_maxima(dense, starts, runs)
    found = np.empty(len(order), dtype=np.int64)
    found[order] = runs
    return found, order[begins] - before


def begun_here(positions: np.ndarray, trails: Sequence[np.ndarray], epoch: int) -> np.ndarray:
    """The numbers of waitings that begin at positions: the epoch, and the trails there."""
    own = [np.full(len(positions), epoch, dtype=np.int64), *(digit[positions] for digit in trails)]
    return np.column_stack(own).astype(np.int64)


def since_when(waited: pa.ListArray, begun: np.ndarray) -> np.ndarray:
    """The numbers of all waitings: of those that keys have, as many as there are of those that begin here."""
    lengths, width = lengths_of(waited), begun.shape[1]
    mine = np.zeros((len(waited), width), dtype=np.int64)
    row = np.repeat(np.arange(len(waited)), lengths)
    at = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    kept = at < width
    mine[row[kept], at[kept]] = waited.flatten().to_numpy(zero_copy_only=False)[kept]
    return np.concatenate([mine, begun])


def since_column(waited: pa.ListArray, begun: np.ndarray, current: np.ndarray, holds: np.ndarray) -> pa.Array:
    """What becomes state: for each key that holds something the numbers of its current waiting."""
    is_new = holds & ((current >= len(waited)) | waited.is_null().to_numpy(zero_copy_only=False))
    # Those of before, then those that begin here: one column of which each key takes one.
    here = lists(np.full(len(begun), begun.shape[1]), pa.array(begun.reshape(-1)))
    chosen = np.where(is_new, current, np.arange(len(waited)))
    return pa.concat_arrays([waited, here]).take(pa.array(chosen, mask=~holds))
