"""Thousands of random worlds, every one checked; what fails is made small and printed as a test.

python -m anabranch.sim.swarm --seconds 60 --seed 1

random_programs.py   programs as users could have written them, and recipes of them
worlds.py            from a seed to a world
judging.py           run a world, ask all checkers
simplifying.py       what makes a world simpler; ../smallest.py shrinks with it
"""

from anabranch.sim.swarm.judging import failures
from anabranch.sim.swarm.worlds import SwarmWorld, random_world

__all__ = ["SwarmWorld", "failures", "random_world"]
