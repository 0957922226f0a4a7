"""What is known about a region's keys over a period: all that a construction may look at.

Of a few frequent keys we know the share each has of the rows; of every key group, the share all its keys
have together. Where state sizes and processing times were measured, those are the loads of the resources
"state" and "computation", and no resource function is assumed for them.

Shares are fractions of the whole region: of its rows, its state, its processing time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.counting.lossy_counter import LossyCounter
from anabranch.partitioning.resources import Growth, Resources
from anabranch.program.hashing import key_groups

Shares = NDArray[np.float64]
STATE, COMPUTATION, COMMUNICATION = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Measured:
    """A resource's measured share of every known key, and of every group (its known keys included)."""

    keys: Shares
    groups: Shares

    @staticmethod
    def of(keys: NDArray[np.floating], groups: NDArray[np.floating]) -> Measured:
        """The shares of amounts in any unit: bytes, seconds."""
        total = float(np.sum(groups))
        if total <= 0:
            return Measured(np.zeros(len(keys)), np.zeros(len(groups)))
        return Measured(np.asarray(keys) / total, np.asarray(groups) / total)


@dataclass(frozen=True, eq=False)
class Workload:
    """Frequencies and loads of one period.

    Parameters
    ----------
    hashes, frequencies
        The keys known to be frequent, most frequent first, and their shares of the rows.
    rows
        How many rows were counted; bounds the number of distinct keys when the domain is not known.
    domain
        The number of distinct keys, if known.
    group_frequencies
        Every group's share of the rows, if measured; else what is left after the frequent keys is taken to
        be spread evenly.
    state, computation
        Measured loads, if any.
    no_load
        Resources known to be no load, whatever resource functions say: state of which there is little.
    """

    hashes: NDArray[np.uint64]
    frequencies: Shares
    rows: int = 0
    domain: int | None = None
    group_frequencies: Shares | None = None
    state: Measured | None = None
    computation: Measured | None = None
    no_load: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if len(self.hashes) != len(self.frequencies):
            raise ValueError(f"{len(self.hashes)} keys and {len(self.frequencies)} frequencies do not pair")
        if len(self.hashes) != len(np.unique(self.hashes)):
            raise ValueError("every key may be given once, found the same hash twice")
        if len(self.frequencies) and not (
            np.isfinite(self.frequencies).all() and self.frequencies.min() >= 0 and self.frequencies.sum() <= 1 + 1e-9
        ):
            raise ValueError("frequencies are shares of the rows: not negative, and no more than 1 together")

    @staticmethod
    def empty() -> Workload:
        """The workload of a region about which nothing is known."""
        return Workload(np.empty(0, dtype=np.uint64), np.empty(0))

    @staticmethod
    def of_counter(
        counter: LossyCounter,
        delta: float,
        *,
        domain: int | None = None,
        group_rows: NDArray[np.integer] | None = None,
    ) -> Workload:
        """The workload of the keys a counter reports for δ, with the rows counted per group."""
        hashes, appearances = counter.frequent(delta)
        rows = counter.rows
        shares = None
        if group_rows is not None and group_rows.sum() > 0:
            shares = group_rows / group_rows.sum()
        return Workload(hashes, appearances / max(rows, 1), rows, domain, shares)

    @property
    def keys_at_most(self) -> int | None:
        """An upper bound of the number of distinct keys; None if nothing bounds it."""
        if self.domain is not None:
            return self.domain
        return self.rows or None

    def only(self, chosen: NDArray[np.integer] | NDArray[np.bool_]) -> Workload:
        """This workload with fewer known keys; the others count as part of their groups."""

        def cut(measured: Measured | None) -> Measured | None:
            return None if measured is None else Measured(measured.keys[chosen], measured.groups)

        return replace(
            self,
            hashes=self.hashes[chosen],
            frequencies=self.frequencies[chosen],
            state=cut(self.state),
            computation=cut(self.computation),
        )

    def key_loads(self, resources: Resources) -> Shares:
        """The load of every known key, one column per resource: measured, or else β."""
        loads = resources.loads(self.frequencies).astype(np.float64)
        for column, measured in ((STATE, self.state), (COMPUTATION, self.computation)):
            if measured is not None:
                loads[:, column] = measured.keys
        return loads

    def tail_loads(self, resources: Resources, group_bits: int) -> Shares:
        """The load of every group without the known keys, one column per resource."""
        groups = 1 << group_bits
        owner = key_groups(self.hashes, group_bits)

        def rest(of_groups: Shares, of_keys: Shares) -> Shares:
            if len(of_groups) != groups:
                raise ValueError(f"{groups} groups are expected, measurements of {len(of_groups)} were found")
            known = np.bincount(owner, weights=of_keys, minlength=groups)
            return np.maximum(of_groups - known, 0.0)

        if self.group_frequencies is None:
            frequencies = np.full(groups, max(0.0, 1.0 - float(self.frequencies.sum())) / groups)
        else:
            frequencies = rest(self.group_frequencies, self.frequencies)
        tail_keys = max(0, (self.keys_at_most or 0) - len(self.hashes)) / groups
        columns = []
        for growth in resources.growths:
            if growth is Growth.LINEAR:
                columns.append(frequencies)
            elif growth is Growth.CONSTANT:
                columns.append(np.full(groups, tail_keys))
            else:
                # As in the quadratic post-processing: a group's keys are taken to be equally frequent.
                columns.append(frequencies * frequencies / tail_keys if tail_keys > 0 else np.zeros(groups))
        for column, measured in ((STATE, self.state), (COMPUTATION, self.computation)):
            if measured is not None:
                columns[column] = rest(measured.groups, measured.keys)
        return np.stack(columns, axis=1)

    def tail_loads_beside(self, hot: NDArray[np.bool_], resources: Resources, group_bits: int) -> Shares:
        """The load of every group without the hot keys only.

        Known keys that are not hot are put back into their groups one by one: a guess about the group as a
        whole would lose what is known about them, which matters for quadratic loads.
        """
        cool = self.only(~hot)
        groups = key_groups(cool.hashes, group_bits)
        loads = self.tail_loads(resources, group_bits)
        for column, known in enumerate(cool.key_loads(resources).T):
            loads[:, column] += np.bincount(groups, weights=known, minlength=len(loads))
        return loads

    def balanced(self, resources: Resources) -> tuple[int, ...]:
        """Which resources to balance: those that are not constant, and all that were measured.

        Measured computation takes the place of communication: what a row costs however it is worked on is part of
        the time it takes. Balancing both would be balancing seconds against rows, and all wait for seconds.
        """
        chosen = set(resources.balanced)
        chosen.update(k for k, one in ((STATE, self.state), (COMPUTATION, self.computation)) if one is not None)
        if self.computation is not None:
            chosen.discard(COMMUNICATION)
        return tuple(sorted(chosen))

    def bounded(self, resources: Resources) -> tuple[int, ...]:
        """Which resources are plain numbers of keys, to be kept within bounds while others are balanced."""
        constant = {k for k, growth in enumerate(resources.growths) if growth is Growth.CONSTANT}
        return tuple(sorted(constant - self.no_load - set(self.balanced(resources))))
