"""Workers inside one channel: the elastic operator of *Operators* (Schneider et al.), Figure 2.

Workers are created, suspended and woken, never destroyed. Per period at level n (workers 0..n active) the
rate is compared with what each level is remembered for: its decaying *peak* and its *last* rate.

    peaking (one worker was just suspended)  ─► was the level above better? wake it; peaking ends
    rate or peak here has fallen             ─► suspend worker n, see whether that is better (peaking)
    level n clearly beats n-1      ─► create or wake worker n+1, unless known to be worse
    otherwise                                ─► stable

Corrections to the printed text (project notes): an invalidated peak, infinity in the paper, means *unknown*
here and is replaced by the next rate, since decaying infinity yields NaN; and the decay must be below
tolerance / (1 + tolerance), or decayed peaks alone make it probe for ever.

Limits that are the algorithm's own: on linear speed-up it stops at about 2 + 1 / tolerance workers; on a
flat curve it rests one above the knee; it may miss capacity that appears later. 0.05 / 0.02 is good to 16
workers at 2 % noise.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class WorkerAction(StrEnum):
    CREATE = "create"
    WAKE = "wake"
    SUSPEND = "suspend"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class OperatorDecision:
    """The instruction of one period, with what it was based on."""

    period: int
    rate: float
    """Tuples per second measured with the workers active until now."""
    action: WorkerAction
    worker: int | None
    """Index of the worker that is created, woken or suspended."""
    active: int
    """Active workers from now on."""
    branch: str
    reason: str
    peaks: tuple[float | None, ...]
    """Remembered peak per level; None is unknown."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class OperatorController:
    """Decides on the active workers of one elastic operator.

    Parameters
    ----------
    workers_max
        Never more workers than this.
    tolerance
        Relative difference of two rates that is significant.
    decay
        Share by which a remembered peak fades per period in which it is not reached.
    """

    def __init__(
        self, workers_max: int, *, tolerance: float = 0.05, decay: float = 0.02, log_length: int = 1000
    ) -> None:
        if workers_max < 1:
            raise ValueError(f"an operator needs at least 1 worker, got workers_max={workers_max}")
        if not 0 < tolerance < 1:
            raise ValueError(f"tolerance must be in (0, 1), got {tolerance}")
        decay_limit = tolerance / (1 + tolerance)
        if not 0 <= decay < decay_limit:
            raise ValueError(
                f"decay must be in [0, tolerance / (1 + tolerance)) = [0, {decay_limit:.4f}), got {decay}: a "
                "decayed peak would look like a significant change, and the operator would probe for ever"
            )
        self._workers_max = workers_max
        self._tolerance = tolerance
        self._decay = decay
        self._period = 0
        self._level = 0
        self._peaking = False
        self._peak: list[float | None] = [None]  # one entry per worker ever created
        self._last: list[float] = [0.0]
        self._log: deque[OperatorDecision] = deque(maxlen=log_length)

    @property
    def active(self) -> int:
        """Workers that should be running now; the others up to `created` are suspended."""
        return self._level + 1

    @property
    def created(self) -> int:
        return len(self._peak)

    @property
    def log(self) -> tuple[OperatorDecision, ...]:
        return tuple(self._log)

    def handle(self, rate: float) -> OperatorDecision:
        """Take the rate of one period and answer with at most one worker to create, wake or suspend."""
        if not rate >= 0:  # also refuses NaN
            raise ValueError(f"a rate is not negative, got {rate}")
        self._period += 1
        self._remember(rate)
        action, worker, branch, reason = self._decide(rate)
        decision = OperatorDecision(self._period, rate, action, worker, self.active, branch, reason, tuple(self._peak))
        self._log.append(decision)
        return decision

    def _remember(self, rate: float) -> None:
        level, peak = self._level, self._peak[self._level]
        self._last[level] = rate
        if peak is None:
            self._peak[level] = rate
        elif rate > peak:
            if self._less(peak, rate):
                # The world has changed: what the levels above once did says nothing any more.
                self._peak[level + 1 :] = [None] * (len(self._peak) - level - 1)
            self._peak[level] = rate
        else:
            self._peak[level] = peak * (1 - self._decay)

    def _decide(self, rate: float) -> tuple[WorkerAction, int | None, str, str]:
        level = self._level
        peak = self._known(level)
        if self._peaking:
            self._peaking = False
            above = self._last[level + 1]
            if rate < above:
                self._level += 1
                return (
                    WorkerAction.WAKE,
                    level + 1,
                    "peaked",
                    f"{above:g}/s with the worker, {rate:g}/s without",
                )
            return WorkerAction.NONE, None, "peaked", f"{rate:g}/s is no worse than with one more"
        if self._less(rate, peak) or (level > 0 and self._less(peak, self._known(level - 1))):
            if level == 0:
                return WorkerAction.NONE, None, "busy", "the rate has fallen, but worker 0 is never suspended"
            self._level -= 1
            self._peaking = True
            return (
                WorkerAction.SUSPEND,
                level,
                "busy",
                f"{rate:g}/s is significantly below what was seen before",
            )
        if level == 0 or self._less(self._known(level - 1), peak):
            return self._probe(level, peak)
        return WorkerAction.NONE, None, "stable from below", "the last worker brought no significant gain"

    def _probe(self, level: int, peak: float) -> tuple[WorkerAction, int | None, str, str]:
        if level + 1 >= self._workers_max:
            return WorkerAction.NONE, None, "limit", "all workers that are allowed are active"
        if level + 1 == len(self._peak):
            self._peak.append(None)
            self._last.append(0.0)
            self._level += 1
            return WorkerAction.CREATE, level + 1, "probe", "workers have paid so far"
        above = self._peak[level + 1]
        if above is None or peak < above:
            self._level += 1
            known = "unknown" if above is None else f"{above:g}/s"
            return WorkerAction.WAKE, level + 1, "probe", f"the level above is {known}, this one {peak:g}/s"
        return WorkerAction.NONE, None, "stable from above", f"one more worker had only {above:g}/s"

    def _known(self, level: int) -> float:
        peak = self._peak[level]
        if peak is None:
            # Levels are entered from below, one at a time, and only levels above are ever invalidated.
            raise RuntimeError(f"level {level} is at or below level {self._level} and has no peak: {self._peak}")
        return peak

    def _less(self, a: float, b: float) -> bool:
        return b - a >= self._tolerance * a and b > a

    def to_dict(self) -> dict[str, Any]:
        """JSON-able memory. Workers do not survive a process: make `created` of them anew after `restore`."""
        return {
            "period": self._period,
            "level": self._level,
            "peaking": self._peaking,
            "peak": list(self._peak),
            "last": list(self._last),
        }

    def restore(self, state: dict[str, Any]) -> None:
        created = min(len(state["peak"]), self._workers_max)
        self._period = state["period"]
        self._level = min(state["level"], created - 1)
        self._peak = list(state["peak"][:created])
        self._last = list(state["last"][:created])
        self._peaking = state["peaking"] and self._level + 1 < created
