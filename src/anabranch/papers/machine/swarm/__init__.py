"""Thousands of random worlds, every one checked; what fails is made small and printed as a test.

python -m anabranch.papers.machine.swarm --seconds 60 --seed 1

random_worlds.py   from a seed to a world
trial.py           run a world, ask all checkers
shrinking.py       from a world that fails to the smallest found that fails in the same way
"""

from anabranch.papers.machine.swarm.random_worlds import random_world
from anabranch.papers.machine.swarm.shrinking import shrink
from anabranch.papers.machine.swarm.trial import failures
from anabranch.sim.printing import source_of

__all__ = ["failures", "random_world", "shrink", "source_of"]
