"""The command: ``python -m anabranch.sim.swarm --seconds 60 --seed 1``, as `sim/swarm_command.py` says."""

import sys

from anabranch.sim.swarm.judging import failures
from anabranch.sim.swarm.simplifying import simpler
from anabranch.sim.swarm.worlds import random_world
from anabranch.sim.swarm_command import SwarmCommand

if __name__ == "__main__":
    sys.exit(SwarmCommand("anabranch.sim.swarm", random_world, failures, simpler, trials_max=150).run(sys.argv[1:]))
