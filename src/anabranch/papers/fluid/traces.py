"""Trouble for controllers: families of fluid traces, in which loads, capacities and measurements misbehave.

A trace says what is there to be handled, what so many channels can do, and how it is told, period by period. What a
controller is judged by is the truth: tuples handled over those that the best fixed number of channels of each moment
would have handled.

    load(t), capacity(t, n) ──► the truth: handled = min(load, capacity) ──► told: noisy, late, or wrong ──► policy
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from anabranch.control.bounds import Bounds
from anabranch.control.controller import Controller, Policy
from anabranch.control.observation import Observation

BOUNDS = Bounds(1, 32)
RATE = 1000.0  # tuples per second of one channel
NOISE_SIGMA_MAX = 3.0
PERIODS = 400
SETTLING = 60  # periods that a controller may take to settle after the last change

Rate = Callable[[int], float]
Capacity = Callable[[int, int], float]
Telling = Callable[[Observation], Observation]


@dataclass(frozen=True, slots=True)
class Trace:
    """One kind of trouble."""

    name: str
    load: Rate
    capacity: Capacity
    noise: float = 0.0
    """Relative, of load and capacity, per period."""
    told_error: float | None = None
    """What is said about the noise; None: the truth."""
    lag: int = 0
    """Periods by which what is measured is late: the channels are those of now, the rates those of then."""
    busy_most: float = 1.0
    """A region that is busy all the time is said to be busy for so much of it."""
    backlog: bool = False
    """Whether what is not handled is kept, and arrivals are told."""
    steady_from: int | None = 1
    """Period from which on neither load nor capacity changes; None: they always do."""
    told: Telling | None = None
    """How what was measured is told wrongly, or not at all (`valid`); None: as it was measured."""
    periods: int = PERIODS

    def best(self, period: int) -> float:
        """What the best number of channels can do."""
        return max(self.capacity(period, n) for n in range(BOUNDS.channels_min, BOUNDS.channels_max + 1))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy made of a trace."""

    handled: float
    """Of what the best number of channels would have handled at each moment, over the whole run."""
    handled_steady: float | None
    """The same after settling; None where nothing is ever steady."""
    reversals_steady: int | None
    """How often the number of channels changed direction after settling."""
    channels: tuple[int, ...]


def follow(policy: Policy, trace: Trace, seed: int) -> Outcome:
    """Let a policy control a trace, from one channel on."""
    draw = np.random.default_rng(seed)
    controller = Controller(policy, log_length=1)
    channels, handled, best = [], [], []
    past: list[Observation] = []
    kept = 0.0
    for period in range(1, trace.periods + 1):
        n = controller.channels
        load = trace.load(period) * noisy(draw, trace.noise)
        capacity = trace.capacity(period, n) * noisy(draw, trace.noise)
        available = load + kept
        done = min(available, capacity)
        kept = available - done if trace.backlog else 0.0
        blocked = 1.0 - done / available if available > 0 else 0.0
        blocked += trace.noise / 5 * _standard(draw)
        measured = Observation(
            period=period,
            channels=n,
            throughput=done,
            congestion=min(1.0, max(0.0, blocked)),
            busy_share=min(1.0, trace.busy_most * done / capacity) if capacity > 0 else 1.0,
            offered=load if trace.backlog else None,
            relative_error=trace.noise if trace.told_error is None else trace.told_error,
            valid=done > 0,
        )
        past.append(trace.told(measured) if trace.told is not None else measured)
        channels.append(n)
        handled.append(done)
        best.append(min(trace.best(period), available))
        controller.handle(replace(past[max(0, len(past) - 1 - trace.lag)], period=period, channels=n))
    steady = None if trace.steady_from is None else trace.steady_from - 1 + SETTLING
    return Outcome(
        share_of(handled, best),
        None if steady is None else share_of(handled[steady:], best[steady:]),
        None if steady is None else reversals_of(channels[steady:]),
        tuple(channels),
    )


def reversals_of(channels: Sequence[int]) -> int:
    """How often the number of channels changes direction."""
    rises = [after > before for before, after in pairwise(channels) if after != before]
    return sum(before != after for before, after in pairwise(rises))


def share_of(handled: Sequence[float], best: Sequence[float]) -> float:
    """Of what could have been handled."""
    return sum(handled) / sum(best) if sum(best) > 0 else 1.0


def _standard(draw: np.random.Generator) -> float:
    return float(np.clip(draw.standard_normal(), -NOISE_SIGMA_MAX, NOISE_SIGMA_MAX))


def noisy(draw: np.random.Generator, noise: float) -> float:
    """A factor about 1."""
    return max(0.05, 1.0 + noise * _standard(draw)) if noise else 1.0


# ---- loads ----


def always(rate: float) -> Rate:
    return lambda period: rate


def step(before: float, after: float, at: int = 100) -> Rate:
    return lambda period: before if period < at else after


def sawtooth(low: float, high: float, length: int) -> Rate:
    return lambda period: low + (high - low) * ((period % length) / length)


def ramp(low: float, high: float, length: int) -> Rate:
    """Up and down again."""
    return lambda period: low + (high - low) * (1 - abs(1 - 2 * min(period, length) / length))


def bursts(low: float, high: float, on: int, off: int) -> Rate:
    return lambda period: high if period % (on + off) < on else low


def sine(mean: float, amplitude: float, length: int) -> Rate:
    return lambda period: mean + amplitude * math.sin(2 * math.pi * period / length)


# ---- capacities ----


def linear(rate: float = RATE) -> Capacity:
    return lambda period, n: rate * n


def slower(share: float, at: int = 100) -> Capacity:
    return lambda period, n: RATE * n * (1.0 if period < at else share)


def drifting(end: float, length: int = 300) -> Capacity:
    return lambda period, n: n * (RATE + (end - RATE) * min(period, length) / length)


def knee(most: int) -> Capacity:
    return lambda period, n: RATE * min(n, most)


def moving_knee(before: int, after: int, at: int = 100) -> Capacity:
    return lambda period, n: RATE * min(n, before if period < at else after)


def collapse(most: int, left: float) -> Capacity:
    """Beyond so many channels only so much of the capacity is left."""
    return lambda period, n: RATE * n if n <= most else RATE * most * left


def decline(most: int, share: float) -> Capacity:
    """Every channel beyond so many takes a share of the whole away."""
    return lambda period, n: RATE * min(n, most) * share ** max(0, n - most)


def amdahl(serial: float) -> Capacity:
    return lambda period, n: RATE / (serial + (1 - serial) / n)


def retrograde(peak: float) -> Capacity:
    return lambda period, n: RATE * n / (1 + n * (n - 1) / peak**2)


def tenants(share: float, on: int, off: int) -> Capacity:
    """Others come and go, and take a share."""
    return lambda period, n: RATE * n * (1 - share if period % (on + off) < on else 1.0)


def straggler(slowdown: float, every: int) -> Capacity:
    """Now and then one channel holds up all."""
    return lambda period, n: RATE * n * (1.0 if period % every else 1 / slowdown)


def shared_host(cores: int, others: Rate) -> Capacity:
    """A neighbour's region on the same host has channels of its own."""
    return lambda period, n: RATE * n * min(1.0, cores / (n + others(period)))


def warming(capacity: Capacity, cold: float, length: int) -> Capacity:
    """A JVM that starts with a share of its speed and gets warm by itself."""
    return lambda period, n: capacity(period, n) * (1 - (1 - cold) * math.exp(-period / length))


def wandering(capacity: Capacity, share: float, length: int) -> Capacity:
    """A machine whose speed wanders, up and down by so much."""
    return lambda period, n: capacity(period, n) * (1 + share * math.sin(2 * math.pi * period / length))


FULL = always(1e6)


def families() -> list[Trace]:
    """All traces."""
    found = [
        Trace("constant", always(7500), linear()),
        Trace("saturated", FULL, linear()),
        Trace("amdahl 5 %", FULL, amdahl(0.05)),
        Trace("retrograde, peak at 10", FULL, retrograde(10)),
        Trace("optimum at 1", FULL, decline(1, 0.7)),
        Trace("flat", FULL, knee(1)),
        Trace("knee at 8", FULL, knee(8)),
        Trace("collapse beyond 6 to 2", FULL, collapse(6, 1 / 3)),
        Trace("collapse beyond 6, load 7000", always(7000), collapse(6, 1 / 3)),
        Trace("decline beyond 6", FULL, decline(6, 0.8)),
        Trace("collapse beyond 11", FULL, collapse(11, 0.3)),
        Trace("slower × 0.6", always(6000), slower(0.6), steady_from=100),
        Trace("slower × 0.5", always(6000), slower(0.5), steady_from=100),
        Trace("slower × 0.3", always(6000), slower(0.3), steady_from=100),
        Trace("slower × 0.5, noise 2 %", always(6000), slower(0.5), noise=0.02, steady_from=100),
        Trace("slower × 0.5, noise 5 %", always(6000), slower(0.5), noise=0.05, steady_from=100),
        Trace("faster × 2", always(12000), slower(2.0), steady_from=100),
        Trace("drift down to 0.4", always(6000), drifting(400), steady_from=300),
        Trace("drift up to 2.5", always(12000), drifting(2500), steady_from=300),
        Trace("knee 4 to 16", FULL, moving_knee(4, 16), steady_from=100),
        Trace("knee 16 to 4", FULL, moving_knee(16, 4), steady_from=100),
        Trace("sawtooth", sawtooth(1000, 10000, 40), linear(), steady_from=None),
        Trace("ramp", ramp(500, 20000, 400), linear(), steady_from=None),
        Trace("sine", sine(5000, 2500, 100), linear(), steady_from=None),
        Trace("zero load for a while", lambda t: 0.0 if 100 <= t < 140 else 6000.0, linear(), steady_from=140),
        Trace("other tenants, 50 of 100", always(6000), tenants(0.5, 50, 50), steady_from=None),
        Trace("stragglers, one period in 10", always(6000), straggler(3, 10), steady_from=None),
        Trace("shared host", always(9000), shared_host(16, step(2, 8)), steady_from=100),
        Trace("busy never above 70 %", FULL, linear(), busy_most=0.7),
        Trace("busy never above 50 %", always(7500), linear(), busy_most=0.5),
        Trace("backlog, steps × 10", bursts(1000, 10000, 50, 50), linear(), backlog=True, steady_from=None),
    ]
    for cold, length in ((0.5, 4), (0.5, 12), (0.7, 30)):
        shapes = {"peak at 10": retrograde(10), "knee at 8": knee(8), "decline beyond 6": decline(6, 0.9)}
        for shape, capacity in shapes.items():
            name = f"warming {cold:g} in {length}, {shape}"
            found.append(Trace(name, FULL, warming(capacity, cold, length), noise=0.02, steady_from=4 * length))
    for length in (20, 70):
        for shape, capacity in {"peak at 10": retrograde(10), "decline beyond 6": decline(6, 0.9)}.items():
            name = f"wandering in {length}, {shape}"
            found.append(Trace(name, FULL, wandering(capacity, 0.1, length), noise=0.02, steady_from=None))
    cold_and_wandering = wandering(warming(retrograde(10), 0.6, 20), 0.1, 45)
    found.append(Trace("warming and wandering, peak at 10", FULL, cold_and_wandering, noise=0.02, steady_from=None))
    found += [Trace(f"step × {x:g}", step(3000, 3000 * x), linear(), steady_from=100) for x in (0.1, 0.3, 3, 10)]
    for on, off in ((1, 1), (3, 7), (10, 10), (2, 20), (30, 30)):
        found.append(Trace(f"bursts {on} / {off}", bursts(2000, 10000, on, off), linear(), steady_from=None))
    for noise in (0.05, 0.1, 0.2, 0.3):
        found.append(Trace(f"constant, noise {noise:.0%}", always(7500), linear(), noise=noise))
        found.append(Trace(f"saturated, noise {noise:.0%}, untold", FULL, linear(), noise=noise, told_error=0.0))
    for lag in (1, 2, 3):
        found.append(Trace(f"late by {lag}", FULL, linear(), lag=lag))
        found.append(Trace(f"late by {lag}, load 7500, noise 5 %", always(7500), linear(), lag=lag, noise=0.05))
    return found
