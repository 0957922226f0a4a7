"""Which migrations checkpoints assist: small courses whose outcome is plain, and that nothing is miscounted."""

import math

import numpy as np
import pytest

from anabranch.papers.resources.adapting import POLICIES, Adapting, LoadCourse, adapt
from anabranch.papers.resources.load_courses import FAMILIES, NODES, PERIODS, airline_job, family_course, simple_job

SETTINGS = Adapting(measured=10, spare=1, low=0.0)


def exchanged(periods: int = 40) -> LoadCourse:
    """Three groups on node 0 grow while one on node 1 shrinks; node 2 has one that never changes."""
    rising = np.linspace(0.1, 0.35, periods)
    return LoadCourse(np.array([rising, rising, rising, 0.5 - rising, np.full(periods, 0.6)]), (0, 0, 0, 1, 2), 3)


def test_a_checkpoint_where_load_shrinks_assists() -> None:
    found = adapt(exchanged(), "correlated", SETTINGS, 1)
    assert found.migrations == found.assisted == 1
    assert found.usable == found.asked > 0
    assert found.overloaded == 0


def test_without_moving_only_usable_checkpoints_are_counted() -> None:
    found = adapt(exchanged(), "correlated", SETTINGS, 1, moving=False)
    assert found.migrations == 0 and math.isnan(found.assisted_share)
    assert found.usable == found.asked > 10
    assert found.overloaded > 0


def test_lazy_move_waits_a_period_and_is_then_assisted() -> None:
    everywhere = [adapt(exchanged(), "lazy move", SETTINGS, seed) for seed in range(8)]
    assert all(found.assisted == found.migrations == 1 for found in everywhere)
    assert {found.standby_moves for found in everywhere} == {0, 1}
    assert all(found.overloaded == found.standby_moves for found in everywhere)


def test_where_no_node_has_room_a_spare_one_is_taken_and_freed_again() -> None:
    high = np.concatenate([np.full(20, 0.3), np.full(20, 0.45), np.full(20, 0.1)])
    course = LoadCourse(np.tile(high, (4, 1)), (0, 0, 1, 1), 2)
    found = adapt(course, "even", Adapting(measured=10, spare=2, low=0.3, nodes_min=2), 1)
    assert found.nodes_most == 4 and found.overloaded == 0
    assert found.migrations >= 3 and found.assisted < found.migrations


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_runs_every_course_and_loses_no_group(policy: str) -> None:
    for course in (airline_job(16, 1), family_course("random phase", 40, 1)):
        found = adapt(course, policy, Adapting(low=0.45), 1)
        assert 0 <= found.assisted <= found.migrations
        assert 0 <= found.usable <= found.asked
    assert adapt(airline_job(16, 1), policy, Adapting(), 3) == adapt(airline_job(16, 1), policy, Adapting(), 3)


def test_courses_are_what_they_are_called() -> None:
    for family, expected in zip(FAMILIES, ((-1, 0.2), (0, 1.01), (0, 0.9)), strict=True):
        loads = family_course(family, 40, 1).loads
        assert loads.shape == (40, PERIODS) and loads.min() >= 0
        assert loads.sum() / (NODES * PERIODS) == pytest.approx(0.62, rel=0.1)
        correlation = np.corrcoef(loads)
        assert correlation[0, 1] == pytest.approx(expected[0], abs=expected[1])
    noise = np.corrcoef(family_course("uncorrelated", 200, 1).loads)
    assert abs(noise[np.triu_indices(200, 1)].mean()) < 0.02
    airline = np.corrcoef(airline_job(16, 1).loads)
    assert airline[0, 1] > 0.9 and abs(airline[0, -1]) < 0.5
    assert np.corrcoef(simple_job().loads[:, 30:])[0, -1] == pytest.approx(-1)
    with pytest.raises(ValueError, match="family"):
        family_course("other", 4, 1)
    with pytest.raises(ValueError, match="policy"):
        adapt(simple_job(), "other", Adapting(), 1)


def test_the_simple_job_of_the_paper() -> None:
    settings = Adapting(threshold=0.7, measured=40, spare=0)
    assert adapt(simple_job(), "correlated", settings, 1, moving=False).usable_share == 1
    # At most 7 of 20 on a node: 6 or 7 of the 10 must be where operator 1 is. By chance alone it is a half.
    assert {adapt(simple_job(), "even", settings, n, moving=False).usable_share for n in range(9)} <= {0.6, 0.7}
    shares = [adapt(simple_job(), "baseline", settings, n, moving=False).usable_share for n in range(40)]
    assert np.mean(shares) == pytest.approx(0.5, abs=0.1)
