"""A region at run time: what outlives the generations of its flow.

Its partitioning function and planner, its controller, its stores of state, and the accounts that observations are
made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from anabranch.control.controller import Controller
from anabranch.control.observation import Observation
from anabranch.papers.machine.costs import cost_factors, state_bytes, zipf
from anabranch.papers.machine.description import MachineRegion
from anabranch.papers.machine.machine_operators import Value, emitter, result_of, step
from anabranch.papers.machine.stores import KeyTable, Store
from anabranch.partitioning.counting.lossy_counter import LossyCounter
from anabranch.partitioning.counting.workload import Workload
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.placing.planner import Period, Planner, PlannerSettings, Replace
from anabranch.program.hashing import key_groups

if TYPE_CHECKING:
    from anabranch.papers.machine.flows import MachineFlow
    from anabranch.papers.machine.nodes import ChannelNode

COUNTER_EPSILON = 0.001
REMOTE_SHARE_MIN = 0.5
"""A region whose channels are held up from behind for so much of the time is not what tuples wait for."""


@lru_cache(maxsize=256)
def _even(channels: int, group_bits: int) -> PartitioningFunction:
    """Kept: a swarm starts thousands of worlds with the same few functions."""
    return PartitioningFunction.even(channels, group_bits=group_bits)


class RegionState:
    """One region."""

    def __init__(self, number: int, description: MachineRegion, flow: MachineFlow, keys: int, skew: float) -> None:
        self.number = number
        self.description = description
        self.flow = flow
        self.channels = description.channels
        self.nodes: list[ChannelNode] = []
        self.controller: Controller | None = None
        if description.policy is not None:
            self.controller = Controller(description.policy(description.bounds), description.channels)
            self.channels = self.controller.channels
        self.planner: Planner | None = None
        self.function: PartitioningFunction | None = None
        """The function in force; the planner's may be ahead of it until the flow has been reconfigured."""
        self.stores: list[Store] = []
        self.cost_factors: list[float] = []
        self.hot_keys: frozenset[int] = frozenset()
        self.keys_counted: list[int] = []
        self._emit = emitter(description, keys)
        if description.key is not None:
            frequencies = zipf(keys, skew)
            self.cost_factors = cost_factors(frequencies, description.resources.computation)
            sizes = state_bytes(frequencies, description.resources.state, description.key_bytes)
            self.table = KeyTable(keys, description.key, description.group_bits, sizes)
            self.planner = Planner(
                description.function or _even(self.channels, description.group_bits),
                description.planner or PlannerSettings(),
            )
            self.adopt(self.planner.function)
            self.stores = [Store(self.table) for _ in range(self.channels)]
        # Accounts of the nodes of earlier generations.
        self._taken = 0
        self._busy_s = 0.0
        self._blocked_s = 0.0
        self.period = 0
        self.period_started_s = 0.0
        self._at_start: tuple[int, float, float] = (0, 0.0, 0.0)

    # -- running -----------------------------------------------------------------------------------------

    def adopt(self, function: PartitioningFunction) -> None:
        """This function is in force from now on."""
        self.function = function
        self.channels = function.channels
        self.routes = self.table.routes(function)
        self.hot_keys = self.table.hot(function)

    def route(self) -> Callable[[Value], int] | None:
        """The routing function for a splitter."""
        key = self.description.key
        if key is None:
            return None
        routes, index = self.routes, 1 + key
        if self.counts_keys:
            counted = self.keys_counted

            def counting(value: Value) -> int:
                counted.append(value[index])
                return routes[value[index]]

            return counting
        return lambda value: routes[value[index]]

    @property
    def counts_keys(self) -> bool:
        """Whether somebody may want to know the frequencies."""
        return self.description.planner is not None or self.controller is not None

    def process(self, channel: int) -> Callable[[Value], list[Value]]:
        """The operators of one channel."""
        emit = self._emit
        key = self.description.key
        watch = self.flow.world.watch
        if key is None:
            return lambda value: emit(value, result_of(value[3], 0))
        index, number = 1 + key, self.number
        store, hot = self.stores[channel], self.hot_keys

        def stateful(value: Value) -> list[Value]:
            used = value[index]
            cell = store.cell(used, hot)
            state = cell[used] = step(cell.get(used, 0), value[3])
            if watch is not None:
                watch.processed(number, channel, used)
            return emit(value, result_of(value[3], state))

        return stateful

    def costs(self, seed: int, generation: int, channel: int) -> Iterator[float]:
        """Seconds of work of one tuple after the other."""
        generator = np.random.default_rng([seed, 3, self.number, generation, channel])
        mean = self.description.cost_s
        return (mean * factor for factor in self.description.spread.factors(generator))

    def state(self) -> dict[int, int]:
        """The state of all keys."""
        return {key: state for store in self.stores for key, state in store.items()}

    # -- measuring ---------------------------------------------------------------------------------------

    def retire_nodes(self) -> None:
        """The nodes are about to be replaced: keep their accounts."""
        for node in self.nodes:
            node.settle()
            self._taken += node.taken
            self._busy_s += node.busy_s
            self._blocked_s += node.blocked_s
        self.nodes = []

    def totals(self) -> tuple[int, float, float]:
        """Tuples taken, seconds busy and seconds blocked, over all channels and all of the run."""
        for node in self.nodes:
            node.settle()
        return (
            self._taken + sum(node.taken for node in self.nodes),
            self._busy_s + sum(node.busy_s for node in self.nodes),
            self._blocked_s + sum(node.blocked_s for node in self.nodes),
        )

    def start_period(self, now: float) -> None:
        """A new adaptation period begins; the nodes count from zero again."""
        for node in self.nodes:
            node.settle()
            self._taken += node.taken
            self._busy_s += node.busy_s
            self._blocked_s += node.blocked_s
            node.taken, node.busy_s, node.blocked_s = 0, 0.0, 0.0
        self.keys_counted.clear()
        self.period_started_s = now

    def observe(self, now: float, congestion: float, offered: float | None) -> Observation:
        """What happened since the period started."""
        self.period += 1
        length = now - self.period_started_s
        for node in self.nodes:
            node.settle()
        taken = sum(node.taken for node in self.nodes)
        # As on Spark, where a stage takes as long as its slowest channel: the busiest one limits the region.
        busy = max(node.busy_s for node in self.nodes) / length
        blocked = sum(node.blocked_s for node in self.nodes) / length / len(self.nodes)
        rates = [node.taken / node.busy_s for node in self.nodes if node.busy_s > 0 and node.taken]
        error = 0.0
        if len(rates) > 1:
            error = float(np.std(rates) / np.mean(rates) / math.sqrt(len(rates)))
        return Observation(
            period=self.period,
            channels=self.channels,
            throughput=taken / length,
            congestion=min(1.0, congestion),
            busy_share=min(1.0, busy),
            remote=blocked > REMOTE_SHARE_MIN,
            valid=taken > 0,
            offered=offered,
            relative_error=error,
        )

    def replan(self, channels: int, length_s: float) -> bool:
        """Ask the planner; whether there is a new function to take over."""
        assert self.planner is not None
        if channels == self.planner.function.channels and self.description.planner is None:
            return False
        period = Period(self.workload(), channels, self._channel_loads(length_s))
        return isinstance(self.planner.handle(period), Replace)

    def workload(self) -> Workload:
        """What was counted in this period."""
        if not self.keys_counted:
            return Workload.empty()
        hashes = self.table.hashes[np.asarray(self.keys_counted)]
        counter = LossyCounter(COUNTER_EPSILON)
        counter.add(hashes)
        groups = key_groups(hashes, self.description.group_bits)
        rows = np.bincount(groups, minlength=1 << self.description.group_bits)
        return Workload.of_counter(counter, 2 * COUNTER_EPSILON, domain=len(self.table.hashes), group_rows=rows)

    def _channel_loads(self, length_s: float) -> Any:
        if len(self.nodes) != self.channels or length_s <= 0 or not any(node.taken for node in self.nodes):
            return None
        assert self.planner is not None
        if self.planner.function.channels != self.channels:
            return None
        rows = [(store.size(), node.busy_s, node.taken) for store, node in zip(self.stores, self.nodes, strict=True)]
        return np.array(rows, dtype=np.float64)
