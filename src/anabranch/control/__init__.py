"""How many channels a region should have (pure): signals, controllers, their decision logs.

General layout, in the order the data flows:

    adaptation_period.py    cuts the stream of epochs into adaptation periods
    signals.py              epochs as measured → per region and adaptation period an Observation
    observation.py          what a controller is told
    elastic_options.py      what a user can say about it
    bounds.py               how few and how many channels there may be
    controller.py           the one interface: pinning, bounds, log, restart, around a policy
      default_policy.py       ours (default_options.py; policy_memory.py: what it remembers, and what that says;
                              capacity_memory.py: what so many channels could do; scaling_law.py: what follows for
                              other numbers of channels; measurement_quality.py: how late and noisy what it is told is;
                              giving_back.py: when fewer channels do)
      proven_number.py        around it: back to a smaller number that did more lately
      levels_in_turn.py       around both: levels compared in turn where the machine's speed has changed
      burst_rest.py           around all: where to rest while the load comes in bursts
      paper_policy.py         *Elastic* as printed (levels.py: its rapid scaling)
    decision.py             what a controller answers, with every reason
    executor_planner.py     how many executors the channels have use for, and which may go
    channel_places.py       which executor each channel should run on, and who has copies
    period_plan.py          one plan for a period: restore, re-place channels, move bundles, add or remove executors
    source_spreading.py     when what needs no state should have channels of its own
    epoch_size.py           how much an epoch takes
    operator_controller.py  *Operators*: workers inside one channel
    operator_levels.py      … as a pool asks it
    concurrency_controller.py  the same question, our own search: how many calls should be under way
"""

from anabranch.control.adaptation_period import AdaptationPeriods
from anabranch.control.bounds import Bounds
from anabranch.control.controller import Controller, Event, Pin, Policy, Rescale, Unpin
from anabranch.control.decision import Decision, Proposal
from anabranch.control.default_options import DefaultOptions
from anabranch.control.default_policy import DefaultPolicy
from anabranch.control.levels import LevelFunction, doubling_levels, paper_levels, single_levels
from anabranch.control.observation import Observation
from anabranch.control.operator_controller import OperatorController, OperatorDecision, WorkerAction
from anabranch.control.paper_policy import PaperPolicy
from anabranch.control.signals import EpochMeasurement, observe

__all__ = [
    "AdaptationPeriods",
    "Bounds",
    "Controller",
    "Decision",
    "DefaultOptions",
    "DefaultPolicy",
    "EpochMeasurement",
    "Event",
    "LevelFunction",
    "Observation",
    "OperatorController",
    "OperatorDecision",
    "PaperPolicy",
    "Pin",
    "Policy",
    "Proposal",
    "Rescale",
    "Unpin",
    "WorkerAction",
    "doubling_levels",
    "observe",
    "paper_levels",
    "single_levels",
]
