"""Copies of functions that share a variable share it, too: what one of them assigns the other reads."""

import collections
import functools

import pytest

import anabranch as ab
from anabranch.program.likeness import unlike
from anabranch.program.whole_copies import loaded, pickled_whole
from tests.compiler.product_path import compare

ROWS = [("abc"[n * 7 % 3], n) for n in range(20)]


def counter_and_reader():
    count = 0

    def increase():
        nonlocal count
        count += 1

    def read():
        return count

    def function(t):
        increase()
        return t.k, read()

    return function


def recursive():
    calls = 0

    def down(depth):
        nonlocal calls
        calls += 1
        return down(depth - 1) + 1 if depth else calls_so_far()

    def calls_so_far():
        return calls

    return lambda t: (t.k, down(t.x % 4))


def mutually_recursive():
    met = 0

    def even(n):
        nonlocal met
        met += 1
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    return lambda t: (t.k, met if even(t.x) else -met)


def accounts():
    def account():
        total = 0

        def put(amount):
            nonlocal total
            total += amount
            return total

        def take(amount):
            nonlocal total
            total -= amount
            return total

        return {"put": put, "take": take}

    by_key = {key: account() for key in "abc"}
    return lambda t: (t.k, by_key[t.k]["put" if t.x % 3 else "take"](t.x))


def decorated():
    def counted(function):
        calls, of_key = 0, collections.Counter()

        @functools.wraps(function)
        def wrapped(t):
            nonlocal calls
            calls += 1
            of_key[t.k] += 1
            return function(t)

        wrapped.report = lambda: calls * 100 + max(of_key.values(), default=0)
        return wrapped

    value = counted(lambda t: t.x)
    return lambda t: (t.k, value(t) + value.report())


def set_later():
    def function(t):
        rate.append(t.x)
        return t.k, len(rate) + last()

    def last():
        return rate[-1]

    rate = []
    return function


def class_of_two_methods():
    class TooMuchError(Exception):
        pass

    class Limited:
        def __init__(self):
            self.total = 0

        def add(self, amount):
            self.total += amount
            if self.total > 50:
                raise TooMuchError(self.total)

        def __call__(self, t):
            try:
                self.add(t.x)
            except TooMuchError as problem:
                self.total = -problem.args[0]
            return t.k, self.total

    return Limited()


MAKERS = [
    counter_and_reader,
    recursive,
    mutually_recursive,
    accounts,
    decorated,
    set_later,
    class_of_two_methods,
]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_copy_is_like_its_original(make):
    function = make()
    data, with_globals = pickled_whole(function, function)
    copied = loaded(data)
    assert unlike(function, copied, with_globals) is None
    row = collections.namedtuple("Row", "k x")
    original = make()
    assert [copied(row(*each)) for each in ROWS] == [original(row(*each)) for each in ROWS]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_what_functions_share_is_kept_from_epoch_to_epoch(make):
    stream = ab.from_rows(ROWS, "k string, x long", rows_per_epoch=6)
    found = compare(stream.map(make(), schema="k string, v long"))
    assert found.verdict == "equal", found.difference
