"""The promise: parallel output == sequential output, values and order. In this process, without a JVM."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.testing import ParallelRun, run_parallel
from tests.programs import COLUMNS, build, epochs, exact, programs


@settings(max_examples=int(os.environ.get("ANABRANCH_PROGRAMS", "150")), print_blob=True, deadline=None)
@given(epochs=epochs, steps=programs, channels=st.integers(1, 8), seed=st.integers(0, 10**6))
def test_any_program_on_any_data_gives_the_sequential_output(epochs, steps, channels, seed):
    stream = build(from_epochs(epochs, COLUMNS), steps)
    assert exact(run_parallel(stream, channels=channels, seed=seed)) == exact(stream.run_sequential())


@settings(max_examples=30, deadline=None)
@given(epochs=epochs, steps=programs, seeds=st.tuples(st.integers(0, 99), st.integers(0, 99)))
def test_how_the_input_is_cut_into_partitions_does_not_matter(epochs, steps, seeds):
    stream = build(from_epochs(epochs, COLUMNS), steps)
    assert exact(run_parallel(stream, seed=seeds[0])) == exact(run_parallel(stream, seed=seeds[1]))


@settings(max_examples=30, deadline=None)
@given(epochs=epochs, steps=programs, stop=st.integers(0, 3))
def test_a_run_that_is_continued_from_its_checkpoint_goes_on_where_it_was(tmp_path_factory, epochs, steps, stop):
    stream = build(from_epochs(epochs, COLUMNS), steps)
    checkpoint = str(tmp_path_factory.mktemp("checkpoint"))
    first = ParallelRun(stream, checkpoint)
    first.run_epochs(last=stop)
    second = ParallelRun(stream, checkpoint, seed=1)
    second.run_epochs()  # the epochs that were committed are skipped
    assert exact(first.output) + exact(second.output) == exact(stream.run_sequential())


def test_the_comparison_can_fail(monkeypatch):
    """A merger that ignores positions is caught, so the tests above test something."""
    import pyarrow as pa

    from anabranch.engine.worker import output_mergers as mergers

    unordered = lambda parts, schema: pa.concat_tables([schema.empty_table(), *(rows for _, rows in parts)])  # noqa: E731
    monkeypatch.setattr(mergers, "merge", unordered)
    rows = [(k, "a", float(k)) for k in range(20)]
    stream = build(ab.from_rows(rows, COLUMNS), ["running"])
    assert exact(run_parallel(stream, channels=4)) != exact(stream.run_sequential())


@pytest.mark.parametrize("channels", [1, 2, 3, 8])
def test_a_hot_key_and_many_cold_ones_stay_in_order(channels):
    rows = [(0 if n % 3 else n, str(n % 7), n / 8) for n in range(2000)]
    stream = build(ab.from_rows(rows, COLUMNS, rows_per_epoch=700), ["running", "history", "jump by both"])
    assert exact(run_parallel(stream, channels=channels)) == exact(stream.run_sequential())
