"""One plan for a period: what of the load goes where, after the controller has said how many channels there are (pure).

    load of each channel and bundle ─┐  1. restore    what a lost executor ran goes where its copies are
    load of each host, others' too  ─┼─ 2. re-place   a channel leaves an overloaded host for one with room
    who has copies                  ─┘  3. move       bundles leave its channels for channels on hosts with room
                                        4. add        only then is another executor asked for
                                        5. remove     what all others could carry is given up, rather where copies are

One step makes the next unneeded, so each is tried only where those before it could do nothing. A host that has a usable
copy (all but so many bytes of it) is always rather taken than one that would have to fetch. Loads are in slots: a
channel that works half of the time has 0.5; what other tenants of a host use counts as its load, but cannot be moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.control.executor_planner import ExecutorState

Channel = tuple[str, int]
Bundle = tuple[str, int]
"""A region, and the number of a bundle in it; where regions have no bundles, of a channel."""

OVERLOAD = 0.9
_REMOVED_BELOW = 0.7
"""Of the overload threshold: so full may the others become when an executor is given up."""


@dataclass(frozen=True, slots=True)
class BundleStatistics:
    """What is known of a bundle, over about an epoch."""

    channel: int
    load: float
    """In slots: how much of the time its channel's task had one."""
    state_bytes: int = 0
    processor: float = 0.0
    """In cores: processor seconds over seconds."""
    rows: float = 0.0
    """Tuples in an epoch."""
    memory_bytes: int = 0
    """Its part of the memory of the workers that have its channel."""


@dataclass(frozen=True, slots=True)
class HostStatistics:
    """An executor, and what it has to do."""

    executor: ExecutorState
    outside: float = 0.0
    """What other tenants use of its slots."""


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """When a host is overloaded, and how many executors there may be."""

    overload: float = OVERLOAD
    lag_bytes: int = 0
    executors_max: int | None = None
    """None: their number is not ours to say."""
    executors_min: int = 1


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A decision of a plan, for the log."""

    kind: str
    """restore, re-place, move, add, remove or overloaded."""
    region: str
    """Empty: it is about all."""
    reason: str


@dataclass(slots=True)
class PeriodPlan:
    """What changes."""

    places: dict[Channel, str] = field(default_factory=dict)
    """Channel → the executor that it should go to."""
    bundles: dict[str, dict[int, int]] = field(default_factory=dict)
    """Region → bundle → the channel that it should go to."""
    executors: int = 0
    """So many more than there are."""
    give_back: tuple[str, ...] = ()
    steps: list[PlanStep] = field(default_factory=list)


@dataclass(frozen=True)
class PlanSituation:
    """What a plan is made of."""

    bundles: Mapping[Bundle, BundleStatistics]
    held: Mapping[Channel, str]
    """Channel → the executor that ran it, perhaps one that is gone."""
    hosts: Sequence[HostStatistics]
    copies: Mapping[Bundle, Mapping[str, int]]
    """Bundle → executor → bytes that it lacks."""
    tables: frozenset[str] = frozenset()
    """Regions whose bundles have owners in a table, so that they can be moved one by one."""


def period_plan(situation: PlanSituation, settings: PlanSettings | None = None) -> PeriodPlan:
    """The plan for the next epochs."""
    planning = _Planning(situation, settings or PlanSettings())
    planning.restore()
    if not planning.plan.steps:  # what was lost first: loads are others afterwards
        planning.relieve()
        planning.remove()
    return planning.plan


#: An executor that takes a channel from a full one must leave it, and have itself, so much of its load at most.
_SHARED_BELOW = 0.95


class _Planning:
    def __init__(self, situation: PlanSituation, settings: PlanSettings) -> None:
        self._known = situation
        self._settings = settings
        self._hosts = {each.executor.identity: each for each in situation.hosts}
        self._place = dict(situation.held)
        self._load = {identity: each.outside for identity, each in self._hosts.items()}
        self._of: dict[Channel, dict[Bundle, float]] = {channel: {} for channel in situation.held}
        for (region, number), each in situation.bundles.items():
            self._of.setdefault((region, each.channel), {})[region, number] = each.load
        for channel, bundles in self._of.items():
            if self._place.get(channel) in self._load:
                self._load[self._place[channel]] += sum(bundles.values())
        self.plan = PeriodPlan()

    # -- the steps ------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """What a lost executor ran goes where its copies are."""
        for channel in sorted(self._of):
            lost = self._place.get(channel)
            if lost is None or lost in self._hosts or not self._hosts:
                continue
            bundles = self._of[channel]
            whole = [each for each in self._hosts if bundles and all(self._has_copy(b, each) for b in bundles)]
            if whole:
                target = min(whole, key=lambda each: (self._fill(each), each))
                self._put(channel, target, "restore", f"executor {lost} is gone, {target} has copies of all of it")
            elif self._spread_copies(channel, lost):
                continue
            else:
                target = min(self._hosts, key=lambda each: (-self._copied(bundles, each), self._fill(each), each))
                some = "some of it" if self._copied(bundles, target) else "nothing, and room"
                self._put(channel, target, "restore", f"executor {lost} is gone, {target} has {some}")

    def relieve(self) -> None:
        """Overloaded hosts give something away, the fullest first; if that cannot be, another executor is wanted."""
        helpless = []
        for identity in sorted(self._hosts, key=lambda each: (-self._fill(each), each)):
            if self._fill(identity) <= self._settings.overload:
                break
            if not self._re_place(identity) and not self._move_bundles(identity):
                helpless.append(identity)
        if not helpless:
            return
        most, count = self._settings.executors_max, len(self._hosts)
        helped = [identity for identity in helpless if self._would_share(identity)]
        helpless = helped or helpless
        full = f"executor {helpless[0]} has {self._fill(helpless[0]):.0%} of its slots busy, and no other has room"
        if helped and most is not None and count < most:
            self.plan.executors = 1
            self.plan.steps.append(PlanStep("add", "", f"{full}: {count + 1} executors instead of {count}"))
        else:
            if not helped and most is not None and count < most:
                full += "; another executor would be no help, more channels might"
            self.plan.steps.append(PlanStep("overloaded", "", full))

    def remove(self) -> None:
        """An executor is given up if the others can carry what it does; rather one whose state has copies."""
        if self.plan.steps or self._settings.executors_max is None:
            return
        slots = sum(map(self._slots, self._hosts))
        if len(self._hosts) <= max(1, self._settings.executors_min):
            return

        def lost_bytes(identity: str) -> int:
            return sum(
                self._known.bundles[bundle].state_bytes
                for channel, bundles in self._of.items()
                if self._place.get(channel) == identity
                for bundle in bundles
                if not any(self._has_copy(bundle, other) for other in self._hosts if other != identity)
            )

        for identity in sorted(self._hosts, key=lambda each: (lost_bytes(each), self._fill(each), each)):
            targets = self._emptied(identity)
            fewer = slots - self._slots(identity)  # all channels should still run at once
            if targets is None or fewer < len(self._of) or self._hosts[identity].executor.is_busy:
                continue
            missing = lost_bytes(identity)
            for channel, target in targets.items():
                self._put(channel, target, "remove", f"executor {identity} is given back, {target} has room")
            have = "others have all of its state" if not missing else f"{missing} bytes of its state must be fetched"
            self.plan.give_back = (identity,)
            self.plan.steps.append(
                PlanStep("remove", "", f"{len(targets)} channels of {identity} fit elsewhere: {have}")
            )
            return

    # -- what they do ---------------------------------------------------------------------------------------

    def _would_share(self, identity: str) -> bool:
        """Whether an executor more would take a channel of a full one, and leave both with less than that has now."""
        here = self._load[identity]
        loads = [sum(self._of[channel].values()) for channel, place in self._place.items() if place == identity]
        return any(max(load, here - load) <= _SHARED_BELOW * here for load in loads)

    def _spread_copies(self, channel: Channel, lost: str) -> bool:
        """Give the bundles of a lost channel to channels on hosts that have copies; whether any was given."""
        region = channel[0]
        if region not in self._known.tables:
            return False
        given = 0
        for bundle in sorted(self._of[channel], key=lambda each: (-self._of[channel][each], each)):
            found = self._receiver(bundle, channel, only_copies=True)
            if found is not None:
                self._give(bundle, channel, found)
                given += 1
        if given:
            rest = len(self._of[channel])
            why = f"executor {lost} is gone: {given} bundles of channel {channel[1]} go where their copies are"
            self.plan.steps.append(PlanStep("restore", region, f"{why}, {rest} stay with it"))
        return bool(given)

    def _re_place(self, identity: str) -> bool:
        """Have the channel that fits best leave a host; whether one could."""
        excess = self._load[identity] - self._settings.overload * self._slots(identity)
        mine = [channel for channel in self._of if self._place.get(channel) == identity]
        found = []
        for channel in mine:
            load = sum(self._of[channel].values())
            for other in self._hosts:
                if other != identity and load > 0 and self._has_room(other, load) and self._has_slot(other):
                    usable = all(self._has_copy(bundle, other) for bundle in self._of[channel])
                    found.append((load < excess, not usable, load, self._fill(other), channel, other))
        if not found:
            return False
        *_, channel, other = min(found)
        why = f"executor {identity} has {self._fill(identity):.0%} of its slots busy, {other} {self._fill(other):.0%}"
        self._put(channel, other, "re-place", why)
        return True

    def _move_bundles(self, identity: str) -> bool:
        """Have bundles of a host's channels go to channels elsewhere, until it is not overloaded; whether any went."""
        before, moved = self._fill(identity), 0
        mine = [channel for channel in self._of if self._place.get(channel) == identity]
        for channel in sorted(mine, key=lambda each: -sum(self._of[each].values())):
            if channel[0] not in self._known.tables:
                continue
            for bundle in sorted(self._of[channel], key=lambda each: (-self._of[channel][each], each)):
                if self._fill(identity) <= self._settings.overload:
                    break
                found = self._receiver(bundle, channel, only_copies=False)
                if found is not None and self._of[channel][bundle] > 0:
                    self._give(bundle, channel, found)
                    moved += 1
        if moved:
            why = f"executor {identity} had {before:.0%} of its slots busy, no channel of it fits elsewhere"
            self.plan.steps.append(PlanStep("move", mine[0][0], f"{why}: {moved} bundles go to other channels"))
        return bool(moved)

    def _receiver(self, bundle: Bundle, owner: Channel, only_copies: bool) -> Channel | None:
        """The channel of the same region that should get a bundle: on a host with room, rather with a copy."""
        load = self._of[owner][bundle]
        found = []
        for channel in self._of:
            place = self._place.get(channel)
            if channel[0] != owner[0] or channel == owner or place is None or place not in self._hosts:
                continue
            usable = self._has_copy(bundle, place)
            if place != self._place.get(owner) and self._has_room(place, load) and (usable or not only_copies):
                found.append((not usable, self._fill(place), channel))
        return min(found)[-1] if found else None

    def _give(self, bundle: Bundle, source: Channel, target: Channel) -> None:
        load = self._of[source].pop(bundle)
        self._of[target][bundle] = load
        if self._place[source] in self._load:
            self._load[self._place[source]] -= load
        self._load[self._place[target]] += load
        self.plan.bundles.setdefault(bundle[0], {})[bundle[1]] = target[1]

    def _put(self, channel: Channel, target: str, kind: str, why: str) -> None:
        load = sum(self._of[channel].values())
        if self._place.get(channel) in self._load:
            self._load[self._place[channel]] -= load
        self._load[target] += load
        self._place[channel] = target
        self.plan.places[channel] = target
        self.plan.steps.append(PlanStep(kind, channel[0], f"channel {channel[1]} goes to {target}: {why}"))

    def _emptied(self, identity: str) -> dict[Channel, str] | None:
        """Where the channels of a host could go without overloading others; None: they could not."""
        free = {
            other: _REMOVED_BELOW * self._settings.overload * self._slots(other) - self._load[other]
            for other in self._hosts
            if other != identity
        }
        found: dict[Channel, str] = {}
        mine = [channel for channel in self._of if self._place.get(channel) == identity]
        for channel in sorted(mine, key=lambda each: (-sum(self._of[each].values()), each)):
            load = sum(self._of[channel].values())
            fitting = [other for other in free if free[other] >= load]
            if not fitting:
                return None
            target = max(fitting, key=lambda other: (self._copied(self._of[channel], other), free[other], other))
            found[channel], free[target] = target, free[target] - load
        return found

    # -- questions ------------------------------------------------------------------------------------------

    def _slots(self, identity: str) -> int:
        return max(1, self._hosts[identity].executor.slots)

    def _fill(self, identity: str) -> float:
        return self._load[identity] / self._slots(identity)

    def _has_room(self, identity: str, load: float) -> bool:
        return self._load[identity] + load <= self._settings.overload * self._slots(identity)

    def _has_slot(self, identity: str) -> bool:
        """Whether one channel more would still run beside the others, as far as all do."""
        share = -(-len(self._of) // sum(map(self._slots, self._hosts)))
        return sum(place == identity for place in self._place.values()) < share * self._slots(identity)

    def _has_copy(self, bundle: Bundle, identity: str) -> bool:
        missing = self._known.copies.get(bundle, {}).get(identity)
        return missing is not None and missing <= self._settings.lag_bytes

    def _copied(self, bundles: Mapping[Bundle, float], identity: str) -> int:
        """Bytes of some bundles that an executor has copies of."""
        return sum(
            max(0, self._known.bundles[bundle].state_bytes - self._known.copies[bundle][identity])
            for bundle in bundles
            if identity in self._known.copies.get(bundle, {}) and bundle in self._known.bundles
        )
