from __future__ import annotations

import pytest

from anabranch.control import Bounds, doubling_levels, paper_levels, single_levels
from anabranch.control.levels import channels_of_levels, level_of


def test_the_papers_series_is_the_printed_one() -> None:
    assert [paper_levels(level) for level in range(10)] == [1, 2, 3, 4, 6, 8, 11, 16, 23, 32]


def test_other_level_functions_are_steeper_or_flatter() -> None:
    assert [doubling_levels(level) for level in range(6)] == [1, 2, 4, 8, 16, 32]
    assert [single_levels(level) for level in range(4)] == [1, 2, 3, 4]


def test_both_bounds_are_levels() -> None:
    assert channels_of_levels(paper_levels, Bounds(5, 20)) == (5, 6, 8, 11, 16, 20)
    assert channels_of_levels(doubling_levels, Bounds(1, 1)) == (1,)


def test_a_falling_level_function_is_refused() -> None:
    with pytest.raises(ValueError, match="must not fall"):
        channels_of_levels(lambda level: 5 - level, Bounds(1, 32))


def test_a_number_between_two_levels_counts_as_the_upper_one() -> None:
    assert level_of(8) == 5
    assert level_of(9) == level_of(11) == 6


@pytest.mark.parametrize(("low", "high"), [(0, 4), (5, 4), (-1, -1)])
def test_bounds_that_leave_no_choice_are_refused(low: int, high: int) -> None:
    with pytest.raises(ValueError, match="minChannels"):
        Bounds(low, high)
