"""How many files an epoch takes, so that it lasts about as long as the user wants.

    duration = fixed + cost · units          units = rows + files (a file without rows costs something, too)

A source that has more ready than an epoch should hold is cut by a limit: so many files an epoch. Too low a limit pays
the fixed cost (planning, scheduling, commit) too often; too high a one makes epochs that need memory and that nothing
leaves for minutes. The limit wanted is the one at which the line above meets the target.

**Fixed cost.** Where the line through two epochs of clearly different sizes (a factor of SPREAD_MIN) meets zero; the
median of all such lines. They are believed if some sizes differ by LEVER_MIN, and kept while all are of one size.
Until then it is at least what the runner saw that no rows had caused. Neither would do alone: two noisy epochs of
similar size make a line that points anywhere, and one that points too low shrinks epochs until they are nothing but
fixed cost; what the runner sees leaves out what starting tasks takes, and counts what listing files takes, which is not
fixed. If no line was ever drawn and the limit would stay, it is doubled once, to see. An epoch cannot reasonably be
shorter than three times its fixed cost: a target below that is raised.

**Cost.** The median of the last COSTS_KEPT epochs: a garbage collection pause in one of them changes nothing, and a
real change is followed one epoch later: SURPRISES epochs in a row that all last much longer, or all much shorter, than
the line says are a change, and what was before them is forgotten. Rows per file are a mean over more epochs, since
files differ in size and it is files that the limit counts.

**Steps.** A limit is at most doubled or halved per epoch and stays where it is within a dead band: for a constant input
what is wanted is constant, so it cannot oscillate. It is raised only if it was reached. It is lowered whether or not
it was: rows that come slowly now may come in a flood, and what they cost is known.

**Several sources** share the time of an epoch. What one of them does not need is for those that have more ready.

**Beside the channels' controllers.** Both loops see the time of epochs. This one is fast and only decides how much of
what stands ready is taken at once; it never makes an epoch longer than the target to hide that channels are too few,
because what is left stands ready and its age is the congestion signal. The other way round, rows that stand ready only
because a limit is still on its way up are no reason for channels: such an epoch is called `cut_short`, and the
channels' controllers do not count it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median

EPOCHS_KEPT = 24
FILES_KEPT = 8
COSTS_KEPT = 3
SPREAD_MIN = 1.9
LEVER_MIN = 3.0
DEAD_BAND = 0.2
ROUNDING_BAND = 0.7  # files come whole: what is wanted may lie between two numbers and be both in turn
STEP_MAX = 2.0
FIXED_PER_EPOCH_MIN = 3.0
SURPRISE = 1.7
SURPRISES = 3
COST_SHARE_MIN = 0.05  # of an epoch's time, rows take so much at least, whatever the fixed cost is believed to be
FILES_MAX = 100_000  # Spark lists and logs every file of an epoch on the driver


@dataclass(frozen=True, slots=True)
class TakenEpoch:
    """An epoch that ended, by what it took of the sources whose limits are ours."""

    duration_s: float
    """Start to end, with what Spark does between epochs."""
    overhead_s: float
    """The part of it that the runner saw no rows in."""
    files: Mapping[str, int]
    rows: Mapping[str, int]
    limits: Mapping[str, int]
    """Files it was allowed to take."""
    other_rows: int = 0
    """Rows of sources whose limits are not ours."""

    def reached(self, source: str) -> bool:
        """Whether the limit kept it from taking more, as far as one can see."""
        return self.files.get(source, 0) >= self.limits[source]

    def units(self, source: str) -> int:
        """What the source brought."""
        return self.rows.get(source, 0) + self.files.get(source, 0)


@dataclass(frozen=True, slots=True)
class SizeDecision:
    """The limits of the next epoch."""

    limits: Mapping[str, int]
    cut_short: bool
    """The epoch before was shorter than it should have been, because its limit was still on the way up."""
    reason: str


@dataclass(frozen=True, slots=True)
class _Sample:
    units: int
    duration_s: float
    overhead_s: float


@dataclass(frozen=True)
class EpochSizeMemory:
    """What is remembered of the size of epochs, for a restarted driver."""

    limits: Mapping[str, int] = field(default_factory=dict)
    """Source → the most files of it that an epoch takes."""
    fixed_s: float | None = None
    """What an epoch costs beside its rows; None: not known."""
    believes_line: bool = False
    """Whether the time of an epoch was seen to follow its rows."""


class EpochSize:
    """The limits of a query's sources.

    Parameters
    ----------
    sources
        Those whose limits are ours.
    target_s
        How long an epoch should last.
    beginning
        Files an epoch takes of each source before anything is known.
    known
        The same for sources of which something is: how large the files are.
    """

    def __init__(
        self, sources: Sequence[str], target_s: float, beginning: int, known: Mapping[str, int] | None = None
    ) -> None:
        if target_s <= 0 or beginning < 1:
            raise ValueError(f"expected a target above 0 s and a beginning of 1 or more, got {target_s}, {beginning}")
        self.target_s = target_s
        begun = {**dict.fromkeys(sources, beginning), **(known or {})}
        self._limits = {source: min(files, FILES_MAX) for source, files in begun.items()}
        self._fixed_s: float | None = None
        self._believes_line = False
        self._believed: tuple[float, float] | None = None
        self._surprises: list[float] = []
        self._samples: deque[_Sample] = deque(maxlen=EPOCHS_KEPT)
        self._brought: dict[str, deque[tuple[int, int]]] = {source: deque(maxlen=FILES_KEPT) for source in sources}

    @property
    def limits(self) -> dict[str, int]:
        """Files that the next epoch should take of each source at most."""
        return dict(self._limits)

    def changed(self) -> None:
        """Regions have other channels from now on: what rows cost must be learned anew."""
        self._samples.clear()
        self._surprises.clear()
        self._believed = None

    def handle(self, epoch: TakenEpoch) -> SizeDecision:
        """Take an epoch that ended; the limits of the next."""
        units = sum(epoch.units(source) for source in self._limits) + epoch.other_rows
        if not any(epoch.files.values()):
            return SizeDecision(self.limits, False, "nothing was read")
        self._learn(_Sample(units, epoch.duration_s, min(epoch.overhead_s, epoch.duration_s)))
        for source, brought in self._brought.items():
            if epoch.files.get(source, 0):
                brought.append((epoch.files[source], epoch.units(source)))
        fixed_s = self._fixed()
        cost_s = median(
            max(each.duration_s - fixed_s, COST_SHARE_MIN * each.duration_s) / each.units
            for each in list(self._samples)[-COSTS_KEPT:]
        )
        self._believed = fixed_s, cost_s
        target_s = max(self.target_s, FIXED_PER_EPOCH_MIN * fixed_s)
        wanted = self._wanted(epoch, (target_s - fixed_s) / cost_s - epoch.other_rows)
        before = self.limits
        for source, files in wanted.items():
            self._limits[source] = _step(self._limits[source], files, epoch.reached(source))
        if self._limits == before and self._fixed_s is None and len(self._samples) >= COSTS_KEPT:
            for source in before:
                if epoch.reached(source):
                    self._limits[source] = _step(before[source], STEP_MAX * before[source], True)
        cut_short = any(self._limits[source] > before[source] for source in before)
        raised = "" if target_s == self.target_s else f", raised from {self.target_s:.3g} s"
        reason = (
            f"{units} rows and files at {1000 * cost_s:.3g} ms after a fixed {fixed_s:.2g} s; "
            f"target {target_s:.3g} s{raised}"
        )
        return SizeDecision(self.limits, cut_short, reason)

    def _learn(self, sample: _Sample) -> None:
        self._samples.append(sample)
        if self._believed is None or self._fixed_s is None:
            return  # before the first line a surprise says that there is a fixed cost, not that something has changed
        expected = self._believed[0] + self._believed[1] * sample.units
        self._surprises = [*self._surprises, sample.duration_s / max(expected, 1e-9)][-SURPRISES:]
        if len(self._surprises) == SURPRISES and (
            min(self._surprises) > SURPRISE or max(self._surprises) < 1 / SURPRISE
        ):
            self._samples = deque(list(self._samples)[-SURPRISES:], maxlen=EPOCHS_KEPT)

    def _fixed(self) -> float:
        line = _line(self._samples)
        seen = min(each.overhead_s for each in self._samples)
        if line is not None:
            sizes = [each.units for each in self._samples]
            believed = max(sizes) >= LEVER_MIN * min(sizes)
            if believed or not self._believes_line:
                self._fixed_s = line if believed else max(line, seen)
            self._believes_line = self._believes_line or believed
        elif self._fixed_s is None:
            return seen
        # An epoch that was shorter than the fixed cost proves it wrong; one is enough.
        return min(self._fixed_s or 0.0, *(each.duration_s for each in self._samples), math.inf)

    def _wanted(self, epoch: TakenEpoch, budget: float) -> dict[str, float]:
        """Files wanted of each source that something is known of, from the units an epoch has time for."""
        known = {source: brought for source, brought in self._brought.items() if brought}
        per_file = {s: sum(u for _, u in brought) / sum(f for f, _ in brought) for s, brought in known.items()}
        needs = {s: math.inf if epoch.reached(s) else float(epoch.units(s)) for s in known}
        shares = shared(max(budget, 0.0), needs)
        # One that needs little now may need its part at once.
        part = max(budget, 0.0) / max(1, len(self._limits))
        return {s: (shares[s] if math.isinf(needs[s]) else max(shares[s], part)) / per_file[s] for s in known}

    def memory(self) -> EpochSizeMemory:
        """For a checkpoint."""
        return EpochSizeMemory(self.limits, self._fixed_s, self._believes_line)

    def restore(self, memory: EpochSizeMemory) -> None:
        """Go on from the `memory` of an earlier driver; sources that it did not know begin anew."""
        for source, files in memory.limits.items():
            if source in self._limits:
                self._limits[source] = max(1, min(int(files), FILES_MAX))
        self._fixed_s = memory.fixed_s
        self._believes_line = memory.believes_line


def shared(budget: float, needs: Mapping[str, float]) -> dict[str, float]:
    """Equal parts of a budget; what one does not need is shared by the others.

    >>> shared(12.0, {"a": 2.0, "b": math.inf, "c": math.inf})
    {'a': 2.0, 'b': 5.0, 'c': 5.0}
    """
    given: dict[str, float] = {}
    left = budget
    for at, (source, need) in enumerate(sorted(needs.items(), key=lambda each: each[1])):
        given[source] = min(need, left / (len(needs) - at))
        left -= given[source]
    return given


def _step(limit: int, wanted: float, reached: bool) -> int:
    if abs(wanted - limit) <= max(DEAD_BAND * limit, ROUNDING_BAND) or (wanted > limit and not reached):
        return limit
    bounded = max(math.ceil(limit / STEP_MAX), min(round(wanted), math.floor(limit * STEP_MAX)))
    return max(1, min(bounded, FILES_MAX))


def _line(samples: Sequence[_Sample] | deque[_Sample]) -> float | None:
    """Where lines through two epochs of different sizes meet zero; None if all are of about one size."""
    found = []
    for a, b in combinations(samples, 2):
        small, large = (a, b) if a.units < b.units else (b, a)
        if large.units >= SPREAD_MIN * small.units:
            slope = max(0.0, (large.duration_s - small.duration_s) / (large.units - small.units))
            found.append(max(0.0, min(small.duration_s - slope * small.units, large.duration_s)))
    return median(found) if found else None
