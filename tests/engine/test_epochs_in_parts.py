"""What a channel has of an epoch is worked off in parts, also behind several shuffles; the output is the same."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.engine.worker import tasks
from anabranch.engine.worker.tasks import ChannelRun
from anabranch.testing import ParallelRun, run_parallel
from tests.graphs import cases, clocks
from tests.programs import COLUMNS, build, epochs, exact, programs
from tests.test_graphs import compare

HEALTH = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]


@pytest.fixture
def parts(monkeypatch):
    """Parts of a few tuples; how many each channel behind several shuffles had."""
    monkeypatch.setattr(tasks, "BATCH_ROWS", 4)
    found = []
    worked = ChannelRun._worked_in_parts

    def counted(run, arrival):
        before = run._rows_in
        for number, leaving in enumerate(worked(run, arrival)):
            if number == 0:
                found.append((run._rows_in - before, run._size))
            yield leaving

    monkeypatch.setattr(ChannelRun, "_worked_in_parts", counted)
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=HEALTH)
@given(epochs=epochs, steps=programs, channels=st.integers(1, 4), seed=st.integers(0, 99))
def test_a_chain_of_operators(parts, epochs, steps, channels, seed):
    stream = build(from_epochs(epochs, COLUMNS), steps)
    assert exact(run_parallel(stream, channels=channels, seed=seed)) == exact(stream.run_sequential())


@settings(max_examples=60, deadline=None, suppress_health_check=HEALTH, derandomize=True)
@given(case=cases(), channels=st.integers(1, 4), times=clocks)
def test_a_graph(parts, tmp_path_factory, case, channels, times):
    compare(case, channels, 1, times, tmp_path_factory.mktemp("checkpoint"))


def two_shuffles(rows: int) -> ab.Stream:
    given = ab.from_rows([(k % 97, f"{k % 89}", float(k)) for k in range(rows)], COLUMNS)
    return build(given, ["running", "running by name"])


def test_the_first_part_leaves_before_the_others_are_worked_off(parts, tmp_path):
    stream = two_shuffles(100)
    run = ParallelRun(stream, str(tmp_path), channels=2)
    run.run_epochs()
    assert exact(run.output) == exact(stream.run_sequential())
    assert {first for first, _ in parts} == {4} and all(size > 4 for _, size in parts)
