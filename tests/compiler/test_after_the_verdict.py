"""What runs is what was written, whatever the compiler found: programs whose state is reached in unusual ways.

Every task gets a program that was unpickled for it, every epoch has a driver of its own: what is not kept is gone.
"""

import collections
import decimal
import functools
import random

import pytest

import anabranch as ab
from anabranch.engine.worker import tasks
from anabranch.errors import ProgramError
from anabranch.testing import ParallelRun

COLUMNS, COUNTED = "k string, x long", "k string, n long"
ROWS = [(random.Random(n).choice("abcd"), n % 7) for n in range(45)]
EPOCH = 9


class Forgets(dict):
    """A cache that keeps nothing."""

    def __setitem__(self, key, value):
        pass


def outputs(stream, directory, channels):
    written = {}
    for number in range(len(ROWS) // EPOCH):
        run = ParallelRun(stream, str(directory), channels=channels, seed=number, written=written)
        run.run_epochs(number, number)
    return [tuple(row) for row in run.output]


def source():
    return ab.from_rows(ROWS, COLUMNS, rows_per_epoch=EPOCH)


def by_remainder():
    counts = {}

    def f(t):
        counts[t.x % 3] = counts.get(t.x % 3, 0) + 1
        return t.k, counts[t.x % 3]

    return source().map(f, COUNTED)


def by_upper_case():
    seen = set()

    def f(t):
        new = t.k.upper() not in seen
        seen.add(t.k.upper())
        return new

    return source().filter(f)


def by_several_parts():
    counts = collections.Counter()

    def f(t):
        counts[t.k.lower(), t.x // 2] += 1
        for _ in range(counts[t.k.lower(), t.x // 2] % 3):
            yield t.k, counts[t.k.lower(), t.x // 2]

    return source().flat_map(f, COUNTED)


class Dispatching:
    def __init__(self):
        self.counts = {}
        self.handlers = {0: self.even, 1: self.odd}

    def even(self, t):
        self.counts[t.k] = self.counts.get(t.k, 0) + 1
        return self.counts[t.k]

    def odd(self, t):
        self.counts[t.k] = self.counts.get(t.k, 0) + 10
        return self.counts[t.k]

    def __call__(self, t):
        yield t.k, self.handlers[t.x % 2](t)


class TwoNames:
    def __init__(self):
        self.window = []
        self.report = {"window": self.window}

    def __call__(self, t):
        self.window.append(t.x)
        yield t.k, len(self.report["window"])


class ClassDefault:
    n = 0

    def __call__(self, t):
        self.n += 1
        yield t.k, self.n


class OwnFunction:
    def __init__(self):
        self.x = 0
        self.read = lambda: self.x

    def __call__(self, t):
        self.x += t.x
        yield t.k, self.read()


class Tool:
    def __init__(self, counts):
        self.counts = counts

    def add(self, key):
        self.counts[key] = self.counts.get(key, 0) + 1


class WithTool:
    def __init__(self):
        self.counts = {}
        self.tool = Tool(self.counts)

    def __call__(self, t):
        self.tool.add(t.k)
        yield t.k, self.counts[t.k]


class Child:
    def __init__(self, parent):
        self.parent = parent


class WithChild:
    def __init__(self):
        self.counts = {}
        self.child = Child(self)

    def __call__(self, t):
        mine = self.child.parent.counts
        mine[t.k] = mine.get(t.k, 0) + 1
        yield t.k, self.counts[t.k]


class Throws:
    def __init__(self):
        self.random = random.Random(4)

    def __call__(self, t):
        yield t.k, int(self.random.random() * 1000)


RANDOM = random.Random(9)


def throws_globally(t):
    return t.k, int(RANDOM.random() * 1000)


def adds(box, t):
    box.append(t.x)
    return t.k, len(box)


PROGRAMS = {
    "computed key in map": by_remainder,
    "computed key in filter": by_upper_case,
    "computed key in flat_map": by_several_parts,
    "bound methods in a table": lambda: source().process(Dispatching(), schema=COUNTED),
    "two names for one list": lambda: source().process(TwoNames(), schema=COUNTED),
    "default of the class": lambda: source().process(ClassDefault(), schema=COUNTED),
    "closure over self": lambda: source().process(OwnFunction(), schema=COUNTED),
    "helper that shares the dict": lambda: source().process(WithTool(), schema=COUNTED),
    "child that knows its parent": lambda: source().process(WithChild(), schema=COUNTED),
    "own generator of random numbers": lambda: source().process(Throws(), schema=COUNTED),
    "global generator of random numbers": lambda: source().map(throws_globally, COUNTED),
    "bound method": lambda: source().process(TwoNames().__call__, schema=COUNTED),
    "partial with a list": lambda: source().map(functools.partial(adds, []), COUNTED),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("channels", [1, 3])
def test_state_is_kept_however_it_is_reached(name, channels, tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "_programs", Forgets())
    stream = PROGRAMS[name]()
    expected = [tuple(row) for row in stream.run_sequential()]
    assert expected
    try:
        found = outputs(stream, tmp_path, channels)
    except ProgramError as refusal:
        # Before anything ran, and with what to do.
        assert "To change that" in str(refusal) or "Or " in str(refusal), refusal
        assert name in ("partial with a list",), refusal
        return
    assert found == expected


SHARED = {}


class Shares:
    def __init__(self, by):
        self.by = by

    def __call__(self, t):
        SHARED[t.k] = SHARED.get(t.k, 0) + self.by
        yield t.k, SHARED[t.k]


def test_operators_that_share_what_they_change_are_refused(tmp_path):
    stream = source().process(Shares(1), schema=COUNTED).process(Shares(10), schema=COUNTED)
    with pytest.raises(ProgramError, match="shares"):
        outputs(stream, tmp_path, 2)


FACTOR = 1


def scaled(t):
    return t.k, t.x * FACTOR + int(decimal.Decimal(1) / 3 * 10**6 == decimal.Decimal("333300"))


def test_settings_made_before_the_start_reach_the_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "_programs", Forgets())
    monkeypatch.setitem(globals(), "FACTOR", 10)
    with decimal.localcontext(prec=4):
        stream = source().map(scaled, COUNTED)
        expected = [tuple(row) for row in stream.run_sequential()]
        run = ParallelRun(stream, str(tmp_path), channels=2)
        # As on a worker: its own context, and the module as it is in the file.
        monkeypatch.setitem(globals(), "FACTOR", 1)
        decimal.setcontext(decimal.Context(prec=28))
        run.run_epochs()
        assert [tuple(row) for row in run.output] == expected
