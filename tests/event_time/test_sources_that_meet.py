"""Several sources, aligned by event time: the output is a function of the data."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.api.session import from_epochs
from anabranch.errors import ProgramError
from anabranch.testing import run_parallel
from tests.event_time.test_watermarks import EXAMPLES, source
from tests.event_time.timed_programs import COLUMNS, STEPS, build, cuts, rows

steps = st.lists(st.sampled_from(sorted(STEPS)), min_size=0, max_size=3)


@settings(max_examples=EXAMPLES, deadline=None, print_blob=True)
@given(data=st.data(), after=steps, late=st.integers(0, 9), channels=st.integers(1, 6))
def test_of_aligned_sources_the_output_does_not_depend_on_how_they_were_cut(data, after, late, channels):
    here, there = data.draw(rows(20)), data.draw(rows(20))
    found = []
    for _ in range(2):
        one, other = (source(data.draw(cuts(tuples)), lateness=late, every=2) for tuples in (here, there))
        stream = build(one.align(other, on="at").event_time("at"), after)
        found.append(run_parallel(stream, channels=channels, ends=True))
        assert found[-1] == stream.run_sequential(ends=True)
    assert found[0] == found[1]


@settings(max_examples=EXAMPLES // 2, deadline=None, print_blob=True)
@given(data=st.data(), channels=st.integers(1, 6), seed=st.integers(0, 99))
def test_aligned_by_key_each_key_has_its_tuples_in_order(data, channels, seed):
    one, other, third = (source(data.draw(cuts(data.draw(rows(15)))), lateness=40) for _ in range(3))
    stream = one.align(other, third, on="at", by="k")
    found = run_parallel(stream, channels=channels, seed=seed, ends=True)
    assert found == stream.run_sequential(ends=True)
    everything = [row for s in (one, other, third) for each in s._node.inputs[0].logic.origin.epochs for row in each]
    for key in range(4):
        mine = [tuple(row) for row in found if row.k == key]
        assert mine == sorted((row for row in everything if row[0] == key), key=lambda row: (row[1], row))


def test_all_streams_need_event_time():
    with pytest.raises(ProgramError, match="expected streams with event time"):
        source([[]]).align(from_epochs([[]], COLUMNS), on="at")
