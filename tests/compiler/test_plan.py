"""The plan: fingerprints, differences in words, explanations."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

from anabranch.compiler.explaining.explain import explain
from anabranch.compiler.layout.compile import compile_program
from anabranch.compiler.layout.plan import difference
from anabranch.errors import ProgramError
from anabranch.program.graph import Keyed, Location, Process, StateField
from tests.compiler.programs import Builder, Counting

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


def program(line=0, key=("k",), field="seen", extra=False):
    b = Builder()
    at = b.source("readings")
    at = b.selective("positive", at)
    at = b.node("jumps", Process(Jump()), at)
    at = b.node("count", Keyed(Counting(), "process", (StateField(field, 0),)), at, key=key, kind="process")
    if extra:
        at = b.stateless("extra", at)
    at = b.node("total", Process(Total()), at)
    at = b.sink("sink", at)
    if line:
        moved = {}
        for node in _nodes(at):
            moved[node.id] = dataclasses.replace(
                node,
                location=Location("elsewhere.py", line + node.id),
                inputs=tuple(moved[s.id] for s in node.inputs),
            )
        at = moved[at.id]
    return [at]


def _nodes(node):
    return [*(each for source in node.inputs for each in _nodes(source)), node]


def test_the_fingerprint_does_not_depend_on_lines_or_paths():
    assert compile_program(program()).fingerprint == compile_program(program(line=77)).fingerprint


def test_the_fingerprint_is_the_same_in_another_process():
    code = (
        "from tests.compiler.test_plan import program; from anabranch.compiler.layout.compile "
        "import compile_program; "
        "print(compile_program(program()).fingerprint)"
    )
    root = HERE.parent.parent
    found = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root,
            env={"PYTHONPATH": f"{root / 'src'}:{root}", "PYTHONHASHSEED": seed, "PATH": ""},
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert found == {compile_program(program()).fingerprint}


def test_a_description_is_plain_data():
    description = compile_program(program()).description()
    assert json.loads(json.dumps(description)) == description


@pytest.mark.parametrize(
    ("changed", "text", "loses"),
    [
        ({"key": ("l",)}, "operator count: key changed from k to l", True),
        ({"field": "hits"}, "operator count: state field seen was removed", True),
        ({"field": "hits"}, "operator count: state field hits was added", True),
        ({"extra": True}, "operator extra was added", False),
        ({"extra": True}, "operator total: reads extra instead of count", False),
    ],
)
def test_a_difference_is_said_in_words(changed, text, loses):
    old, new = compile_program(program()).description(), compile_program(program(**changed)).description()
    found = {str(change): change.loses_state for change in difference(old, new)}
    assert text in found and found[text] is loses
    assert compile_program(program(**changed)).fingerprint != compile_program(program()).fingerprint


def test_nothing_changed_is_no_difference():
    assert difference(compile_program(program()).description(), compile_program(program(line=5)).description()) == []


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
        if operator["region"] is None:
            assert operator["blocked"] and operator["remedy"], operator["name"]


def test_the_drawing_is_well_formed_and_shows_every_operator():
    plan = compile_program(program())
    tree = xml.etree.ElementTree.fromstring(explain(plan, "svg"))
    texts = {each.text for each in tree.iter("{http://www.w3.org/2000/svg}text")}
    assert {operator.name for operator in plan.operators} <= texts


def test_a_form_that_does_not_exist_is_refused():
    with pytest.raises(ProgramError, match="valid: 'text', 'json', 'mermaid', 'svg'"):
        explain(compile_program(program()), "pdf")
