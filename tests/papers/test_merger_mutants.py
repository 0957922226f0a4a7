"""A test of the tests: plant a bug in the source of a merger, and see the checks fail."""

from __future__ import annotations

import sys
from random import Random
from types import ModuleType
from typing import Any

import pytest

from anabranch.papers.merging import merger, merger_indexed, merger_numbered, merger_round_robin
from anabranch.papers.merging.ordering import Numbered, OrderViolation, Strategy
from anabranch.papers.merging.punctuation import Punctuation
from tests.papers.merging_world import Burst, Jump, Network, Region, RunningSum, Stateless, cycle, sequential
from tests.papers.test_merger_memory import Deaf
from tests.papers.test_merger_order import arrivals_of, check_earliness

ROUND_ROBIN = Region(Stateless, 3, Strategy.ROUND_ROBIN, key=None)
SEQUENCE = Region(RunningSum, 3, Strategy.SEQUENCE)
STRICT = Region(Jump, 3, Strategy.STRICT)
RELAXED = Region(Burst, 3, Strategy.RELAXED)
INDEXED = Region(Burst, 3, Strategy.INDEXED, depth=1)


def mutant_of(module: ModuleType, class_name: str, old: str, new: str) -> Any:
    """A class of the module as it would be had `old` been written `new` (once, in that class or before)."""
    with open(module.__file__ or "") as file:
        source = file.read()
    start = source.index(f"class {class_name}")
    assert source.count(old, start) >= 1, f"{old!r} is no longer in {class_name}: plant the bug elsewhere"
    mutated = ModuleType(f"{module.__name__}_mutant")
    mutated.__dict__["__file__"] = module.__file__
    sys.modules[mutated.__name__] = mutated
    exec(
        compile(source[:start] + source[start:].replace(old, new, 1), module.__file__ or "", "exec"),
        mutated.__dict__,
    )
    del sys.modules[mutated.__name__]
    return getattr(mutated, class_name)


def check(region: Region, make: Any, runs: int = 60) -> None:
    """The checks of test_merger_order on seeded streams, against mergers made by `make`."""
    random = Random(5)
    for _ in range(runs):
        stream: list[Any] = [(random.randrange(7), random.randrange(50)) for _ in range(14)]
        for _ in range(random.randrange(3)):
            stream.insert(random.randrange(15), Punctuation.WINDOW)
        picks = [random.randrange(60) for _ in range(80)]
        arrivals = arrivals_of(region, stream, pulse_every=random.randrange(2, 6))
        check_earliness(region, arrivals, picks, 1, make)


def check_shuffle(make: Any, runs: int = 40) -> None:
    """A shuffle after a prolific region; its mergers made by `make`."""
    random = Random(6)
    for _ in range(runs):
        stream = [(random.randrange(7), random.randrange(50)) for _ in range(20)]
        regions = [INDEXED, Region(lambda: Burst(key=1), 3, Strategy.INDEXED, depth=1, key=1)]
        network = Network(regions, pulse_every=4)
        network.mergers = [[make(in_shuffle=True) for _ in range(3)], [make(in_shuffle=False)]]
        picks = [random.randrange(60) for _ in range(200)]
        assert network.run(stream, cycle(picks)) == sequential(stream, Burst(), Burst(key=1))


@pytest.mark.parametrize("region", [ROUND_ROBIN, SEQUENCE, STRICT, RELAXED, INDEXED], ids=lambda r: r.strategy.value)
def test_the_mergers_as_they_are_pass(region):
    check(region, merger.make_merger)


MUTANTS = [
    ("copies of punctuations are let out", ROUND_ROBIN, merger_round_robin, "RoundRobinMerger",
     "if not queue and self._copies[channel] < self._punctuations:", "if False:"),
    ("a punctuation uses up the turn", ROUND_ROBIN, merger_round_robin, "RoundRobinMerger",
     "                continue\n",
     "                turn = self._turn = (turn + 1) % self.channels\n"
     "                queue = self._queues[turn]\n                continue\n"),
    ("a full round of copies is waited for", ROUND_ROBIN, merger_round_robin, "RoundRobinMerger",
     "        elif channel == self._turn and not queue and self._copies[channel] == self._punctuations:",
     "        elif self._outstanding:\n            queue.append(item)\n            self._held += 1\n"
     "            return []\n"
     "        elif channel == self._turn and not queue and self._copies[channel] == self._punctuations:"),
    ("dropped: off by one", STRICT, merger_numbered, "StrictMerger",
     "(max(last + 1, floor) + 1)", "(max(last + 1, floor) + 2)"),
    ("dropped is never inferred", STRICT, merger_numbered, "StrictMerger",
     "max(last + 1, floor)", "(last + 1)"),
    ("an item at the floor has to wait", STRICT, merger_numbered, "StrictMerger",
     "max(last + 1, floor)", "max(last + 1, floor - 1)"),
    ("the floor is not looked at again", STRICT, merger_numbered, "StrictMerger",
     " or frontier[self._floor_channel] != self._floor", ""),
    ("noDups is not asked", RELAXED, merger_numbered, "RelaxedMerger",
     "or frontier[last_channel] <= last)", "or False)"),
    ("noDups asks the channel of the candidate", RELAXED, merger_numbered, "RelaxedMerger",
     "or frontier[last_channel] <= last)", "or frontier[entry % channels] <= last)"),
    ("a punctuation is taken to have duplicates", RELAXED, merger_numbered, "RelaxedMerger",
     "NEVER if value is _FINAL else sequence + 1", "NEVER if value is _FINAL else sequence"),
    ("a duplicate waits for all channels", RELAXED, merger_numbered, "RelaxedMerger",
     "sequence > last + 1 or frontier", "sequence >= last + 1 or frontier"),
    ("duplicates are taken to be over", RELAXED, merger_numbered, "RelaxedMerger",
     "            frontier[channel] = sequence\n", "            frontier[channel] = sequence + 1\n"),
    ("a pulse is let out", RELAXED, merger_numbered, "RelaxedMerger",
     "if value is _PULSE and not in_shuffle:", "if False:"),
    ("another number is next", INDEXED, merger_indexed, "IndexedMerger",
     "            sequence == last_sequence\n", "            sequence >= last_sequence\n"),
    ("duplicates of a key are taken to be over", INDEXED, merger_indexed, "IndexedMerger",
     "            and self._frontier[self._last_channel] > self._last\n", ""),
    ("the next emission waits for all channels", INDEXED, merger_indexed, "IndexedMerger",
     "emission[-1] == last_emission[-1] + 1", "False"),
    ("a number's first tuple never waits", INDEXED, merger_indexed, "IndexedMerger",
     "if last_emission is END:", "if last_emission is END or emission == self._zeros:"),
]  # fmt: skip


@pytest.mark.parametrize(("region", "module", "class_name", "old", "new"), [m[1:] for m in MUTANTS],
                         ids=[m[0] for m in MUTANTS])  # fmt: skip
def test_a_planted_bug_is_caught(region, module, class_name, old, new):
    mutant = mutant_of(module, class_name, old, new)

    def make(strategy: Strategy, channels: int, *, depth: int) -> Any:
        return mutant(channels, depth=depth) if depth else mutant(channels)

    with pytest.raises((AssertionError, OrderViolation)):
        check(region, make)
        if region is INDEXED:
            check_shuffle(lambda in_shuffle: mutant(3, in_shuffle=in_shuffle))


def test_the_wrong_tie_break_is_caught_behind_a_shuffle():
    check_shuffle(lambda in_shuffle: merger_indexed.IndexedMerger(3, in_shuffle=in_shuffle))

    class ByChannel(merger_indexed.IndexedMerger):
        """Orders one number's tuples by channel, as if the emission were not there."""

        def push(self, channel: int, item: Numbered) -> list[Any]:
            if isinstance(item.value, Punctuation):
                return super().push(channel, item)
            return super().push(channel, Numbered(item.sequence, item.value, (channel,)))

    with pytest.raises((AssertionError, OrderViolation)):
        check_shuffle(lambda in_shuffle: ByChannel(3, in_shuffle=in_shuffle))


def test_a_relaxed_merger_behind_a_shuffle_after_a_prolific_region_is_caught():
    """The ban of the paper has its reason."""

    def make(in_shuffle: bool) -> Any:
        return merger_numbered.RelaxedMerger(3, in_shuffle=in_shuffle)

    with pytest.raises((AssertionError, OrderViolation)):
        check_shuffle(make)


def test_a_pulse_lost_on_one_channel_is_caught():
    """A channel that drops every tuple and loses its pulses too holds back all the others."""
    stream = [(i % 3, i) for i in range(300)]
    region = Region(lambda: Deaf(3), 3, Strategy.STRICT)

    def held_peak(loses: bool) -> int:
        network = Network([region], pulse_every=6)
        if loses:
            network.mutate_send = lambda channel, item: channel or item.value is not Punctuation.PULSE
        network.run(stream, cycle([]))
        return network.mergers[0][0].statistics().held_peak

    assert held_peak(loses=True) > 4 * held_peak(loses=False)
