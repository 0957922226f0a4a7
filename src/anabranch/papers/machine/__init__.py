"""A discrete-event world that runs the real splitters, mergers, controllers and migrations in virtual time.

General layout, in the order the data flows:

    description.py   what a world is made of: frozen data
    load.py costs.py operators.py      load curves; costs, keys, sizes; what channels compute
    source.py links.py hosts.py        tuples as they arrive; bounded queues with delay; shared machines
    nodes.py         splitter, channel and merger: anabranch.flow with time added
    stores.py        keyed state, donated and collected as anabranch.papers.streaming.migration says
    regions.py       what outlives a generation: function, planner, controller, accounts
    flows.py         generations: drain, migrate, go on; failures and recovery (wiring.py builds their nodes)
    world.py         the events;  result.py  what a run has shown
    simulate.py      the front door: a program, a load, a cluster size
    oracle.py checkers.py swarm/       what one thread would do; what must hold; thousands of random worlds
"""

from anabranch.papers.machine.costs import Spread
from anabranch.papers.machine.description import Cluster, Fault, Host, Region, Rescaling, Source, WorldDescription
from anabranch.papers.machine.result import MigrationRecord, RegionSample, Result, Sample
from anabranch.papers.machine.simulate import simulate
from anabranch.papers.machine.world import StandStill, World
from anabranch.sim.load import Bursts, Constant, Replay, Sine, Steps

__all__ = [
    "Bursts",
    "Cluster",
    "Constant",
    "Fault",
    "Host",
    "MigrationRecord",
    "Region",
    "RegionSample",
    "Replay",
    "Rescaling",
    "Result",
    "Sample",
    "Sine",
    "Source",
    "Spread",
    "StandStill",
    "Steps",
    "World",
    "WorldDescription",
    "simulate",
]
