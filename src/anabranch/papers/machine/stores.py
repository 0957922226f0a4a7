"""The keyed state of a channel, and how it moves: donate, then collect (*Elastic*, section 5).

State is kept as migration plans see it: one cell per key group, and every hot key on its own. So a plan that
forgets a group, or a key that becomes hot, loses state here as it would on a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.papers.machine.costs import key_hashes
from anabranch.papers.streaming.migration import Migration
from anabranch.partitioning.function import PartitioningFunction
from anabranch.program.hashing import key_groups


class KeyTable:
    """The keys of a region: their hashes, groups and sizes."""

    __slots__ = ("bytes_of", "group_of", "hashes", "key_of")

    def __init__(self, keys: int, salt: int, group_bits: int, bytes_of: Sequence[float]) -> None:
        self.hashes = key_hashes(keys, salt)
        self.group_of: list[int] = key_groups(self.hashes, group_bits).tolist()
        self.key_of: dict[int, int] = {value: key for key, value in enumerate(self.hashes.tolist())}
        self.bytes_of = bytes_of

    def routes(self, function: PartitioningFunction) -> list[int]:
        """The channel of every key."""
        return function.route(self.hashes).tolist()

    def hot(self, function: PartitioningFunction) -> frozenset[int]:
        """The keys that the function maps explicitly."""
        return frozenset(self.key_of[value] for value in function.hot_hashes.tolist() if value in self.key_of)


@dataclass(slots=True)
class Package:
    """State on its way from one channel to another."""

    target: int
    groups: dict[int, dict[int, int]] = field(default_factory=dict)
    hot: dict[int, int] = field(default_factory=dict)

    def keys(self) -> list[int]:
        return [*self.hot, *(key for cell in self.groups.values() for key in cell)]


class Store:
    """The state of one channel."""

    __slots__ = ("_table", "groups", "hot")

    def __init__(self, table: KeyTable) -> None:
        self._table = table
        self.groups: dict[int, dict[int, int]] = {}
        self.hot: dict[int, int] = {}

    def cell(self, key: int, hot_keys: frozenset[int]) -> dict[int, int]:
        """Where the state of a key is kept."""
        if key in hot_keys:
            return self.hot
        group = self._table.group_of[key]
        cell = self.groups.get(group)
        if cell is None:
            cell = self.groups[group] = {}
        return cell

    def items(self) -> list[tuple[int, int]]:
        """All keys with their states, in no particular order; a key that is here twice comes twice."""
        found = list(self.hot.items())
        for cell in self.groups.values():
            found += cell.items()
        return found

    def donate(self, channel: int, plan: Migration) -> list[Package]:
        """Take out everything that does not belong to this channel any more."""
        for promoted in plan.promoted.tolist():
            key = self._table.key_of.get(promoted)
            if key is not None:
                cell = self.groups.get(self._table.group_of[key], {})
                if key in cell:
                    self.hot[key] = cell.pop(key)
        packages: dict[int, Package] = {}
        for units, hot in ((plan.groups, False), (plan.keys, True)):
            for unit, source, target in zip(
                units.units.tolist(), units.sources.tolist(), units.targets.tolist(), strict=True
            ):
                if source != channel:
                    continue
                package = packages.setdefault(target, Package(target))
                if not hot:
                    if unit in self.groups:
                        package.groups[unit] = self.groups.pop(unit)
                elif (key := self._table.key_of.get(unit)) in self.hot:
                    package.hot[key] = self.hot.pop(key)
        return list(packages.values())

    def collect(self, packages: Sequence[Package], plan: Migration) -> None:
        """Take in what others donated, and put keys that are no longer hot back into their groups."""
        for package in packages:
            self.hot.update(package.hot)
            for group, cell in package.groups.items():
                self.groups.setdefault(group, {}).update(cell)
        for demoted in plan.demoted.tolist():
            key = self._table.key_of.get(demoted)
            if key is not None and key in self.hot:
                self.groups.setdefault(self._table.group_of[key], {})[key] = self.hot.pop(key)

    def restore(self, states: Mapping[int, int], hot_keys: frozenset[int]) -> None:
        """Start with these states and no others."""
        self.groups, self.hot = {}, {}
        for key, state in states.items():
            self.cell(key, hot_keys)[key] = state

    def size(self, keys: Sequence[int] | None = None) -> float:
        """Bytes of these keys, or of all."""
        table = self._table.bytes_of
        return sum(table[key] for key in (keys if keys is not None else [key for key, _ in self.items()]))
