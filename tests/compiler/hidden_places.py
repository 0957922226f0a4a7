"""Operators that keep what they remember in places one does not think of: each is kept there, or refused at the start.

All of them are functions of a tuple (x, k) to (x, n), and `PLACES` makes each anew.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import dataclasses
import datetime
import enum
import functools
import gc
import importlib
import io
import itertools
import logging
import os
import random
import sys
import threading
import types
import weakref
from typing import Any, NamedTuple

PLACES: dict[str, Any] = {}


def place(make):
    """Register what makes an operator."""
    PLACES[make.__name__] = make
    return make


def function(operator):
    """Register a function of a tuple."""
    PLACES[operator.__name__] = lambda: operator
    return operator


class Counting:
    """A data descriptor that holds the values of all its owners by itself."""

    def __init__(self):
        self.values = {}

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner=None):
        return self if instance is None else self.values.get(self.name, 0)

    def __set__(self, instance, value):
        self.values[self.name] = value


@place
class DescriptorKeeps:
    n = Counting()

    def __call__(self, t):
        self.n = self.n + t.x
        return t.x, self.n


class Once:
    def __init__(self, function):
        self.function, self.calls = function, 0

    def __get__(self, instance, owner=None):
        self.calls += 1
        return functools.partial(self.function, instance)


@place
class NonDataDescriptor:
    @Once
    def value(self, x):
        return x

    def __call__(self, t):
        return self.value(t.x), vars(type(self))["value"].calls


class Borg:
    _shared: dict[str, Any] = {}  # noqa: RUF012 - that is the pattern

    def __init__(self):
        self.__dict__ = self._shared


@place
class IsABorg(Borg):
    def __call__(self, t):
        self.n = getattr(self, "n", 0) + 1
        return t.x, IsABorg().n


@place
class TwoWithOneDict:
    def __init__(self):
        self.one, self.other = types.SimpleNamespace(), Plain()
        self.third = Plain()
        self.third.__dict__ = self.other.__dict__

    def __call__(self, t):
        self.third.n = getattr(self.other, "n", 0) + 1
        return t.x, self.other.n


class Plain:
    pass


class CountsItsCalls(type):
    made = 0

    def __call__(cls, *arguments):
        CountsItsCalls.made += 1
        return super().__call__(*arguments)


class Numbered(metaclass=CountsItsCalls):
    def __init__(self):
        self.number = type(type(self)).made


@function
def metaclass_that_is_not_named(t):
    return t.x, Numbered().number


class Singleton(type):
    instances: dict[type, Any] = {}  # noqa: RUF012 - that is the pattern

    def __call__(cls):
        if cls not in Singleton.instances:
            Singleton.instances[cls] = super().__call__()
        return Singleton.instances[cls]


class Total(metaclass=Singleton):
    def __init__(self):
        self.n = 0


@function
def singleton_of_a_metaclass(t):
    Total().n += t.x
    return t.x, Total().n


_n = 0


@function
def through_sys_modules(t):
    module = sys.modules[__name__]
    module._n += 1
    return t.x, module._n


@function
def through_globals(t):
    globals()["_later"] = globals().get("_later", 0) + 1
    return t.x, globals()["_later"]


@function
def through_import(t):
    module = importlib.import_module(__name__)
    module._n += 1
    return t.x, module._n


@function
def through_its_own_globals(t):
    space = through_its_own_globals.__globals__
    space["_n"] += 1
    return t.x, space["_n"]


@function
def through_eval(t):
    return t.x, eval("_list.append(1) or len(_list)")


_list: list[int] = []


@function
def through_gc(t):
    for each in gc.get_objects():
        if each is _list:
            each.append(1)
    return t.x, len(_list)


@place
class CachedMethod:
    def __init__(self):
        self.calls = 0

    @functools.lru_cache(maxsize=2)  # noqa: B019 - that is what it is here for
    def value(self, k):
        self.calls += 1
        return self.calls

    def __call__(self, t):
        return t.x, self.value(t.k)


@place
class CachedForever:
    seen = 0

    @functools.cache  # noqa: B019 - that is what it is here for
    def value(self, k):
        type(self).seen += 1
        return type(self).seen

    def __call__(self, t):
        return t.x, self.value(t.k) + self.value.cache_info().hits


_numbers = itertools.count(100)


@functools.lru_cache
def number_of(k):
    return next(_numbers)


@function
def cached_function(t):
    return t.x, number_of(t.k)


@place
class InGetattribute:
    def __init__(self):
        self.reads = 0

    def __getattribute__(self, name):
        held = object.__getattribute__(self, "__dict__")
        held["reads"] = held.get("reads", 0) + 1
        return object.__getattribute__(self, name)

    def __call__(self, t):
        return t.x, self.reads


@place
class InGetattr:
    def __init__(self):
        self.log = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.log.append(name)
        return len(self.log)

    def __call__(self, t):
        return t.x, self.anything


@place
class InSetattr:
    writes = 0

    def __setattr__(self, name, value):
        type(self).writes += 1
        object.__setattr__(self, name, value)

    def __call__(self, t):
        self.last = t.x
        return t.x, self.writes


class Registered:
    registry: list[str] = []  # noqa: RUF012 - that is the pattern

    def __init_subclass__(cls, **named):
        cls.registry.append(cls.__name__)
        super().__init_subclass__(**named)


@place
class MakesSubclasses(Registered):
    def __call__(self, t):
        type("Made", (Registered,), {})
        return t.x, len(self.registry)


@function
def function_attribute(t):
    function_attribute.n = getattr(function_attribute, "n", 0) + 1
    return t.x, function_attribute.n


def counted(inner):
    @functools.wraps(inner)
    def wrapper(t):
        wrapper.calls += 1
        return (*inner(t)[:1], wrapper.calls)

    wrapper.calls = 0
    return wrapper


@function
@counted
def decorated_with_a_counter(t):
    return t.x, 0


@function
def rebinds_its_defaults(t, n=0):
    rebinds_its_defaults.__defaults__ = (n + 1,)
    return t.x, n


@function
def rebinds_keyword_defaults(t, *, n=0):
    rebinds_keyword_defaults.__kwdefaults__["n"] = n + 1
    return t.x, n


_iterator = iter([5, 6, 7] * 20)


@function
def shared_list_iterator(t):
    return t.x, next(_iterator)


@function
def shared_count(t):
    return t.x, next(_numbers)


_cycle = itertools.cycle([1, 2, 3])


@function
def shared_cycle(t):
    return t.x, next(_cycle)


def _generated():
    n = 0
    while True:
        n += 1
        yield n


_generator = _generated()


@function
def shared_generator(t):
    return t.x, next(_generator)


@place
class HasAGenerator:
    def __init__(self):
        self.numbers = _generated()

    def __call__(self, t):
        return t.x, next(self.numbers)


@place
class SwapsItsClass:
    n = 0

    def __call__(self, t):
        self.__class__ = Swapped if type(self) is SwapsItsClass else SwapsItsClass
        return t.x, self.n


class Swapped(SwapsItsClass):
    n = 1


_pop = list(range(60)).pop


@function
def bound_builtin_method(t):
    return t.x, _pop()


@place
class ReplacesAMethod:
    def value(self):
        return 0

    def __call__(self, t):
        n = self.value()
        type(self).value = lambda self: n + 1
        return t.x, n


@place
class AddsAMethod:
    def __call__(self, t):
        if not hasattr(type(self), "later"):
            type(self).later = lambda self: 7
            return t.x, 0
        return t.x, self.later()


@place
class ReplacesAStaticMethod:
    @staticmethod
    def value():
        return 0

    def __call__(self, t):
        n = self.value()
        type(self).value = staticmethod(lambda: n + 1)
        return t.x, n


class Zone(datetime.tzinfo):
    def __init__(self):
        self.asked = 0

    def utcoffset(self, moment):
        self.asked += 1
        return datetime.timedelta(hours=self.asked % 5)


_zone = Zone()


@function
def time_zone_that_counts(t):
    return t.x, datetime.datetime(2024, 1, 1, tzinfo=_zone).utcoffset().seconds


class CountedProperty(property):
    reads = 0

    def __get__(self, instance, owner=None):
        self.reads += 1
        return super().__get__(instance, owner)


@place
class HasACountedProperty:
    @CountedProperty
    def value(self):
        return vars(type(self))["value"].reads

    def __call__(self, t):
        return t.x, self.value


_weak: Any = weakref.WeakKeyDictionary()


@place
class KeepsWeakly:
    def __call__(self, t):
        _weak[self] = _weak.get(self, 0) + 1
        return t.x, _weak[self]


_local = threading.local()


@function
def thread_local(t):
    _local.n = getattr(_local, "n", 0) + 1
    return t.x, _local.n


_variable = contextvars.ContextVar("n", default=0)


@function
def context_variable(t):
    _variable.set(_variable.get() + 1)
    return t.x, _variable.get()


@function
def environment(t):
    os.environ["ANABRANCH_HIDDEN"] = str(int(os.environ.get("ANABRANCH_HIDDEN", "0")) + 1)
    return t.x, int(os.environ["ANABRANCH_HIDDEN"])


_random = random.Random(5)


@function
def seeded_generator(t):
    return t.x, _random.randrange(1000)


@contextlib.contextmanager
def noting(log):
    log.append(1)
    yield len(log)


@function
def context_manager(t):
    with noting(_list) as n:
        return t.x, n


@functools.singledispatch
def dispatched(value):
    dispatched.n = getattr(dispatched, "n", 0) + 1
    return dispatched.n


@function
def single_dispatch(t):
    return t.x, dispatched(t.x)


@place
class DispatchedMethod:
    def __init__(self):
        self.n = 0

    @functools.singledispatchmethod
    def value(self, each):
        self.n += 1
        return self.n

    def __call__(self, t):
        return t.x, self.value(t.x)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2

    def count(self):
        self.n = getattr(self, "n", 0) + 1
        return self.n


@function
def member_of_an_enumeration(t):
    return t.x, Colour(1 + t.x % 2).count()


class Pair(NamedTuple):
    number: int
    log: list


_pair = Pair(1, [])


@function
def named_tuple_with_a_list(t):
    _pair.log.append(t.x)
    return t.x, len(_pair.log)


_held: dict[str, int] = {}
_view = types.MappingProxyType(_held)


@function
def behind_a_mapping_proxy(t):
    _held[str(len(_view))] = 1
    return t.x, len(_view)


class CountsMissing(dict):
    misses = 0

    def __missing__(self, key):
        CountsMissing.misses += 1
        return CountsMissing.misses


_missing = CountsMissing()


@function
def missing_keys(t):
    return t.x, _missing[t.k]


class Handler(logging.Handler):
    seen = 0

    def emit(self, record):
        Handler.seen += 1


_logger = logging.getLogger("anabranch.hidden")
_logger.addHandler(Handler())
_logger.propagate = False


@function
def logging_handler(t):
    _logger.warning("x")
    return t.x, Handler.seen


@dataclasses.dataclass
class Held:
    n: int = 0
    log: list = dataclasses.field(default_factory=list)


@function
def class_attribute_of_a_dataclass(t):
    Held.n += 1
    return t.x, Held().n + Held.n


@place
class ClassGetItem:
    asked: list[int] = []  # noqa: RUF012 - that is what it is here for

    def __class_getitem__(cls, item):
        cls.asked.append(item)
        return len(cls.asked)

    def __call__(self, t):
        return t.x, ClassGetItem[t.x]


_text = io.StringIO()


@function
def text_being_written(t):
    _text.write("x")
    return t.x, len(_text.getvalue())


@place
class Slots:
    __slots__ = ("log",)

    def __init__(self):
        self.log = []

    def __call__(self, t):
        self.log.append(1)
        return t.x, len(self.log)


@place
class CustomCopy:
    def __init__(self):
        self.n = 0
        self.start = 10

    def __getstate__(self):
        return {"n": 0, "start": 20}

    def __call__(self, t):
        self.n += 1
        return t.x, self.n + self.start


@place
class CustomReduce:
    def __init__(self, start=0):
        self.n = start

    def __reduce__(self):
        return CustomReduce, (5,)

    def __call__(self, t):
        self.n += 1
        return t.x, self.n


_chain = collections.ChainMap({}, {"n": 0})


@function
def chain_map(t):
    _chain["n"] = _chain["n"] + 1
    return t.x, _chain["n"]


_partial = functools.partial(max, 0)


@function
def attribute_of_a_partial(t):
    _partial.n = getattr(_partial, "n", 0) + 1
    return t.x, _partial.n


class Deleted:
    gone = 0

    def __del__(self):
        Deleted.gone += 1


@function
def when_an_object_goes(t):
    Deleted()
    return t.x, Deleted.gone


class Entered:
    depth = 0

    def __enter__(self):
        Entered.depth += 1
        return Entered.depth

    def __exit__(self, *error):
        return False


@function
def entered(t):
    with Entered() as n:
        return t.x, n


@place
class KnowsItsSubclasses:
    def __call__(self, t):
        known.append(type("Sub", (KnowsItsSubclasses,), {}))
        return t.x, len(KnowsItsSubclasses.__subclasses__())


known: list[type] = []


@place
def closure_of_a_decorator():
    def limited(most):
        calls = 0

        def decorate(inner):
            def wrapper(t):
                nonlocal calls
                calls += 1
                return (t.x, min(calls, most))

            return wrapper

        return decorate

    return limited(25)(lambda t: (t.x, 0))
