"""Attacks: code that runs user code behind the reader's back. Everything here must be unknown."""

import abc
import dataclasses
import enum
import sys
from collections import Counter, defaultdict

import numpy as np

from tests.compiler.corpus import expect, expect_function

_log = []
_array = np.zeros(1)


class Weird(list):
    n = 0

    def __iter__(self):
        Weird.n += 1
        return super().__iter__()


_weird = Weird([1])


@expect_function("unknown")
def iterates_a_list_subclass(t):
    for _ in _weird:
        pass
    yield t.but(count=Weird.n)


class Touchy:
    n = 0

    def _tick(self, *args):
        Touchy.n += 1
        return NotImplemented

    __eq__ = __lt__ = __add__ = __radd__ = _tick

    def __hash__(self):
        Touchy.n += 1
        return 1

    def __repr__(self):
        Touchy.n += 1
        return ""

    def __bool__(self):
        Touchy.n += 1
        return True


_touchy = Touchy()


@expect_function("unknown")
def compares_inside_a_list(t):
    [_touchy] == [1]
    yield t.but(count=Touchy.n)


@expect_function("unknown")
def hashes_inside_a_tuple(t):
    {(1, _touchy): 2}
    yield t.but(count=Touchy.n)


@expect_function("unknown")
def shows_inside_a_list(t):
    str([_touchy])
    yield t.but(count=Touchy.n)


@expect_function("unknown")
def tests_a_local_object(t):
    x = Touchy()
    if x:
        yield t.but(count=Touchy.n)


class Failure(Exception):
    n = 0

    def __init__(self):
        Failure.n += 1


@expect_function("unknown")
def exception_that_counts(t):
    try:
        raise Failure()
    except Failure:
        pass
    yield t.but(count=Failure.n)


class Checking(type):
    n = 0

    def __instancecheck__(cls, instance):
        Checking.n += 1
        return True


class Checked(metaclass=Checking):
    pass


@expect_function("unknown")
def instance_check_that_counts(t):
    isinstance(t.id, Checked)
    yield t.but(count=Checking.n)


@expect_function("unknown")
def class_pattern_that_counts(t):
    match t.id:
        case Checked():
            pass
    yield t.but(count=Checking.n)


@dataclasses.dataclass
class Pair:
    a: int
    n = 0

    def __sub__(self, other):
        Pair.n += 1
        return self


@expect_function("unknown")
def record_with_an_operator(t):
    Pair(t.id) - Pair(1)
    yield t.but(count=Pair.n)


class Level(enum.Enum):
    LOW = 1

    def __str__(self):
        _log.append(1)
        return "x"


@expect_function("unknown")
def enumeration_with_text(t):
    yield t.but(name=str(Level.LOW), count=len(_log))


@expect_function("unknown")
def ufunc_with_output(t):
    np.add(_array, 1.0, _array)
    yield t.but(value=float(_array[0]))


@expect_function("unknown")
def view_of_an_array(t):
    view = np.asarray(_array)
    view[0] += 1.0
    yield t.but(value=float(_array[0]))


@expect_function("unknown")
def method_with_output(t):
    np.zeros(1).sum(0, None, _array)
    yield t.but(value=float(_array[0]))


@expect_function("unknown")
def arguments_of_the_process(t):
    yield t.but(name=sys.argv[0])


@expect_function("unknown")
def row_made_by_its_class(t):
    row = type(t)([t.id, t.name, t.value, t.count, _log, t.day])
    row[4].append(1.0)
    yield t.but(count=len(_log))


def _scale():
    def floor(x):
        return x // 2

    return floor


def _other():
    def floor(x):
        return x // 3

    return floor


_two, _three = _scale(), _other()


@expect("unknown")
class TwoHelpersOfOneName:
    def __init__(self):
        self.counts = defaultdict(int)

    def __call__(self, t):
        self.counts[_two(t.id)] += 1
        self.counts[_three(t.id)] += 1
        yield t.but(count=self.counts[_two(t.id)])


@expect("partitioned", key="(t.id // 10)")
class GuardedKey:
    def __init__(self):
        self.counts = Counter()

    def __call__(self, t):
        if t.id is None:
            return
        self.counts[t.id // 10] += 1
        yield t.but(count=self.counts[t.id // 10])


class Property:
    @property
    def __class__(self):
        _log.append(1)
        return int


@expect_function("unknown")
def class_property(t):
    isinstance(_touchy, int)
    _touchy == 1
    yield t.but(count=len(_log))


class Meta(abc.ABCMeta):
    def __getattr__(cls, name):
        _log.append(1)
        return len(_log)


class Dynamic(metaclass=Meta):
    pass


@expect_function("unknown")
def attribute_of_a_metaclass(t):
    yield t.but(count=Dynamic.anything)


@expect("unknown")
class DeletesAttribute:
    def __init__(self):
        self.flag = 1

    def __call__(self, t):
        if hasattr(self, "flag"):
            del self.flag
            yield t


@expect("unknown")
class SwapsItsClass:
    def __call__(self, t):
        self.__class__ = Other
        yield t


class Other:
    def __call__(self, t):
        return None


@expect("unknown")
class StarDict:
    def __init__(self):
        self.counts = defaultdict(int)

    def __call__(self, t):
        self.counts[t.id] += 1
        merged = {**self.counts}
        yield t.but(count=len(merged))


@expect("unknown")
class ComparesDicts:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        if self.counts == {}:
            yield t
        self.counts[t.id] = 1


@expect("unknown")
class ShowsDict:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        self.counts[t.id] = 1
        yield t.but(name=f"{self.counts}")


@expect("unknown")
class FormatsDict:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        self.counts[t.id] = 1
        yield t.but(name="%s" % (self.counts,))


@expect("unknown")
class OrderOfDict:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        self.counts[t.id] = 1
        first = next(iter(self.counts))
        yield t.but(count=first)


@expect("unknown")
class KeysOfDict:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        self.counts[t.id] = 1
        if t.id in self.counts.keys():
            yield t.but(count=max(self.counts))


@expect("unknown")
class NestedHelperIterates:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        self.counts[t.id] = 1

        def size():
            return sum(1 for _ in self.counts)

        yield t.but(count=size())
