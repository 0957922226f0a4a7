"""No unsound verdict: what is judged safe runs in parallel as on one thread, for generated data; and no
operator with planted hidden state is judged safe while it behaves differently."""

from __future__ import annotations

import datetime
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from anabranch.compiler.layout.analysis import analyse
from anabranch.program.model import State
from tests.compiler import mutants
from tests.compiler.corpus import SCHEMA, Case, load
from tests.compiler.harness import fresh, node_of, run_parallel, run_sequential, takes_emit

CASES, MODULES = load()
for module in (*MODULES, mutants):
    cloudpickle.register_pickle_by_value(module)

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


def as_rows(values):
    return [SCHEMA.row_class(each) for each in values]


SAFE = [case for case in CASES if case.verdict != "unknown"]


@pytest.mark.parametrize("case", SAFE, ids=lambda case: case.name)
def test_what_is_judged_safe_runs_in_parallel_as_on_one_thread(case):
    operator = case.make()
    node = node_of(case, operator)
    model = analyse(node)
    with_emit = takes_emit(operator)

    @settings(max_examples=4, deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(ROWS, st.integers(2, 4))
    def compare(values, channels):
        expected = run_sequential(node, case.mode, as_rows(values), with_emit)
        assert run_parallel(node, model, case.mode, as_rows(values), channels, with_emit) == expected

    compare()


SEEN: set[str] = set()
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


def plain_functions():
    for case in SAFE:
        operator = case.make()
        function = operator
        if not isinstance(function, type(plain_functions)) or takes_emit(operator):
            continue
        if mutants.source_of(function) is not None:
            yield case, function


FUNCTIONS = list(plain_functions())


def differs(node, model, mode):
    rows = as_rows(VALUES)
    expected = run_sequential(node, mode, rows, False)
    return run_parallel(node, model, mode, as_rows(VALUES), 3, False) != expected


def check_mutant(case, function):
    """True if the mutant was judged safe; fails if it was and behaves differently."""
    mutated = Case(case.name, lambda: function, "", "", case.mode if case.mode != "filter" else "map", "", "", ())
    node = node_of(mutated, function)
    model = analyse(node)
    if model.state.value is State.UNKNOWN:
        return False
    assert not differs(node, model, mutated.mode), (
        f"unsound: {sys.modules['linecache'].cache[function.__code__.co_filename][2]}"
    )
    return True


@pytest.mark.parametrize("expression", mutants.SNEAKY)
def test_hidden_state_in_an_expression_is_never_judged_safe(expression):
    made = 0
    for case, function in FUNCTIONS[:: max(1, len(FUNCTIONS) // 7)]:
        found = mutants.mutant(function, expression=expression)
        if found is not None:
            made += 1
            check_mutant(case, found)
    assert made > 3


@pytest.mark.parametrize("statement", mutants.STATEMENTS)
def test_hidden_state_in_a_statement_is_never_judged_safe(statement):
    made = 0
    for case, function in FUNCTIONS[:: max(1, len(FUNCTIONS) // 7)]:
        found = mutants.mutant(function, statement=statement)
        if found is not None:
            made += 1
            check_mutant(case, found)
    assert made > 3


@pytest.mark.parametrize("case", [case for case in CASES if case.truth == "unsafe" and case.mode != "filter"],
                         ids=lambda case: case.name)  # fmt: skip
def test_the_harness_would_see_an_unsafe_operator(case):
    """A test of the test: run as if stateless, most of the unsafe operators do differ."""
    if case.by or case.name == "walks_the_heap":
        pytest.skip("needs its key, or takes long")
    operator = case.make()
    node = node_of(case, operator)
    model = analyse(node_of(SAFE[0]))
    assert model.state.value is State.STATELESS
    try:
        rows = as_rows(VALUES)
        expected = run_sequential(node, case.mode, rows, False)
        found = run_parallel(node, model, case.mode, as_rows(VALUES), 3, False)
    except Exception as problem:
        pytest.skip(f"cannot be copied to a channel: {problem}")
    if found != expected:
        SEEN.add(case.name)


def test_the_harness_saw_most_of_them():
    assert len(SEEN) >= 40, sorted(SEEN)


def test_a_copy_for_a_channel_has_globals_of_its_own():
    from tests.compiler.corpus import hidden

    before = list(hidden._log)
    copied = fresh(hidden.global_list)
    list(copied(SCHEMA.row_class(VALUES[0])))
    assert hidden._log == before
