"""The command: ``python -m anabranch.sim.swarm --seconds 60 --seed 1``.

World number n of a swarm with seed s is `random_world(s * 1_000_000 + n)`: it can be run again alone with
``--world``, and nothing but its number is needed for that.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from anabranch.sim.printing import test_of
from anabranch.sim.smallest import kind_of, smallest
from anabranch.sim.swarm.judging import failures
from anabranch.sim.swarm.simplifying import simpler
from anabranch.sim.swarm.worlds import random_world

WORLDS_PER_SEED = 1_000_000
TRIALS_MAX = 150


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m anabranch.sim.swarm", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU seconds to spend on worlds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--world", type=int, help="run this one world only")
    parser.add_argument("--failures", type=int, default=3, help="stop after so many worlds that fail")
    options = parser.parse_args(arguments)
    numbers = iter([options.world]) if options.world is not None else iter(range(10**9))
    found: list[int] = []
    kinds: Counter[str] = Counter()
    worlds = 0
    started = time.process_time()
    for number in numbers:
        if time.process_time() - started > options.seconds or len(found) >= options.failures:
            break
        seed = number if options.world is not None else options.seed * WORLDS_PER_SEED + number
        worlds += 1
        complaints = failures(random_world(seed))
        if complaints:
            found.append(seed)
            kinds.update({kind_of(complaint) for complaint in complaints})
            report(seed, complaints)
    spent = time.process_time() - started
    print(
        f"{worlds} worlds in {spent:.1f} s of CPU ({worlds / max(spent, 1e-9) * 60:,.0f} a minute), {len(found)} failed"
    )
    if kinds:
        print("violated: " + ", ".join(f"{kind} in {count}" for kind, count in kinds.most_common()))
    return 1 if found else 0


def report(seed: int, complaints: list[str]) -> None:
    """Say what is wrong with a world, and print the smallest one that shows it."""
    print(f"world {seed} fails (again: python -m anabranch.sim.swarm --world {seed})")
    for complaint in complaints[:5]:
        print(f"  {complaint}")
    small, of_small = smallest(random_world(seed), failures, simpler, TRIALS_MAX)
    print("made small:")
    print(test_of(f"world_{seed}", small, of_small or complaints), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
