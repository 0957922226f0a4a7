"""What the figures of *Partitioning* share: an approach run at a point of the parameter space, over seeds.

The world is the benchmark's (`benchmarks/_partitioning_world.py`): Zipf keys, channels added one by one from 1,
the constructions seeing exact frequencies above δ. Imbalance is the mean over the seeds, migration the median.
Results are kept for the length of a run, since the default setting is a point of most figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from benchmarks._partitioning_world import Keys, Setting, count_rows, estimated, run_constructed, zipf
from benchmarks.partitioning import ROWS_COUNTED
from benchmarks.partitioning import run as run_approach
from experiments.reproduction import Line, Panel, Table

PAPERS = ("uniform", "consistent", "scan", "redist", "readj_tail")
CONSTRUCTIONS = ("scan", "redist", "readj_tail")
"""readj with the load of the tail: the reading that gives the paper's numbers. As printed, `readj`, it sees only
explicit keys; it is shown beside it."""
APPROACHES = (*PAPERS, "readj", "ours")
LETTERS = ("CCL", "LCL", "LLL", "LQL")
SEEDS_DIFFER = (
    "the approaches are closer to each other than the seeds are (migration deviates by about 0.4 between them)"
)
SIGMA_FINE = 0.03
SEEDS_FINE = 3
"""Below σ = 0.03 one run of readj takes seconds, at 0.008 with LQL half a minute."""


def seeds_of(quick: bool) -> int:
    """Return the number of seeds for a sweep, the same as in the paper."""
    return 1 if quick else 5


@dataclass(frozen=True)
class Summary:
    """One approach at one point, over the seeds."""

    imbalance: float
    migration: float
    per_resource: tuple[float, ...]
    """Relative imbalance of state, computation, communication."""
    explicit: float
    milliseconds: float


@cache
def measure(setting: Setting, name: str, seeds: int, at: tuple[int, ...] = ()) -> Mapping[int, Summary]:
    """Run one approach, growing from 1 channel; summaries by number of channels (default: the setting's)."""
    at = at or (setting.channels,)
    if setting.sigma < SIGMA_FINE:
        seeds = min(seeds, SEEDS_FINE)
    truth = _zipf(setting.domain, setting.skew)
    runs = [run_approach(name, _keys(seed, setting.domain), setting, truth, list(at)) for seed in range(seeds)]
    found = {}
    for channels in at:
        outcomes = [run[channels] for run in runs]
        found[channels] = Summary(
            imbalance=float(np.mean([one.imbalance.combined for one in outcomes])),
            migration=float(np.median([one.migration for one in outcomes])),
            per_resource=tuple(float(v) for v in np.mean([one.imbalance.relative for one in outcomes], axis=0)),
            explicit=float(np.mean([one.explicit for one in outcomes])),
            milliseconds=float(np.median([one.seconds for one in outcomes])) * 1e3,
        )
    return found


def point(setting: Setting, name: str, seeds: int) -> Summary:
    """Return one approach at the setting's own number of channels."""
    return measure(setting, name, seeds)[setting.channels]


@cache
def sizes(setting: Setting) -> tuple[float, int]:
    """Return counters (mean along a million rows) and explicit entries, as counted by a lossy counter."""
    keys = _keys(0, setting.domain)
    counter, along = count_rows(keys, setting, ROWS_COUNTED)
    seen = estimated(keys, counter)
    outcome = run_constructed("scan", keys, setting, seen, [setting.channels], seen)[setting.channels]
    return float(np.mean(along)), outcome.explicit


@lru_cache(maxsize=24)
def _keys(seed: int, domain: int) -> Keys:
    return Keys(seed, domain)


@lru_cache(maxsize=4)
def _zipf(domain: int, skew: float) -> np.ndarray:
    return zipf(domain, skew)


Sweep = Mapping[str, Sequence[Summary]]


def sweep(settings: Iterable[Setting], names: Iterable[str], seeds: int) -> Sweep:
    """Run several approaches over several settings."""
    settings = list(settings)
    return {name: [point(setting, name, seeds) for setting in settings] for name in names}


def both_table(title: str, axis: str, xs: Sequence[float], found: Sweep) -> Table:
    """Imbalance / migration, a row per x and a column per approach."""
    rows = [
        (f"{x:g}", *(f"{line[i].imbalance:.2f} / {line[i].migration:.2f}" for line in found.values()))
        for i, x in enumerate(xs)
    ]
    return Table.of(f"{title}, imbalance / migration", (axis, *found), rows)


def both_panels(title: str, axis: str, xs: Sequence[float], found: Sweep, *, x_log: bool = False) -> list[Panel]:
    """Two panels: migration and imbalance."""
    return [
        Panel(
            f"{title}: migration",
            axis,
            "relative migration",
            {name: Line(xs, [one.migration for one in line]) for name, line in found.items()},
            x_log=x_log,
            y_log=True,
            level=1.0,
        ),
        Panel(
            f"{title}: imbalance",
            axis,
            "relative imbalance",
            {name: Line(xs, [one.imbalance for one in line]) for name, line in found.items()},
            x_log=x_log,
            y_log=max(one.imbalance for line in found.values() for one in line) > 4,
            level=1.0,
        ),
    ]
