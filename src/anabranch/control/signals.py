"""Throughput and congestion of every region, from what the epochs of an adaptation period measured.

**Busy is not congested.** With Spark's default trigger the next epoch starts at once, so Spark is always
busy: an epoch takes what arrived during the one before, and its length settles at fixed cost / (1 − load /
capacity). So neither a busy executor nor an epoch without a pause means anything. What counts is that
tuples stand ready for longer than the user wants (the epoch target) *because channels are busy*. Per epoch:

    start of the epoch before        its end           start of this epoch
        ├──────── duration ────────────┤─── trigger's pause ──┤
            ├──────────────── waited (oldest tuple) ──────────┤
            ├── target ──┤█ congested █┤

    congestion of an epoch = the marked time / the time from start to start

The marked time ends with the work; and if there is a pause at all, the next epoch waited for the trigger
and not for channels, so a slow trigger is never congestion. (A trigger without an interval waits for nothing while
rows are left behind: what lies between two such epochs is Spark's own, however long a slow machine or store takes
for it.) With a paced, under-loaded source a tuple waits
for at most one short epoch: 0. With a growing backlog the oldest tuple is always older than the target: 1,
whether the epochs grow (unlimited) or the rows left over do (limited epochs). Where the source cannot tell
how long tuples waited, it follows from the rows: ready / arrived · time from start to start.

**Whose congestion?** The stages of an epoch run one after the other, so the time adds up:

    duration = fixed overhead + region 1 + region 2 + … + sink

Only a part can be to blame that takes time. A region is blamed with its share of the working time (regions
and sink); below SHARE_MIN it is not to blame at all, since removing it altogether would hardly shorten the
epoch. It is then told *remote* if the largest part is downstream of it (P5: more channels cannot help). No
epoch can be expected to be shorter than twice its fixed cost, so a target below that is raised to it:
overhead is nobody's channel.

Regions that run side by side (stages of one depth) do not add up: the depth lasts as long as the slowest of them.
Only those near the slowest are to blame for the depth's time, and none takes time from the others.

**Busy share** of a region: the time it worked / the time it could have worked. Epochs of target length can
spend 1 − overhead / target of the time on work (an epoch that leaves rows behind is limited by the source and
cannot grow: it can spend its length without the overhead); what the other parts take is not the region's:

    busy = own / (time · (1 − overhead / target) − others),   1 if there is nothing left

**Own rate**: rows / own stage time. It depends on no neighbour, so a controller that compares it across
numbers of channels cannot mistake another controller's effect for its own. An epoch that leaves rows behind
cannot spread its overhead over more rows, and every channel adds to that overhead (a task to launch, packets
to send it): there the overhead counts as the region's own time, or channels beyond what pays would look as
good as the best.

**Robust.** Empty epochs and warm-up epochs (first after a start or a rescale: JIT, caches, migration) are
left out. Congestion and shares are medians over the epochs, rates are means without the extreme fifths, so
that a garbage collection pause in one epoch of a period does not decide. A period with fewer than
EPOCHS_MIN such epochs is not valid. The standard error of the rates, from the spread of the epochs, goes
along to the controller. It is robust as well, but only where there are epochs enough to tell what is extreme: of
three, two that agree by chance (both had a straggler) would pass for certainty, so there all of them count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, stdev

from anabranch.control.observation import Observation

EPOCHS_MIN = 3
SHARE_MIN = 0.1
BESIDE_SHARE_MIN = 0.8  # of regions side by side, those that take so much of the slowest one's time are to blame
REMOTE_CONGESTION_MIN = 0.05
TRIMMED_SHARE = 0.2
ROBUST_EPOCHS_MIN = 5  # of fewer nobody can say which are extreme
PAUSE_SHARE_MAX = 0.1  # a shorter pause between epochs is Spark's bookkeeping
OVERHEADS_PER_EPOCH_MIN = 2.0


@dataclass(frozen=True, slots=True)
class EpochMeasurement:
    """One epoch, as the runner measured it. Times in seconds."""

    epoch: int
    started_s: float
    """Start, on any clock that goes on."""
    duration_s: float
    """Start to end of the work, commit included."""
    ready_rows: int | None
    """Rows that stood ready at the start, taken or not; None where the source cannot tell."""
    taken_rows: int
    """Rows the epoch processed."""
    region_s: tuple[tuple[str, float], ...]
    """Stage time per region (its slowest channel), in the order of the data flow."""
    sink_s: float
    """Time for merging at the end and writing."""
    overhead_s: float
    """Time that does not depend on rows: planning, scheduling, commit."""
    target_s: float
    """How long the user wants an epoch to last at most."""
    waited_s: float | None = None
    """How long the oldest row ready had stood there at the start; None where the source cannot tell."""
    warm_up: bool = False
    """First epoch after a start or a rescale."""
    beside: tuple[tuple[str, ...], ...] = ()
    """Groups of regions that run side by side; a region in none of them runs by itself."""
    has_interval: bool = True
    """Whether the trigger has an interval to wait for; without one the next epoch begins as soon as there are rows."""

    def __post_init__(self) -> None:
        if self.duration_s <= 0 or self.target_s <= 0:
            raise ValueError(
                f"epoch {self.epoch}: duration and target must be positive, got {self.duration_s} s and "
                f"{self.target_s} s"
            )
        if self.taken_rows < 0 or (self.ready_rows is not None and self.taken_rows > self.ready_rows):
            raise ValueError(
                f"epoch {self.epoch}: took {self.taken_rows} rows of {self.ready_rows} ready ones; it must "
                "be between 0 and all of them"
            )


@dataclass(frozen=True, slots=True)
class _Cycle:
    """From the start of one epoch to the start of the next, and what the next found waiting."""

    epoch: EpochMeasurement
    length_s: float
    arrived_rows: int | None
    """None where the source cannot tell."""
    congestion: float
    """Of the whole epoch, nobody blamed yet."""


def observe(period: int, epochs: Sequence[EpochMeasurement], channels: Mapping[str, int]) -> dict[str, Observation]:
    """The observation of every region for one adaptation period.

    Parameters
    ----------
    period
        Number of the adaptation period.
    epochs
        Its epochs in order. The last one closes the period: it shows what stood ready at its start, and
        itself belongs to the next period. So pass it again as the first one of that.
    channels
        Channels each region had; all epochs must have run with them, except those marked as warm-up.
    """
    cycles = _cycles(epochs)
    if len(cycles) < EPOCHS_MIN:
        return {region: _nothing(period, count) for region, count in channels.items()}
    return {region: _observe_region(period, cycles, region, count) for region, count in channels.items()}


def _nothing(period: int, channels: int) -> Observation:
    return Observation(period, channels, throughput=0.0, congestion=0.0, busy_share=0.0, valid=False)


def _cycles(epochs: Sequence[EpochMeasurement]) -> list[_Cycle]:
    """The cycles that count: with rows, without warm-up."""
    cycles = []
    waited_before = 0.0
    for before, after in pairwise(epochs):
        length = after.started_s - before.started_s
        if length <= 0:
            raise ValueError(f"epoch {after.epoch} did not start after epoch {before.epoch}")
        arrived = _arrived(before, after)
        waited = after.waited_s
        if waited is None:
            waited = _estimate_waited(after.ready_rows, arrived, length, waited_before)
        waited_before = waited
        if before.warm_up or before.taken_rows == 0:
            continue
        target = max(before.target_s, OVERHEADS_PER_EPOCH_MIN * before.overhead_s)
        overdue_from = max(0.0, length - waited + target)  # on a clock that starts with the epoch before
        congested = max(0.0, min(before.duration_s, length) - overdue_from)
        if not _goes_on_at_once(before, length):
            congested = 0.0  # the next epoch waited for the trigger, not for channels
        cycles.append(_Cycle(before, length, arrived, congested / length))
    return cycles


def _goes_on_at_once(epoch: EpochMeasurement, length_s: float) -> bool:
    """Whether what lies between an epoch and the next is bookkeeping: no waiting for the trigger, or for rows."""
    if not epoch.has_interval and epoch.ready_rows is not None and _is_limited(epoch):
        return True  # rows were left behind, and nothing else is waited for
    return length_s - epoch.duration_s <= max(PAUSE_SHARE_MAX * length_s, epoch.overhead_s)


def _arrived(before: EpochMeasurement, after: EpochMeasurement) -> int | None:
    if before.ready_rows is None or after.ready_rows is None:
        return None
    return max(0, after.ready_rows - (before.ready_rows - before.taken_rows))


def _estimate_waited(
    ready_rows: int | None, arrived_rows: int | None, length_s: float, waited_before_s: float
) -> float:
    if ready_rows is None or arrived_rows is None:
        return length_s  # nothing is known of rows left behind: what is taken came since the epoch before
    if ready_rows == 0:
        return 0.0
    if arrived_rows == 0:
        return waited_before_s + length_s  # an old backlog, still there
    return length_s * ready_rows / arrived_rows


def _observe_region(period: int, cycles: Sequence[_Cycle], region: str, channels: int) -> Observation:
    rows = [cycle.epoch.taken_rows for cycle in cycles]
    lengths = [cycle.length_s for cycle in cycles]
    own = [_stage_s(cycle.epoch, region) for cycle in cycles]
    share = median(_share(cycle.epoch, region) for cycle in cycles)
    congestion = median(cycle.congestion for cycle in cycles)
    blamed = share >= SHARE_MIN
    arrivals = [cycle.arrived_rows for cycle in cycles]
    costs = [
        seconds + (_overhead_s(c) if _is_limited(c.epoch) else 0.0) for c, seconds in zip(cycles, own, strict=True)
    ]
    own_rates = [taken / cost for taken, cost, seconds in zip(rows, costs, own, strict=True) if seconds > 0]
    kept = _without_extremes([length / taken for length, taken in zip(lengths, rows, strict=True)])
    time_kept = sum(lengths[i] for i in kept)
    return Observation(
        period=period,
        channels=channels,
        throughput=sum(rows[i] for i in kept) / time_kept,
        congestion=congestion * share if blamed else 0.0,
        busy_share=median(_busy_share(cycle, region) for cycle in cycles),
        remote=not blamed and congestion > REMOTE_CONGESTION_MIN and _largest_is_downstream(cycles, region),
        offered=None if None in arrivals else sum(filter(None, arrivals)) / sum(lengths),
        busy_throughput=_trimmed_mean(own_rates) if own_rates else None,
        relative_error=_relative_error(own_rates),
    )


def _stage_s(epoch: EpochMeasurement, region: str) -> float:
    for name, seconds in epoch.region_s:
        if name == region:
            return seconds
    raise ValueError(
        f"epoch {epoch.epoch} has no stage time for region {region!r}; it has {[name for name, _ in epoch.region_s]}"
    )


def _depth(epoch: EpochMeasurement, region: str) -> tuple[str, ...]:
    """The regions that run side by side with a region, and itself."""
    return next((group for group in epoch.beside if region in group), (region,))


def _depth_s(epoch: EpochMeasurement, beside: tuple[str, ...]) -> float:
    return max(_stage_s(epoch, region) for region in beside)


def _work_s(epoch: EpochMeasurement) -> float:
    depths = {_depth(epoch, region) for region, _ in epoch.region_s}
    return sum(_depth_s(epoch, beside) for beside in depths) + epoch.sink_s


def _share(epoch: EpochMeasurement, region: str) -> float:
    work = _work_s(epoch)
    depth_s = _depth_s(epoch, _depth(epoch, region))
    if work <= 0 or _stage_s(epoch, region) < BESIDE_SHARE_MIN * depth_s or depth_s < SHARE_MIN * epoch.duration_s:
        return 0.0  # without it the epoch would last as long, or hardly less
    return depth_s / work


def _busy_share(cycle: _Cycle, region: str) -> float:
    epoch = cycle.epoch
    own = _stage_s(epoch, region)
    target = max(epoch.target_s, OVERHEADS_PER_EPOCH_MIN * epoch.overhead_s)
    overhead = _overhead_s(cycle)
    if _is_limited(epoch):
        workable = cycle.length_s - overhead  # the source limits epochs: no longer one is to be had
    else:
        workable = cycle.length_s * (1.0 - min(1.0, overhead / target))
    left = workable - (_work_s(epoch) - _depth_s(epoch, _depth(epoch, region)))
    return min(1.0, own / left) if left > 0 else 1.0


def _overhead_s(cycle: _Cycle) -> float:
    pause = cycle.length_s - cycle.epoch.duration_s
    return cycle.epoch.overhead_s + (max(0.0, pause) if _goes_on_at_once(cycle.epoch, cycle.length_s) else 0.0)


def _is_limited(epoch: EpochMeasurement) -> bool:
    """Whether an epoch left rows behind, as far as is known: it could not have been longer."""
    return epoch.ready_rows is None or epoch.taken_rows < epoch.ready_rows


def _largest_is_downstream(cycles: Sequence[_Cycle], region: str) -> bool:
    names = [name for name, _ in cycles[0].epoch.region_s]
    times = [median(_stage_s(cycle.epoch, name) for cycle in cycles) for name in names]
    times.append(median(cycle.epoch.sink_s for cycle in cycles))
    return times.index(max(times)) > names.index(region)


def _without_extremes(values: Sequence[float]) -> list[int]:
    """Indices of the values without the lowest and the highest, TRIMMED_SHARE (at least one) at each end."""
    ordered = sorted(range(len(values)), key=lambda i: values[i])
    cut = max(1, math.floor(TRIMMED_SHARE * len(ordered))) if len(ordered) >= 3 else 0
    return ordered[cut : len(ordered) - cut]


def _trimmed_mean(values: Sequence[float]) -> float:
    kept = _without_extremes(values)
    return sum(values[i] for i in kept) / len(kept)


def _relative_error(rates: Sequence[float]) -> float:
    """Standard error of the mean rate, relative; from the median deviation, so one pause of many does not count."""
    if len(rates) < 2:
        return 0.0
    middle = median(rates)
    if len(rates) < ROBUST_EPOCHS_MIN:
        deviation = stdev(rates)
    else:
        deviation = 1.4826 * median(abs(rate - middle) for rate in rates)  # of a normal distribution: sigma
    return deviation / middle / math.sqrt(len(rates)) if middle > 0 else 0.0
