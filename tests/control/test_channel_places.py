"""Where channels should run, by random cases: balanced, and nothing moves without need."""

import math

from hypothesis import given
from hypothesis import strategies as st

from anabranch.control.channel_places import channel_places, place_plan
from anabranch.control.executor_planner import ExecutorState

EXECUTORS = st.lists(st.tuples(st.sampled_from("ABC"), st.integers(1, 3)), min_size=1, max_size=6).map(
    lambda drawn: [ExecutorState(str(n), host, slots, 0, False) for n, (host, slots) in enumerate(drawn)]
)


HELD = st.dictionaries(st.integers(0, 11), st.tuples(st.integers(0, 8), st.sampled_from("ABCD")))
COPIES = st.dictionaries(st.integers(0, 11), st.dictionaries(st.integers(0, 8), st.integers(0, 3)))


@given(
    EXECUTORS,
    st.integers(0, 12),
    st.dictionaries(st.integers(0, 11), st.tuples(st.integers(0, 8), st.sampled_from("ABCD"))),
)
def test_every_channel_has_a_place_no_executor_too_many_and_who_can_stay_stays(executors, count, drawn):
    channels = [("r", n) for n in range(count)]
    held = {("r", n): (str(identity), host) for n, (identity, host) in drawn.items()}
    found = channel_places(channels, executors, held)
    assert set(found) == set(channels)
    share = math.ceil(count / sum(each.slots for each in executors)) if count else 0
    loads = {each.identity: [c for c in channels if found[c] == each] for each in executors}
    assert all(len(loads[each.identity]) <= share * each.slots for each in executors)
    known = {each.identity for each in executors}
    for channel in channels:
        identity, _ = held.get(channel, ("", ""))
        if identity in known and found[channel].identity != identity:
            full = loads[identity]
            room = next(each.slots for each in executors if each.identity == identity) * share
            assert len(full) == room and all(held.get(other, ("", ""))[0] == identity for other in full)


@given(EXECUTORS, st.integers(1, 12))
def test_what_was_placed_stays_where_it_is(executors, count):
    channels = [("r", n) for n in range(count)]
    first = channel_places(channels, executors, {})
    again = channel_places(channels, executors, {c: (each.identity, each.host) for c, each in first.items()})
    assert again == first


def test_a_channel_whose_executor_is_gone_goes_where_its_host_has_copies():
    executors = [ExecutorState("1", "A", 1, 0, False), ExecutorState("2", "B", 1, 0, False)]
    found = channel_places([("r", 0)], executors, {("r", 0): ("0", "B")})
    assert found["r", 0].identity == "2"


def test_without_executors_there_is_no_place():
    assert channel_places([("r", 0)], [], {}) == {}


@given(EXECUTORS, st.integers(0, 12), HELD, COPIES, st.integers(0, 3), st.integers(0, 2))
def test_migrations_are_direct_cpa_or_cpal_as_the_copies_allow(executors, count, drawn, copied, standbys, lag):
    channels = [("r", n) for n in range(count)]
    held = {("r", n): (str(identity), host) for n, (identity, host) in drawn.items()}
    copies = {("r", n): {str(identity): size for identity, size in each.items()} for n, each in copied.items()}
    plan = place_plan(channels, executors, held, copies, standbys, lag)
    alive, wanted = {each.identity for each in executors}, channel_places(channels, executors, held)
    moves = {move.channel: move for move in plan.moves}
    assert set(plan.now) == set(channels) and {each.identity for each in plan.now.values()} <= alive
    for channel in channels:
        source, there = held.get(channel, ("", ""))[0], plan.now[channel].identity
        usable = {identity: size for identity, size in copies.get(channel, {}).items() if identity in alive}
        move = moves.get(channel)
        assert (move is not None) == (bool(source) and source != there)
        if move is None:
            continue
        assert (move.source, move.target) == (source, there)
        if move.how == "CPAL":
            assert standbys and source in alive and usable[there] <= lag and there == wanted[channel].identity
        elif move.how == "CPA":
            assert standbys and source not in alive and usable[there] == min(usable.values())
        else:
            assert move.how == "direct" and (not standbys or (source not in alive and not usable))


@given(EXECUTORS, st.integers(0, 12), HELD, COPIES, st.integers(0, 3))
def test_every_channel_has_its_standbys_elsewhere_and_who_catches_up_becomes_the_owner(
    executors, count, drawn, copied, standbys
):
    channels = [("r", n) for n in range(count)]
    held = {("r", n): (str(identity), host) for n, (identity, host) in drawn.items()}
    copies = {("r", n): {str(identity): size for identity, size in each.items()} for n, each in copied.items()}
    plan = place_plan(channels, executors, held, copies, standbys)
    for channel in channels:
        followers = [identity for identity, followed in plan.follow.items() if channel in followed]
        assert plan.now[channel].identity not in followers
        assert min(standbys, len(executors) - 1) <= len(followers) <= standbys + 1
    if standbys:  # all copies arrive: one plan later everything is balanced, and then nothing moves any more
        for _ in range(2):
            complete = {c: {i: 0 for i, followed in plan.follow.items() if c in followed} for c in channels}
            at = {channel: (each.identity, each.host) for channel, each in plan.now.items()}
            plan = place_plan(channels, executors, at, complete, standbys)
        assert plan.now == channel_places(channels, executors, at)
        again = place_plan(
            channels, executors, {c: (each.identity, each.host) for c, each in plan.now.items()}, complete, standbys
        )
        assert again.now == plan.now and not again.moves


def test_copies_are_dealt_out_evenly():
    executors = [ExecutorState(str(n), f"h{n}", 1, 0, False) for n in range(4)]
    plan = place_plan([("r", n) for n in range(4)], executors, {}, {}, 1)
    assert sorted(map(len, plan.follow.values())) == [1, 1, 1, 1]
