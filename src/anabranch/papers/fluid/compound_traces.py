"""Troubles that come together: families of traces that no rule of a controller was made for.

The families of traces.py have one trouble each, and our controller was developed on them. These were written
afterwards, to see whether its rules hold where nobody looked: measurements that are rounded, late and missing,
machines that others come to and leave, loads that grow, loads and capacities that move at the same time.
"""

from __future__ import annotations

import math
from dataclasses import replace

from anabranch.control.observation import Observation
from anabranch.papers.fluid.traces import (
    FULL,
    RATE,
    Capacity,
    Rate,
    Telling,
    Trace,
    always,
    amdahl,
    bursts,
    collapse,
    drifting,
    knee,
    linear,
    retrograde,
    sine,
    step,
)


def families_together() -> list[Trace]:
    """All of them."""
    return [
        Trace("drift down, noise 10 %, late by 1", always(6000), drifting(500), noise=0.1, lag=1, steady_from=300),
        Trace("bursts 5 / 15 and stragglers", bursts(2000, 9000, 5, 15), _held_up(linear(), 7), steady_from=None),
        Trace("capacity by time of day", always(6000), _by_day(linear(), 0.4, 120), steady_from=None),
        Trace("knee by time of day, saturated", FULL, _by_day(knee(12), 0.15, 150), noise=0.02, steady_from=None),
        Trace("tenants leave: 6 cores, then 15", FULL, _cores(6, 15, 150), noise=0.02, steady_from=150),
        Trace("tenants come: 15 cores, then 6", always(9000), _cores(15, 6, 150), noise=0.02, steady_from=150),
        Trace("rates in steps of 500/s", always(7300), linear(), told=_in_steps(500.0)),
        Trace(
            "every third measurement missing, step × 4", step(2500, 10000), linear(), told=_missing(3), steady_from=100
        ),
        Trace("congestion is told as all or nothing", always(7500), linear(), noise=0.05, told=_all_or_nothing),
        Trace("load just below a collapse", always(9500), collapse(10, 0.4), noise=0.02),
        Trace(
            "growing by 1 % a period, noise 10 % untold",
            _growing(1000, 0.01, 20000),
            linear(),
            0.1,
            0.0,
            steady_from=301,
        ),
        Trace("one period in eight held up, knee at 10", FULL, _held_up(knee(10), 8), noise=0.02, steady_from=None),
        Trace("amdahl 10 %, late by 2, noise 5 %", FULL, amdahl(0.1), noise=0.05, lag=2),
        Trace("compactions: half for 5 of 60 periods", always(7000), _compacting(0.5, 5, 60), steady_from=None),
        Trace(
            "sine and bursts, backlog",
            _both(sine(4000, 2000, 150), bursts(0, 4000, 4, 26)),
            linear(),
            0.05,
            backlog=True,
            steady_from=None,
        ),
        Trace("optimum wanders from 4 to 12", FULL, _wandering_optimum(4, 12, 300), noise=0.02, steady_from=300),
        Trace("busy never above 80 %, noise 10 %, knee at 9", FULL, knee(9), noise=0.1, busy_most=0.8),
        Trace("peak at 12, late by 1, every fourth missing", FULL, retrograde(12), noise=0.03, lag=1, told=_missing(4)),
    ]


def _by_day(capacity: Capacity, share: float, length: int) -> Capacity:
    return lambda period, n: capacity(period, n) * (1 + share * math.cos(2 * math.pi * period / length))


def _cores(before: int, after: int, at: int) -> Capacity:
    """Cores that others leave to this region; channels beyond them cost a little."""

    def capacity(period: int, n: int) -> float:
        cores = before if period < at else after
        return RATE * min(n, cores) * 0.99 ** max(0, n - cores)

    return capacity


def _held_up(capacity: Capacity, every: int) -> Capacity:
    """One period in so many, at no regular distance, takes three times as long."""
    return lambda period, n: capacity(period, n) / (3.0 if period * 7919 % 104729 % every == 0 else 1.0)


def _compacting(share: float, on: int, length: int) -> Capacity:
    return lambda period, n: RATE * n * (share if period % length < on else 1.0)


def _wandering_optimum(before: int, after: int, length: int) -> Capacity:
    """Beyond a number of channels, which grows, each more takes a tenth away."""

    def capacity(period: int, n: int) -> float:
        most = before + (after - before) * min(period, length) / length
        return RATE * min(n, most) * 0.9 ** max(0.0, n - most)

    return capacity


def _growing(first: float, share: float, most: float) -> Rate:
    return lambda period: min(most, first * (1 + share) ** period)


def _both(one: Rate, other: Rate) -> Rate:
    return lambda period: one(period) + other(period)


def _in_steps(width: float) -> Telling:
    """Rates that are rounded: a counter that is read now and then."""

    def told(measured: Observation) -> Observation:
        return replace(measured, throughput=width * max(1, round(measured.throughput / width)))

    return told


def _missing(every: int) -> Telling:
    def told(measured: Observation) -> Observation:
        return replace(measured, valid=measured.valid and measured.period % every != 0)

    return told


def _all_or_nothing(measured: Observation) -> Observation:
    return replace(measured, congestion=1.0 if measured.congestion > 0.02 else 0.0)
