"""The ten jobs give in channels what one thread gives, and what their authors would expect."""

import pytest

from anabranch.testing import run_parallel
from examples.ten_jobs import JOBS, at

EXPECTED = {
    "overdue": [("ticket0", at(60)), ("ticket4", at(220)), ("ticket8", at(380)), ("ticket12", at(540))],
    "once": [(n, f"text {n}") for n in range(5)],
    "latest": [
        (1, "a", False, "insert"),
        (2, "b", False, "insert"),
        (1, "c", False, "update"),
        (2, "b", False, "delete"),
        (3, "z", False, "insert"),
    ],
    "stock": [("west", 1, 5), ("west", 2, 12), ("west", 2, 13), ("west", 1, 6), ("east", 1, 2)],
}


@pytest.mark.parametrize("name", sorted(JOBS))
def test_a_job_gives_what_one_thread_gives(name):
    stream = JOBS[name]()
    found = stream.run_sequential(ends=True)
    assert found and run_parallel(stream, channels=5, ends=True) == found
    if name in EXPECTED:
        assert found == EXPECTED[name]
    if name == "unusual":
        assert [(t.sensor, t.value) for t in found] == [("sensor0", 50.0)]
    if name == "sessions":
        assert any(t.clicks == 0 for t in found) and sum(t.clicks or 1 for t in found) == 60
