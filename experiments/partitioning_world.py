"""The experiments of the *Partitioning* paper: keys with a Zipf distribution, channels added one by one from 1.

As in the paper, items of the ring are single keys. Key k (rank k in frequency) has a random hash drawn from
the seed; uniform hashing is rank mod N. Constructions see the exact frequencies of keys above δ, unless the
world was asked to count a stream of rows with a lossy counter.

The benchmark and the figures run an approach at a point of the parameter space, over seeds. Imbalance is the mean over
them, migration the median. Results are kept for the length of a run, since the default setting is a point of most
figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np

from anabranch.partitioning.counting.lossy_counter import LossyCounter
from anabranch.partitioning.counting.workload import Workload
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.placing.construct import ConstructionSettings, construct
from anabranch.partitioning.placing.metrics import Imbalance, channel_loads, imbalance, relative_migration
from anabranch.partitioning.placing.placement_problem import PlacementProblem
from anabranch.partitioning.placing.readj import readj
from anabranch.partitioning.placing.redist import redist
from anabranch.partitioning.placing.scan import scan
from anabranch.partitioning.placing.utility import Utility
from anabranch.partitioning.resources import Growth, Resources
from anabranch.partitioning.ring import Ring, RingHashes
from anabranch.partitioning.threshold import EPSILON_PER_DELTA, deviation, refined_threshold, threshold
from anabranch.program.hashing import GROUP_BITS
from experiments.reproduction import Line, Panel, Table

Construction = Callable[[PlacementProblem], np.ndarray]
PLACEMENTS: dict[str, Construction] = {"scan": scan, "redist": redist, "readj": readj, "readj_tail": readj}


@dataclass(frozen=True)
class Setting:
    """One point of the parameter space; the defaults are the issue's."""

    letters: str = "LLL"
    skew: float = 1.0
    sigma: float = 0.1
    channels: int = 10
    domain: int = 10**6
    tolerance: float = 1.2
    utility: Utility = Utility.APM

    @property
    def resources(self) -> Resources:
        """The resource functions and tolerances."""
        return Resources.of(self.letters, self.tolerance)


@dataclass(frozen=True)
class Outcome:
    """What one run of one approach gave."""

    imbalance: Imbalance
    migration: float
    explicit: int
    seconds: float
    """CPU time of the last construction: it has one thread, and other work on the machine is not its cost."""
    problem: PlacementProblem | None = None


@dataclass
class Keys:
    """The keys of one seed, and the owners the unweighted ring gives them (the same in every setting)."""

    seed: int
    domain: int
    hashes: np.ndarray = field(init=False)
    places: RingHashes = field(init=False)
    _owners: dict[int, np.ndarray] = field(init=False, default_factory=dict)
    _loads: dict[tuple[Growth, float, int], np.ndarray] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.hashes = np.random.default_rng([self.seed, self.domain]).integers(0, 2**64, self.domain, dtype=np.uint64)
        self.places = RingHashes.of_items(self.hashes)

    def owners(self, channels: int) -> np.ndarray:
        """Return the channel of every key by consistent hashing."""
        if channels not in self._owners:
            self._owners[channels] = Ring.of(channels).lookup(self.places).astype(np.int8)  # N < 128
        return self._owners[channels]

    def ring_loads(self, setting: Setting, truth: np.ndarray, channels: int) -> np.ndarray:
        """Return the loads of all keys on the channels of the unweighted ring."""
        columns = []
        for growth in setting.resources.growths:
            name = (growth, setting.skew, channels)
            if name not in self._loads:
                self._loads[name] = np.bincount(self.owners(channels), weights=growth.loads(truth), minlength=channels)
            columns.append(self._loads[name])
        return np.stack(columns, axis=1)


def zipf(domain: int, skew: float) -> np.ndarray:
    """Return the frequencies of all keys, most frequent first."""
    weights = np.arange(1, domain + 1, dtype=np.float64) ** -skew
    return weights / weights.sum()


def delta_of(setting: Setting, channels: int, frequencies: np.ndarray) -> float:
    """Return δ with the post-processing step, from keys collected at the unprocessed δ."""
    first = threshold(setting.resources, channels, sigma=setting.sigma, domain=setting.domain)
    collected = frequencies[frequencies >= first]
    return refined_threshold(setting.resources, channels, collected, sigma=setting.sigma, domain=setting.domain)


def count_rows(keys: Keys, setting: Setting, rows: int) -> tuple[LossyCounter, list[int]]:
    """Count a random stream with the δ of the setting; returns the counter and its sizes along the way."""
    delta = threshold(setting.resources, setting.channels, sigma=setting.sigma, domain=setting.domain)
    counter = LossyCounter(EPSILON_PER_DELTA * delta)
    random = np.random.default_rng([keys.seed, 1])
    cumulated = np.cumsum(zipf(setting.domain, setting.skew))
    sizes = []
    batch_rows = 23_143  # a prime, so that sizes are taken at all phases of the counter's windows
    for start in range(0, rows, batch_rows):
        ranks = np.searchsorted(cumulated, random.random(min(batch_rows, rows - start)))
        counter.add(keys.hashes[np.minimum(ranks, setting.domain - 1)])
        sizes.append(counter.size)
    return counter, sizes


def estimated(keys: Keys, counter: LossyCounter) -> np.ndarray:
    """Return for every key its frequency as counted, 0 for those not counted."""
    hashes, appearances, _ = counter.items()
    order = np.argsort(keys.hashes)
    frequencies = np.zeros(keys.domain)
    frequencies[order[np.searchsorted(keys.hashes[order], hashes)]] = appearances / counter.rows
    return frequencies


def run_hashed(name: str, keys: Keys, setting: Setting, truth: np.ndarray, at: list[int]) -> dict[int, Outcome]:
    """Measure uniform or consistent hashing for the given numbers of channels."""

    def owners(count: int) -> np.ndarray:
        return np.arange(setting.domain) % count if name == "uniform" else keys.owners(count)

    found = {}
    for channels in at:
        started = time.process_time()
        if name == "consistent":
            _ = Ring.of(channels).points.places
        seconds = time.process_time() - started
        before, after = owners(max(1, channels - 1)), owners(channels)
        found[channels] = _outcome(setting, truth, before, after, 0, seconds)
    return found


def run_constructed(
    name: str,
    keys: Keys,
    setting: Setting,
    truth: np.ndarray,
    at: list[int],
    seen: np.ndarray | None = None,
) -> dict[int, Outcome]:
    """
    Measure scan, redist or readj while growing from 1 channel.

    Parameters
    ----------
    truth
        Frequency of every key: what is measured with.
    at
        Numbers of channels at which to measure.
    seen
        Frequency of every key as known to the construction; None: the truth.
    """
    resources = setting.resources
    balanced = list(resources.balanced)
    slack = 1.0 if seen is None else 1 - EPSILON_PER_DELTA
    seen = truth if seen is None else seen
    state_of = resources.state.loads
    hot = np.empty(0, dtype=np.int64)
    placed = np.empty(0, dtype=np.int32)
    found: dict[int, Outcome] = {}
    for channels in range(2, max(at) + 1):
        now_hot = np.flatnonzero(seen >= delta_of(setting, channels, seen) * slack)
        now_hot = now_hot[np.argsort(-seen[now_hot], kind="stable")]
        old_owner, new_owner = keys.owners(channels - 1), keys.owners(channels)
        explicit = dict(zip(hot.tolist(), placed.tolist(), strict=True))
        origins = np.array([explicit.get(k, old_owner[k]) for k in now_hot.tolist()], dtype=np.int32)
        dropped = np.setdiff1d(hot, now_hot)
        dropped_from = np.array([explicit[k] for k in dropped.tolist()], dtype=np.int64)
        tracked = np.union1d(hot, now_hot)
        tail = None
        if name.endswith("_tail"):
            whole = keys.ring_loads(setting, truth, channels)
            own = channel_loads(resources.loads(truth[now_hot]), new_owner[now_hot], channels)
            tail = np.maximum(whole - own, 0.0)[:, balanced]
        problem = PlacementProblem(
            channels=channels,
            frequencies=seen[now_hot],
            loads=resources.loads(seen[now_hot])[:, balanced],
            state=state_of(seen[now_hot]),
            origins=origins,
            fallback=new_owner[now_hot].astype(np.int32),
            deviations=np.array([deviation(resources.tolerances[k], channels) for k in balanced]),
            migration_base=float(state_of(seen[dropped])[dropped_from != new_owner[dropped]].sum()),
            migration_ideal=float(state_of(seen[tracked]).sum()) / channels,
            tail=tail,
            utility=setting.utility,
        )
        before = (hot, placed)
        started = time.process_time()
        _ = Ring.of(channels).points.places
        placed = PLACEMENTS[name](problem)
        seconds = time.process_time() - started
        hot = now_hot
        if channels in at:
            was, now = old_owner.copy(), new_owner.copy()
            was[before[0]] = before[1]
            now[hot] = placed
            found[channels] = _outcome(setting, truth, was, now, len(hot), seconds, problem)
    return found


def run_ours(
    keys: Keys,
    setting: Setting,
    truth: np.ndarray,
    at: list[int],
    counted: LossyCounter | None = None,
    group_bits: int = GROUP_BITS,
) -> dict[int, Outcome]:
    """
    Measure our construction, on the very functions the system uses: items of the ring are key groups.

    Parameters
    ----------
    counted
        A counter of rows: hot keys are then those it reports, and the groups' loads are estimated from as
        many random rows; None: both are known exactly.
    """
    resources = setting.resources
    chosen = ConstructionSettings(resources=resources, sigma=setting.sigma)
    function = PartitioningFunction.even(1, group_bits=group_bits)
    groups = np.bincount(function.group_of(keys.hashes), weights=truth, minlength=function.groups)
    if counted is not None:
        random = np.random.default_rng([keys.seed, 2])
        groups = random.multinomial(counted.rows, groups / groups.sum()) / counted.rows
    found: dict[int, Outcome] = {}
    for channels in range(2, max(at) + 1):
        if counted is not None:
            delta = threshold(resources, channels, sigma=setting.sigma, domain=setting.domain)
            hashes, appearances = counted.frequent(delta / 2)
            frequencies = appearances / counted.rows
        else:
            # What the counter collects: keys above δ before post-processing, and hot ones down to half of it.
            collected = threshold(resources, channels, sigma=setting.sigma, domain=setting.domain)
            known = np.flatnonzero(truth >= min(collected, delta_of(setting, channels, truth) / 2))
            hashes, frequencies = keys.hashes[known], truth[known]
        workload = Workload(hashes, frequencies, domain=setting.domain, group_frequencies=groups)
        started = time.process_time()
        after = construct(function, workload, channels, chosen).function
        seconds = time.process_time() - started
        if channels in at:
            routes = function.route(keys.hashes), after.route(keys.hashes)
            found[channels] = _outcome(setting, truth, *routes, len(after.hot_hashes), seconds)
        function = after
    return found


def _outcome(
    setting: Setting,
    truth: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    explicit: int,
    seconds: float,
    problem: PlacementProblem | None = None,
) -> Outcome:
    resources = setting.resources
    channels = int(after.max()) + 1
    columns = {growth: growth.loads(truth) for growth in set(resources.growths)}
    sums = {growth: np.bincount(after, weights=load, minlength=channels) for growth, load in columns.items()}
    loads = np.stack([sums[growth] for growth in resources.growths], axis=1)
    moved = relative_migration(columns[resources.state], before, after, channels)
    return Outcome(imbalance(loads, resources), moved, explicit, seconds, problem)


def run_approach(name: str, keys: Keys, setting: Setting, truth: np.ndarray, at: list[int]) -> dict[int, Outcome]:
    """Run one approach, of whichever kind."""
    if name in ("uniform", "consistent"):
        return run_hashed(name, keys, setting, truth, at)
    if name == "ours":
        return run_ours(keys, setting, truth, at)
    return run_constructed(name, keys, setting, truth, at)


# ---- an approach at a point of the parameter space, over seeds ----

ROWS_COUNTED = 10**6
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
    imbalances: tuple[float, ...] = ()
    """Of every seed."""
    migrations: tuple[float, ...] = ()
    times: tuple[float, ...] = ()
    """Milliseconds of every seed."""


def ratios(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    """How two approaches compare, seed by seed: they have the same keys."""
    return [one / other for one, other in zip(ones, others, strict=True)]


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
            imbalances=tuple(one.imbalance.combined for one in outcomes),
            migrations=tuple(one.migration for one in outcomes),
            times=tuple(one.seconds * 1e3 for one in outcomes),
        )
    return found


def point(setting: Setting, name: str, seeds: int) -> Summary:
    """Return one approach at the setting's own number of channels."""
    return measure(setting, name, seeds)[setting.channels]


@cache
def sizes(setting: Setting, seed: int = 0) -> tuple[float, int]:
    """Return counters (mean along a million rows) and explicit entries, as counted by a lossy counter."""
    keys = _keys(seed, setting.domain)
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
