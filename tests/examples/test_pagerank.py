"""The PageRank kernel."""

import functools

import numpy as np
import pytest

import anabranch as ab
from anabranch.papers.merging.ordering import Strategy
from anabranch.papers.safe_plan import Joint, Routing
from examples.pagerank import BLOCKS, generate, program, web
from tests.examples.checks import CHANNELS, assert_parallel_is_sequential, built, exact, on_spark, paper_plan

PAGES, SEED = 120, 9
ROWS = generate(PAGES, SEED)


def power_iteration(count, seed, rounds=200, damping=0.85):
    """The matrix as it stands in the textbook, applied far more often than is needed."""
    matrix = np.zeros((count, count))
    for page, targets in enumerate(web(count, seed)):
        matrix[targets, page] = 1 / len(targets)
    ranks = np.full(count, 1 / count)
    for _ in range(rounds):
        ranks = (1 - damping) / count + damping * matrix @ ranks
    return ranks


def eigenvector(count, seed, damping=0.85):
    """The ranks once more, without any iteration: they solve a system of equations."""
    matrix = np.zeros((count, count))
    for page, targets in enumerate(web(count, seed)):
        matrix[targets, page] = 1 / len(targets)
    return np.linalg.solve(np.eye(count) - damping * matrix, np.full(count, (1 - damping) / count))


@pytest.mark.parametrize("direct", [power_iteration, eigenvector])
def test_the_ranks_are_those_of_a_direct_computation(direct):
    found = built(program, BLOCKS, ROWS).run_sequential()
    assert [row.page for row in found] == list(range(PAGES))
    assert np.allclose([row.rank for row in found], direct(PAGES, SEED), rtol=0, atol=1e-9)
    assert abs(sum(row.rank for row in found) - 1) < 1e-9
    assert {row.round for row in found} != {0}


def test_a_coarser_tolerance_ends_earlier():
    coarse = built(functools.partial(program, tolerance=1e-3), BLOCKS, ROWS).run_sequential()
    fine = built(program, BLOCKS, ROWS).run_sequential()
    assert 0 < coarse[0].round < fine[0].round


@pytest.mark.parametrize("channels", CHANNELS)
def test_parallel_is_sequential(channels):
    assert_parallel_is_sequential(built(functools.partial(program, tolerance=1e-4), BLOCKS, ROWS, epochs=3), channels)


def test_the_region_is_that_of_the_papers():
    """*Safe*: "Each iteration uses the parallel channels of MulAdd to multiply the previous rank vector with some rows
    of the matrix, and uses Add to assemble the next rank vector." *Elastic*: "It contains a single stateful parallel
    region." What leaves Add twice, round the loop and out of it, has no state."""
    plan = paper_plan(built(program, BLOCKS, ROWS))
    stateful = [region for region in plan.regions if not region.stateless]
    (multiply,) = stateful
    assert multiply.operators == ("multiply",) and multiply.key == ("block",)
    assert (multiply.first, multiply.last) == (Joint.SPLIT, Joint.MERGE)
    assert multiply.routing is Routing.HASH and multiply.ordering is Strategy.SEQUENCE
    assert sorted(region.operators for region in plan.regions if region.stateless) == [
        ("converged", "pages"),
        ("not_yet", "send_back"),
    ]
    assert "2 inputs" in plan.operator("work").blocked
    assert "state is unknown" in plan.operator("assemble").blocked


@pytest.mark.spark
def test_on_spark(spark):
    coarse = functools.partial(program, tolerance=0.05)
    stream = built(coarse, BLOCKS, generate(60, seed=5), session=ab.session(spark))
    found = stream.run_sequential()
    assert found[0].round > 2 and exact(on_spark(stream)) == exact(found)
