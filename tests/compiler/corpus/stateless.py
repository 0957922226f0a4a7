"""Operators without state: maps, filters, flat maps, helpers, comprehensions, records."""

import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import heapq
import itertools
import json
import logging
import math
import operator
import re
import statistics
import typing
import zlib

import numpy as np

from tests.compiler.corpus import expect, expect_function

LIMIT = 10
TABLE = {"a": 1.5, "b": 2.5}
NAMES = ["a", "b", "c"]
PATTERN = re.compile(r"(\w+)")
log = logging.getLogger("corpus")


@expect_function("stateless", mode="map", selectivity="1:1")
def double(t):
    return t.but(value=t.value * 2)


@expect_function("stateless", mode="filter", selectivity="1:[0,1]")
def above(t):
    return t.value > LIMIT and t.name != "x"


@expect("stateless", mode="map")
def lambda_map():
    return lambda t: (t.id, t.name, t.value + 1, t.count, t.items, t.day)


@expect("stateless", mode="filter")
def lambda_in_table():
    return lambda t: t.name in TABLE


@expect_function("stateless", mode="map")
def look_up(t):
    return t.but(value=TABLE.get(t.name, 0.0) * t.value)


@expect_function("stateless", mode="map")
def look_up_or_fail(t):
    return t.but(value=TABLE[t.name])


@expect_function("stateless", selectivity="1:[0,1]")
def yields_if(t):
    if t.value > 0:
        yield t


@expect_function("stateless", selectivity="1:1")
def yields_either_way(t):
    if t.value > 0:
        yield t
    else:
        yield t.but(value=0.0)


@expect_function("stateless", selectivity="1:[0,∞)")
def yields_twice(t):
    yield t
    yield t.but(value=-t.value)


@expect_function("stateless", selectivity="1:[0,∞)")
def yields_in_a_loop(t):
    for item in t.items:
        yield t.but(value=item)


@expect_function("stateless", selectivity="1:[0,1]")
def returns_early(t):
    if t.value < 0:
        return
    if t.name == "a":
        yield t
        return
    yield t.but(value=1.0)


@expect_function("stateless", selectivity="1:[0,1]")
def returns_none_or_tuple(t):
    if t.count > 3:
        return None
    return t


@expect_function("stateless", mode="flat_map", selectivity="1:[0,∞)")
def returns_list(t):
    return [t, t.but(value=1.0)]


@expect_function("stateless", mode="flat_map", selectivity="1:[0,1]")
def returns_list_of_one_or_none(t):
    return [t] if t.value > 1 else []


def _clean(name):
    return name.strip().lower()


@expect_function("stateless", mode="map")
def calls_helper(t):
    return t.but(name=_clean(t.name))


def _explode(t):
    for item in t.items:
        if item > 0:
            yield t.but(value=item)


@expect_function("stateless", selectivity="1:[0,∞)")
def yields_from_helper(t):
    yield from _explode(t)


def _maybe(t):
    if t.value > 2:
        yield t


@expect_function("stateless", selectivity="1:[0,1]")
def yields_from_a_modest_helper(t):
    yield from _maybe(t)


def _factorial(n):
    return 1 if n <= 1 else n * _factorial(n - 1)


@expect_function("stateless", mode="map")
def recursive_helper(t):
    return t.but(count=_factorial(t.count % 6))


@expect_function("stateless", mode="map")
def local_list(t):
    out = []
    for item in t.items:
        out.append(item * 2)
    out.sort(reverse=True)
    return t.but(items=out)


@expect_function("stateless", mode="map")
def local_dict(t):
    counts = {}
    for letter in t.name:
        counts[letter] = counts.get(letter, 0) + 1
    return t.but(count=max(counts.values(), default=0))


@expect_function("stateless", mode="map")
def local_defaultdict(t):
    groups = collections.defaultdict(list)
    for item in t.items:
        groups[int(item)].append(item)
    return t.but(count=len(groups), value=sum(sum(g) for g in groups.values()) * 1.0)


@expect_function("stateless", mode="map")
def comprehension(t):
    return t.but(items=[x * x for x in t.items if x > 0])


@expect_function("stateless", mode="map")
def nested_comprehension(t):
    return t.but(items=[a * b for a in t.items for b in t.items if a < b])


@expect_function("stateless", mode="map")
def walrus(t):
    if (n := len(t.items)) > 2:
        return t.but(count=n)
    return t


@expect_function("stateless", mode="map")
def nested_function(t):
    def scale(x):
        return x * t.value

    return t.but(items=[scale(x) for x in t.items])


@expect_function("stateless", mode="map")
def nested_nonlocal(t):
    total = 0.0

    def add(x):
        nonlocal total
        total += x

    for x in t.items:
        add(x)
    return t.but(value=total)


@expect_function("stateless", selectivity="1:[0,1]")
def with_match(t):
    match t.name:
        case "a" | "b":
            yield t
        case str(x) if x.startswith("c"):
            yield t.but(name=x.upper())
        case _:
            return


@expect_function("stateless", mode="map")
def match_tuple(t):
    match (t.name, t.count):
        case ("a", n):
            return t.but(count=n + 1)
        case (_, 0):
            return t
        case _:
            return t.but(count=0)


@expect_function("stateless", mode="map")
def try_except(t):
    try:
        return t.but(count=int(t.name))
    except ValueError:
        return t.but(count=-1)


@expect_function("stateless", selectivity="1:[0,1]")
def try_yield(t):
    try:
        x = 1 / t.count
    except ZeroDivisionError:
        return
    yield t.but(value=x)


@expect_function("stateless", mode="map")
def while_loop(t):
    n, steps = t.count, 0
    while n > 1 and steps < 50:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return t.but(count=steps)


@expect_function("stateless", mode="map")
def formatted(t):
    return t.but(name=f"{t.name}-{t.id:04d}")


@expect_function("stateless", mode="map")
def percent(t):
    return t.but(name="%s/%d" % (t.name, t.count))


@expect_function("stateless", mode="map")
def regular_expression(t):
    found = PATTERN.match(t.name)
    return t.but(name=found.group(1) if found else "")


@expect_function("stateless", mode="map")
def regular_substitution(t):
    return t.but(name=re.sub(r"[aeiou]", lambda m: m.group(0).upper(), t.name))


@expect_function("stateless", mode="map")
def mathematics(t):
    return t.but(value=math.sqrt(abs(t.value)) + math.floor(t.value))


@expect_function("stateless", mode="map")
def statistics_of_items(t):
    return t.but(value=statistics.fmean(t.items) if t.items else 0.0)


@expect_function("stateless", mode="map")
def numpy_mean(t):
    return t.but(value=float(np.mean(np.array(t.items))) if t.items else 0.0)


@expect_function("stateless", mode="map")
def numpy_ufunc(t):
    return t.but(value=float(np.log1p(abs(t.value))))


@expect_function("stateless", mode="map")
def json_roundtrip(t):
    return t.but(name=json.dumps({"n": t.name, "c": t.count}))


@expect_function("stateless", mode="map")
def checksum(t):
    return t.but(count=zlib.crc32(t.name.encode()) % 1000)


@expect_function("stateless", mode="map")
def decimals(t):
    return t.but(value=float(decimal.Decimal(str(round(t.value, 3))).quantize(decimal.Decimal("0.1"))))


@expect_function("stateless", mode="map")
def dates(t):
    return t.but(day=t.day + datetime.timedelta(days=1), count=t.day.weekday())


@expect_function("stateless", mode="map")
def heap(t):
    h = list(t.items)
    heapq.heapify(h)
    return t.but(value=heapq.heappop(h) if h else 0.0)


@expect_function("stateless", mode="map")
def itertools_chain(t):
    return t.but(items=list(itertools.chain(t.items, [t.value])))


@expect_function("stateless", mode="map")
def reduce(t):
    return t.but(value=functools.reduce(lambda a, b: a + b, t.items, 0.0))


@expect_function("stateless", mode="map")
def mapped(t):
    return t.but(items=list(map(lambda x: x + 1, t.items)))


@expect_function("stateless", mode="map")
def sorted_by_key(t):
    return t.but(items=sorted(t.items, key=lambda x: -x))


@expect_function("stateless", mode="map")
def enumerated(t):
    return t.but(value=sum(i * x for i, x in enumerate(t.items)) * 1.0)


@expect_function("stateless", mode="map")
def zipped(t):
    return t.but(value=sum(a * b for a, b in zip(t.items, t.items[1:])) * 1.0)


@expect("stateless", mode="map")
def partial_function():
    def scale(t, factor):
        return t.but(value=t.value * factor)

    return functools.partial(scale, factor=3.0)


@expect("stateless", mode="map")
def closure_over_number():
    factor = 2.5

    def scale(t):
        return t.but(value=t.value * factor)

    return scale


@expect("stateless", mode="map")
def closure_over_table():
    table = {"a": 1, "b": 2}
    return lambda t: t.but(count=table.get(t.name, 0))


@expect("stateless", mode="filter")
def closures_over_loop_variable():
    tests = []
    for bound in (1, 2, 3):
        tests.append(lambda t: t.value > bound)
    return lambda t: all(test(t) for test in tests)


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        result = function(*args, **kwargs)
        return result

    return wrapper


@expect_function("stateless", mode="map")
@logged
def decorated(t):
    return t.but(value=t.value + 1)


@expect_function("stateless", selectivity="1:[0,1]")
@logged
def decorated_generator(t):
    if t.value > 1:
        yield t


@functools.lru_cache(maxsize=None)
def _slow(n):
    return n * n


@expect_function("stateless", mode="map")
def cached_helper(t):
    return t.but(count=_slow(t.count))


@expect_function("stateless", mode="map")
def logs(t):
    log.info("saw %s", t.name)
    return t


@expect_function("stateless", mode="map")
def prints(t):
    print(t.id)
    return t


class Point(typing.NamedTuple):
    id: int
    value: float


@expect_function("stateless", mode="map")
def named_tuple(t):
    p = Point(t.id, t.value)
    return t.but(value=p.value, id=p.id)


@dataclasses.dataclass
class Reading:
    id: int
    value: float

    def scaled(self, by):
        return Reading(self.id, self.value * by)


@expect_function("stateless", mode="map")
def data_class(t):
    r = Reading(t.id, t.value).scaled(2.0)
    return t.but(value=r.value)


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


@expect_function("stateless", mode="filter")
def enumeration(t):
    level = Level.HIGH if t.value > 3 else Level.LOW
    return level is Level.HIGH


class Accumulator:
    def __init__(self, start):
        self.total = start

    def add(self, x):
        self.total += x
        return self


@expect_function("stateless", mode="map")
def local_object(t):
    acc = Accumulator(0.0)
    for x in t.items:
        acc.add(x)
    return t.but(value=acc.total)


@expect("stateless", mode="map")
class Configured:
    def __init__(self):
        self.factor = 3.0
        self.names = {"a": "A"}

    def __call__(self, t):
        return t.but(value=t.value * self.factor, name=self.names.get(t.name, t.name))


@expect("stateless", selectivity="1:[0,1]")
class WithHelpers:
    threshold = 2.0

    def keep(self, t):
        return t.value > self.threshold

    @staticmethod
    def shape(t):
        return t.but(value=round(t.value, 2))

    @property
    def name(self):
        return "x"

    def __call__(self, t):
        if self.keep(t) and t.name != self.name:
            yield self.shape(t)


@expect("stateless")
class Inherits(WithHelpers):
    threshold = 1.0

    def keep(self, t):
        return super().keep(t) and t.count > 0


DISPATCH = {"a": double, "b": look_up}


@expect_function("stateless", mode="map")
def dispatch(t):
    handler = DISPATCH.get(t.name, double)
    return handler(t)


@expect_function("stateless", mode="map")
def getter(t):
    return t.but(value=operator.attrgetter("value")(t) * 2)


@expect_function("stateless", mode="map")
def attribute_by_name(t):
    return t.but(value=getattr(t, "value") + t["count"])


@expect_function("stateless", mode="map")
def sets_of_numbers(t):
    return t.but(count=sum({1, 2, len(t.items)}))


@expect_function("stateless", mode="map")
def sorted_set(t):
    return t.but(name="".join(sorted(set(t.name))))


@expect_function("stateless", mode="map")
def row_as_dict(t):
    d = t.asDict()
    d["value"] = 1.0
    return d


@expect_function("stateless", mode="map")
def dict_display(t):
    return {**t.asDict(), "count": t.count + 1}


@expect_function("stateless", selectivity="1:[0,∞)")
def emits_through_callback(t, emit):
    for x in t.items:
        emit(t.but(value=x))


@expect_function("stateless", selectivity="1:[0,1]")
def emits_once_through_callback(t, emit):
    if t.value > 0:
        emit(t)


@expect_function("stateless", mode="map")
def unpacked(t):
    i, n, v, *rest = t
    return t.but(value=v + 1)


@expect_function("stateless", mode="map")
def string_methods(t):
    return t.but(name="-".join(t.name.split("a")).replace("b", "c").title())


@expect_function("stateless", mode="map")
def conditional_expression(t):
    return t.but(value=t.value if t.value is not None and t.value > 0 else 0.0)


@expect_function("stateless", mode="map")
def deque_window(t):
    window = collections.deque(maxlen=3)
    best = 0.0
    for x in t.items:
        window.append(x)
        best = max(best, sum(window))
    return t.but(value=best)


@expect_function("stateless", mode="map")
def copies_then_changes(t):
    items = list(t.items)
    items.append(1.0)
    return t.but(items=items)


@expect_function("stateless", mode="map")
def imports_inside(t):
    import math as m

    return t.but(value=m.floor(t.value) * 1.0)
