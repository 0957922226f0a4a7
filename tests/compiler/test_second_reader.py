"""What a second reader found: outputs that change later, views, other modules, iterators, identity, what is left.

Each operator stands for a class of programs. It gives what one thread gives, or is refused before anything starts.
"""

import collections
import functools
import hashlib
import itertools
import queue
import re
import types
from collections.abc import Iterator
from typing import NamedTuple

import pytest

import anabranch as ab
from anabranch.program.belongings import Belongings
from tests.compiler import noted_elsewhere
from tests.compiler.noted_elsewhere import Notes, noted
from tests.compiler.product_path import compare, parallel, sequential

ROWS = [("abcA"[n * 5 % 4], n * 7 % 23 - 4) for n in range(17)]
OPERATORS = {}
REFUSED = {}


def entry(made=None, refused=None):
    def note(made):
        OPERATORS[made.__name__] = made
        if refused is not None:
            REFUSED[made.__name__] = refused
        return made

    return note if made is None else note(made)


def source(cut=5):
    return ab.from_rows(ROWS, "k string, x long", rows_per_epoch=cut)


def stream_of(made, **more):
    operator = made() if isinstance(made, type) else made
    return source().process(operator, schema="k string, n long, s string", **more)


# -- what was emitted is changed later ---------------------------------------------------------------------------


@entry
class ChangesWhatItEmitted:
    def __init__(self):
        self.rows = {}

    def __call__(self, t):
        row = self.rows.setdefault(t.k, [t.k, 0, ""])
        row[1] += 1
        yield row
        row[2] += "x"
        yield row


@entry
class ChangesWhatItEmittedOfAComputedKey:
    def __init__(self):
        self.rows = {}

    def __call__(self, t):
        row = self.rows.setdefault(t.x % 3, {"k": "", "n": 0, "s": ""})
        row["n"] += 1
        yield row
        row["k"] = t.k


# -- what shows a dict -------------------------------------------------------------------------------------------


@entry
class HasAViewOfItsDict:
    def __init__(self):
        self.counts = {}
        self.shown = types.MappingProxyType(self.counts)

    def __call__(self, t):
        self.counts[t.k] = self.counts.get(t.k, 0) + 1
        yield t.k, self.shown[t.k], str(len(self.shown))


@entry
class HasKeysOfItsDict:
    def __init__(self):
        self.counts = collections.OrderedDict()
        self.keys, self.items = self.counts.keys(), None

    def __call__(self, t):
        self.counts[t.k] = t.x
        self.items = self.items or self.counts.items()
        yield t.k, len(self.keys), str(list(self.items))


@entry(refused="self.walk is another thing in a copy")
class HasAnIteratorOfItsDict:
    def __init__(self):
        self.counts = {}
        self.walk = iter(self.counts)

    def __call__(self, t):
        self.counts[t.k] = t.x
        yield t.k, len(self.counts), ""


# -- what another module remembers -------------------------------------------------------------------------------


@entry(refused="no copy of the operator leads to it; import what it uses of another module at the top, by its own")
def changes_a_dict_elsewhere(t):
    noted_elsewhere.NOTED[t.k] = noted_elsewhere.NOTED.get(t.k, 0) + 1
    yield t.k, noted_elsewhere.NOTED[t.k], ""


@entry(refused="NOTED could not be kept .* no copy of the operator leads to it")
def calls_what_changes_a_dict_elsewhere(t):
    yield t.k, noted_elsewhere.noted(t.k), ""


@entry(refused="NOTED could not be kept")
def calls_it_in_two_ways(t):
    yield t.k, noted(t.k) + noted_elsewhere.noted_twice(t.k), ""


@entry(refused="NOTED could not be kept")
def imports_it_where_it_runs(t):
    from tests.compiler.noted_elsewhere import noted_twice

    yield t.k, noted_twice(t.k), ""


@entry(refused="NOTED could not be kept")
def finds_its_module_within_another(t):
    import tests

    yield t.k, tests.compiler.noted_elsewhere.noted(t.k), ""


@entry(refused="could not be kept")
def changes_a_class_elsewhere(t):
    yield t.k, noted_elsewhere.Notes.note(t.k), ""


@entry
class BeginsWithAClassElsewhere:
    def __init__(self):
        self.notes = noted_elsewhere.Notes()

    def __call__(self, t):
        yield t.k, self.notes.note(t.k), ""


@entry
def calls_it_by_its_own_name(t):
    yield t.k, noted(t.k), ""


@entry
def changes_a_class_by_its_own_name(t):
    yield t.k, Notes.note(t.k), ""


# -- iterators, and what holds them ------------------------------------------------------------------------------


@entry
class NumbersInAPartial:
    def __init__(self):
        self.new = functools.partial(next, itertools.count(5))

    def __call__(self, t):
        yield t.k, self.new(), ""


@entry
class NumbersInATuple:
    def __init__(self):
        self.pair = itertools.count(), "x"
        self.pairs = [self.pair]

    def __call__(self, t):
        yield t.k, next(self.pair[0]) + 100 * next(self.pairs[0][0]), ""


class Pair(NamedTuple):
    numbers: Iterator
    name: str


@entry
class NumbersInANamedTuple:
    def __init__(self):
        self.pair = Pair(itertools.count(), "x")

    def __call__(self, t):
        yield t.k, next(self.pair.numbers), self.pair.name


@entry
class NumbersFromAFactory:
    def __init__(self):
        self.ids = collections.defaultdict(itertools.count().__next__)

    def __call__(self, t):
        yield t.k, self.ids[t.k], ""


@entry
class NumbersFromItself:
    def __init__(self):
        self.ids = collections.defaultdict()
        self.ids.default_factory = self.ids.__len__

    def __call__(self, t):
        yield t.k, self.ids[t.k], ""


@entry
class FreezesItsDict:
    def __init__(self):
        self.counts, self.n = collections.defaultdict(int), 0

    def __call__(self, t):
        self.n += 1
        try:
            self.counts[t.k] += 1
        except KeyError:
            yield t.k, -1, "frozen"
            return
        if self.n == 3:
            self.counts.default_factory = None
        yield t.k, self.counts[t.k], ""


_numbers = itertools.count(1)


def _memo(function):
    cache = {}

    @functools.wraps(function)
    def remembered(key):
        if key not in cache:
            cache[key] = function(key)
        return cache[key]

    remembered.cache = cache
    return remembered


@_memo
def _number_of(key):
    return next(_numbers)


@entry
def numbers_in_a_memo(t):
    yield t.k, _number_of(t.k), str(len(_number_of.cache))


# -- identity ----------------------------------------------------------------------------------------------------

_MISSING = object()


@entry
class HasASentinel:
    def __init__(self):
        self.last = _MISSING

    def __call__(self, t):
        before, self.last = self.last, t.x
        yield t.k, 0 if before is _MISSING else t.x - before, ""


@entry
class KeepsASentinel:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        before = self.last.setdefault(t.k, _MISSING)
        self.last[t.k] = _MISSING if t.x % 5 == 0 else t.x
        yield t.k, int(before is _MISSING), ""


@entry(refused=r"it calls id\(\) \(line \d+\), and keeps something .* a number or a name of their own")
class KeepsAddresses:
    def __init__(self):
        self.seen, self.objects = set(), {}

    def __call__(self, t):
        found = self.objects.setdefault(t.k, [t.k])
        is_new = id(found) not in self.seen
        self.seen.add(id(found))
        yield t.k, int(is_new), ""


@entry(refused=r"it compares numbers or texts with `is` \(line \d+\), and keeps .* Compare with ==")
class ComparesTextsByIdentity:
    def __init__(self):
        self.one, self.other = {}, {}

    def __call__(self, t):
        is_same = self.one.get(t.k) is self.other.get(t.k)
        self.one[t.k] = self.other[t.k] = t.k + str(t.x)
        yield t.k, int(is_same), ""


# -- what is left behind -----------------------------------------------------------------------------------------


@entry(refused="last gets an exception")
class KeepsAnError:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        try:
            1 // (t.x % 3)
        except ZeroDivisionError as problem:
            self.last[t.k] = problem
        yield t.k, 0, str(self.last.get(t.k))


@entry(refused="gets a _queue.SimpleQueue")
class KeepsQueues:
    def __init__(self):
        self.queues = {}

    def __call__(self, t):
        held = self.queues.setdefault(t.k, queue.SimpleQueue())
        held.put(t.x)
        yield t.k, held.qsize(), ""


@entry(refused=r"hashes gets what hashlib.sha1\(\) gives")
class KeepsHashes:
    def __init__(self):
        self.hashes = {}

    def __call__(self, t):
        held = self.hashes.setdefault(t.k, hashlib.sha1())
        held.update(str(t.x).encode())
        yield t.k, 0, held.hexdigest()


# -- the order of sets -------------------------------------------------------------------------------------------


@entry
class GreatestOfASet:
    def __init__(self):
        self.texts = collections.defaultdict(set)

    def __call__(self, t):
        self.texts[t.k].update(str(t.x))
        yield t.k, len(self.texts[t.k]), max(self.texts[t.k]) + min(set(str(t.x)))


@pytest.mark.parametrize("name", OPERATORS)
def test_it_gives_what_one_thread_gives_or_is_refused(name):
    stream = stream_of(OPERATORS[name])
    assert bool(stream.plan().refused) is (name in REFUSED)
    found = compare(stream, ((3, 2),), verify=1.0)
    if name in REFUSED:
        assert found.verdict == "refused", found.difference
        assert re.search(REFUSED[name], found.parallel[0].refused), found.parallel[0].refused
    else:
        assert found.verdict == "equal", found.difference
        assert not found.sequential.error and found.sequential.rows[0]
    assert sequential([stream]) == found.sequential, "the first run left something behind"


def test_the_greatest_of_a_set_of_texts_costs_no_channel():
    assert stream_of(GreatestOfASet).plan().operator("GreatestOfASet").model.is_safe

    def by_length(t):
        yield t.k, 0, max(set(t.k), key=len)

    assert not stream_of(by_length).plan().operator("by_length").model.is_safe


class Closing:
    """Its `finally` runs, too, where what it emits does not fit."""

    def __init__(self):
        self.n = {}

    def __call__(self, t):
        try:
            self.n[t.k] = self.n.get(t.k, 0) + 1
            yield t.k, "text" if t.x == 8 else self.n[t.k], ""
            yield t.k, self.n[t.k], "again"
        finally:
            self.n[t.k] += 10


class ClosingWhole(Closing):
    def __call__(self, t):
        self.n["calls"] = self.n.get("calls", 0) + 1
        yield from super().__call__(t)


@pytest.mark.parametrize("made", [Closing, ClosingWhole])
def test_a_call_that_fails_is_over_before_its_state_is_put_back(made):
    found = compare(stream_of(made, on_error="skip"), ((1, 1), (3, 2)))
    assert found.verdict == "equal", found.difference
    assert len(found.sequential.rows[0]) == 2 * (len(ROWS) - 1)


@pytest.mark.parametrize("watch", ["sample", "off"])
def test_the_first_error_is_that_of_the_first_tuple_that_was_emitted(watch):
    def before():
        seen = {}

        def emits(t):
            seen[t.k] = seen.get(t.k, 0) + 1
            yield t.k, t.x, ""
            if t.x == 8:
                raise ValueError("behind what it emitted")

        return emits

    def behind(t):
        if t.n == 8:
            raise KeyError("for what was emitted")
        return t

    streams = [stream_of(before()).map(behind)]
    expected = sequential(streams)
    assert "for what was emitted" in expected.error
    assert parallel(streams, 3, 2, watch=watch) == expected


def test_belongings_are_put_back_where_they_were_shared():
    """A cell, a partial, a factory and two attributes that lead to one iterator lead to one iterator afterwards."""

    def closing():
        numbers, cache = itertools.count(), {}

        def function():
            return next(numbers), cache

        function.cache = cache
        function.numbers = numbers
        return function

    function = closing()
    held = [functools.partial(next, function.numbers), collections.defaultdict(function.numbers.__next__)]
    before = Belongings([function, held])
    for _ in range(2):
        assert [function()[0], next(function.numbers), held[0](), held[1]["a"]] == [0, 1, 2, 3]
        before.put_back()
        assert function()[1] is function.cache
        before.put_back()
