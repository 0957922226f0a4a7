"""What a method reads of its tuple: what it is not said to read it does not miss."""

import functools

import pytest

import anabranch as ab
from anabranch.compiler.rewriting.tuple_reads import tuple_reads
from tests.compiler.test_bodies import GROUP, ROWS, module_of

NAMES = ("k", "x", "n", "s")


def logged(function):
    return functools.wraps(function)(lambda self, t: function(self, t))


class Methods:
    """What is seen through, by name the columns that are read."""

    def k_x(self, t):
        self.best = t.k if self.best is None else max(self.best, t.x)

    def k_n_s(self, t):
        return [(t["k"], t[2], lambda: t.s)]

    def nothing(self, t):
        self.seen += 1

    def n(self, t):
        yield from (t.n for _ in range(3))

    def x(self, row, /):
        return [row.x for t in range(3)]


class Whole:
    """What may read all of it."""

    def kept(self, t):
        self.last = t

    def passed_on(self, t):
        return [t]

    def unpacked(self, t):
        k, *_ = t
        return k

    def asked_otherwise(self, t):
        return t.k, t.asDict()

    def from_behind(self, t):
        return t.k, t[-1]

    def sliced(self, t):
        return t[0:1]

    def by_a_name_it_has(self, t):
        return t[self.name]

    def changed(self, t):
        t.k = 1

    def bound_anew(self, t):
        t = (t.k,)
        return t

    def seen_otherwise(self, t):
        return t.k, locals()

    def with_more(self, t, limit=3):
        return t.k > limit

    def another(self, t, *more):
        return t.k

    @logged
    def around(self, t):
        return t.k


@pytest.mark.parametrize("name", [name for name in vars(Methods) if not name.startswith("__")])
def test_columns_that_are_read(name):
    found = tuple_reads(vars(Methods)[name], NAMES)
    assert found == {NAMES.index(each) for each in name.split("_") if each != "nothing"}


@pytest.mark.parametrize("name", [name for name in vars(Whole) if not name.startswith("__")])
def test_tuples_that_are_used_as_a_whole(name):
    assert tuple_reads(vars(Whole)[name], NAMES) is None


def test_a_method_without_source_may_read_all():
    names = {}
    exec("def process(self, t):\n    return t.k", names)
    assert tuple_reads(names["process"], NAMES) is None


def outcome(kind, rows):
    """What an instance emits for some tuples, to the first error, and holds then."""
    instance = kind()
    emitted = []
    try:
        for row in rows:
            emitted += [repr(each) for each in instance.process(row)]
    except Exception as problem:
        emitted.append((type(problem), str(problem)))
    return emitted, repr((instance.a, instance.b, instance.c))


# A method that fails leaves its generator behind; what a `finally` of it raises when it is collected is nobody's error.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_random_methods_do_not_miss_what_they_do_not_read(tmp_path):
    module = module_of(tmp_path, 7_000, 4 * GROUP)
    row_class = ab.from_rows([], "k long, x double, n long, s string").schema.row_class
    seen = 0
    for seed in range(7_000, 7_000 + 4 * GROUP):
        kind = getattr(module, f"Body{seed}")
        reads = tuple_reads(kind.process, NAMES)
        if reads is None:
            continue
        seen += len(reads) < len(NAMES)
        rows = [row_class(row) for row in ROWS]
        less = [row_class(value if at in reads else object() for at, value in enumerate(row)) for row in ROWS]
        assert outcome(kind, less) == outcome(kind, rows)
    assert seen > GROUP // 2
