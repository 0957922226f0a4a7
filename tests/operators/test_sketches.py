"""Sketches: near the truth, and the same in parallel, wherever epochs are cut."""

import builtins
import math
import random
import statistics
import tempfile

import pytest

import anabranch as ab
from anabranch import agg
from anabranch.errors import ProgramError, SchemaError
from anabranch.testing import ParallelRun

pytest.importorskip("datasketches")
COLUMNS = "k string, at long, x long, y double, s string"


def rows(count, seed=0):
    chance = random.Random(seed)
    return [
        (
            chance.choice("ab"),
            n // 10,
            chance.randrange(700),
            chance.choice([None, math.nan, chance.gauss(0, 1)]),
            f"s{chance.randrange(300)}",
        )
        for n in range(count)
    ]


def sketched(precision=12):
    return {
        "xs": agg.approx_count_distinct("x", precision=precision),
        "ss": agg.approx_count_distinct("s").where(lambda t: (t.x or 0) % 2),
        "ys": agg.approx_count_distinct("y"),
        "q": agg.quantiles("y", [0, 0.5, 0.99, 1]),
    }


WINDOWS = {
    "tumbling": ab.tumbling(600),
    "sliding": ab.sliding(400, 200),
    "event time": ab.sliding(ab.event_time("at", 80), 40),
    "sessions": ab.sessions("at", 2),
    "running": ab.running(),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_sketches_are_the_same_in_parallel_wherever_epochs_are_cut(name):
    given = rows(1500, seed=len(name))
    found = []
    for size, channels in ((1500, 1), (170, 3), (611, 2)):
        stream = ab.from_rows(given, COLUMNS, rows_per_epoch=size).event_time("at")
        made = stream.aggregate(by="k", window=WINDOWS[name], **sketched())
        with tempfile.TemporaryDirectory() as scratch:
            run = ParallelRun(made, scratch, channels=channels, seed=size)
            run.run_epochs()
            found.append([repr(row) for row in run.output])
        found.append([repr(row) for row in made.run_sequential()])
    assert all(each == found[0] for each in found) and (found[0] or name == "sessions")


def test_sketches_are_near_the_truth():
    given = rows(6000, seed=3)
    stream = ab.from_rows(given, COLUMNS)
    (found,) = stream.aggregate(by=None, window=ab.tumbling(6000), **sketched(precision=14)).run_sequential()
    assert abs(found.xs / len({row[2] for row in given}) - 1) < 0.05
    assert abs(found.ss / len({row[4] for row in given if row[2] % 2}) - 1) < 0.05
    ys = sorted(row[3] for row in given if row[3] is not None and row[3] == row[3])
    assert found.q[0] == ys[0] and found.q[3] == ys[-1]
    assert abs(found.q[1] - statistics.median(ys)) < 0.05
    assert abs(found.q[2] - ys[int(0.99 * len(ys))]) < 0.1


def test_windows_without_values_and_few_values():
    stream = ab.from_rows([("a", 0, None, None, None), ("a", 0, 5, 1.0, None)], COLUMNS)
    (found,) = stream.aggregate(by="k", window=ab.tumbling(2), **sketched()).run_sequential()
    assert (found.xs, found.ss, found.ys, found.q) == (1, 0, 1, [1.0, 1.0, 1.0, 1.0])
    empty = ab.from_rows([("a", 0, None, None, None)], COLUMNS)
    (found,) = empty.aggregate(by="k", window=ab.tumbling(1), **sketched()).run_sequential()
    assert (found.xs, found.q) == (0, None)


def test_mistakes_and_a_missing_package_are_told(monkeypatch):
    for make in (
        lambda: agg.quantiles("x", []),
        lambda: agg.quantiles("x", [2]),
        lambda: agg.quantiles("x", [0.5], precision=1),
    ):
        with pytest.raises(ProgramError, match="expected"):
            make()
    with pytest.raises(ProgramError, match="expected 7 to 21"):
        agg.approx_count_distinct("x", precision=3)
    with pytest.raises(SchemaError, match="expected a number"):
        ab.from_rows([], COLUMNS).aggregate(by="k", window=ab.tumbling(2), q=agg.quantiles("s", [0.5]))
    real = builtins.__import__

    def without(name, *arguments, **named):
        if name == "datasketches":
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ProgramError, match=r"pip install 'anabranch\[sketches\]'"):
        agg.approx_count_distinct("x")
