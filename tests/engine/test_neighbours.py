"""Pools of one host tell each other how many calls they make, and see what a change of their level does to others."""

from __future__ import annotations

import pytest

from anabranch.engine.pool.neighbours import Neighbours


def tell(pool: Neighbours, rate: float, start: float, seconds: float = 1.0) -> None:
    pool.tell(0, start, 3)
    for step in range(1, 21):
        pool.tell(round(rate * seconds / 20), start + step * seconds / 20, 3)


def test_what_others_lose_while_a_level_is_tried_counts_against_it(tmp_path) -> None:
    mine, other = Neighbours(tmp_path, "mine"), Neighbours(tmp_path, "other")
    tell(other, 1000, 10.0)
    mine.tell(1, 11.0, 2)
    mine.begin()
    tell(other, 1000, 11.0)
    mine.tell(1, 12.0, 2)
    assert mine.factor(is_held=True) == 1.0 and mine.are_there and mine.level == 3
    mine.begin()
    tell(other, 800, 12.05)
    mine.tell(1, 13.0, 2)
    assert mine.factor(is_held=False) == pytest.approx(0.8, rel=0.1)


def test_who_makes_no_calls_does_not_count(tmp_path) -> None:
    mine, other = Neighbours(tmp_path, "mine"), Neighbours(tmp_path, "other")
    tell(other, 1000, 10.0)
    mine.tell(1, 20.0, 2)
    mine.begin()
    mine.tell(1, 21.0, 2)
    assert mine.factor(is_held=True) == 1.0 and not mine.are_there


def test_a_pool_that_ends_leaves_nothing_behind(tmp_path) -> None:
    mine = Neighbours(tmp_path, "mine")
    mine.tell(1, 10.0, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.calls"]
    mine.close()
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    mine = Neighbours(blocked, "mine")
    mine.tell(1, 10.0, 2)
    mine.begin()
    assert mine.factor(is_held=False) == 1.0


def test_pools_try_levels_in_turns(tmp_path) -> None:
    mine, other = Neighbours(tmp_path, "mine"), Neighbours(tmp_path, "other")
    assert mine.take_turn(10.0) and mine.take_turn(11.0) and not other.take_turn(12.0)
    mine.give_turn()
    assert other.take_turn(12.5) and not mine.take_turn(13.0)
    assert mine.take_turn(18.0)  # the other was not heard of any more
