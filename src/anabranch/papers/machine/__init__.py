"""A discrete-event world of the papers' streaming regions in virtual time, with the product's planners and controllers.

It is not what runs on Spark: there an epoch is a job, and new owners read what old ones wrote. That is simulated by
`anabranch.sim`, from which load curves come.

General layout, in the order the data flows:

    description.py   what a world is made of: frozen data
    costs.py machine_operators.py                  costs, keys, sizes; what channels compute
    machine_source.py links.py machine_hosts.py    tuples as they arrive; bounded queues with delay; shared machines
    nodes.py         splitter, channel (papers/streaming) and merger (papers/merging) with time added
    stores.py        keyed state, donated and collected as papers/streaming/migration.py says
    machine_regions.py   what outlives a generation: function, planner, controller, accounts
    flows.py         generations: drain, migrate, go on; failures and recovery (wiring.py builds their nodes)
    world.py         the events;  result.py  what a run has shown
    oracle.py checkers.py swarm/       what one thread would do; what must hold; thousands of random worlds
"""

from anabranch.papers.machine.costs import CostSpread
from anabranch.papers.machine.description import (
    Cluster,
    Fault,
    Host,
    MachineRegion,
    MachineSource,
    Rescaling,
    WorldDescription,
)
from anabranch.papers.machine.result import MigrationRecord, RegionSample, Result, Sample
from anabranch.papers.machine.world import StandStill, World
from anabranch.sim.load import Bursts, Constant, Replay, Sine, Steps

__all__ = [
    "Bursts",
    "Cluster",
    "Constant",
    "CostSpread",
    "Fault",
    "Host",
    "MachineRegion",
    "MachineSource",
    "MigrationRecord",
    "RegionSample",
    "Replay",
    "Rescaling",
    "Result",
    "Sample",
    "Sine",
    "StandStill",
    "Steps",
    "World",
    "WorldDescription",
]
