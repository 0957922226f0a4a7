"""Chains: which operators may run in parallel together (*Safe*, section 3.1); programs that mean nothing."""

from __future__ import annotations

import pytest

from anabranch.compiler.compile import compile_program
from anabranch.errors import ProgramError
from anabranch.program.graph import Feedback, Keyed, Map, Port, Route, StateField
from anabranch.program.schema import Schema
from tests.compiler.programs import Builder, Counting


def chains(plan):
    return [chain.operators for chain in plan.chains]


def border(plan, after, before):
    found = [each.reason for each in plan.borders if (each.after, each.before) == (after, before)]
    assert found, f"no border between {after} and {before}: {plan.borders}"
    return found[0]


def test_the_key_of_a_chain_is_the_intersection():
    b = Builder()
    at = b.keyed("b", b.keyed("a", b.source(), "k", "l"), "l", "v")
    (chain,) = compile_program([at]).chains
    assert chain.key == ("l",)


def test_a_key_that_is_not_forwarded_ends_the_chain():
    b = Builder()
    first = b.keyed("first", b.source(), "k")
    changed = b.node("changed", Map(lambda t: t.but(k=t.k + 1)), first)
    at = b.keyed("second", changed, "k")
    plan = compile_program([at])
    assert chains(plan) == [("first", "changed"), ("second",)]
    assert border(plan, "changed", "second") == "its key {k} is not forwarded by changed"


def test_a_key_is_followed_under_a_new_name():
    b = Builder()
    renamed = b.node("renamed", Map(lambda t: (t.v, t.k)), b.source(), schema=Schema.of("value double, sensor long"))
    logic = Keyed(Counting(), "process", (StateField("seen", 0),))
    at = b.node("keyed", logic, renamed, key=("sensor",))
    (chain,) = compile_program([at]).chains
    assert chain.operators == ("renamed", "keyed")
    assert chain.key == ("k",)


def test_a_copy_into_another_type_is_not_the_same_key():
    b = Builder()
    wider = b.node("wider", Map(lambda t: (t.k,)), b.source(), schema=Schema.of("k double"))
    at = b.keyed("keyed", wider, "k")
    assert chains(compile_program([at])) == [("wider",), ("keyed",)]


def test_keys_without_a_common_column_part_a_chain():
    b = Builder()
    plan = compile_program([b.keyed("second", b.keyed("first", b.source(), "k"), "l")])
    assert chains(plan) == [("first",), ("second",)]
    assert "key would be empty: {k} and {l} have nothing in common" in border(plan, "first", "second")


def test_a_fork_parts_chains_but_keeps_nobody_from_running_in_parallel():
    b = Builder()
    a = b.stateless("a", b.source())
    left, right = b.stateless("left", a), b.stateless("right", a)
    plan = compile_program([left, right])
    assert chains(plan) == [("a",), ("left",), ("right",)]
    assert border(plan, "a", "left") == "the stream before it goes 2 ways"


def test_streams_that_meet_begin_a_chain():
    b = Builder()
    both = b.union("both", b.stateless("a", b.source("s1")), b.stateless("c", b.source("s2")))
    plan = compile_program([b.keyed("keyed", both, "k")])
    assert chains(plan) == [("a",), ("c",), ("both", "keyed")]


def test_the_ports_of_a_route_begin_chains():
    b = Builder()
    route = b.node("route", Route(lambda t: t.k % 2), b.source())
    ports = [b.node(f"port{i}", Port(i), route) for i in range(2)]
    plan = compile_program([b.keyed(f"end{i}", port, "k") for i, port in enumerate(ports)])
    assert chains(plan) == [("route",), ("port0", "end0"), ("port1", "end1")]


def test_what_is_not_known_to_be_safe_is_in_no_chain_and_says_why():
    b = Builder()
    plan = compile_program([b.opaque("gate", b.stateless("a", b.source()))])
    gate = plan.operator("gate")
    assert gate.chain is None and "state is unknown" in gate.blocked and gate.remedy
    assert border(plan, "a", "gate") == gate.blocked


def test_punctuations_part_nothing():
    """They travel with trails: who makes them and who waits for them may be anywhere."""
    b = Builder()
    marks = b.punctuate("marks", b.keyed("keyed", b.source(), "k"))
    plan = compile_program([b.sort("sort", marks, key=("l",))])
    assert chains(plan) == [("keyed", "marks"), ("sort",)]


# -- punctuations that do not come ----------------------------------------------------------------------------


def test_two_punctuated_streams_into_an_expecting_port_are_refused():
    b = Builder()
    left, right = b.punctuate("left", b.source("s1")), b.punctuate("right", b.source("s2"))
    at = b.sort("sort", left, right)
    with pytest.raises(ProgramError, match=r"sort \(program.py:50\): expects one punctuated stream, found 2: left"):
        compile_program([at])


def test_a_union_of_punctuated_streams_has_none():
    b = Builder()
    left, right = b.punctuate("left", b.source("s1")), b.punctuate("right", b.source("s2"))
    at = b.sort("sort", b.union("both", left, right))
    with pytest.raises(ProgramError, match=r"sort .* lost at both \(program.py:50\)"):
        compile_program([at])


def test_an_expecting_port_without_punctuations_is_refused():
    b = Builder()
    with pytest.raises(ProgramError, match="expects a punctuated stream, but its input has no punctuations"):
        compile_program([b.sort("sort", b.source())])


# -- programs that mean nothing ---------------------------------------------------------------------------


def test_a_key_that_does_not_exist_is_refused_with_operator_and_line():
    b = Builder()
    at = b.keyed("keyed", b.source(), "nope")
    with pytest.raises(ProgramError, match=r"keyed \(program.py:20\): .*'nope'.*columns: k, l, v"):
        compile_program([at])


def test_a_circle_without_a_feedback_edge_is_refused():
    b = Builder()
    a = b.stateless("a", b.source())
    c = b.stateless("c", a)
    object.__setattr__(a, "inputs", (c,))
    with pytest.raises(ProgramError, match=r"program.py:.0\): the program goes in a circle: .*feedback"):
        compile_program([c])


def test_feedback_from_nowhere_is_refused():
    b = Builder()
    back = b.node("back", Feedback("nobody"), schema=b.source("unused").schema)
    with pytest.raises(ProgramError, match=r"back .*'nobody', which does not exist"):
        compile_program([b.stateless("end", back)])


def test_two_operators_of_one_name_are_refused():
    b = Builder()
    with pytest.raises(ProgramError, match="another operator has that name"):
        compile_program([b.stateless("a", b.stateless("a", b.source()))])
