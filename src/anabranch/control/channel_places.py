"""Which executor each channel should run on, and who should have copies of its state (pure).

    where each channel ran last ──┐   now      the executor of each channel in the next epoch
    who has copies, how complete ─┼─► moves    which of them change, and how: direct, CPA, CPAL
    executors there are         ──┘   follow   whose state each executor should fetch in the background

A channel stays where its state is, unless its executor is gone or has more channels than its slots' share of them,
rounded up. What follows is *Resources*' three migrations, with segments as checkpoints:

    direct  the new executor fetches everything when it takes over: nobody has a copy, or copies are not wanted
    CPA     the executor is gone; one that has a copy takes over, and fetches what it has not seen
    CPAL    the old executor goes on while the new one catches up; they change between two epochs, when it is there

The old executor's cache then *is* a standby copy. What is copied are bundles of key groups, some or one for each
channel. Copies are where somebody chose them to be (`partitioning/allocating`), else dealt out evenly, and stay there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.control.executor_planner import ExecutorState

Channel = tuple[str, int]
"""A region, and the number of a channel in it."""
Bundle = tuple[str, int]
"""A region, and the number of a bundle in it; where a region has none, of a channel."""
Held = tuple[str, str]
"""Identity and host of an executor, perhaps of one that is gone."""
_NOWHERE: Held = ("", "")


@dataclass(frozen=True)
class StandbySettings:
    """Copies of state on other executors."""

    count: int = 0
    """Of each bundle."""
    bytes_per_s: int = 50 << 20
    """What each executor fetches for copies at most."""
    lag_bytes: int = 0
    """So much may be missing, beside what the last epoch wrote, of a copy that counts as complete."""


@dataclass(frozen=True, slots=True)
class Move:
    """A channel that changes its executor."""

    channel: Channel
    source: str
    """The identity of the executor that it leaves."""
    target: str
    how: str
    """direct, CPA or CPAL."""
    missing_bytes: int | None
    """What the new executor had not seen yet, as far as is known; None: it had no copy, or not of all bundles."""


@dataclass(frozen=True, slots=True)
class PlacePlan:
    """Where channels run, and who follows whom."""

    now: Mapping[Channel, ExecutorState]
    follow: Mapping[str, tuple[Bundle, ...]]
    """Identity of an executor → the bundles whose state it should have copies of."""
    moves: tuple[Move, ...] = ()


def place_plan(
    channels: Sequence[Channel],
    executors: Sequence[ExecutorState],
    held: Mapping[Channel, Held],
    copies: Mapping[Bundle, Mapping[str, int]],
    standbys: int,
    lag_bytes: int = 0,
    bundles: Mapping[Channel, Sequence[Bundle]] | None = None,
    wishes: Mapping[Channel, str] | None = None,
    chosen: Mapping[Bundle, Sequence[str]] | None = None,
) -> PlacePlan:
    """The plan for channels that run side by side.

    Parameters
    ----------
    channels : sequence
    executors : sequence of ExecutorState
        Those that are there.
    held : mapping
        Channel → the executor that has its state.
    copies : mapping
        Bundle → identity of an executor that follows it → bytes that it has not fetched yet.
    standbys : int
        How many executors should have copies of each bundle's state; 0: none, and all migrations are direct.
    lag_bytes : int
        So much may be missing where a channel goes.
    bundles : mapping, optional
        Channel → its bundles; of one that is not there, the channel itself is its bundle.
    wishes : mapping, optional
        Channel → identity of the executor that the plan of the period wants it on.
    chosen : mapping, optional
        Bundle → the executors that should have copies of it.
    """
    of = {channel: tuple((bundles or {}).get(channel, (channel,))) for channel in channels}
    wanted = channel_places(channels, executors, held, wishes)
    alive = {each.identity: each for each in executors}
    now: dict[Channel, ExecutorState] = {}
    moves = []
    catching_up: dict[Channel, str] = {}
    for channel, target in wanted.items():
        source = held.get(channel, _NOWHERE)[0]
        known = {identity: each for identity, each in _lacking(of[channel], copies).items() if identity in alive}
        how = "direct"
        if standbys and source in alive and source != target.identity:
            if not of[channel] or known.get(target.identity, _NONE) <= (0, lag_bytes):
                how = "CPAL"
            else:  # the old one goes on
                catching_up[channel] = target.identity
                target = alive[source]
        elif standbys and source and source not in alive and known:
            target, how = alive[min(known, key=lambda identity: (known[identity], identity))], "CPA"
        now[channel] = target
        if source and source != target.identity:
            without, missing = known.get(target.identity, _NONE)
            moves.append(Move(channel, source, target.identity, how, None if without else missing))
    catching = {bundle: identity for channel, identity in catching_up.items() for bundle in of[channel]}
    owners = {bundle: now[channel] for channel in channels if channel in now for bundle in of[channel]}
    return PlacePlan(now, _followers(owners, executors, copies, standbys, catching, chosen or {}), tuple(moves))


_NONE = (1, 0)


def _lacking(bundles: Sequence[Bundle], copies: Mapping[Bundle, Mapping[str, int]]) -> dict[str, tuple[int, int]]:
    """Who has copies of some bundles: of how many it has none, and how many bytes it lacks of the others."""
    found: dict[str, tuple[int, int]] = {}
    for bundle in bundles:
        for identity, missing in copies.get(bundle, {}).items():
            without, total = found.get(identity, (len(bundles), 0))
            found[identity] = (without - 1, total + missing)
    return found


def _followers(
    owners: Mapping[Bundle, ExecutorState],
    executors: Sequence[ExecutorState],
    copies: Mapping[Bundle, Mapping[str, int]],
    standbys: int,
    catching_up: Mapping[Bundle, str],
    wanted: Mapping[Bundle, Sequence[str]],
) -> dict[str, tuple[Bundle, ...]]:
    """Who follows whom: as was chosen; else evenly, rather who has a copy already, rather on another host."""
    found: dict[str, list[Bundle]] = {each.identity: [] for each in executors}
    for bundle, identity in catching_up.items():
        found[identity].append(bundle)
    share = -(-len(owners) * standbys // len(executors)) if executors else 0
    for bundle, owner in owners.items():
        others = [each for each in executors if each.identity != owner.identity]
        for _ in range(min(standbys, len(others))):
            known = copies.get(bundle, {})
            free = [each for each in others if bundle not in found[each.identity]]
            if not free:
                break
            chosen = min(
                free,
                key=lambda each: (
                    each.identity not in wanted.get(bundle, ()),
                    len(found[each.identity]) >= share,
                    each.identity not in known,
                    each.host == owner.host,
                    len(found[each.identity]),
                ),
            )
            found[chosen.identity].append(bundle)
    return {identity: tuple(each) for identity, each in found.items() if each}


def channel_places(
    channels: Sequence[Channel],
    executors: Sequence[ExecutorState],
    held: Mapping[Channel, Held],
    wishes: Mapping[Channel, str] | None = None,
) -> dict[Channel, ExecutorState]:
    """The executor that every channel of those that run side by side should have in the end; empty if there is none.

    Examples
    --------
    >>> one, other = (ExecutorState(name, "h", 1, 0, False) for name in "ab")
    >>> found = channel_places([("sum", 0), ("sum", 1)], [one, other], {("sum", 1): ("a", "h")})
    >>> [found["sum", number].identity for number in range(2)]
    ['b', 'a']
    """
    if not executors:
        return {}
    slots = sum(each.slots for each in executors)
    share = -(-len(channels) // slots)
    by_identity = {each.identity: each for each in executors}
    load = dict.fromkeys(by_identity, 0)
    found: dict[Channel, ExecutorState] = {}
    asked = {channel: identity for channel, identity in (wishes or {}).items() if identity in by_identity}
    for channel in sorted(channels, key=lambda each: each not in asked):
        home = by_identity.get(asked.get(channel, held.get(channel, _NOWHERE)[0]))
        if home is not None and load[home.identity] < share * home.slots:
            found[channel] = home
            load[home.identity] += 1
    for channel in channels:
        if channel not in found:
            host = held.get(channel, _NOWHERE)[1]
            # There is always one with room: the shares of all hold all channels.
            open_ones = [each for each in executors if load[each.identity] < share * each.slots]
            chosen = min(open_ones, key=lambda each: (each.host != host, load[each.identity] / each.slots))
            found[channel] = chosen
            load[chosen.identity] += 1
    return {channel: found[channel] for channel in channels}
