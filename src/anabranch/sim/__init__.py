"""The product in virtual time: the driver loop that runs on Spark, in a world that adds time, hosts, load and trouble.

General layout, in the order of a run:

    simulating.py        simulate(), the front door
    situation.py         everything about a run but its program: frozen data (load.py, hosts.py, work_costs.py)
    simulation.py        the world: stands where Spark stands, and calls the production's runner
    inputs.py            files as they arrive, micro-batches made of them
    real_tasks.py        the tasks of a job, really run over tuples …
    fast_tasks.py        … or worked out from keys and counts; both report in the production's types
    job_time.py          how long tasks take and where they run (hosts.py); virtual_time.py has the clocks
    simulated_executors.py   hosts that come when channels outgrow them, and go
    simulated_run.py     what a run has shown
    ledger.py, checks.py, owners.py    what an outsider saw, and what must hold of it
    operators/           elastic operators: pools and their controllers in virtual time
    swarm/               thousands of random worlds; printing.py and smallest.py make of one that fails a small test,
                         swarm_command.py runs them, and those of the papers' machine
"""

from anabranch.sim.hosts import SimulatedHost
from anabranch.sim.load import Bursts, Constant, Replay, Sine, Steps
from anabranch.sim.simulated_run import SimulatedEpoch, SimulatedRun
from anabranch.sim.simulating import simulate
from anabranch.sim.situation import AskedChannels, Crash, Keys, Situation
from anabranch.sim.work_costs import WorkCosts

__all__ = [
    "AskedChannels",
    "Bursts",
    "Constant",
    "Crash",
    "Keys",
    "Replay",
    "SimulatedEpoch",
    "SimulatedHost",
    "SimulatedRun",
    "Sine",
    "Situation",
    "Steps",
    "WorkCosts",
    "simulate",
]
