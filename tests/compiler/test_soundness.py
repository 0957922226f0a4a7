"""No unsound verdict: the corpus, and functions with planted state, run on the product's own path for generated data.

Tasks run from freshly unpickled programs, each twice, in several channels (`product_path.py`, `fuzzing/trials.py`).
ANABRANCH_PLANTED says with how many functions each way of planting state is tried.
"""

from __future__ import annotations

import datetime
import os

import cloudpickle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch import from_rows
from anabranch.compiler.layout import analysis
from tests.compiler import mutants
from tests.compiler.corpus import SCHEMA, load
from tests.compiler.fuzzing import sources
from tests.compiler.fuzzing.trials import WAYS, check, tried
from tests.compiler.harness import behind, takes_emit
from tests.compiler.product_path import compare

CASES, MODULES = load()
for module in (*MODULES, mutants):
    cloudpickle.register_pickle_by_value(module)
TOGETHER = 24
EVERY = int(os.environ.get("ANABRANCH_PLANTED", "96"))

ROWS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(["a", "b", "A", "start", "x", ""]),
        st.floats(-20, 20).map(lambda value: round(value, 2)),
        st.integers(0, 4),
        st.lists(st.floats(-3, 3).map(lambda value: round(value, 1)), max_size=3),
        st.dates(datetime.date(2024, 1, 1), datetime.date(2024, 1, 4)),
    ),
    min_size=1,
    max_size=25,
)
VALUES = [
    (
        number % 3,
        "ab"[number % 2],
        number * 1.5,
        number % 5,
        [float(number)],
        datetime.date(2024, 1, 1 + number % 3),
    )
    for number in range(24)
]
SAFE = [case for case in CASES if case.verdict != "unknown" and not takes_emit(case.make())]


@pytest.mark.parametrize("first", range(0, len(SAFE), TOGETHER))
def test_what_is_judged_safe_runs_in_parallel_as_on_one_thread(first):
    cases = SAFE[first : first + TOGETHER]

    @settings(max_examples=2, deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(ROWS, st.integers(2, 4), st.integers(3, 25))
    def holds(values, channels, rows_per_epoch):
        source = from_rows(values, str(SCHEMA), rows_per_epoch=rows_per_epoch)
        streams = [behind(source, case) for case in cases]
        found = compare(streams, ways=((channels, len(values)),))
        assert found.verdict == "equal", found.difference
        if found.sequential.error:  # what comes behind it was not looked at
            for case, stream in zip(cases, streams, strict=True):
                found = compare(stream, ways=((channels, len(values)),))
                assert found.verdict == "equal", f"{case.name}: {found.difference}"

    holds()


PLANTED = list(sources.planted(EVERY))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, len(PLANTED), TOGETHER))
def test_planted_state_is_kept_or_refused(first):
    check(PLANTED[first : first + TOGETHER], VALUES)


def test_the_path_would_show_an_unsafe_operator(monkeypatch):
    """A test of the test: without the proof, most of the unsafe operators of the corpus do differ."""
    monkeypatch.setattr(analysis, "ordered_blocks", lambda found: [])
    unsafe = [each for each in sources.of_corpus() if each.truth == "unsafe" and each.mode != "filter" and not each.by]
    seen = [trial.program.title for trial in tried(unsafe[::3], VALUES, WAYS[:1]) if trial.difference]
    assert len(seen) >= 20, seen
