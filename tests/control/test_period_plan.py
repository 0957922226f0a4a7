"""One plan for a period: its order of steps, and what it must never do, whatever the situation."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.control.executor_planner import ExecutorState
from anabranch.control.period_plan import (
    BundleStatistics,
    HostStatistics,
    PlanSettings,
    PlanSituation,
    period_plan,
)

MB = 1 << 20


def host(identity: str, outside: float = 0.0, slots: int = 1) -> HostStatistics:
    return HostStatistics(ExecutorState(identity, f"h{identity}", slots, 0, False), outside)


def situation(loads, held, hosts, copies=None, tables=("r",)) -> PlanSituation:
    """Loads: channel → loads of its bundles."""
    bundles = {}
    for channel, each in loads.items():
        for load in each:
            bundles["r", len(bundles)] = BundleStatistics(channel, load, state_bytes=MB)
    placed = {("r", channel): place for channel, place in held.items()}
    found = {("r", bundle): each for bundle, each in (copies or {}).items()}
    return PlanSituation(bundles, placed, hosts, found, frozenset(tables))


def kinds(plan) -> list[str]:
    return [step.kind for step in plan.steps]


def test_nothing_changes_where_nothing_is_wrong():
    plan = period_plan(situation({0: [0.3], 1: [0.3]}, {0: "a", 1: "b"}, [host("a"), host("b")]))
    assert not plan.steps and not plan.places and not plan.bundles


def test_a_channel_is_re_placed_before_bundles_move_and_before_a_host_is_added():
    loads = {0: [0.2, 0.2], 1: [0.3, 0.3]}
    hosts = [host("a"), host("b")]
    free = situation(loads, {0: "a", 1: "a"}, hosts)
    plan = period_plan(free, PlanSettings(executors_max=9))
    assert kinds(plan) == ["re-place"] and not plan.bundles and not plan.executors
    # Where no channel fits as a whole, bundles go.
    tight = situation({0: [0.5, 0.5], 1: [0.3, 0.1]}, {0: "a", 1: "b"}, hosts)
    plan = period_plan(tight, PlanSettings(executors_max=9))
    assert kinds(plan) == ["move"] and plan.bundles == {"r": {0: 1}} and not plan.places
    # Where nothing has room, another host is asked for; or that is told.
    full = situation({0: [0.5], 1: [0.6], 2: [0.9]}, {0: "a", 1: "a", 2: "b"}, hosts)
    assert kinds(period_plan(full, PlanSettings(executors_max=9))) == ["add"]
    plan = period_plan(full, PlanSettings(executors_max=2))
    assert kinds(plan) == ["overloaded"] and not plan.executors
    assert kinds(period_plan(full)) == ["overloaded"], "their number is not ours to say"


def test_no_executor_is_added_for_a_channel_that_would_be_as_full_there():
    """Another number of channels is the controller's to decide, and executors follow it."""
    alone = situation({0: [0.5, 0.6], 1: [0.9]}, {0: "a", 1: "b"}, [host("a"), host("b")])
    plan = period_plan(alone, PlanSettings(executors_max=9))
    assert kinds(plan) == ["overloaded"] and not plan.executors and "more channels" in plan.steps[0].reason
    # But where others use the host, a channel may leave it.
    shared = situation({0: [0.5], 1: [0.9]}, {0: "a", 1: "b"}, [host("a", outside=0.6), host("b")])
    assert kinds(period_plan(shared, PlanSettings(executors_max=9))) == ["add"]


def test_other_tenants_of_a_host_drive_a_channel_away_to_where_its_copy_is():
    held = {0: "a", 1: "b"}
    hosts = [host("a", outside=0.7), host("b"), host("c"), host("d")]
    plan = period_plan(situation({0: [0.4], 1: [0.4]}, held, hosts, {0: {"d": 0}}))
    assert plan.places == {("r", 0): "d"}


def test_what_a_lost_executor_ran_goes_to_who_has_all_of_it():
    known = situation(
        {0: [0.1, 0.1], 1: [0.3]}, {0: "gone", 1: "b"}, [host("b"), host("c")], {0: {"b": 0, "c": 0}, 1: {"c": 0}}
    )
    plan = period_plan(known)
    assert plan.places == {("r", 0): "c"} and kinds(plan) == ["restore"] and not plan.bundles


def test_bundles_of_a_lost_channel_go_where_their_copies_are():
    known = situation(
        {0: [0.2, 0.2], 1: [0.3], 2: [0.3]},
        {0: "gone", 1: "b", 2: "c"},
        [host("b"), host("c")],
        {0: {"b": 0}, 1: {"c": 0}},
    )
    plan = period_plan(known)
    assert plan.bundles == {"r": {0: 1, 1: 2}}
    # Without a table they cannot: the channel goes where most of it is.
    known = situation({0: [0.2, 0.2]}, {0: "gone"}, [host("b"), host("c")], {1: {"c": 0}}, tables=())
    plan = period_plan(known)
    assert plan.places == {("r", 0): "c"} and not plan.bundles


def test_what_others_can_carry_is_given_back_and_rather_where_copies_are():
    held = {0: "a", 1: "b", 2: "c"}
    hosts = [host(each, slots=2) for each in "abc"]
    known = situation({0: [0.1], 1: [0.1], 2: [0.1]}, held, hosts, {1: {"c": 0}})
    plan = period_plan(known, PlanSettings(executors_max=3))
    assert plan.give_back == ("b",) and plan.places == {("r", 1): "c"}
    assert period_plan(known, PlanSettings(executors_max=3, executors_min=3)).give_back == ()
    assert period_plan(known).give_back == ()
    tight = situation({0: [0.1], 1: [0.1], 2: [0.1]}, held, [host(each) for each in "abc"])
    assert period_plan(tight, PlanSettings(executors_max=3)).give_back == (), "channels should run side by side"


identities = st.sampled_from("abcde")
cases = st.builds(
    situation,
    st.dictionaries(st.integers(0, 5), st.lists(st.floats(0, 1), max_size=4), min_size=1),
    st.dictionaries(st.integers(0, 5), identities, min_size=1),
    st.lists(identities, max_size=5, unique=True).map(
        lambda names: [host(each, slots=1 + (each > "c")) for each in names]
    ),
    st.dictionaries(st.integers(0, 20), st.dictionaries(identities, st.integers(0, 2), max_size=3)),
    st.sampled_from([("r",), ()]),
)


@given(cases, st.sampled_from([None, 2, 9]))
def test_a_plan_names_only_what_there_is_overloads_nobody_and_ends(known, most):
    settings = PlanSettings(executors_max=most)
    plan = period_plan(known, settings)
    present = {each.executor.identity: each for each in known.hosts}
    channels = {*known.held, *(("r", each.channel) for each in known.bundles.values())}
    assert set(plan.places.values()) <= present.keys() and plan.places.keys() <= channels
    place = {**known.held, **plan.places}
    for bundle, channel in plan.bundles.get("r", {}).items():
        assert ("r", bundle) in known.bundles and place["r", channel] in present and known.tables
    assert not (plan.executors and (plan.places or plan.give_back)) or "re-place" in kinds(plan)
    assert set(plan.give_back) <= present.keys() and not set(plan.give_back) & set(plan.places.values())
    assert plan.executors in (0, 1) and (not plan.executors or len(present) < (most or 0))
    # What was given a channel or a bundle, and was not lost on, is not overloaded by it.
    if "restore" not in kinds(plan):
        moved = plan.bundles.get("r", {})
        load = {identity: each.outside for identity, each in present.items()}
        for (_, number), each in known.bundles.items():
            where = place.get(("r", moved.get(number, each.channel)))
            if where in load:
                load[where] += each.load
        receivers = {*plan.places.values(), *(place["r", channel] for channel in moved.values())}
        for identity in receivers:
            slots = present[identity].executor.slots
            assert load[identity] <= settings.overload * slots + 1e-9 or identity in known.held.values()
    # What a lost executor ran has a place, or its bundles have other channels.
    if present:
        for channel, where in known.held.items():
            if where not in present and any(("r", each.channel) == channel for each in known.bundles.values()):
                mine = [n for (_, n), each in known.bundles.items() if ("r", each.channel) == channel]
                assert channel in plan.places or any(number in plan.bundles.get("r", {}) for number in mine)
