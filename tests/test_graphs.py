"""The promise for graphs: parallel output == sequential output of every output, values and order."""

from graphs import build, cases, clocks
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from programs import exact

from anabranch.errors import ProgramError
from anabranch.testing import ParallelRun, run_sequential

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]


def compare(case, channels, seed, times, directory):
    recipe, inputs = case
    streams = build(recipe, inputs)
    try:
        run = ParallelRun(streams, str(directory), channels=channels, seed=seed, clocks_ms=times)
        expected = run_sequential(streams, clocks_ms=times, epochs_max=20)
    except ProgramError as problem:
        assume("no source" not in str(problem))
        assume("still fed back" not in str(problem))
        raise
    run.run_epochs()
    for got, wanted in zip(run.outputs, expected, strict=True):
        assert exact(got) == exact(wanted)


@settings(max_examples=300, deadline=None, suppress_health_check=RELAXED)
@given(case=cases(), channels=st.integers(1, 6), seed=st.integers(0, 10**6), times=clocks)
def test_any_graph_on_any_data_gives_the_sequential_output(tmp_path_factory, case, channels, seed, times):
    compare(case, channels, seed, times, tmp_path_factory.mktemp("checkpoint"))
