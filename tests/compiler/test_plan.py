"""The plan: one frozen object of what is believed and what runs; its explanations."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree
from pathlib import Path

import pytest

from anabranch.compiler.compile import compile_program
from anabranch.compiler.explaining.explain import explain
from anabranch.compiler.explaining.running import RunningQuery
from anabranch.errors import ProgramError
from anabranch.program.graph import Keyed, Map, Process, StateField
from tests.compiler.programs import Builder, Counting, opaque

HERE = Path(__file__).parent
SNAPSHOTS = HERE / "snapshots"


class Jump:
    def __init__(self):
        self.stored = {}

    def __call__(self, t):
        if t.k not in self.stored or abs(t.v - self.stored[t.k]) > 10.0:
            self.stored[t.k] = t.v
            yield t


class Total:
    def __init__(self):
        self.total = 0.0

    def __call__(self, t):
        self.total += t.v
        print(self.total)
        yield t.but(v=self.total)


def program():
    b = Builder()
    at = b.source("readings")
    at = b.selective("positive", at)
    at = b.node("jumps", Process(Jump()), at)
    at = b.node("count", Keyed(Counting(), "process", (StateField("seen", 0),)), at, key=("k",), kind="process")
    return [b.node("total", Process(Total()), at)]


def remembers(t):
    pytest.seen = t.k  # in another module, of which no copy is made
    return t


def refused():
    """A program that means something, but cannot run: what it remembers could not be kept."""
    b = Builder()
    return [b.stateless("after", b.node("remembers", Map(remembers), b.source()))]


def running(plan, **more):
    return RunningQuery(plan.layout, {"jumps": 3}, **more)


def test_a_plan_is_frozen():
    plan = compile_program(program())
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.chains = ()


def test_a_program_that_cannot_run_has_a_plan_that_says_why():
    plan = compile_program(refused())
    assert plan.laid_out is None and "could not be kept" in plan.refused
    with pytest.raises(ProgramError, match="could not be kept"):
        plan.layout  # noqa: B018
    assert "the program cannot run: operator remembers" in explain(plan)
    data = json.loads(explain(plan, "json"))
    assert data["refused"] == plan.refused and "stages" not in data
    for form in ("mermaid", "svg"):
        assert "remembers" in explain(plan, form)


def check_snapshot(name, text):
    path = SNAPSHOTS / name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path} was missing and has been written; look at it and run again")
    assert text == path.read_text(), f"{path} no longer fits; delete it to write it anew"


@pytest.mark.parametrize("form", ["text", "mermaid"])
def test_the_explanation_is_the_one_on_file(form):
    check_snapshot(f"explain.{form}.txt", explain(compile_program(program()), form))


def test_every_property_has_a_reason_and_a_line():
    data = json.loads(explain(compile_program(program()), "json"))
    for operator in data["operators"]:
        for name, found in operator["properties"].items():
            assert found["reason"] and found["location"], (operator["name"], name)
        if operator["chain"] is None:
            assert operator["blocked"] and operator["remedy"], operator["name"]


def test_every_region_says_why_it_begins_where_it_begins():
    data = json.loads(explain(compile_program(program()), "json"))
    regions = [stage for stage in data["stages"] if stage["region"] is not None]
    assert [stage["region"] for stage in regions] == ["jumps", "total"]
    assert all(stage["reason"] and stage["inputs"] for stage in regions)


def test_what_a_query_has_decided_is_shown():
    plan = compile_program(program())
    before = json.loads(explain(plan, "json"))
    assert [depth["tasks"] for depth in before["depths"]] == [None, None, 1]
    assert "their number is decided at the start" in explain(plan)
    decided = running(plan, source_tasks=5, mergers=2, merged=frozenset({0}))
    after = json.loads(explain(plan, "json", decided))
    assert [depth["tasks"] for depth in after["depths"]] == [5, 3, 1]
    assert (before["shuffles"], after["shuffles"]) == (2, 3), "mergers are behind a shuffle of their own"
    text = explain(plan, "text", decided)
    assert "channels by key; 3 now" in text and "output total: merged by 2 mergers" in text
    assert "3 channels" in explain(plan, "mermaid", decided)


def test_an_edge_without_order_has_no_trail():
    plan = compile_program(program())
    edges = tuple(dataclasses.replace(edge, ordered=False) for edge in plan.layout.edges)
    loose = RunningQuery(dataclasses.replace(plan.layout, edges=edges), {})
    data = json.loads(explain(plan, "json", loose))
    assert {edge["trail"] for stage in data["stages"] for edge in stage["inputs"]} == {0}
    assert data["outputs"][0]["merged"] == "not at all" and "trail" not in explain(plan, "mermaid", loose)


def test_the_drawing_is_well_formed_and_shows_every_operator():
    plan = compile_program(program())
    tree = xml.etree.ElementTree.fromstring(explain(plan, "svg"))
    texts = {each.text for each in tree.iter("{http://www.w3.org/2000/svg}text")}
    assert {operator.name for operator in plan.operators} <= texts
    assert any("region jumps" in text for text in texts)
    assert plan._repr_html_() == explain(plan, "svg")


def test_a_form_that_does_not_exist_is_refused():
    with pytest.raises(ProgramError, match="valid: 'text', 'json', 'mermaid', 'svg'"):
        explain(compile_program(program()), "pdf")


def test_compiling_leaves_the_functions_of_the_user_as_they_are():
    b = Builder()
    before = dict(vars(opaque))
    plan = compile_program([b.opaque("gate", b.source())])
    assert plan.layout and vars(opaque) == before and before, "the declaration is an attribute of the function"
