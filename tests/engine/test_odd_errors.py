"""Errors that are odd: they are told as one thread tells them, name operator and tuple, and leave no output behind."""

import threading

import pytest

import anabranch as ab
from tests.compiler.product_path import compare


class StrRaisesError(Exception):
    def __str__(self):
        raise ValueError("no text")


class ReprRaisesError(Exception):
    def __repr__(self):
        raise ValueError("no text")


class NeedsArgumentsError(Exception):
    def __init__(self, code, place):
        super().__init__(f"{code} at {place}")
        self.code = code


class ReduceRaisesError(Exception):
    def __reduce__(self):
        raise TypeError("does not travel")


class TextIsNoTextError(Exception):
    def __str__(self):
        return 7  # type: ignore[return-value]


class SlottedError(Exception):
    __slots__ = ("more",)


class MetaError(Exception):
    class __class__:  # noqa: N801 - it lies about what it is
        pass


def noted():
    error = ValueError("with notes")
    error.add_note("first line\nsecond line")
    error.__notes__.append(7)  # type: ignore[arg-type]
    return error


def chained():
    try:
        raise KeyError("inner")
    except KeyError as inner:
        error = RuntimeError("outer")
        error.__cause__ = inner
        return error


def circular():
    one, other = ValueError("one"), ValueError("other")
    one.__context__, other.__context__ = other, one
    return one


def local():
    class LocalError(Exception):
        pass

    return LocalError("of a function")


ERRORS = {
    "str raises": StrRaisesError,
    "repr raises": ReprRaisesError,
    "argument whose repr raises": lambda: ValueError(ReprRaisesError()),
    "str is no text": TextIsNoTextError,
    "needs arguments": lambda: NeedsArgumentsError(3, "here"),
    "does not travel": ReduceRaisesError,
    "argument does not travel": lambda: ValueError(threading.Lock),
    "lock among its arguments": lambda: KeyError("lock", len(repr(threading.Lock())) * 0),
    "slots": SlottedError,
    "lies about its class": MetaError,
    "group": lambda: ExceptionGroup("two", [ValueError("a"), ExceptionGroup("inner", [TypeError("b")])]),
    "notes": noted,
    "chained": chained,
    "circular": circular,
    "of a local class": local,
    "lone surrogate": lambda: ValueError("\ud800"),
    "long": lambda: ValueError("x" * 100_000),
    "unicode": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    "of the system": lambda: OSError(28, "no space", "/nowhere"),
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "recursion": RecursionError,
    "memory": MemoryError,
    "assertion": lambda: AssertionError([1, 2]),
    "no argument": Exception,
    "import": lambda: ImportError("gone", name="nowhere"),
    "syntax": lambda: SyntaxError("bad", ("file", 3, 1, "text")),
}


class Counts(ab.Operator):
    make = None
    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        yield (t.k, self.seen)
        if self.seen == 3:
            raise self.make()


class Totals:
    def __init__(self, make):
        self.make, self.n = make, 0

    def __call__(self, t):
        self.n += 1
        if self.n == 7:
            raise self.make()
        yield (t.k, self.n)


def raising(make):
    def function(t):
        if t.x == 11:
            raise make()
        return (t.k, t.x)

    return function


def generating(make):
    def function(t):
        yield (t.k, 1)
        if t.x == 11:
            raise make()

    return function


PLACES = {
    "map": lambda s, make: s.map(raising(make), schema="k string, n long"),
    "filter": lambda s, make: s.filter(raising(make)),
    "flat_map": lambda s, make: s.flat_map(generating(make), schema="k string, n long"),
    "keyed": lambda s, make: s.process(Counts(make=make), by="k", schema="k string, n long"),
    "whole": lambda s, make: s.process(Totals(make), schema="k string, n long"),
    "elastic": lambda s, make: s.map(raising(make), schema="k string, n long", elastic=True, max_workers=2),
}
ROWS = [("abc"[n % 3], n) for n in range(16)]


@pytest.mark.parametrize("place", PLACES)
def test_odd_errors_are_told_the_same(place):
    for name, make in ERRORS.items():
        stream = PLACES[place](ab.from_rows(ROWS, "k string, x long", rows_per_epoch=5), make)
        found = compare(stream, ways=((2, 1),), fresh_tasks=False)
        assert found.sequential.error, f"{name} is no error"
        assert found.verdict == "equal", f"{name}: {found.difference}"
        assert "for the tuple (k=" in found.sequential.error, name


class Quits(BaseException):
    """Not an Exception: nobody means to catch it."""


@pytest.mark.parametrize("error", [Quits, GeneratorExit, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("place", ["map", "flat_map", "keyed"])
def test_what_is_no_exception_ends_the_run_both_ways(error, place, tmp_path):
    from anabranch.testing import ParallelRun

    stream = PLACES[place](ab.from_rows(ROWS, "k string, x long", rows_per_epoch=5), error)
    with pytest.raises(BaseException) as one:
        stream.run_sequential()
    run = ParallelRun(stream, str(tmp_path), channels=1)
    with pytest.raises(BaseException) as other:
        run.run_epochs()
    assert type(one.value).__qualname__ == type(other.value).__qualname__  # the class travels with the program
    assert len(run.output) <= 10, "nothing of the epoch that failed is delivered"
