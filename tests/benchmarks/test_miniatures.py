"""Every benchmark runs: in miniature, in the tests' own Spark session, with the figures that are asked of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import _compare, _machine
from benchmarks.__main__ import names
from tests.benchmarks.figures import FIGURES, figures_of

PURE = {
    "compiler",
    "control",
    "damage",
    "durability",
    "growth",
    "merger_speed",
    "operators",
    "peers",
    "simulator",
    "watch",
    "soundness",
    "time",
}
# Where there is a cluster: tests/cluster/test_placement.py.
ELSEWHERE = {"resources"}
# Benchmarks that have no miniature.
WITHOUT: set[str] = set()


def test_there_is_a_miniature_of_every_benchmark() -> None:
    assert set(FIGURES) == set(names())
    have = {name for name in names() if '"--mini"' in (Path(_compare.__file__).parent / f"{name}.py").read_text()}
    assert set(FIGURES) - have == WITHOUT, "good, if it is shorter: take them out of WITHOUT"


@pytest.mark.parametrize("name", sorted(PURE - WITHOUT))
def test_a_benchmark_without_a_jvm_runs_in_miniature(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert FIGURES[name] <= figures_of(capsys, name, "--mini").keys()


@pytest.mark.spark
@pytest.mark.parametrize("name", sorted(FIGURES.keys() - PURE - ELSEWHERE - WITHOUT))
def test_a_benchmark_on_spark_runs_in_miniature(name: str, spark, capsys: pytest.CaptureFixture[str]) -> None:
    from pyspark.sql import SparkSession

    assert FIGURES[name] <= figures_of(capsys, name, "--mini").keys()
    assert SparkSession.getActiveSession() is not None, f"{name} stopped the session it was lent"


def test_two_commits_are_compared_by_what_the_public_api_does(capsys: pytest.CaptureFixture[str]) -> None:
    here = str(Path(_compare.__file__).parents[1])
    found = figures_of(capsys, "compare", here, "compiler", "--rounds", "1", "--mini")
    assert found["compiler"].keys() == {"first", "again", "whole"}
    assert all(part["ratio"] > 0 for part in found["compiler"].values())


@pytest.mark.spark
@pytest.mark.parametrize("name", ["stateful", "ordering", "state"])
def test_what_commits_are_compared_by_runs(name: str, spark) -> None:
    from benchmarks import _workloads

    parts = _workloads.run(name, _workloads.MINI)
    assert "whole" in parts and all(seconds > 0 for seconds in parts.values()), parts


@pytest.mark.parametrize(
    ("base_s", "here_s", "verdict"),
    [
        ([10.0, 10.1, 9.9], [10.2, 10.3, 10.1], "holds"),
        ([10.0, 10.1, 9.9], [9.0, 9.1, 8.9], "holds"),
        ([10.0, 12.0, 9.0], [11.0, 12.5, 10.8], "within the spread"),
        ([10.0, 10.1, 9.9], [11.0, 11.1, 10.9], "worse"),
    ],
)
def test_a_commit_is_worse_if_it_is_dearer_beyond_the_noise(
    base_s: list[float], here_s: list[float], verdict: str
) -> None:
    assert _compare.Comparison(base_s, here_s).verdict == verdict


def test_what_others_use_is_told_apart_from_what_the_benchmark_uses() -> None:
    begun, line = _machine.beginning()
    assert "load average" in line
    text = _machine.ending(begun)
    assert "others used" in text and "stolen" in text
