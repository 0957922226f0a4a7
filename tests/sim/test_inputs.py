"""Files as they arrive, and the micro-batches made of them."""

import math
from itertools import islice

import pytest

from anabranch.sim.inputs import FileSource, InputFile, Inputs
from anabranch.sim.load import Bursts, Constant, Replay, Sine, Steps, full_at


@pytest.mark.parametrize(
    "curve",
    [
        Constant(40.0),
        Sine(40.0, 40.0, 7.0),
        Steps((10.0, 90.0), (3.0,)),
        Bursts(5.0, 200.0, 4.0, 0.5),
        Replay((2.0, 5.0, 20.0), (10.0, 80.0, 30.0)),
    ],
)
def test_files_are_full_when_the_curve_has_brought_their_rows(curve):
    for number, at_s in enumerate(full_at(curve, 25, until_s=30.0), start=1):
        steps = 20_000
        brought = sum(curve(at_s * (step + 0.5) / steps) for step in range(steps)) * at_s / steps
        assert brought == pytest.approx(25 * number, abs=max(12.0, 0.06 * brought))


def test_a_recorded_curve_goes_straight_from_point_to_point():
    curve = Replay((2.0, 4.0, 8.0), (10.0, 30.0, 0.0))
    assert [curve(at) for at in (0.0, 2.0, 3.0, 4.0, 7.0, 8.0, 99.0)] == [10.0, 10.0, 20.0, 30.0, 7.5, 0.0, 0.0]
    for seconds, rates in (((), ()), ((1.0,), (1.0, 2.0)), ((2.0, 1.0), (1.0, 2.0))):
        with pytest.raises(ValueError, match="as many rates as rising seconds"):
            Replay(seconds, rates)


def test_a_source_that_always_has_more_never_waits():
    assert list(islice(full_at(Constant(math.inf), 10), 4)) == [0.0] * 4


def files(count, every_s):
    return FileSource("in", (InputFile("in", number, number * every_s, 5) for number in range(count)))


def test_an_epoch_takes_what_is_ready_and_no_more_than_its_limit():
    inputs = Inputs([files(10, 1.0)], 3)
    assert inputs.form_batch(4.0)
    assert [file.number for file in inputs.batches[0]["in"]] == [0, 1, 2]
    inputs.replace({"in": 100})
    assert inputs.form_batch(4.0)
    assert [file.number for file in inputs.batches[1]["in"]] == [3, 4]
    assert not inputs.form_batch(4.5)
    assert inputs.next_s() == 5.0
    assert inputs.backlog_rows(7.0, 100) == 15
    assert inputs.taken()[0] == {"in": 2}
