"""Figures 6 and 7 of *Operators*: other programs on the machine, and four elastic operators beside each other."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.engine.pool.neighbours import Neighbours
from anabranch.sim.operators.machines import SharedCores
from anabranch.sim.operators.operator_world import Course, OperatorWorld, PinnedLevel
from benchmarks._pool_runs import pool_for
from experiments.operators_world import CONTROLLERS, COSTS, MACHINES, OPERATION_S, WORK, crew_on
from experiments.reproduction import Figures, Line, Panel, Reproduction, Table
from experiments.statements import at_least, at_most, close, holds, surpasses

LOGICAL = 32
COURSE = (0, 8, 16, 24, 8, 0, 24, 0)
"""Logical cores that the other program keeps busy, one after the other."""
STRETCH = 25
"""Periods of each."""
CONVOLUTION_S = 0.1
RECEPTION_S = 0.01
"""One tuple stands for many of the paper's: pools of one host tell each other a few times in a second."""
SPREAD = 0.2
"""Calls take up to so much more or less, as a share."""
INSTANCES = 4
SEEDS = 5


def figure_06(quick: bool) -> Reproduction:
    """*Operators*, Figure 6: throughput and level while another program keeps cores busy."""
    busy = COURSE[:4] if quick else COURSE
    courses = {name: _loaded(make(), busy) for name, make in CONTROLLERS.items()}
    load = [each for each in busy for _ in range(STRETCH)]
    correlations = {name: _correlations(course, load) for name, course in courses.items()}
    followed = {name: _followed(course, busy) for name, course in courses.items()}
    statements = (
        at_most(
            "spikes of utilisation and dips of throughput: an inverse correlation",
            -0.8,
            correlations["paper"][0],
        ),
        at_most("the level tracks the external load (inversely): correlation", -0.5, correlations["paper"][1]),
        holds(
            "it responds quickly to changes: worst number of periods until 90 % of what is left is used",
            max(followed["paper"]) <= STRETCH,
            f"{max(followed['paper'])} periods",
            paper="quickly",
        ),
        surpasses(
            "ours: the same within 10 periods both ways; its level's correlation",
            max(followed["ours"]) <= 10 and correlations["ours"][1] <= -0.8,
            f"{max(followed['ours'])} periods, {correlations['ours'][1]:.2f}",
            paper=f"{max(followed['paper'])} periods, {correlations['paper'][1]:.2f}",
        ),
    )
    periods = list(range(len(load)))
    panels = (
        Panel(
            "throughput",
            "period",
            "tuples per period",
            {name: Line(periods, [rows for rows, _ in course.stretches]) for name, course in courses.items()}
            | {"busy logical cores": Line(periods, load, stepped=True, dashed=True, right=True)},
            y_right="cores",
        ),
        Panel(
            "level",
            "period",
            "threads",
            {name: Line(periods, course.levels, stepped=True) for name, course in courses.items()}
            | {"busy logical cores": Line(periods, load, stepped=True, dashed=True)},
        ),
    )
    rows = [
        (name, correlations[name][0], correlations[name][1], ", ".join(map(str, followed[name])))
        for name in CONTROLLERS
    ]
    table = Table.of(
        "correlations with the load, and periods until each change was followed",
        ("controller", "throughput", "level", "periods"),
        rows,
    )
    how = (
        "heavy work on the 16 cores of the Power5+, in virtual time; a busy logical core takes half a core from all "
        "others; the load's course is not printed in the paper: "
        f"{', '.join(map(str, COURSE))} logical cores, {STRETCH} periods each"
    )
    return Reproduction("dynamic adjustments to external loads", how, statements, (table,), panels)


def _loaded(controller: Any, busy: Sequence[int]) -> Course:
    work_s = WORK["heavy"] * OPERATION_S
    world = OperatorWorld(600 * work_s / MACHINES["Power5+"])
    cores = SharedCores(world.time, MACHINES["Power5+"], COSTS.switching)
    _, course = world.add(crew_on(world, cores, lambda: work_s), controller)
    for number, each in enumerate(busy):
        world.at(number * STRETCH, lambda each=each: cores.occupy(MACHINES["Power5+"] * each / LOGICAL))
    world.run(len(busy) * STRETCH)
    return course


def _correlations(course: Course, load: Sequence[int]) -> tuple[float, float]:
    """Of the load with the throughput, and with the level; without the first stretch, in which the level is found."""
    rows = [float(rows) for rows, _ in course.stretches[STRETCH:]]
    levels = [float(level) for level in course.levels[STRETCH:]]
    later = [float(each) for each in load[STRETCH : STRETCH + len(rows)]]
    return tuple(statistics.correlation(later, each) if len(set(each)) > 1 else 0.0 for each in (rows, levels))  # type: ignore[return-value]


def _followed(course: Course, busy: Sequence[int]) -> list[int]:
    """After each change, periods until three in a row use 90 % of what that stretch uses in its best."""
    found = []
    for number in range(1, len(busy)):
        rows = [rows for rows, _ in course.stretches[number * STRETCH : (number + 1) * STRETCH]]
        free = 1 - busy[number] / LOGICAL
        most = free * max(rows for rows, _ in course.stretches)
        found.append(next((at for at in range(len(rows) - 2) if min(rows[at : at + 3]) >= 0.88 * most), STRETCH))
    return found


def figure_07(quick: bool) -> Reproduction:
    """*Operators*, Figure 7: four convolutions beside each other, and what one worker alone brings."""
    threads = (1, 2, 4, 8) if quick else (1, 2, 3, 4, 5, 6, 8)
    fixed = {number: _four([PinnedLevel(number) for _ in range(INSTANCES)], 6, False) for number in threads}
    totals = {number: _total(courses, 3) for number, courses in fixed.items()}
    original = _total(_four([PinnedLevel(0) for _ in range(INSTANCES)], 6, False), 3)
    best = max(totals.values())
    periods = 50 if quick else 80
    found = {
        name: _four([make() for _ in range(INSTANCES)], periods, name == "ours") for name, make in CONTROLLERS.items()
    }
    shares = {name: _total(courses, -20) / best for name, courses in found.items()}
    fair = {name: _fairness(courses) for name, courses in found.items()}
    levels = {name: [statistics.mean(course.levels[-20:]) for course in courses] for name, courses in found.items()}
    spread = {name: max(each) / max(1.0, min(each)) for name, each in levels.items()}
    seeds = range(1 if quick else SEEDS)
    make = CONTROLLERS["paper"]
    gains = [
        _total(_four([make() for _ in range(INSTANCES)], periods, False, seed), -20)
        / _total(_four([PinnedLevel(0) for _ in range(INSTANCES)], 6, False, seed), 3)
        for seed in seeds
    ]
    statements = (
        at_least("it settles within less than 10 % of the best static configuration", 0.9, shares["paper"]),
        close(
            "5-fold throughput over the original implementation (one thread each, which also receives)",
            5.0,
            gains,
            neutral=1.0,
            better="higher",
            because="four originals keep 4 of 16 cores busy, so cores alone bring no more than 4 times as much; where "
            "the paper's rest comes from is not explained there",
        ),
        holds(
            "the operators settle on about the same amount of work: fairness index of their rates",
            fair["paper"] >= 0.9,
            f"{fair['paper']:.3f}",
            because="each looks after itself: who came first keeps what he has, and more threads get more of the cores",
        ),
        at_most(
            "about the same number of threads is active for each: most over least",
            1.5,
            spread["paper"],
            because="more threads bring more of the cores at the expense of the others, and nothing brings them back",
        ),
        surpasses(
            "ours, which looks after the others: total, fairness, most over least threads",
            shares["ours"] >= 0.95 and fair["ours"] > max(0.95, fair["paper"]) and spread["ours"] < spread["paper"],
            f"{shares['ours']:.2f}, {fair['ours']:.3f}, {spread['ours']:.2f}",
            paper=f"{shares['paper']:.2f}, {fair['paper']:.3f}, {spread['paper']:.2f}",
        ),
        close(
            "one worker is already twice as fast, by taking reception off (on this machine, reception as long as work)",
            2.0,
            [_reception_taken_off(quick) for _ in seeds],
            neutral=1.0,
            better="higher",
        ),
    )
    panels = (
        Panel(
            "(a) all four",
            "threads per instance",
            "of the best static",
            {"static": Line(threads, [totals[number] / best for number in threads])}
            | {
                "dynamic" if name == "paper" else "dynamic, ours": Line(threads, [share] * len(threads), dashed=True)
                for name, share in shares.items()
            }
            | {"original": Line(threads, [original / best] * len(threads), dashed=True)},
        ),
        *(
            Panel(
                f"({letter}) {what}, {name}",
                "period",
                y,
                {
                    f"instance {number}": Line(range(periods), values(course), stepped=True)
                    for number, course in enumerate(found[name], 1)
                },
            )
            for name in CONTROLLERS
            for letter, what, y, values in (
                ("b", "throughput", "tuples per period", lambda course: [rows for rows, _ in course.stretches]),
                ("c", "threads", "threads", lambda course: course.levels),
            )
        ),
    )
    rows = [(name, shares[name], fair[name], ", ".join(f"{each:.1f}" for each in levels[name])) for name in CONTROLLERS]
    table = Table.of("after settling", ("controller", "of the best static", "fairness", "threads of each"), rows)
    how = (
        "four operators on the 16 cores of the Power5+, in virtual time: calls of 100 ms ± 20 %, reception of 10 ms; "
        f"the paper's controllers see only their own rate; numbers compared are means over {len(seeds)} seeds; "
        "one worker alone in real time, work and reception asleep for 2 ms each"
    )
    return Reproduction("the Radio Imaging application", how, statements, (table,), panels)


def _four(controllers: Sequence[Any], periods: int, together: bool, seed: int = 0) -> list[Course]:
    world = OperatorWorld(1.0)
    chance = random.Random(1 + seed)
    cores = SharedCores(world.time, MACHINES["Power5+"], COSTS.switching)
    courses = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, controller in enumerate(controllers):
            seat = Neighbours(Path(scratch), str(number)) if together else None
            crew = crew_on(world, cores, lambda: CONVOLUTION_S * chance.uniform(1 - SPREAD, 1 + SPREAD), RECEPTION_S)
            courses.append(world.add(crew, controller, neighbours=seat)[1])
        world.run(periods)
    return courses


def _total(courses: Sequence[Course], first: int) -> float:
    return sum(course.mean(first) for course in courses)


def _fairness(courses: Sequence[Course]) -> float:
    rates = [course.mean(-20) for course in courses]
    return sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))


class _Received:
    """Rows that take a while to be received, by whoever asks for them."""

    def __init__(self, count: int, seconds: float) -> None:
        self._count, self._seconds = count, seconds

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, asked: slice) -> range:
        rows = range(self._count)[asked]
        time.sleep(self._seconds * len(rows))
        return rows


def _reception_taken_off(quick: bool) -> float:
    """How much faster one worker is than the thread that also receives; in real time."""
    rows, each_s = 300 if quick else 1000, 0.002
    seconds = []
    for level in (0, 1):
        pool = pool_for(lambda row: time.sleep(each_s), PinnedLevel(level), 1.0)
        begun = time.perf_counter()
        for _ in pool.run(_Received(rows, each_s)):  # type: ignore[arg-type]
            pass
        seconds.append(time.perf_counter() - begun)
        pool.close()
    return seconds[0] / seconds[1]


FIGURES: Figures = {"operators_figure_06": figure_06, "operators_figure_07": figure_07}
