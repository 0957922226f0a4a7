"""Methods and functions that are called with columns do what they did with a tuple; those that might not are left."""

import functools
import inspect

import pytest

import anabranch as ab
from anabranch.compiler.rewriting.column_arguments import with_column_arguments
from tests.compiler.test_bodies import GROUP, ROWS, module_of
from tests.compiler.test_tuple_reads import NAMES, Whole, outcome

LIMIT = 2


def arguments_of(row, reads):
    return [row[at] for at in reads]


# A method that fails leaves its generator behind; what a `finally` of it raises when it is collected is nobody's error.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_random_methods_do_with_columns_what_they_do_with_tuples(tmp_path):
    module = module_of(tmp_path, 8_000, 4 * GROUP)
    row_class = ab.from_rows([], "k long, x double, n long, s string").schema.row_class
    rows = [row_class(row) for row in ROWS]
    seen = 0
    for seed in range(8_000, 8_000 + 4 * GROUP):
        kind = getattr(module, f"Body{seed}")
        found = with_column_arguments(kind.process, NAMES)
        if found is None:
            continue
        seen += 1

        class WithColumns(kind):
            def process(self, t, found=found):
                return found.function(self, *arguments_of(t, found.reads))

        assert outcome(WithColumns, rows) == outcome(kind, rows)
    assert seen > 2 * GROUP


def closed_over(more):
    def function(t):
        yield from ((t.k + more, t["x"], n) for n in range(t[2] or 0))

    return function


class Private:
    __hidden = 3

    def process(self, t):
        return [(t.k, self.__hidden)]


class Shadowing:
    def inner(self, t):
        return [(lambda t: t.k)(t.x)]

    def caught(self, t):
        try:
            return [t.k // 0]
        except ZeroDivisionError as t:
            return [t.args]


def test_a_function_keeps_its_closure_its_name_and_its_kind():
    found = with_column_arguments(closed_over(10), NAMES)
    assert found is not None and found.reads == (0, 1, 2)
    assert inspect.isgeneratorfunction(found.function) and found.function.__name__ == "function"
    assert list(found.function(1, 0.5, 2)) == [(11, 0.5, 0), (11, 0.5, 1)]
    assert list(with_column_arguments(closed_over(20), NAMES).function(1, 0.5, 1)) == [(21, 0.5, 0)]
    lambdas = [lambda t: [t.k > LIMIT], lambda t: [t.k < LIMIT]]
    assert [with_column_arguments(each, NAMES).function(1) for each in lambdas] == [[False], [True]]


def test_an_error_names_the_line_of_the_user():
    def fails(t):
        return 1 // t.k

    with pytest.raises(ZeroDivisionError) as caught:
        with_column_arguments(fails, NAMES).function(0)
    last = caught.traceback[-1]
    assert (str(last.path), last.lineno, last.name) == (__file__, fails.__code__.co_firstlineno, "fails")


@pytest.mark.parametrize(
    "function",
    [
        *(each for name, each in vars(Whole).items() if not name.startswith("__")),
        Private.process,
        Shadowing.inner,
        Shadowing.caught,
        functools.partial(closed_over, 1),
        len,
    ],
)
def test_what_might_mean_something_else_is_called_as_it_is(function):
    assert with_column_arguments(function, NAMES) is None


def test_a_coroutine_is_called_as_it_is():
    async def later(t):
        return [t.k]

    assert with_column_arguments(later, NAMES) is None
