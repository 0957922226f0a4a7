"""The plan of the paper: *Safe*, Figures 1 and 4, Table 1, sections 3.1 and 5.3. What Anabranch runs is a layout."""

from __future__ import annotations

import pytest

from anabranch.papers.merging.ordering import Strategy
from anabranch.papers.safe_plan import Joint, Routing, safe_plan
from anabranch.papers.safe_regions import Rules
from anabranch.program.graph import Feedback, Port, Route
from anabranch.program.model import Selectivity
from tests.compiler.programs import Builder


def regions(plan):
    return [region.operators for region in plan.regions]


def border(plan, after, before):
    found = [each.reason for each in plan.borders if (each.after, each.before) == (after, before)]
    assert found, f"no border between {after} and {before}: {plan.borders}"
    return found[0]


def figure_4():
    """o1 → o8; o2 → o3 n.p. → o4 n.p. → o5 → o6{k} → o7 n.p. → o8 → o9{k} → o10{k,l} → o11{l} → o12 ┐
    o4 ──────────────────────────────────────────────────────────────────────────► o13 ← o12;  o13 → o14
    with o12 and o14 to be fused."""
    b = Builder()
    s1, s2 = b.source("s1"), b.source("s2")
    o1 = b.stateless("o1", s1)
    o2 = b.stateless("o2", s2)
    o3 = b.opaque("o3", o2)
    o4 = b.opaque("o4", o3)
    o5 = b.stateless("o5", o4)
    o6 = b.keyed("o6", o5, "k")
    o7 = b.opaque("o7", o6)
    o8 = b.union("o8", o1, o7)
    o9 = b.keyed("o9", o8, "k")
    o10 = b.keyed("o10", o9, "k", "l")
    o11 = b.keyed("o11", o10, "l")
    o12 = b.stateless("o12", o11)
    o13 = b.union("o13", o12, o4)
    o14 = b.stateless("o14", o13)
    return safe_plan([o14], Rules(fused={"o12": "x", "o14": "x"}))


def test_figure_4_has_the_regions_of_the_paper():
    assert regions(figure_4()) == [("o1",), ("o2",), ("o5", "o6"), ("o9", "o10"), ("o11",)]


def test_figure_4_has_each_border_for_the_reason_of_the_paper():
    plan = figure_4()
    assert "2 inputs" in border(plan, "o1", "o8")
    assert "state is unknown" in border(plan, "o2", "o3")
    assert "key would be empty" in border(plan, "o10", "o11")
    assert plan.regions[2].key == ("k",)
    assert plan.regions[3].key == ("k",)
    assert plan.regions[3].last is Joint.SHUFFLE and plan.regions[4].first is Joint.SHUFFLE
    o12 = plan.operator("o12")
    assert o12.region is None and "o14" in o12.blocked and "o13 is in the way" in o12.blocked
    assert "2 inputs" in o12.blocked
    assert plan.operator("o14").region is None


def test_figure_1_runs_three_operators_in_parallel_with_one_shuffle_and_one_merge():
    b = Builder()
    messages = b.source("messages")
    sums = b.keyed("sums", messages, "l")
    suspects = b.selective("suspects", sums)
    sink = b.opaque("sink", suspects)
    plan = safe_plan([sink], Rules(partitioned={"messages": ("k",)}))
    assert regions(plan) == [("messages",), ("sums", "suspects")]
    assert sum(operator.region is not None for operator in plan.operators) == 3
    first, second = plan.regions
    assert (first.first, first.last) == (Joint.PARALLEL_SOURCE, Joint.SHUFFLE)
    assert (second.first, second.last) == (Joint.SHUFFLE, Joint.MERGE)
    assert second.key == ("l",) and second.routing is Routing.HASH
    assert plan.operator("sink").region is None


TABLE_1 = [
    ("stateless", [], Strategy.ROUND_ROBIN, Selectivity.ONE),
    ("keyed", [], Strategy.SEQUENCE, Selectivity.ONE),
    ("stateless", ["selective"], Strategy.STRICT, Selectivity.AT_MOST_ONE),
    ("keyed", ["selective"], Strategy.STRICT, Selectivity.AT_MOST_ONE),
    ("stateless", ["prolific"], Strategy.RELAXED, Selectivity.ANY),
    ("keyed", ["prolific"], Strategy.RELAXED, Selectivity.ANY),
    ("keyed", ["selective", "prolific"], Strategy.RELAXED, Selectivity.ANY),
]


@pytest.mark.parametrize(("state", "extra", "order", "selectivity"), TABLE_1)
def test_every_row_of_table_1(state, extra, order, selectivity):
    b = Builder()
    at = b.source()
    at = b.stateless("first", at) if state == "stateless" else b.keyed("first", at, "k")
    for number, kind in enumerate(extra):
        at = getattr(b, kind)(f"{kind}{number}", at)
    (region,) = safe_plan([at]).regions
    assert region.ordering is order
    assert region.flow_selectivity is selectivity
    assert region.routing is (Routing.ROUND_ROBIN if state == "stateless" else Routing.HASH)
    assert (region.first, region.last) == (Joint.SPLIT, Joint.MERGE)


def test_gaps_made_before_a_shuffle_are_counted_behind_it():
    b = Builder()
    at = b.keyed("second", b.selective("drops", b.keyed("first", b.source(), "k")), "l")
    plan = safe_plan([at])
    assert [region.ordering for region in plan.regions] == [Strategy.STRICT, Strategy.STRICT]
    assert plan.regions[1].selectivity is Selectivity.ONE


def test_a_parallel_source_and_a_shuffle_need_numbers_even_without_state():
    b = Builder()
    at = b.keyed("keyed", b.stateless("map", b.source()), "k")
    plan = safe_plan([at], Rules(partitioned={"source": ("l",)}))
    assert regions(plan) == [("source", "map"), ("keyed",)]
    assert plan.regions[0].ordering is Strategy.SEQUENCE


def test_no_shuffle_follows_a_prolific_region_unless_packets_carry_an_emission_index():
    b = Builder()
    at = b.keyed("second", b.prolific("splits", b.keyed("first", b.source(), "k")), "l")
    plan = safe_plan([at])
    assert regions(plan) == [("first", "splits"), ("second",)]
    assert (plan.regions[0].last, plan.regions[1].first) == (Joint.MERGE, Joint.SPLIT)
    assert "prolific" in plan.regions[1].reason
    assert plan.regions[1].flow_selectivity is Selectivity.ONE
    lifted = safe_plan([at], Rules(emission_index=True))
    assert (lifted.regions[0].last, lifted.regions[1].first) == (Joint.SHUFFLE, Joint.SHUFFLE)
    assert lifted.regions[1].ordering is Strategy.RELAXED


def test_fan_out_ends_a_region():
    b = Builder()
    a = b.stateless("a", b.source())
    left, right = b.stateless("left", a), b.stateless("right", a)
    plan = safe_plan([left, right])
    assert regions(plan) == [("left",), ("right",)]
    assert "2 ways" in plan.operator("a").blocked and "left, right" in plan.operator("a").remedy


def test_the_ports_of_a_route_are_ways_out():
    b = Builder()
    route = b.node("route", Route(lambda t: t.k % 2), b.source())
    ports = [b.node(f"port{i}", Port(i), route) for i in range(2)]
    ends = [b.keyed(f"end{i}", port, "k") for i, port in enumerate(ports)]
    plan = safe_plan(ends)
    assert plan.operator("route").region is None
    assert regions(plan) == [("port0", "end0"), ("port1", "end1")]


def test_a_stream_that_leaves_the_program_and_is_read_goes_two_ways():
    b = Builder()
    a = b.stateless("a", b.source())
    c = b.stateless("c", a)
    plan = safe_plan([a, c])
    assert plan.operator("a").region is None


# -- fusion -----------------------------------------------------------------------------------------------


def test_fused_operators_pull_the_border_to_the_left():
    b = Builder()
    first = b.keyed("first", b.source(), "k")
    plain = b.stateless("plain", first)
    at = b.keyed("second", plain, "l")
    plan = safe_plan([at], Rules(fused={"plain": "x", "second": "x"}))
    assert regions(plan) == [("first",), ("plain", "second")]
    assert "share a process" in border(plan, "first", "plain")


def test_processes_never_cross_the_border_of_a_region():
    plan = figure_4()
    for process in plan.processes:
        assert {plan.operator(name).region for name in process.operators} == {process.region}
    assert sorted(name for process in plan.processes for name in process.operators) == sorted(
        operator.name for operator in plan.operators
    )


def test_a_process_never_waits_for_itself():
    b = Builder()
    a = b.opaque("a", b.source())
    inside = b.stateless("inside", a)
    at = b.union("u", a, inside)
    plan = safe_plan([at])
    of = {name: process.number for process in plan.processes for name in process.operators}
    assert of["source"] == of["a"] != of["u"]


# -- punctuations -------------------------------------------------------------------------------------------


def test_who_needs_punctuations_made_in_a_region_is_in_that_region():
    b = Builder()
    marks = b.punctuate("marks", b.keyed("keyed", b.source(), "k"))
    at = b.sort("sort", marks, key=("k",))
    (region,) = safe_plan([at]).regions
    assert region.operators == ("keyed", "marks", "sort")


def test_a_sequential_sort_keeps_the_maker_of_its_punctuations_sequential():
    b = Builder()
    marks = b.punctuate("marks", b.stateless("map", b.source()))
    at = b.sort("sort", marks)
    plan = safe_plan([at])
    assert regions(plan) == [("map",)]
    assert "needs its punctuations" in plan.operator("marks").blocked


def test_a_region_is_cut_to_keep_maker_and_user_together():
    b = Builder()
    marks = b.punctuate("marks", b.keyed("keyed", b.source(), "k"))
    at = b.sort("sort", marks, key=("l",))
    assert regions(safe_plan([at])) == [("keyed",), ("marks", "sort")]


def test_punctuations_made_before_a_region_pass_through_it():
    b = Builder()
    forced = b.union("forced", b.punctuate("marks", b.source()))
    parallel = b.stateless("parallel", b.opaque("gate", forced))
    plan = safe_plan([b.sort("sort", parallel)])
    assert ("parallel",) in regions(plan)


def test_a_feedback_edge_closes_a_circle():
    b = Builder()
    back = b.node("back", Feedback("end"), schema=b.source("unused").schema)
    both = b.union("both", b.source(), back)
    end = b.stateless("end", both)
    plan = safe_plan([end])
    assert plan.operator("end").region is None and "2 ways" in plan.operator("end").blocked
