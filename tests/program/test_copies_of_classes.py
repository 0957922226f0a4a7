"""Copies of classes have what registered them and what their bases did when they were made, once.

Each maker gives the class of a key's counter, found in the way in which programs find classes.
"""

import abc
import functools
from typing import ClassVar, Generic, Protocol, TypeVar

import pytest

import anabranch as ab
from anabranch.program.likeness import unlike
from anabranch.program.whole_copies import loaded, pickled_whole
from tests.compiler.product_path import compare

ROWS = [("abc"[n * 7 % 3], n) for n in range(20)]


def family(base, decorate=lambda kind: kind, **named):
    class Up(base, **named):
        def __init__(self):
            self.n = 0

        def step(self, t):
            self.n += 1
            return self.n

    class Down(base, **named):
        def __init__(self):
            self.n = 0

        def step(self, t):
            self.n -= t.x
            return self.n

    return decorate(Up), decorate(Down)


def counting(kind_of):
    class Counting:
        def __init__(self):
            self.counters, self.calls = {}, 0

        def __call__(self, t):
            self.calls += 1
            if t.k not in self.counters:
                self.counters[t.k] = kind_of(t.k != "b")()
            return t.k, self.counters[t.k].step(t) * 100 + self.calls

    return Counting()


def registered_by_hook():
    known = {}

    class Base:
        def __init_subclass__(cls, **more):
            super().__init_subclass__(**more)
            known[cls.__name__] = cls

    family(Base)
    return counting(lambda up: known["Up" if up else "Down"])


def registered_with_a_name():
    class Base(abc.ABC):  # noqa: B024
        known: ClassVar[dict] = {}

        def __init_subclass__(cls, *, tag, **more):
            super().__init_subclass__(**more)
            cls.tag = tag + cls.__name__
            Base.known[cls.tag] = cls

    family(Base, tag="a")
    return counting(lambda up: Base.known["aUp" if up else "aDown"])


def counted_by_hook():
    class Base:
        made = 0
        known: ClassVar[list] = []

        def __init_subclass__(cls):
            Base.made += 1
            Base.known.append(cls)

    family(Base)
    return counting(lambda up: Base.known[Base.made - (2 if up else 1)])


def registered_by_hook_with_slots():
    class Base:
        __slots__ = ("n",)
        known: ClassVar[list] = []

        def __init_subclass__(cls):
            Base.known.append(cls)

    family(Base)
    return counting(lambda up: Base.known[0 if up else 1])


def generic_with_hook():
    Kind = TypeVar("Kind")

    class Step(Protocol):
        def step(self, t) -> int: ...

    class Base(Step, Generic[Kind]):
        known: ClassVar[list] = []

        def __init_subclass__(cls, **more):
            super().__init_subclass__(**more)
            Base.known.append(cls)

    family(Base[int])
    return counting(lambda up: Base.known[0 if up else 1])


def registered_by_decorator():
    known = {}

    def register(kind):
        known[kind.__name__] = kind
        return kind

    family(object, register)
    return counting(lambda up: known["Up" if up else "Down"])


def registered_by_metaclass():
    class Meta(type):
        known: ClassVar[dict] = {}

        def __new__(cls, name, bases, space):
            made = super().__new__(cls, name, bases, space)
            cls.known[name] = made
            return made

    class Base(metaclass=Meta):
        pass

    family(Base)
    return counting(lambda up: Meta.known["Up" if up else "Down"])


MAKERS = [
    registered_by_hook,
    registered_with_a_name,
    counted_by_hook,
    registered_by_hook_with_slots,
    generic_with_hook,
    registered_by_decorator,
    registered_by_metaclass,
]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_copy_is_like_its_original_and_the_original_as_it_was(make):
    function = make()
    for _ in range(2):
        data, with_globals = pickled_whole(function, function)
        assert unlike(function, loaded(data), with_globals) is None


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_registered_classes_run_on_one_thread_from_epoch_to_epoch(make):
    stream = ab.from_rows(ROWS, "k string, x long", rows_per_epoch=6)
    found = compare(stream.map(make(), schema="k string, v long"))
    assert found.verdict == "equal", found.difference


def test_a_function_by_the_type_of_its_argument_has_its_name_in_a_copy():
    @functools.singledispatch
    def told(value):
        return "something"

    @told.register
    def _(value: int):
        return "a number"

    for function in (told, loaded(pickled_whole(told, told)[0])):
        assert function(1) == "a number"
        with pytest.raises(TypeError, match="told requires at least 1"):
            function()
