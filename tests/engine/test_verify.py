"""Keys that are run again on one thread: wrong verdicts are found, right ones never doubted."""

import os

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from anabranch.api.session import from_epochs
from anabranch.engine.verifying.difference_files import DifferenceRecord
from anabranch.errors import ProgramError, VerifyError
from anabranch.testing import ParallelRun, run_sequential
from tests.engine.planted_verdicts import PLANTED, switch_proof_off
from tests.graphs import build as build_graph
from tests.graphs import cases, clocks
from tests.programs import COLUMNS, build, epochs, exact, programs

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]
PROGRAMS = int(os.environ.get("ANABRANCH_PROGRAMS", "40"))


@pytest.mark.parametrize("fresh", [False, True], ids=["tasks in one process", "every task in a new one"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", PLANTED)
def test_every_wrong_verdict_is_found(name, channels, fresh, monkeypatch, tmp_path):
    verdict, make, _ = PLANTED[name]
    switch_proof_off(monkeypatch, verdict)
    run = ParallelRun(make(), str(tmp_path), channels=channels, fresh_tasks=fresh, verify=1.0, watch="off")
    with pytest.raises(VerifyError) as caught:
        run.run_epochs()
    assert not run.output or run.progress, "nothing of the epoch is written"
    with open(caught.value.file, "rb") as file:
        record = DifferenceRecord.from_json(file.read())
    assert record.title in str(caught.value) and record.epoch == len(run.progress)


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_verdicts_are_wrong(name, monkeypatch, tmp_path):
    """Without verify they give other output than one thread, or would leave something behind that decides it."""
    verdict, make, repeatable = PLANTED[name]
    switch_proof_off(monkeypatch, verdict)
    run = ParallelRun(make(), str(tmp_path), channels=3, watch="off")
    run.run_epochs()
    is_hidden = name == "an entry that only counts"  # what is kept is wrong, the output not yet
    assert exact(run.output) != exact(make().run_sequential()) or not repeatable or is_hidden


@settings(max_examples=PROGRAMS, deadline=None, suppress_health_check=RELAXED)
@given(case=cases(), channels=st.integers(1, 6), seed=st.integers(0, 10**6), times=clocks)
def test_no_graph_gives_a_false_alarm(tmp_path_factory, case, channels, seed, times):
    streams = build_graph(*case)
    try:
        directory = str(tmp_path_factory.mktemp("checkpoint"))
        run = ParallelRun(streams, directory, channels=channels, seed=seed, clocks_ms=times, verify=1.0)
        expected = run_sequential(streams, clocks_ms=times, epochs_max=20)
    except ProgramError as problem:
        assume("no source" not in str(problem) and "still fed back" not in str(problem))
        raise
    run.run_epochs()
    assert [exact(each) for each in run.outputs] == [exact(each) for each in expected]
    assert all(each.verify is not None and not each.verify.differences for each in run.progress)


@settings(max_examples=PROGRAMS, deadline=None)
@given(epochs=epochs, steps=programs, channels=st.integers(1, 8), chance=st.sampled_from([0.2, 1.0]))
def test_no_chain_gives_a_false_alarm(tmp_path_factory, epochs, steps, channels, chance):
    stream = build(from_epochs(epochs, COLUMNS), steps)
    run = ParallelRun(stream, str(tmp_path_factory.mktemp("checkpoint")), channels=channels, verify=chance)
    run.run_epochs()
    assert exact(run.output) == exact(stream.run_sequential())
