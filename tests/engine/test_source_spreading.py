"""What needs no state gets channels of its own when that pays, and loses them when it does not."""

import itertools
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch import faults
from anabranch.api.session import from_epochs
from anabranch.control.elastic_options import ElasticOptions
from anabranch.control.source_spreading import PATIENCE, PATIENCE_BACK, SourceSpreading, SourceWork, SpreadSettings
from anabranch.engine.driver.waiting import Surroundings
from anabranch.testing import ParallelRun, TaskDied
from tests.programs import COLUMNS, STEPS, build, exact

# -- the decision -----------------------------------------------------------------------------------------------

HEAVY, LIGHT = SourceWork(8.0, [1000]), SourceWork(0.1, [1000])


def judged(works, slots=4, spread=False):
    """The forms an epoch after the other."""
    spreading, found = SourceSpreading(SpreadSettings()), []
    for work in works:
        verdict = spreading.judge("in", work, slots, spread)
        spread = spread if verdict is None else verdict.spread
        found.append(spread)
    return found


def test_heavy_work_in_one_piece_is_spread_after_some_epochs_and_stays_so():
    assert judged([HEAVY] * 20) == [False] * (PATIENCE - 1) + [True] * (21 - PATIENCE)


def test_light_work_is_never_spread():
    assert not any(judged([LIGHT] * 50))


def test_many_even_pieces_need_no_channels_and_uneven_ones_do():
    assert not any(judged([SourceWork(8.0, [100] * 8)] * 20))
    assert judged([SourceWork(8.0, [700, 100, 100, 100])] * 20)[-1]


def test_with_one_slot_nothing_can_be_gained():
    assert not any(judged([HEAVY] * 20, slots=1))


def test_it_takes_longer_to_go_back_and_a_heavy_epoch_in_between_begins_the_count_anew():
    assert judged([LIGHT] * PATIENCE_BACK, spread=True) == [True] * (PATIENCE_BACK - 1) + [False]
    assert all(judged([*[LIGHT] * (PATIENCE_BACK - 1), HEAVY] * 5, spread=True))


def test_epochs_without_rows_say_nothing():
    quiet = SourceWork(0.0, [0, 0])
    assert judged([HEAVY, HEAVY, *[quiet] * 9, HEAVY])[-1]


@given(st.floats(0, 100), st.lists(st.integers(0, 10**6), min_size=1, max_size=9), st.integers(1, 64))
def test_between_going_over_and_going_back_lies_a_band(seconds, rows, slots):
    """Whatever the work is, if it stays the same there is at most one change."""
    for first in (True, False):
        forms = [first, *judged([SourceWork(seconds, rows)] * 30, slots, first)]
        assert sum(one != other for one, other in itertools.pairwise(forms)) <= 1


def test_the_reason_says_what_was_measured():
    spreading = SourceSpreading(SpreadSettings())
    verdicts = [spreading.judge("in", HEAVY, 4, False) for _ in range(PATIENCE)]
    assert "in: channels of its own save 6.00 s of every epoch" in verdicts[-1].reason
    assert "8.00 s of work an epoch, 100% of the rows in the largest of 1 tasks, 4 slots" in verdicts[-1].reason


# -- going over -------------------------------------------------------------------------------------------------


class Slots(Surroundings):
    """So many tasks at once."""

    def __init__(self, count=4):
        super().__init__()
        self._count = count

    def slots(self):
        return self._count


@ab.model(state="stateless", selectivity="1:1", forwards="*")
def slow(t):
    """What is asked for in x, in milliseconds."""
    if t.x:
        time.sleep(t.x / 1000)
    return t


def started(stream, checkpoint, written, seed=0, slots=4, gain_seconds=0.01):
    return ParallelRun(
        stream,
        str(checkpoint),
        channels=ElasticOptions(),
        seed=seed,
        written=written,
        spread=SpreadSettings(gain_seconds),
        surroundings=Slots(slots),
    )


def test_heavy_operators_get_channels_and_lose_them_when_the_work_is_light_again(tmp_path):
    heavy, light = [(n % 5, "a", 5.0) for n in range(12)], [(n % 5, "a", 0.0) for n in range(12)]
    source = from_epochs([heavy] * 6 + [light] * (PATIENCE_BACK + 3), COLUMNS)
    stream = build(source.map(slow, schema=COLUMNS, name="slow"), ["running"])
    run = started(stream, tmp_path, {})
    run.run_epochs()
    assert exact(run.output) == exact(stream.run_sequential())
    channels = [each.channels.get("source-spread", 0) for each in run.progress]
    assert channels[0] == 0 and channels[-1] == 0
    assert max(channels) >= 2
    reasons = [each.spread for each in run.progress]
    assert reasons[0] == reasons[-1] == ""
    assert any("save" in reason for reason in reasons)


def test_light_operators_stay_where_the_source_is_read(tmp_path):
    source = from_epochs([[(n % 5, "a", 0.0) for n in range(200)]] * 8, COLUMNS)
    stream = build(source, ["filter", "halve", "running"])
    run = started(stream, tmp_path, {}, gain_seconds=0.5)
    run.run_epochs()
    assert not any("source-spread" in each.channels for each in run.progress)


class DriverDied(Exception):  # noqa: N818 - an event
    pass


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(30))
def test_a_driver_may_die_while_it_goes_over(tmp_path, seed):
    """Every schedule dies at the moment the program is replaced, most elsewhere too; nothing is lost or repeated."""
    chance = random.Random(seed)
    steps = chance.choices([name for name in STEPS if name != "nothing"], k=2)
    heavy = [(chance.choice([1, 1, 2, None]), chance.choice("ab"), 4.0) for _ in range(10)]
    light = [(n % 3, "b", 0.0) for n in range(10)]
    epochs = [heavy] * chance.choice([4, 5]) + [light] * (PATIENCE_BACK + 2) + [heavy] * 4
    stream = build(from_epochs(epochs, COLUMNS).map(slow, schema=COLUMNS, name="slow"), [*steps, "running"])
    deaths = []

    def die(point, facts):
        at_replacement = point == "program replaced" and deaths.count(point) < 2
        if at_replacement or chance.random() < 0.02:
            deaths.append(point)
            raise TaskDied if point == "segment written" else DriverDied

    written: dict = {}
    faults.install(die)
    try:
        while True:
            run = started(stream, tmp_path, written, seed)
            try:
                run.run_epochs()
                break
            except (DriverDied, TaskDied):
                continue
    finally:
        faults.install(None)
    assert "program replaced" in deaths
    assert exact(run.output) == exact(stream.run_sequential())
