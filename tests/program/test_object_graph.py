"""An operator's object, kept with all it holds: after any number of times through bytes it does what it would have."""

import collections
import dataclasses
import enum
import functools
import io
import itertools
import random
import re
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from anabranch.errors import StateError
from anabranch.program.object_graph import ObjectGraph, Prototype
from anabranch.state.codec import decode, encode


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


Point = collections.namedtuple("Point", "a b")


@dataclasses.dataclass
class Sum:
    n: int = 0
    parts: list = dataclasses.field(default_factory=list)


class Slotted:
    __slots__ = ("__hidden", "a")

    def __init__(self, a):
        self.a = a
        self.__hidden = a + 1

    def both(self):
        self.a += 1
        return self.a, self.__hidden


class Bag(dict):
    def __init__(self):
        super().__init__()
        self.adds = 0

    def add(self, key):
        self.adds += 1
        self[key] = self.get(key, 0) + 1


class Everything:
    """Holds whatever an operator may hold, some of it twice."""

    made = 0

    def __init__(self):
        self.window = []
        self.report = {"window": self.window, "point": Point(1, self.window)}
        self.size = lambda: len(self.window)
        self.handlers = {True: self.even, False: self.odd}
        self.pattern = re.compile("a+")
        self.random = random.Random(3)
        self.generator = np.random.default_rng(5)
        self.numbers = itertools.count(4, 3)
        self.cells = np.zeros((2, 3), order="F")
        self.colour = Colour.RED
        self.by_parity = collections.defaultdict(list)
        self.itself = self
        self.sum = Sum()
        self.text = io.StringIO()
        self.slotted = Slotted(1)
        self.bag = Bag()
        self.recent = collections.deque([1], maxlen=3)
        self.ordered = collections.OrderedDict(b=1, a=2)
        self.seven = functools.partial(self.even, 7)
        self.calls = self._counter()

    def _counter(self):
        calls = 0

        def count():
            nonlocal calls
            calls += 1
            return calls

        return count

    def even(self, x):
        self.window.append(x)
        return "even"

    def odd(self, x):
        return "odd"

    def take(self, x):
        self.made += 1
        self.later = getattr(self, "later", 0) + x
        self.by_parity[x % 2].append(Sum(x))
        self.cells[0, x % 3] += x
        self.colour = Colour.GREEN if x % 2 else Colour.RED
        self.sum.n += x
        self.sum.parts.append(self.window)
        self.text.write(str(x))
        self.recent.append(x)
        self.bag.add(x % 4)
        self.ordered.move_to_end("b" if x % 2 else "a")
        told = self.handlers[x % 2 == 0](x), self.report["window"] is self.window, self.size(), self.calls()
        told += next(self.numbers), self.random.random(), float(self.generator.random()), self.cells.tolist()
        told += [each.n for each in self.by_parity[x % 2]], self.text.getvalue(), list(self.recent), self.seven()
        told += self.itself is self, self.made, self.later, self.colour, self.slotted.both(), dict(self.bag)
        told += (
            self.bag.adds,
            list(self.ordered),
            self.sum.parts[0] is self.window,
            self.report["point"].b is self.window,
        )
        return (*told, bool(self.pattern.match("aa")), self.cells.flags.f_contiguous)


@settings(max_examples=30, deadline=None)
@given(some.lists(some.tuples(some.integers(0, 9), some.booleans()), max_size=25))
def test_an_object_that_goes_through_bytes_does_what_it_would_have_done(calls):
    plain, prototype = Everything(), Prototype(Everything())
    graph = ObjectGraph()
    for x, ends_here in calls:
        assert graph.live(prototype).take(x) == plain.take(x)
        if ends_here:
            graph = decode(encode(graph))


def test_the_original_is_never_touched():
    original = Everything()
    ObjectGraph().live(Prototype(original)).take(2)
    assert original.window == [] and original.calls() == 1


COUNTS = {}


def counts(t):
    COUNTS[t] = COUNTS.get(t, 0) + 1
    return COUNTS[t]


def test_a_function_brings_its_globals_along():
    prototype, graph = Prototype(counts), ObjectGraph()
    assert [graph.live(prototype)(1), graph.live(prototype)(1)] == [1, 2]
    graph = decode(encode(graph))
    assert [graph.live(prototype)(1), graph.live(prototype)(2)] == [3, 1]
    assert COUNTS == {}


class Holds:
    def __init__(self, value):
        self.inner = {"place": [value]}


@pytest.mark.parametrize(
    "value",
    [iter([1]), (n for n in ()), threading.Lock(), np.array([object()]), open],
    ids=["iterator", "generator", "lock", "array of objects", "function"],
)
def test_what_cannot_be_kept_is_refused_before_anything_starts(value):
    if value is open:
        Prototype(Holds(value)).check()  # a function is the same wherever it is
        return
    with pytest.raises(StateError, match=r"self\.inner|cannot be sent"):
        Prototype(Holds(value)).check()


def test_the_refusal_says_the_way_to_what_cannot_be_kept():
    with pytest.raises(StateError, match=re.escape("self.inner['place'][0] holds a builtins.list_iterator")):
        Prototype(Holds(iter([1]))).check()


def test_arrays_that_share_their_memory_are_refused():
    class Views:
        def __init__(self):
            self.whole = np.zeros(4)
            self.half = self.whole[:2]

    with pytest.raises(StateError, match="share their memory"):
        Prototype(Views()).check()


def test_parts_name_only_classes_that_the_program_brought():
    graph = ObjectGraph()
    prototype = Prototype(Everything())
    graph.live(prototype).take(1)
    nodes = graph.to_parts()
    planted = [
        [anchor, kind, ["os.PathLike", [], None] if kind == "instance" else what] for anchor, kind, what in nodes
    ]
    planted = [[None if kind == "instance" else anchor, kind, what] for anchor, kind, what in planted]
    with pytest.raises(StateError, match="does not name"):
        ObjectGraph(planted).live(prototype)
