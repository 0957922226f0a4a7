"""The command of a swarm: worlds from numbers, one after the other, until time or patience is over.

    python -m anabranch.sim.swarm --seconds 60 --seed 1                 the product in virtual time
    python -m anabranch.papers.machine.swarm --seconds 60 --seed 1      the machine of the papers

World number n of a swarm with seed s has the number s * 1_000_000 + n: it can be run again alone with ``--world``, and
nothing but its number is needed for that.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from anabranch.sim.printing import test_of
from anabranch.sim.smallest import TRIALS_MAX, kind_of, smallest

WORLDS_PER_SEED = 1_000_000

World = TypeVar("World")


@dataclass(frozen=True)
class SwarmCommand(Generic[World]):
    """A kind of worlds, and what is to be known of it to run thousands."""

    module: str
    """Its command is ``python -m`` this."""
    random_world: Callable[[int], World]
    """From a number to a world."""
    failures: Callable[[World], list[str]]
    """What is wrong with one."""
    simpler: Callable[[World], Iterable[World]]
    """Worlds that are one step simpler, the boldest first."""
    trials_max: int = TRIALS_MAX
    """So many worlds are tried to make one that fails small."""

    def run(self, arguments: list[str]) -> int:
        """Run worlds as the arguments say; the status of the process: 1 if one failed."""
        parser = argparse.ArgumentParser(
            prog=f"python -m {self.module}", description="Random worlds, every one checked; what fails is made small."
        )
        parser.add_argument("--seconds", type=float, default=60.0, help="CPU seconds to spend on worlds")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--world", type=int, help="run this one world only")
        parser.add_argument("--failures", type=int, default=3, help="stop after so many worlds that fail")
        options = parser.parse_args(arguments)
        first = options.seed * WORLDS_PER_SEED
        numbers = range(first, first + WORLDS_PER_SEED) if options.world is None else [options.world]
        failed, worlds = 0, 0
        kinds: Counter[str] = Counter()
        started = time.process_time()
        for number in numbers:
            if time.process_time() - started > options.seconds or failed >= options.failures:
                break
            worlds += 1
            complaints = self.failures(self.random_world(number))
            if complaints:
                failed += 1
                kinds.update({kind_of(complaint) for complaint in complaints})
                self._report(number, complaints)
        spent = time.process_time() - started
        rate = worlds / max(spent, 1e-9) * 60
        print(f"{worlds} worlds in {spent:.1f} s of CPU ({rate:,.0f} a minute), {failed} failed")
        if kinds:
            print("violated: " + ", ".join(f"{kind} in {count}" for kind, count in kinds.most_common()))
        return 1 if failed else 0

    def _report(self, number: int, complaints: list[str]) -> None:
        """Say what is wrong with a world, and print the smallest one that shows it."""
        print(f"world {number} fails (again: python -m {self.module} --world {number})")
        for complaint in complaints[:5]:
            print(f"  {complaint}")
        small, of_small = smallest(self.random_world(number), self.failures, self.simpler, self.trials_max)
        print("made small:")
        print(test_of(f"world_{number}", small, of_small or complaints), flush=True)
