"""The promise for graphs: parallel output == sequential output of every output, values and order."""

import dataclasses
import os

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from anabranch.errors import ProgramError
from anabranch.testing import ParallelRun, run_sequential
from tests.graphs import Recipe, build, cases, clocks, data
from tests.programs import exact

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]


def compare(case, channels, seed, times, directory):
    """Assert that both runs give the same; what they give, for each output."""
    recipe, inputs = case
    streams = build(recipe, inputs)
    try:
        run = ParallelRun(streams, str(directory), channels=channels, seed=seed, clocks_ms=times)
        expected = run_sequential(streams, clocks_ms=times, epochs_max=20)
    except ProgramError as problem:
        assume("no source" not in str(problem))
        assume("still fed back" not in str(problem))
        raise
    run.run_epochs()
    for got, wanted in zip(run.outputs, expected, strict=True):
        assert exact(got) == exact(wanted)
    return expected


# A failure prints the line that replays it: @reproduce_failure(…).
PROGRAMS = int(os.environ.get("ANABRANCH_PROGRAMS", "300"))


# The same programs in every `make test`, so that a change is blamed for what it broke; others in every night.
@settings(
    max_examples=PROGRAMS,
    derandomize="ANABRANCH_PROGRAMS" not in os.environ,
    print_blob=True,
    deadline=None,
    suppress_health_check=RELAXED,
)
@given(case=cases(), channels=st.integers(1, 6), seed=st.integers(0, 10**6), times=clocks)
def test_any_graph_on_any_data_gives_the_sequential_output(tmp_path_factory, case, channels, seed, times):
    compare(case, channels, seed, times, tmp_path_factory.mktemp("checkpoint"))


def test_a_layout_that_forgets_forks_is_caught(monkeypatch, tmp_path):
    """The comparison can fail: without the numbers of the edges, what meets again comes in another order."""
    from anabranch.compiler.layout import laying_out

    arriving = laying_out._Draft._arriving

    def without_digits(self, node, place):
        return [dataclasses.replace(branch, fork=()) for branch in arriving(self, node, place)]

    monkeypatch.setattr(laying_out._Draft, "_arriving", without_digits)
    recipe = Recipe(1, (("halve", (0,)), ("running", (0,)), ("union", (2, 1)), ("running", (3,))), (4,), False)
    with pytest.raises(AssertionError):
        compare((recipe, [data(1, 60)]), 3, 0, [0], tmp_path)


BETWEEN = {
    "nothing": (),
    "a filter": (("filter", (1,)),),
    "a keyed operator": (("jump", (1,)),),
    "another key": (("jump", (1,)), ("running by name", (2,))),
}


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("unions", [(("union", "itself"),), (("union", "itself"), ("union", 0)), (("union", 0),)])
@pytest.mark.parametrize("behind", ["punctuated", "punctuated far", "sort windows"])
@pytest.mark.parametrize("channels", [1, 3])
def test_what_a_union_does_to_punctuations_holds_wherever_others_are_made_behind_it(
    tmp_path, between, unions, behind, channels
):
    """Where two punctuated streams meet, punctuations are removed; those of a single one pass."""
    steps = [("punctuate", (0,)), *BETWEEN[between]]
    for name, other in unions:
        last = len(steps)
        steps.append((name, (last, last if other == "itself" else other)))
    steps.append((behind, (len(steps),)))
    recipe = Recipe(1, tuple(steps), (len(steps),), False)
    assert all(compare((recipe, [data(5, 60)]), channels, 0, [0], tmp_path)), "nothing to compare"


@pytest.mark.parametrize("number", range(6))
def test_a_graph_goes_on_from_its_checkpoint_with_other_channels(tmp_path, number):
    """Punctuated windows, feedback and joins keep what they wait for over a restart."""
    steps = [("punctuated", (0,)), ("join", (0, 1)), ("union", (2, 3)), ("timed", (4,)), ("combine by", (4, 0))]
    recipe = Recipe(2, tuple(steps), (6, 5, 4, 2), bool(number % 2), 3)
    inputs = [data(number, 90), data(number + 100, 60)]
    times = [0, 1500, 2500, 4000]
    expected = run_sequential(build(recipe, inputs), clocks_ms=times, epochs_max=20)
    written: dict = {}
    streams = build(recipe, inputs)
    for last, channels in ((0, 3), (1, 1), (None, 4)):
        run = ParallelRun(streams, str(tmp_path), channels=channels, seed=number, clocks_ms=times, written=written)
        run.run_epochs(last=last)
    assert [exact(rows) for rows in run.outputs] == [exact(rows) for rows in expected]
    assert any(expected)


def test_an_operator_of_the_library_that_had_to_be_renamed_is_still_one(tmp_path):
    """Two streams that meet may each have an operator of one name; a number is put behind the later one's."""
    steps = (("combine by", (0, 1)), ("combine by", (1, 0)), ("union", (2, 3)), ("combine by", (4, 0)))
    compare((Recipe(2, steps, (5, 4), False), [data(1, 60), data(2, 40)]), 3, 0, [0], tmp_path)
    names = [operator.name for operator in build(Recipe(2, steps, (5,), False), [[[]], [[]]])[0].plan().operators]
    assert len(set(names)) == len(names)
