"""How many channels a region should have (pure): signals, controllers, their decision logs.

General layout, in the order the data flows:

    signals.py              epochs as measured → per region and adaptation period an Observation
    observation.py          what a controller is told
    controller.py           the one interface: pinning, bounds, log, restart, around a policy
      default_policy.py       ours (capacity_memory.py: what it remembers)
      paper_policy.py         *Elastic* as printed (levels.py: its rapid scaling)
    decision.py             what a controller answers, with every reason
    operator_controller.py  *Operators*: workers inside one channel
    fluid.py, saso.py       a model of regions under load, and the SASO numbers of any policy on it
"""

from anabranch.control.bounds import Bounds
from anabranch.control.controller import Controller, Event, Pin, Policy, Rescale, Unpin
from anabranch.control.decision import Decision, Proposal
from anabranch.control.default_policy import DefaultOptions, DefaultPolicy
from anabranch.control.levels import LevelFunction, doubling_levels, paper_levels, single_levels
from anabranch.control.observation import Observation
from anabranch.control.paper_policy import PaperPolicy

__all__ = [
    "Bounds",
    "Controller",
    "Decision",
    "DefaultOptions",
    "DefaultPolicy",
    "Event",
    "LevelFunction",
    "Observation",
    "PaperPolicy",
    "Pin",
    "Policy",
    "Proposal",
    "Rescale",
    "Unpin",
    "doubling_levels",
    "paper_levels",
    "single_levels",
]
