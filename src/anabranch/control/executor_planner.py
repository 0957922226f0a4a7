"""How many executors the application should have, and which of them may go (pure).

    channels of all queries ─► slots needed ─► more than there are          ask for executors, at once
                                            └► less, for the whole patience  give some back, between epochs

Asking is cheap and waiting is not, so the one is done at once and the other late. What is not granted is not asked
for again and again: the channels that were added for it bring nothing, the controller takes them back, and after the
patience the request goes down with them.

An executor goes only if it is idle, and only as long as what stays has the slots of the next epoch, of the epoch that
was committed last (before that the keys of its channels had not moved), and those that other stages made use of. What
a channel has written is in the checkpoint; what is lost with an executor is copies and warm caches. Hence the order:
first whom the plan of the period names, then where another executor on the same host keeps what lies on its disk, and
of these the youngest. Transient state
lies on such disks and nowhere else, so if a query has some, the last executor of a host stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# Other stages (the source, mergers) may take this share of an epoch before their tasks count as needing slots.
_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class ExecutorBounds:
    """What the user allows."""

    executors_max: int
    executors_min: int = 1
    patience_s: float = 60.0
    """So long an executor must have been superfluous before it is given back."""


@dataclass(frozen=True, slots=True)
class ExecutorState:
    """An executor as Spark shows it."""

    identity: str
    host: str
    slots: int
    since_ms: int
    """When it came."""
    is_busy: bool
    """It runs a task, or holds blocks that would have to be computed again."""


@dataclass(frozen=True, slots=True)
class SlotNeed:
    """What queries need."""

    slots: int
    """Tasks that the next epoch runs side by side in channels."""
    slots_kept: int
    """Slots that must not go yet: those of the epoch committed last, and what other stages made use of."""
    keeps_hosts: bool = False
    """State lies on the disks of hosts and nowhere else."""
    rather: tuple[str, ...] = field(default=(), compare=False)
    """Executors that should go before others: what they have others have copies of, and could carry."""

    def __add__(self, other: SlotNeed) -> SlotNeed:
        """Both: epochs of different queries run at the same time."""
        return SlotNeed(
            self.slots + other.slots,
            self.slots_kept + other.slots_kept,
            self.keeps_hosts or other.keeps_hosts,
            self.rather + other.rather,
        )


@dataclass(frozen=True, slots=True)
class ExecutorPlan:
    """What to tell the cluster."""

    target: int
    """So many in all, from now on."""
    present: int
    """So many there are, those that are given back no more counted."""
    give_back: tuple[str, ...]
    reason: str


class ExecutorPlanner:
    """Plans for one application. Told what there is and what is needed, again and again; answers if that changes it.

    Parameters
    ----------
    initial : int
        Executors that the cluster was asked for when the application started; 0 if that is not known.
    slots_each : int, optional
        Slots of an executor that comes; None: as many as the smallest there is.
    """

    def __init__(self, initial: int = 0, slots_each: int | None = None) -> None:
        self._initial = initial
        self._slots_each = slots_each
        self._target: int | None = None
        self._leaving: set[str] = set()
        self._superfluous_since_s: float | None = None
        self._enough = 0  # most that was enough since then
        self._silent_until_s = -math.inf

    @property
    def target(self) -> int | None:
        """What the cluster was told last; None: nothing yet."""
        return self._target

    def staying(self, executors: Iterable[ExecutorState]) -> list[ExecutorState]:
        """Of those that Spark shows, the ones that were not given back: it shows them for a while after."""
        return [each for each in executors if each.identity not in self._leaving]

    def plan(
        self,
        now_s: float,
        executors: Sequence[ExecutorState],
        need: SlotNeed,
        bounds: ExecutorBounds,
        between_epochs: bool,
    ) -> ExecutorPlan | None:
        """What to do now; None: nothing.

        Parameters
        ----------
        now_s : float
            On a clock that only goes forward.
        executors : sequence of ExecutorState
        need : SlotNeed
        bounds : ExecutorBounds
        between_epochs : bool
            No epoch is under way: nothing is given back while one is, since its shuffled data would be lost.
        """
        self._leaving &= {each.identity for each in executors}
        present = self.staying(executors)
        if not present or now_s < self._silent_until_s:
            return None  # before the first has come nothing is known about their size
        target = max(self._target if self._target is not None else self._initial, len(present))
        wanted = self._count(present, need.slots, bounds)
        enough = max(wanted, self._count(present, need.slots_kept, bounds))
        if wanted > target:
            self._superfluous_since_s = None
            self._target = wanted
            slots = sum(each.slots for each in present)
            why = f"channels side by side: {need.slots}, slots: {slots}"
            return ExecutorPlan(wanted, len(present), (), why if need.slots > slots else "fewer than minExecutors")
        if enough >= target:
            self._superfluous_since_s = None
            return None
        if self._superfluous_since_s is None:
            self._superfluous_since_s, self._enough = now_s, enough
        self._enough = max(self._enough, enough)
        if now_s - self._superfluous_since_s < bounds.patience_s or not between_epochs:
            return None
        goes = self._superfluous(present, need, self._enough)
        fewer = max(self._enough, len(present) - len(goes))
        if not goes and fewer == target:
            return None  # those that are superfluous are busy, or hold state: perhaps later
        self._target = fewer
        self._leaving.update(goes)
        self._superfluous_since_s = None
        return ExecutorPlan(
            fewer,
            len(present) - len(goes),
            tuple(goes),
            f"{self._enough} were enough for {bounds.patience_s:g} s",
        )

    def refused(self, now_s: float, plan: ExecutorPlan, before: int | None, bounds: ExecutorBounds) -> None:
        """The cluster did not take a plan; it is asked again when as much time has passed as before giving back."""
        self._target = before
        self._leaving.difference_update(plan.give_back)
        self._silent_until_s = now_s + bounds.patience_s

    def _count(self, present: Sequence[ExecutorState], slots: int, bounds: ExecutorBounds) -> int:
        """Executors that have so many slots: of those there are, the smallest number of which any choice is enough."""
        sizes = sorted(max(1, each.slots) for each in present)
        count = covered = 0
        for size in sizes:
            if covered >= slots:
                break
            count, covered = count + 1, covered + size
        if covered < slots:
            count += math.ceil((slots - covered) / (self._slots_each or sizes[0]))
            # An application that has more than the user allows keeps them while they are needed.
            count = min(count, max(bounds.executors_max, len(present)))
        return max(count, bounds.executors_min)

    def _superfluous(self, present: Sequence[ExecutorState], need: SlotNeed, enough: int) -> list[str]:
        stays = {each.identity: each for each in present}
        slots = max(need.slots, need.slots_kept)
        goes: list[str] = []

        def has_company(one: ExecutorState) -> bool:
            return any(each.host == one.host and each.identity != one.identity for each in stays.values())

        def loss(one: ExecutorState) -> tuple[bool, bool, int, str]:
            return one.identity not in need.rather, not has_company(one), -one.since_ms, one.identity

        while len(stays) > enough:
            left = sum(each.slots for each in stays.values())
            may_go = [
                each
                for each in stays.values()
                if not each.is_busy and left - each.slots >= slots and (has_company(each) or not need.keeps_hosts)
            ]
            if not may_go:
                break
            one = min(may_go, key=loss)
            del stays[one.identity]
            goes.append(one.identity)
        return goes


def side_by_side(channels: Mapping[str, int], depths: Mapping[str, int]) -> int:
    """Channels that run at the same time: depths run one after the other, the regions of one side by side."""
    by_depth: dict[int, int] = {}
    for region, count in channels.items():
        by_depth[depths[region]] = by_depth.get(depths[region], 0) + count
    return max(by_depth.values(), default=0)


def slots_used(task_seconds: Sequence[float], epoch_s: float) -> int:
    """Slots that a stage without channels made use of: with fewer it would have taken a good part of the epoch.

    It lasts as long as its slowest task at least, whatever the slots.
    """
    if not task_seconds:
        return 0
    allowed_s = max(max(task_seconds), _SHARE * epoch_s, 1e-6)
    return min(len(task_seconds), max(1, math.ceil(sum(task_seconds) / allowed_s)))
