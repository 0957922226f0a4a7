"""Elastic regions: as fast as the best fixed number of channels, found by themselves, and kept.

    python -m benchmarks elastic [--quick | --mini] [--model-only] [--only CASE] [--runs N]

On Spark (local[16]; two cores suffice, because work is emulated by sleeping)
    A region of one operator, with state per key or without, that takes a millisecond or four for a tuple: every fixed
    number of channels of 1, 2, 4, 8, 16 against elastic, which starts with one channel. Then the kernels of
    `examples/`, whose work is real, on 1 to 4 channels. Files are there beforehand, one an epoch, so regions are
    saturated (`_elastic_spark` says how they are compared). Then three loads that must be told apart: saturated;
    under-loaded; a sink that is slow (congestion that is not the region's: no channels may be added). With `--runs`
    each case runs elastically so many times, and where it rested is measured again beside the best fixed number.

On the fluid model (`anabranch.papers.fluid.pipeline`), which Spark's clock would make a matter of hours
    SASO in 100 periods at constant load; the sine and the steps of the paper's Figures 13–16; congestion thresholds as
    in Figures 17 and 18; regions whose speed-up is linear, Amdahl's, flat, falling, or that of epochs with a fixed
    cost and one per task. Both controllers, without noise
    and with 5 % on every period. What is not handled is lost.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.control import DefaultPolicy
from anabranch.papers.fluid.pipeline import FluidRegion, constant, linear
from anabranch.papers.fluid.saso import Run, run
from anabranch.papers.fluid.saso_report import (
    BOUNDS,
    CHANNEL_RATE,
    CONSTANT_LOAD,
    CURVES,
    SINE_LOAD,
    STEP_LOAD,
    report,
)
from benchmarks._elastic_spark import FULL, MINI, QUICK, SLOTS, Case, Size, compare, kernel, repeat, signals, sleeping
from benchmarks._spark import spark_session

SEEDS = 20


# -- on the model -------------------------------------------------------------------------------------------------


def runs(load: Any, periods: int, noise: float, seeds: int, region: FluidRegion | None = None) -> list[Run]:
    region = region if region is not None else FluidRegion(CHANNEL_RATE, linear())
    return [
        run(DefaultPolicy(BOUNDS), region, load, periods, noise=noise, seed=seed)
        for seed in range(seeds if noise else 1)
    ]


def model(seeds: int) -> dict[str, Any]:
    """The numbers of the default controller; the tables have both."""
    if seeds == SEEDS:
        print(report())
    saturated = {
        noise: [
            each
            for curve in CURVES.values()
            for each in runs(constant(1e6), 100, noise, seeds, FluidRegion(CHANNEL_RATE, curve))
        ]
        for noise in (0.0, 0.05)
    }
    calm = [each for noise in (0.0, 0.05) for each in runs(CONSTANT_LOAD, 100, noise, seeds)]
    waves, stairs = runs(SINE_LOAD, 300, 0.05, seeds), runs(STEP_LOAD, 300, 0.05, seeds)
    return {
        "vs_best": min(each.accuracy for each in saturated[0.0]),
        "vs_best_noise_mean": statistics.mean(each.accuracy for each in saturated[0.05]),
        "vs_best_noise_worst": min(each.accuracy for each in saturated[0.05]),
        "settling": max(each.settled for each in [*saturated[0.0], *runs(CONSTANT_LOAD, 100, 0.0, seeds)]),
        "settling_noise": max(each.settled for each in [*saturated[0.05], *calm]),
        "oscillations": max(each.reversals for each in calm),
        "probes": max(each.reversals for found in saturated.values() for each in found),
        "overshoot": max(each.overshoot for each in [*calm, *waves, *stairs]),
        "overshoot_probing": max(each.overshoot for found in saturated.values() for each in found),
        "overshoot_final": max(each.final_overshoot for found in saturated.values() for each in found),
        "handled_sine": min(each.handled for each in waves),
        "handled_step": min(each.handled for each in stairs),
    }


# -- on Spark -----------------------------------------------------------------------------------------------------


def on_spark(size: Size, only: str = "") -> dict[str, Any]:
    """Elastic against fixed numbers of channels, case by case, and three loads told apart."""
    print(
        f"\nSpark local[{SLOTS}]; {size.rounds} rounds of {size.epochs} epochs for every number of channels", flush=True
    )
    with tempfile.TemporaryDirectory(prefix="anabranch-elastic-", ignore_cleanup_errors=True) as scratch:
        root = Path(scratch)
        with spark_session(SLOTS, root, {"spark.sql.session.timeZone": "UTC"}) as spark:
            session = ab.session(spark)
            made = _cases(session, root, size)
            found = {name: compare(make(), root, size) for name, make in made.items() if only in name}
            told = signals(session, root, size) if not only else {}
    figures: dict[str, Any] = {
        "spark_vs_best_fixed": {name: round(each["vs_best"], 3) for name, each in found.items()},
        "spark_settling_periods": {name: each["settling"] for name, each in found.items()},
        "spark_reversals": max((each["reversals"] for each in found.values()), default=0),
    }
    if told:
        figures["congestion_saturated"] = round(told["saturated"], 2)
        figures["congestion_under_loaded"] = round(told["under-loaded"], 2)
        figures["channels_slow_sink"] = told["slow sink, channels"]
    return figures


def many_runs(size: Size, only: str, runs: int) -> dict[str, Any]:
    """Every case elastically, so many times."""
    with tempfile.TemporaryDirectory(prefix="anabranch-elastic-", ignore_cleanup_errors=True) as scratch:
        root = Path(scratch)
        with spark_session(SLOTS, root, {"spark.sql.session.timeZone": "UTC"}) as spark:
            session = ab.session(spark)
            return {
                name: repeat(make(), root, size, runs)
                for name, make in _cases(session, root, size).items()
                if only in name
            }


def _cases(session: ab.Session, root: Path, size: Size) -> dict[str, Callable[[], Case]]:
    made: dict[str, Callable[[], Case]] = {
        f"{kind} {cost * 1000:g}ms": partial(sleeping, session, root, kind, cost, size) for kind, cost in size.kinds
    }
    made.update({name: partial(kernel, session, root, name, size) for name in size.kernels})
    return made


def main(arguments: list[str]) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks elastic")
    parser.add_argument("--quick", action="store_true", help="two cases on Spark, with fewer rounds and epochs")
    parser.add_argument("--mini", action="store_true", help="hardly any tuples, one period, to see that it runs")
    parser.add_argument("--model-only", action="store_true", help="nothing on Spark")
    parser.add_argument("--only", default="", help="only cases on Spark whose name contains this, and no model")
    parser.add_argument("--runs", type=int, help="elastic runs of every case on Spark, and no model")
    given = parser.parse_args(arguments)
    size = MINI if given.mini else QUICK if given.quick else FULL
    if given.runs:
        return many_runs(size, given.only, given.runs)
    if given.only:
        return on_spark(size, given.only)
    print("The fluid model, at most 32 channels\n")
    modelled = model(1 if given.mini else SEEDS)
    figures = {
        "elastic_vs_best_fixed": round(modelled["vs_best"], 3),
        "elastic_vs_best_fixed_noise_mean": round(modelled["vs_best_noise_mean"], 3),
        "elastic_vs_best_fixed_noise_worst": round(modelled["vs_best_noise_worst"], 3),
        "settling_periods_max": modelled["settling"],
        "settling_periods_max_noise": modelled["settling_noise"],
        "oscillations": modelled["oscillations"],
        "reversals_to_find_a_limit": modelled["probes"],
        "overshoot_levels": modelled["overshoot"],
        "overshoot_levels_to_find_a_limit": modelled["overshoot_probing"],
        "overshoot_levels_left_by_a_limit": modelled["overshoot_final"],
        "handled_sine": round(modelled["handled_sine"], 4),
        "handled_step": round(modelled["handled_step"], 4),
    }
    if given.model_only:
        return figures
    measured = on_spark(size)
    return {
        **figures,
        "elastic_vs_best_fixed": min(figures["elastic_vs_best_fixed"], *measured["spark_vs_best_fixed"].values()),
        "settling_periods_max": max(modelled["settling"], *measured["spark_settling_periods"].values()),
        **measured,
    }
