"""The corpus: every operator gets the verdict that is stored beside it."""

from __future__ import annotations

import pytest

from anabranch.compiler.layout.analysis import analyse
from anabranch.compiler.reading.read_operator import INTERNAL
from tests.compiler.corpus import load
from tests.compiler.harness import node_of

CASES, _ = load()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict_is_the_expected_one(case):
    model = analyse(node_of(case))
    blocks = [f"{block.reason} ({block.location})" for block in model.blocks]
    assert not any(INTERNAL in block for block in blocks)
    assert model.state.value.value == case.verdict, blocks
    if case.key:
        assert model.key is not None and model.key.text == case.key
    if case.selectivity:
        assert model.selectivity.value.value == case.selectivity
    if case.verdict == "unknown":
        assert model.blocks and all(block.reason and block.location for block in model.blocks)
        assert model.remedy


def test_the_corpus_is_large_and_its_names_are_unique():
    assert len(CASES) >= 120
    assert len({case.name for case in CASES}) == len(CASES)


def test_nothing_unsafe_is_judged_safe():
    assert [case.name for case in CASES if case.truth == "unsafe" and case.verdict != "unknown"] == []


def test_at_least_95_percent_of_the_safe_ones_are_found():
    safe = [case for case in CASES if case.truth == "safe"]
    assert sum(case.verdict != "unknown" for case in safe) / len(safe) >= 0.95
