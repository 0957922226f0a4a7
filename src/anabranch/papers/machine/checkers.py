"""What must hold in every world. The checkers share no code with what they check: they count and compare.

exactly once    what was delivered is, as a collection, what one thread delivers
order           …and in its order
conservation    everything put into a queue was taken out of it, every region took every tuple once
bounded queues  no queue ever held more than its capacity
one owner       within a generation a key, and a key group but its hot keys, is processed on one channel; the
                state of a key is in one place
state           at the end the state of every key is what one thread has
SASO            at constant load the number of channels settles, suffices, is not far too high, does not swing
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from anabranch.papers.machine.description import WorldDescription
from anabranch.papers.machine.oracle import Sequential, sequential
from anabranch.papers.machine.result import Sample

if TYPE_CHECKING:
    from anabranch.papers.machine.flows import MachineFlow
    from anabranch.papers.machine.links import Link
    from anabranch.papers.machine.world import World


class Recorder:
    """Is told what happens in a world, and complains at once about what may never happen."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.stream: list[Any] = []
        self.output: list[Any] = []
        self._waiting: Counter[tuple[Any, ...]] = Counter()
        self._owners: dict[tuple[int, int, int], int] = {}
        self._group_owners: dict[tuple[int, int, int], int] = {}
        self._generations: dict[int, int] = {}
        self._hot: dict[int, frozenset[int]] = {}
        self._groups: dict[int, list[int]] = {}

    def put(self, link: Link) -> None:
        self._waiting[link.name] += 1
        if self._waiting[link.name] > link.capacity:
            self._complain(f"bounded queues: {self._waiting[link.name]} items in {link.name}, room for {link.capacity}")

    def taken(self, link: Link) -> None:
        self._waiting[link.name] -= 1
        if self._waiting[link.name] < 0:
            self._complain(f"conservation: more items were taken out of {link.name} than put into it")

    def processed(self, region: int, channel: int, key: int) -> None:
        generation = self._generations[region]
        owner = self._owners.setdefault((region, generation, key), channel)
        if owner != channel:
            self._complain(f"one owner: key {key} of region {region} was processed on channels {owner} and {channel}")
        if key not in self._hot[region]:
            group = self._groups[region][key]
            owner = self._group_owners.setdefault((region, generation, group), channel)
            if owner != channel:
                self._complain(f"one owner: key group {group} of region {region}: channels {owner} and {channel}")

    def read(self, value: Any) -> None:
        self.stream.append(value)

    def delivered(self, value: Any) -> None:
        self.output.append(value)

    def generation_started(self, flow: MachineFlow) -> None:
        for region in flow.regions:
            self._generations[region.number] = flow.generation
            if region.function is None:
                continue
            hashes = region.table.hashes.tolist()
            hot = set(region.function.hot_hashes.tolist())
            self._hot[region.number] = frozenset(key for key, value in enumerate(hashes) if value in hot)
            bits = region.description.group_bits
            self._groups[region.number] = [value >> (64 - bits) for value in hashes]
            places = Counter(key for store in region.stores for key, _ in store.items())
            doubled = [key for key, count in places.items() if count > 1]
            if doubled:
                self._complain(f"one owner: the state of key {doubled[0]} of region {region.number} is in two places")
            if len(region.stores) != region.channels:
                self._complain(f"one owner: {len(region.stores)} stores for {region.channels} channels")

    def left_over(self) -> list[tuple[Any, ...]]:
        """Queues that are not empty."""
        return [name for name, count in self._waiting.items() if count]

    def _complain(self, complaint: str) -> None:
        if len(self.complaints) < 20:
            self.complaints.append(complaint)


def check_run(world: World, recorder: Recorder, ended: bool = True) -> list[str]:
    """All complaints about a run; none if it was right.

    Parameters
    ----------
    ended
        Whether the stream came to its end. If not, what was delivered must be the beginning of what one
        thread delivers, and nothing is said about states and queues.
    """
    expected = sequential(world.description, recorder.stream)
    complaints = list(recorder.complaints)
    complaints += compare_output(expected.delivered, recorder.output, ended)
    if ended:
        complaints += _compare_states(world, expected)
        complaints += _compare_counts(world, recorder, expected)
    return complaints


def compare_output(expected: Sequence[Any], found: Sequence[Any], ended: bool = True) -> list[str]:
    """Exactly once and order."""
    if not ended:
        expected = expected[: len(found)]
    if list(expected) == list(found):
        return []
    wanted, got = Counter(expected), Counter(found)
    complaints = []
    if missing := list((wanted - got).elements()):
        complaints.append(f"exactly once: {len(missing)} tuples are missing, the first is {missing[0]}")
    if extra := list((got - wanted).elements()):
        complaints.append(f"exactly once: {len(extra)} tuples are too many, the first is {extra[0]}")
    if not complaints:
        at = next(i for i, (one, other) in enumerate(zip(expected, found, strict=True)) if one != other)
        complaints.append(f"order: at place {at} is {found[at]}, should be {expected[at]}")
    return complaints


def _compare_states(world: World, expected: Sequential) -> list[str]:
    complaints = []
    for flow in world.flows:
        for region in flow.regions:
            states: dict[int, int] = {}
            for store in region.stores:
                states.update(store.items())
            wanted = expected.states[region.number]
            if states != wanted:
                wrong = sorted(key for key in states.keys() | wanted.keys() if states.get(key) != wanted.get(key))
                key = wrong[0]
                complaints.append(
                    f"state: {len(wrong)} keys of region {region.number} are wrong; key {key} has "
                    f"{states.get(key)}, should have {wanted.get(key)}"
                )
    return complaints


def _compare_counts(world: World, recorder: Recorder, expected: Sequential) -> list[str]:
    complaints = []
    if not world.recoveries:  # after a failure queues are thrown away and tuples processed again, rightly
        complaints += [f"conservation: items are left in {name}" for name in recorder.left_over()]
        for flow in world.flows:
            for region in flow.regions:
                taken, wanted = region.totals()[0], expected.taken[region.number]
                if taken != wanted:
                    complaints.append(f"conservation: region {region.number} took {taken} tuples, should take {wanted}")
    if world.source.made != world.description.source.tuples:
        complaints.append(f"conservation: {world.source.made} of {world.description.source.tuples} tuples were read")
    return complaints


# -- SASO ------------------------------------------------------------------------------------------------------

SETTLED_SHARE = 0.3
"""In the last part of a stretch of constant load nothing may change any more."""
SWINGS_MAX = 2
ROOM = 1.6
"""Channels may be so many times those that the load takes, and two more: utilisations of 62 % and up."""


def check_saso(
    description: WorldDescription, samples: Sequence[Sample], region: int, from_s: float, load: float
) -> list[str]:
    """SASO over the samples after `from_s`, during which the load was constant.

    The region's capacity must be its channels over its cost: enough cores, keys without skew.
    """
    described = description.regions[region]
    bounds = described.bounds
    needed = min(bounds.channels_max, max(bounds.channels_min, math.ceil(load * described.cost_s - 1e-9)))
    channels = [sample.regions[region].channels for sample in samples if sample.at_s > from_s]
    if len(channels) < 2:
        return []
    complaints = []
    last = channels[-max(2, round(SETTLED_SHARE * len(channels))) :]
    if len(set(last)) > 1:
        complaints.append(f"SASO, settling: channels still change in the last periods: {channels}")
    if channels[-1] < needed:
        complaints.append(f"SASO, accuracy: {channels[-1]} channels at the end, {needed} are needed: {channels}")
    if channels[-1] > ROOM * needed + 2:
        complaints.append(f"SASO, overshoot: {channels[-1]} channels at the end, {needed} are needed: {channels}")
    if max(channels[1:]) > 2 * max(needed, channels[0]) + 2:
        complaints.append(f"SASO, overshoot: {max(channels)} channels, {needed} are needed: {channels}")
    rises = [after > before for before, after in pairwise(channels) if after != before]
    swings = sum(one != other for one, other in pairwise(rises))
    if swings > SWINGS_MAX:
        complaints.append(f"SASO, stability: {swings} changes of direction: {channels}")
    return complaints
