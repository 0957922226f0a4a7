"""The command: ``python -m anabranch.papers.machine.swarm --seconds 60 --seed 1``, as `sim/swarm_command.py` says."""

import sys

from anabranch.papers.machine.swarm.random_worlds import random_world
from anabranch.papers.machine.swarm.shrinking import simpler
from anabranch.papers.machine.swarm.trial import failures
from anabranch.sim.swarm_command import SwarmCommand

if __name__ == "__main__":
    sys.exit(SwarmCommand("anabranch.papers.machine.swarm", random_world, failures, simpler).run(sys.argv[1:]))
