"""Figure 1 of the *Partitioning* paper: eight keys, from 2 to 3 channels; its numbers by our metrics and functions."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.partitioning.counting.workload import Workload
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.placing.construct import Construction, ConstructionSettings, construct
from anabranch.partitioning.placing.metrics import channel_loads, imbalance, relative_migration
from anabranch.partitioning.resources import Resources

# X, Z, V, R, U, Y, W, L
FREQUENCIES = np.array([5.0, 3, 2, 1, 4, 3, 3, 1])
# Computation is quadratic; moving an item costs its frequency, so state is linear.
RESOURCES = Resources.of("LQL", 1.25)
HASHES = (np.arange(8, dtype=np.uint64) << np.uint64(61)) + np.uint64(9)

FOR_COMMUNICATION = ([0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 2, 2, 1, 1, 2, 2])
FOR_COMPUTATION = ([0, 0, 0, 1, 1, 1, 1, 1], [0, 2, 2, 2, 1, 1, 2, 2])
FOR_BOTH = ([0, 0, 0, 1, 1, 1, 1, 1], [0, 2, 2, 0, 1, 1, 2, 0])


def ratios(placement: list[int]) -> tuple[float, float]:
    """Communication and computation balance."""
    loads = channel_loads(RESOURCES.loads(FREQUENCIES), np.array(placement), max(placement) + 1)
    found = imbalance(loads, RESOURCES)
    return found.ratios[2], found.ratios[1]


def migration(before: list[int], after: list[int]) -> float:
    """In items' costs, as the figure has it: relative migration times a fair share."""
    channels = max(after) + 1
    share = FREQUENCIES.sum() / channels
    return relative_migration(FREQUENCIES, np.array(before), np.array(after), channels) * share


@pytest.mark.parametrize(
    ("placements", "two", "three"),
    [
        (FOR_COMMUNICATION, (1.0, 1.11), (1.14, 2.27)),
        (FOR_COMPUTATION, (1.2, 1.06), (2.0, 1.04)),
        (FOR_BOTH, (1.2, 1.06), (1.14, 1.23)),
    ],
)
def test_the_balances_of_the_figure(
    placements: tuple[list[int], list[int]], two: tuple[float, float], three: tuple[float, float]
) -> None:
    """It prints 1.1, 2.26 and 1.05 for what is 39/35, 34/15 and 38/36: it cuts digits off."""
    before, after = placements
    assert ratios(before) == pytest.approx(two, abs=0.005)
    assert ratios(after) == pytest.approx(three, abs=0.005)


def test_the_loads_and_the_migrations_of_the_figure() -> None:
    loads = channel_loads(RESOURCES.loads(FREQUENCIES), np.array(FOR_COMMUNICATION[0]), 2)
    assert loads[:, 2].tolist() == [11, 11] and loads[:, 1].tolist() == [39, 35]
    assert migration(*FOR_COMMUNICATION) == pytest.approx(7)
    assert migration(*FOR_COMPUTATION) == pytest.approx(10)
    # "this requires migrations between the existing channels, as well as from existing channels to the new channel"
    assert {(was, now) for was, now in zip(*FOR_BOTH, strict=True) if was != now} == {(0, 2), (1, 0), (1, 2)}


@pytest.mark.parametrize(
    ("construction", "moved"), [(Construction.READJ, 11), (Construction.WEIGH, 7)], ids=["readj", "weigh"]
)
def test_constructions_find_what_balances_both(construction: Construction, moved: float) -> None:
    """From another placement that the figure's numbers fit; both find the figure's balance, ours with fewer moves."""
    two = [0, 0, 1, 0, 1, 1, 1, 0]
    assert ratios(two) == pytest.approx((1.2, 1.06), abs=0.005)
    workload = Workload(HASHES, FREQUENCIES / FREQUENCIES.sum(), domain=8)
    before = PartitioningFunction.even(2).with_hot(dict(zip(HASHES.tolist(), two, strict=True)))
    chosen = ConstructionSettings(RESOURCES, construction, knows_tail=True)
    after = construct(before, workload, 3, chosen).function
    three = after.route(HASHES).tolist()
    assert ratios(three) == pytest.approx((1.14, 1.23), abs=0.005)
    assert migration(two, three) == pytest.approx(moved)
