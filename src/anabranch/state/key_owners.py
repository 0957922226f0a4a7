"""Who owns which keys, now and when each segment was written.

The keys of every region have owners: a partitioning function and the number of its *generation*. Replacing the
function of a region begins a new generation, also when it goes back to an earlier function: what was written in
between is newer. Nothing is copied for that. A segment's record says under which generation it was written and by which
channel; from the function of that generation follows whose keys it may hold, so a new owner knows which segments
of old owners to read (lineage.py).

    epoch          0 … 6         7 … 9            10 …
    region "sum"   generation 0  generation 2     generation 3        counted over all regions together
    region "top"   generation 1  generation 1     generation 1
    a segment      written in 0 by channel 1: read in 2 by the channels that took over keys of it

Numbers are never used twice in a checkpoint, whatever happens to regions in between: an operator that moves to
another region finds its old segments under numbers that mean the same as before. So the functions of old
generations need no region, and are kept in the manifest for as long as a record refers to them.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from anabranch.errors import CheckpointError
from anabranch.partitioning.function import PartitioningFunction, sharing
from anabranch.partitioning.placing.construct import evened, resized
from anabranch.program.hashing import GROUP_BITS
from anabranch.state.records import SegmentRecord

Route = tuple[str, ...]

_ONE_CHANNEL = PartitioningFunction.even(1)


@dataclasses.dataclass(frozen=True, eq=False)
class RegionOwners:
    """Who owns which keys of a region.

    Attributes
    ----------
    generation : int
        Counts replacements; segments written under one generation follow one function.
    function : PartitioningFunction
        Maps the hash of what keys are routed by to a channel.
    earlier : mapping
        The functions of other generations that segments were written under, by generation.
    """

    generation: int
    function: PartitioningFunction
    earlier: Mapping[int, PartitioningFunction] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def channels(self) -> int:
        """How many channels the region has."""
        return self.function.channels

    def of(self, route: Route) -> RegionOwners:
        """As an operator has it: what is not routed by any column has one channel."""
        return self if route or self.channels == 1 else dataclasses.replace(self, function=_ONE_CHANNEL)

    def owns(self, channel: int, hashes: np.ndarray) -> np.ndarray:
        """Which of the keys, given by the hash they are routed by, a channel owns: exactly one channel owns each."""
        if self.channels == 1:
            return np.full(len(hashes), channel == 0)
        return self.function.route(hashes) == channel

    def groups(self, channel: int) -> np.ndarray:
        """The key groups a channel may hold keys of, as a mask: its own, and those of hot keys it was given."""
        return self.function.held_groups(channel)

    def shares(self, record: SegmentRecord, channel: int, route: Route) -> bool:
        """Whether a segment of another generation may hold keys that a channel now owns."""
        # After a change of the program that routes by other columns, a segment may hold anyone's keys; and one that
        # was not routed by any holds everyone's.
        if not route or record.route != route:
            return True
        function = self.earlier.get(record.generation)
        if function is None or record.channel >= function.channels:
            return True  # reading too much is right; reading too little is not
        return bool(sharing(function, self.function)[record.channel, channel])


@dataclasses.dataclass(frozen=True)
class Region:
    """A region's current generation, and how the state of its operators is routed in it."""

    generation: int
    routes: Mapping[str, Route]


@dataclasses.dataclass(frozen=True)
class KeyOwners:
    """The owners of all regions of a query, with the functions that old segments were written under.

    Attributes
    ----------
    regions : mapping
        Name of a region → its current generation and its operators.
    functions : mapping
        Generation → function: the current ones, and those that records still refer to.
    newest : int
        The highest number of a generation that was ever given.

    Examples
    --------
    >>> owners = KeyOwners().started({"sum": {"Sum": ("k",)}}, {"sum": 2})
    >>> owners.of_region("sum").channels, owners.of_region("sum").generation
    (2, 0)
    >>> later = owners.replaced("sum", resized(owners.function("sum"), 3))
    >>> later.of_region("sum").channels, later.of_region("sum").generation, sorted(later.functions)
    (3, 1, [0, 1])
    >>> KeyOwners.from_facts(later.to_facts()) == later
    True
    """

    regions: Mapping[str, Region] = dataclasses.field(default_factory=dict)
    functions: Mapping[int, PartitioningFunction] = dataclasses.field(default_factory=dict)
    newest: int = -1

    def started(
        self,
        routes: Mapping[str, Mapping[str, Route]],
        channels: Mapping[str, int],
        bundles: Mapping[str, int] | None = None,
    ) -> KeyOwners:
        """The owners of a program that starts: these, as far as its regions are what they were.

        Parameters
        ----------
        routes : mapping
            Region → operators with state in it → the columns each is routed by.
        channels : mapping
            Region → the number of channels wanted. A function for another number is resized.
        bundles : mapping, optional
            Region → how many bundles its key groups are owned in; 0 or left out: each group by itself. A function for
            another number is begun anew, which moves most keys.
        """
        owners = self
        for region, operators in routes.items():
            wanted, known = channels[region], self.regions.get(region)
            pieces = (bundles or {}).get(region, 0)
            if known is None or known.routes != operators:
                # Other columns or other operators: what was written under the old number must not pass for the
                # region's own, so the number changes even if the function does not.
                owners = owners._with(region, operators, evened(wanted, pieces))
            elif self.function(region).bundles != pieces:
                owners = owners.replaced(region, evened(wanted, pieces))
            elif self.function(region).channels != wanted:
                owners = owners.replaced(region, resized(self.function(region), wanted))
        return dataclasses.replace(owners, regions={region: owners.regions[region] for region in routes})

    def replaced(self, region: str, function: PartitioningFunction) -> KeyOwners:
        """The owners with another function for a region; itself if it is the same function."""
        if function == self.function(region):
            return self
        return self._with(region, self.regions[region].routes, function)

    def _with(self, region: str, operators: Mapping[str, Route], function: PartitioningFunction) -> KeyOwners:
        if function.group_bits != GROUP_BITS:
            raise ValueError(f"state is kept in {1 << GROUP_BITS} key groups; the function has {function.groups}")
        generation = self.newest + 1
        return KeyOwners(
            {**self.regions, region: Region(generation, dict(operators))},
            {**self.functions, generation: function},
            generation,
        )

    def function(self, region: str) -> PartitioningFunction:
        """The function in use in a region."""
        if region not in self.regions:
            known = ", ".join(self.regions) or "none"
            raise KeyError(f"no region {region!r}; regions: {known}")
        return self.functions[self.regions[region].generation]

    def of_region(self, region: str) -> RegionOwners:
        """Who owns the keys of a region."""
        return RegionOwners(self.regions[region].generation, self.function(region), self.functions)

    def by_operator(self) -> dict[str, RegionOwners]:
        """Operator → who owns the keys of its state."""
        return {
            operator: self.of_region(name).of(route)
            for name, region in self.regions.items()
            for operator, route in region.routes.items()
        }

    def pruned(self, segments: Mapping[str, Sequence[SegmentRecord]]) -> KeyOwners:
        """The owners without functions that neither a region nor a record (or a part of one) refers to."""
        used = {region.generation for region in self.regions.values()} | set(_generations(segments))
        if used >= self.functions.keys():
            return self
        kept = {generation: function for generation, function in self.functions.items() if generation in used}
        return dataclasses.replace(self, functions=kept)

    # -- in the manifest --------------------------------------------------------------------------------------

    def to_facts(self) -> dict[str, Any]:
        """What the manifest's facts keep; see docs/checkpoint.md."""
        return {
            "generation": self.newest,
            "regions": {
                name: {
                    "generation": region.generation,
                    "channels": self.function(name).channels,
                    "routes": {operator: list(route) for operator, route in region.routes.items()},
                }
                for name, region in self.regions.items()
            },
            "functions": {
                str(generation): base64.b64encode(function.to_bytes()).decode()
                for generation, function in self.functions.items()
            },
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> KeyOwners:
        """The owners that facts keep; none in those of a checkpoint that is new."""
        if not facts:
            return cls()
        try:
            regions = {
                name: Region(
                    region["generation"], {operator: tuple(route) for operator, route in region["routes"].items()}
                )
                for name, region in facts["regions"].items()
            }
            functions = {
                int(generation): PartitioningFunction.from_bytes(base64.b64decode(data, validate=True))
                for generation, data in facts["functions"].items()
            }
            missing = {region.generation for region in regions.values()} - functions.keys()
            if missing:
                raise ValueError(f"no function for generations {sorted(missing)}")
            return cls(regions, functions, facts["generation"])
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as problem:
            raise CheckpointError(f"the manifest's partitioning functions cannot be read: {problem}") from None


def _generations(segments: Mapping[str, Iterable[SegmentRecord]]) -> Iterable[int]:
    for records in segments.values():
        for record in records:
            yield record.generation
            for part in record.parts:
                yield part.generation
