"""The machines and the work of *Operators*, in virtual time: the production's pool and controllers on top of them.

The paper has a quad-core AMD Opteron and a 16-core Power5+, whose 32 logical cores give floating point work nothing
more than 16. It does not print what receiving a tuple and the one work queue cost; here they are set (`Costs`), by a
rule: whatever another core wrote last takes 100 ns to fetch, as main memory did on such machines. A put or a take
fetches the queue: 0.1 µs, and a tenth more for each further worker that wants it, too. Receiving fetches a header and
a tuple: 0.2 µs. A floating point operation takes 1 ns.

The rule was stated after the costs: they were chosen after a first look at the figures, so that light and medium work
decline as the paper's do. What they prove is therefore said beside it: `variations` are the costs with each of them
halved and doubled, and a table tells which statements still hold. Tuples are handed over one by one, as in the paper
(the product hands over several short calls at a time).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch.control.concurrency_controller import ConcurrencyController
from anabranch.control.operator_levels import PaperLevels
from anabranch.sim.operators.machines import SharedCores
from anabranch.sim.operators.operator_world import Course, OperatorWorld, PinnedLevel
from anabranch.sim.operators.simulated_crew import SimulatedCrew

MACHINES = {"AMD": 4, "Power5+": 16}
"""Machine → cores that floating point work can use."""
WORK = {"light": 1, "medium": 1_000, "heavy": 10_000, "extra heavy": 1_000_000}
"""Work → floating point operations per tuple."""
OPERATION_S = 1e-9


@dataclass(frozen=True)
class Costs:
    """What the paper does not print."""

    reception_s: float = 0.2e-6
    queue_s: float = 0.1e-6
    crowding: float = 0.1
    """How much longer the queue takes for each worker beyond the first, as a share."""
    switching: float = 0.002
    """Of the cores' time, lost for each runnable thread beyond them."""


COSTS = Costs()


def variations() -> dict[str, Costs]:
    """What was changed → the costs, each of them halved and doubled by itself."""
    names = {"reception": "reception_s", "queue": "queue_s", "crowding": "crowding", "switching": "switching"}
    return {
        f"{name} × {factor:g}": replace(COSTS, **{field: getattr(COSTS, field) * factor})
        for name, field in names.items()
        for factor in (0.5, 2.0)
    }


def paper_levels() -> PaperLevels:
    return PaperLevels(48)


def our_levels() -> ConcurrencyController:
    return ConcurrencyController(0, 48)


CONTROLLERS = {"paper": paper_levels, "ours": our_levels}


def crew_on(
    world: OperatorWorld,
    machine: SharedCores,
    work_s: Callable[[], float],
    reception_s: float | None = None,
    costs: Costs = COSTS,
) -> SimulatedCrew:
    """The workers of an operator whose calls take so long."""
    return SimulatedCrew(
        world.time,
        machine,
        lambda row: work_s(),
        lambda row: row,
        reception_s=costs.reception_s if reception_s is None else reception_s,
        queue_s=costs.queue_s,
        crowding=costs.crowding,
        is_slow_to_hand_over=True,
    )


@dataclass(frozen=True)
class Sweep:
    """One kind of work on one machine."""

    rates: dict[int, float]
    """Threads → tuples per second, fixed."""
    found: dict[str, tuple[float, int, int]]
    """Controller → (tuples per second after it settled, the level then, periods until its rate was near that)."""

    @property
    def best(self) -> float:
        return max(self.rates.values())

    @property
    def best_threads(self) -> int:
        """The fewest threads that come within 2 % of the best."""
        return min(threads for threads, rate in self.rates.items() if rate >= 0.98 * self.best)


def sweep(
    machine: str,
    work: str,
    threads: Sequence[int],
    periods: int,
    costs: Costs = COSTS,
    controllers: Mapping[str, Callable[[], Any]] = CONTROLLERS,
) -> Sweep:
    """Every fixed number of threads, and the controllers."""
    work_s = WORK[work] * OPERATION_S
    # Long enough for what a core does in it to be many tuples, and no longer: every tuple is an event or more.
    period_s = 1000 * max(work_s / MACHINES[machine], costs.reception_s + costs.queue_s)
    rates = {}
    for number in threads:
        world, course = _one(machine, work_s, period_s, PinnedLevel(number), costs)
        world.run(3)
        rates[number] = course.mean(1) / period_s
    found = {}
    for name, make in controllers.items():
        world, course = _one(machine, work_s, period_s, make(), costs)
        world.run(periods)
        last = course.mean(-10)
        settled = next(at for at in range(periods) if min(course.mean(at, at + 3), last) >= 0.95 * last)
        level = sorted(course.levels[-10:])[5]
        found[name] = last / period_s, level, settled
    return Sweep(rates, found)


def _one(machine: str, work_s: float, period_s: float, controller: Any, costs: Costs) -> tuple[OperatorWorld, Course]:
    world = OperatorWorld(period_s)
    cores = SharedCores(world.time, MACHINES[machine], costs.switching)
    _, course = world.add(crew_on(world, cores, lambda: work_s, costs=costs), controller)
    return world, course
