"""Code that looks worse or better than it is."""

import collections
import contextlib
import functools

from tests.compiler.corpus import expect, expect_function


@expect("stateless", mode="map")
class AssignedInInit:
    def __init__(self):
        self.cache = {}
        self.cache["a"] = 1
        self.factor = len(self.cache)

    def __call__(self, t):
        return t.but(count=self.factor + self.cache.get(t.name, 0))


@expect("stateless", mode="map")
class UnusedMutator:
    def __init__(self):
        self.n = 3

    def grow(self):
        self.n += 1

    def __call__(self, t):
        return t.but(count=self.n)


@expect("stateless")
class PrivateNames:
    def __init__(self):
        self.__limit = 2.0

    def __call__(self, t):
        if t.value > self.__limit:
            yield t


@expect("unknown")
class PrivateCounter:
    def __init__(self):
        self.__n = 0

    def __call__(self, t):
        self.__n += 1
        yield t.but(count=self.__n)


@expect("stateless", mode="map")
class Slots:
    __slots__ = ("factor",)

    def __init__(self):
        self.factor = 2.0

    def __call__(self, t):
        return t.but(value=t.value * self.factor)


@expect("stateless", mode="map")
class ClassMethods:
    scale = 3.0

    @classmethod
    def convert(cls, value):
        return value * cls.scale

    def __call__(self, t):
        return t.but(value=self.convert(t.value))


@expect("stateless", mode="map")
def bound_method():
    class Converter:
        factor = 4.0

        def convert(self, t):
            return t.but(value=t.value * self.factor)

    return Converter().convert


@expect("partitioned", key="id")
def bound_method_with_dict():
    class Converter:
        def __init__(self):
            self.last = {}

        def convert(self, t):
            before = self.last.get(t.id, 0.0)
            self.last[t.id] = t.value
            return t.but(value=before)

    return Converter().convert


@expect_function("stateless", selectivity="1:[0,1]")
def suppresses(t):
    with contextlib.suppress(ZeroDivisionError):
        yield t.but(value=1.0 / t.count)


@expect_function("stateless", selectivity="1:[0,1]")
def breaks_out(t):
    for item in t.items:
        if item > 1:
            yield t.but(value=item)
            break


breaks_out_case = None


@expect_function("stateless", selectivity="1:1")
def loop_else(t):
    for item in t.items:
        if item < 0:
            bad = True
            break
    else:
        bad = False
    yield t.but(count=int(bad))


@expect_function("stateless", selectivity="1:1")
def finally_runs(t):
    x = 0.0
    try:
        x = 1.0 / t.count
    except ZeroDivisionError:
        x = -1.0
    finally:
        y = x + 1
    yield t.but(value=y)


@expect_function("stateless", mode="map")
def star_arguments(t):
    def total(*values, scale=1.0, **rest):
        return sum(values) * scale

    return t.but(value=total(*t.items, scale=2.0))


@expect_function("stateless", mode="map")
def curried(t):
    return t.but(value=(lambda a: lambda b: a * b)(t.value)(2.0))


@expect("stateless", mode="map")
def composed():
    steps = [lambda t: t.but(value=t.value + 1), lambda t: t.but(value=t.value * 2)]

    def run(t):
        for step in steps:
            t = step(t)
        return t

    return run


@expect_function("stateless", mode="map")
def chain_of_conditions(t):
    return t.but(name="low" if t.value < 1 else "mid" if t.value < 5 else "high")


@expect_function("stateless", mode="map")
def local_cache(t):
    cache = {}

    def fib(n):
        if n < 2:
            return n
        if n not in cache:
            cache[n] = fib(n - 1) + fib(n - 2)
        return cache[n]

    return t.but(count=fib(t.count % 15))


@expect_function("unknown", truth="safe", mode="map")
def local_class(t):
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    return t.but(value=Pair(t.value, 1).a)


@expect_function("stateless", mode="map")
def grouped(t):
    groups = collections.Counter(t.name)
    return t.but(count=groups.most_common(1)[0][1] if groups else 0)


@expect("unknown", truth="safe", mode="map")
def made_by_exec():
    space = {}
    exec("def f(t):\n    return t.but(value=1.0)\n", space)
    return space["f"]


@expect_function("unknown", truth="safe", mode="map")
def constant_by_hand(t):
    # A person sees that the set has one element and its order cannot matter.
    (only,) = {t.name}
    return t.but(name=only)


@functools.singledispatch
def _describe(value):
    return "?"


@_describe.register
def _(value: int):
    return "int"


@expect_function("stateless", mode="map")
def single_dispatch(t):
    return t.but(name=_describe(t.count))


@expect("partitioned", key="id")
class DataDrivenSessions:
    gap = 5.0

    def __init__(self):
        self.sessions = {}

    def __call__(self, t):
        session = self.sessions.get(t.id)
        if session is None or t.value - session["last"] > self.gap:
            if session is not None:
                yield t.but(value=session["sum"], count=session["n"])
            session = {"last": t.value, "sum": 0.0, "n": 0}
            self.sessions[t.id] = session
        session["last"] = t.value
        session["sum"] += t.value
        session["n"] += 1


@expect("partitioned", key="id")
class Vwap:
    def __init__(self):
        self.price_volume = collections.defaultdict(float)
        self.volume = collections.defaultdict(int)

    def __call__(self, t):
        self.price_volume[t.id] += t.value * t.count
        self.volume[t.id] += t.count
        if self.volume[t.id]:
            yield t.but(value=self.price_volume[t.id] / self.volume[t.id])


@expect("partitioned", key="name")
class StateMachine:
    NEXT = {("idle", True): "busy", ("busy", True): "busy", ("busy", False): "idle", ("idle", False): "idle"}

    def __init__(self):
        self.state = {}

    def __call__(self, t):
        before = self.state.get(t.name, "idle")
        after = self.NEXT[(before, t.value > 0)]
        self.state[t.name] = after
        if before != after:
            yield t
