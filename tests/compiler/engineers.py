"""Operators as engineers write them who come from PySpark: caches, dataclasses, descriptors, heaps, closures.

All take tuples of (k string, x long, v double) and give (k string, n long, s string). None of them is written with the
compiler in mind; whatever it makes of them, the output is that of one thread.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import copy
import dataclasses
import datetime
import enum
import functools
import heapq
import itertools
import operator
import statistics
import types
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import anabranch as ab

ALL: dict[str, tuple[Any, dict[str, Any]]] = {}


def entry(made=None, **more):
    """Note an operator: a class is made anew for each run, a function is taken as it is."""

    def note(made):
        ALL[made.__name__] = (made, more)
        return made

    return note if made is None else note(made)


# -- containers of the library ----------------------------------------------------------------------------------


@entry
class CountsWords:
    def __init__(self):
        self.words = collections.Counter()

    def __call__(self, t):
        self.words.update(t.k * (t.x % 3))
        yield t.k, self.words[t.k], str(self.words.most_common(2))


@entry
class LastFew:
    def __init__(self):
        self.last = collections.defaultdict(lambda: collections.deque(maxlen=3))

    def __call__(self, t):
        self.last[t.k].append(t.x)
        yield t.k, sum(self.last[t.k]), str(list(self.last[t.k]))


@entry
class LeastRecentlyUsed:
    def __init__(self):
        self.cache = collections.OrderedDict()

    def __call__(self, t):
        hit = t.k in self.cache
        self.cache[t.k] = t.x
        self.cache.move_to_end(t.k)
        if len(self.cache) > 2:
            self.cache.popitem(last=False)
        yield t.k, int(hit), ",".join(self.cache)


@entry
class LayersOfSettings:
    def __init__(self):
        self.defaults = {"a": 1, "b": 2}
        self.found = {}
        self.settings = collections.ChainMap(self.found, self.defaults)

    def __call__(self, t):
        before = self.settings.get(t.k, 0)
        self.settings[t.k] = before + t.x
        yield t.k, before, str(sorted(self.settings.items()))


@entry
class SmallestThree:
    def __init__(self):
        self.heaps = {}

    def __call__(self, t):
        heap = self.heaps.setdefault(t.k, [])
        if len(heap) < 3:
            heapq.heappush(heap, -t.x)
        else:
            heapq.heappushpop(heap, -t.x)
        yield t.k, -heap[0], str(sorted(heap))


@entry
class MedianOfTwoHeaps:
    def __init__(self):
        self.low, self.high = [], []

    def __call__(self, t):
        heapq.heappush(self.high, -heapq.heappushpop(self.low, -t.x))
        if len(self.high) > len(self.low):
            heapq.heappush(self.low, -heapq.heappop(self.high))
        yield t.k, -self.low[0], str(len(self.low) + len(self.high))


@entry
class KeepsSorted:
    def __init__(self):
        self.seen = {}

    def __call__(self, t):
        seen = self.seen.setdefault(t.k, [])
        at = bisect.bisect_left(seen, t.x)
        if at == len(seen) or seen[at] != t.x:
            bisect.insort(seen, t.x)
        yield t.k, at, str(seen[-3:])


@entry
class TwoIndexesOfOneRecord:
    def __init__(self):
        self.by_key, self.by_value = {}, {}

    def __call__(self, t):
        record = self.by_key.get(t.k)
        if record is None:
            record = self.by_key[t.k] = {"n": 0}
        self.by_value[t.x % 3] = record
        self.by_value[t.x % 3]["n"] += 1
        yield t.k, self.by_key[t.k]["n"], str(len(self.by_value))


@entry
class Pairs:
    def __init__(self):
        self.pairs = collections.Counter()
        self.last = None

    def __call__(self, t):
        if self.last is not None:
            self.pairs[self.last, t.k] += 1
        self.last = t.k
        yield t.k, sum(self.pairs.values()), str(sorted(self.pairs.items())[:2])


@entry
class Multiset:
    def __init__(self):
        self.a, self.b = collections.Counter(), collections.Counter()

    def __call__(self, t):
        (self.a if t.x % 2 else self.b)[t.k] += 1
        yield t.k, sum((self.a & self.b).values()), str(sorted((self.a - self.b).items()))


# -- records ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Session:
    begun: int
    total: float = 0.0
    tags: list[str] = dataclasses.field(default_factory=list)

    def add(self, t):
        self.total += t.v
        self.tags.append(t.k)
        return self


@entry
class Sessions:
    def __init__(self):
        self.open: dict[str, Session] = {}

    def __call__(self, t):
        session = self.open.get(t.k)
        if session is None or t.x - session.begun > 9:
            if session is not None:
                yield t.k, len(session.tags), f"{session.total:.2f}"
            session = self.open[t.k] = Session(t.x)
        session.add(t)


@entry(by="k")
class DeclaredSession(ab.Operator):
    session: Session = ab.state(default=None)
    closed: list = ab.state(factory=list)

    def process(self, t):
        if self.session is None:
            self.session = Session(t.x)
            self.closed.append(self.session)
        self.session.add(t)
        if len(self.session.tags) == 3:
            self.session = None
        yield t.k, len(self.closed), str([len(each.tags) for each in self.closed])


class Reading(NamedTuple):
    n: int
    total: float


@entry
class ReplacesNamedTuples:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        before = self.last.get(t.k, Reading(0, 0.0))
        self.last[t.k] = before._replace(n=before.n + 1, total=before.total + t.v)
        yield t.k, self.last[t.k].n, repr(self.last[t.k])


@dataclasses.dataclass(frozen=True, order=True)
class Version:
    major: int
    minor: int = 0

    def next(self):
        return dataclasses.replace(self, minor=self.minor + 1)


@entry
class FrozenVersions:
    def __init__(self):
        self.versions = collections.defaultdict(lambda: Version(1))

    def __call__(self, t):
        self.versions[t.k] = self.versions[t.k].next()
        yield t.k, self.versions[t.k].minor, str(max(self.versions.values()))


class Slotted:
    __slots__ = ("history", "n")

    def __init__(self):
        self.n, self.history = 0, []


@entry
class KeepsSlotted:
    def __init__(self):
        self.slots = {}

    def __call__(self, t):
        each = self.slots.setdefault(t.k, Slotted())
        each.n += t.x
        each.history.append(each.n)
        yield t.k, each.n, str(each.history[-2:])


class Light(enum.Enum):
    RED = "r"
    GREEN = "g"

    def other(self):
        return Light.GREEN if self is Light.RED else Light.RED


@entry
class Traffic:
    def __init__(self):
        self.lights = {}

    def __call__(self, t):
        self.lights[t.k] = self.lights.get(t.k, Light.RED).other()
        match self.lights[t.k]:
            case Light.RED:
                yield t.k, 0, "stop"
            case Light.GREEN if t.x % 5:
                yield t.k, 1, "go"
            case _:
                yield t.k, 2, "look"


class Permission(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


@entry
class GathersFlags:
    def __init__(self):
        self.granted = {}

    def __call__(self, t):
        self.granted[t.k] = self.granted.get(t.k, Permission(0)) | list(Permission)[t.x % 3]
        yield t.k, self.granted[t.k].value, str(Permission.WRITE in self.granted[t.k])


# -- classes ----------------------------------------------------------------------------------------------------


class Base:
    def __init__(self, start=0):
        self.total = start

    def add(self, x):
        self.total += x
        return self.total


class Doubling(Base):
    def add(self, x):
        return super().add(2 * x)


@entry
class Inherits(Doubling):
    def __init__(self):
        super().__init__(start=5)
        self.calls = 0

    def add(self, x):
        self.calls += 1
        return super().add(x)

    def __call__(self, t):
        yield t.k, self.add(t.x), str(self.calls)


class CountingMixin:
    counts: ClassVar[dict] = {}

    def count(self, name):
        self.counts[name] = self.counts.get(name, 0) + 1
        return self.counts[name]


@entry
class MixesIn(CountingMixin):
    def __call__(self, t):
        yield t.k, self.count(t.k), "mixed"


@entry
class Nested:
    class Inner:
        def __init__(self, outer):
            self.outer, self.n = outer, 0

        def hit(self):
            self.n += 1
            self.outer.hits += 1
            return self.n

    def __init__(self):
        self.hits, self.inner = 0, {}

    def __call__(self, t):
        if t.k not in self.inner:
            self.inner[t.k] = Nested.Inner(self)
        yield t.k, self.inner[t.k].hit(), str(self.hits)


class Positive:
    """A descriptor that keeps values in the object it belongs to."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else instance.__dict__.get(self.name, 0)

    def __set__(self, instance, value):
        instance.__dict__[self.name] = max(0, value)


@entry
class HasDescriptor:
    level = Positive()

    def __call__(self, t):
        self.level = self.level + t.x - 6
        yield t.k, self.level, "d"


@entry
class HasProperty:
    def __init__(self):
        self._sum, self._n = {}, {}

    @property
    def keys(self):
        return len(self._sum)

    def __call__(self, t):
        self._sum[t.k] = self._sum.get(t.k, 0) + t.x
        self._n[t.k] = self._n.get(t.k, 0) + 1
        yield t.k, self._sum[t.k] // self._n[t.k], str(self.keys)


@entry
class CachesAProperty:
    def __init__(self):
        self.factor = 3

    @functools.cached_property
    def table(self):
        return {n: n * self.factor for n in range(30)}

    def __call__(self, t):
        yield t.k, self.table.get(t.x, -1), "c"


@entry
class HasContext:
    def __init__(self):
        self.depth, self.deepest = 0, 0

    @contextlib.contextmanager
    def deeper(self):
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)
        try:
            yield self.depth
        finally:
            self.depth -= 1

    def __call__(self, t):
        with self.deeper() as one, self.deeper() as two:
            yield t.k, one + two + self.deepest, "x"


class Ledger:
    def __init__(self):
        self.lines = []

    def __enter__(self):
        self.lines.append("begin")
        return self

    def __exit__(self, *error):
        self.lines.append("end")
        return error[0] is KeyError


@entry
class UsesALedger:
    def __init__(self):
        self.ledger = Ledger()

    def __call__(self, t):
        with self.ledger as ledger:
            ledger.lines.append({0: "a", 1: "b"}[t.x % 3])
        yield t.k, len(self.ledger.lines), self.ledger.lines[-2]


class Bag(dict):
    def __missing__(self, key):
        self[key] = made = []
        return made


@entry
class SubclassOfDict:
    def __init__(self):
        self.bag = Bag()

    def __call__(self, t):
        self.bag[t.k].append(t.x)
        yield t.k, len(self.bag[t.k]), str(len(self.bag))


class Ring(list):
    def push(self, value, limit=3):
        self.append(value)
        del self[:-limit]
        return self


@entry
class SubclassOfList:
    def __init__(self):
        self.rings = {}

    def __call__(self, t):
        ring = self.rings.setdefault(t.k, Ring()).push(t.x)
        yield t.k, sum(ring), repr(ring)


class Money:
    def __init__(self, cents=0):
        self.cents = cents

    def __iadd__(self, other):
        self.cents += other
        return self

    def __eq__(self, other):
        return isinstance(other, Money) and self.cents == other.cents

    def __hash__(self):
        return hash(self.cents)

    def __repr__(self):
        return f"{self.cents / 100:.2f}"


@entry
class AddsMoney:
    def __init__(self):
        self.accounts = collections.defaultdict(Money)

    def __call__(self, t):
        self.accounts[t.k] += t.x
        yield t.k, self.accounts[t.k].cents, repr(self.accounts[t.k])


@entry
class ObjectsAsKeys:
    def __init__(self):
        self.seen = {}

    def __call__(self, t):
        key = Money(t.x % 4)
        self.seen[key] = self.seen.get(key, 0) + 1
        yield t.k, self.seen[Money(t.x % 4)], str(len(self.seen))


# -- functions --------------------------------------------------------------------------------------------------


def counter():
    counts: dict[str, int] = {}
    total = 0

    def count(t):
        nonlocal total
        total += 1
        counts[t.k] = counts.get(t.k, 0) + t.x
        yield t.k, counts[t.k], str(total)

    return count


ALL["closure_with_nonlocal"] = (counter, {})


def shifted(table, by, t):
    table[t.k] = table.get(t.k, 0) + by
    yield t.k, table[t.k], "p"


ALL["partial_with_a_dict"] = (lambda: functools.partial(shifted, {}, 2), {})


@functools.singledispatch
def described(value):
    return "?"


@described.register
def _(value: int):
    return f"int {value % 3}"


@described.register
def _(value: str):
    return f"str {len(value)}"


@entry
def dispatches(t):
    yield t.k, len(described(t.x)), described(t.k) + described(None)


ALL["dispatches"] = (lambda: dispatches, {})


@functools.cache
def slowly(n):
    return sum(range(n % 17))


def uses_a_cache(t):
    yield t.k, slowly(t.x), str(slowly(len(t.k)))


ALL["uses_a_cache"] = (lambda: uses_a_cache, {})


def memoized(function):
    seen = {}

    @functools.wraps(function)
    def inner(n):
        if n not in seen:
            seen[n] = (len(seen), function(n))
        return seen[n]

    return inner


@memoized
def numbered(n):
    return n * n


def uses_a_memo(t):
    order, square = numbered(t.x % 5)
    yield t.k, order, str(square)


ALL["uses_a_memo"] = (lambda: uses_a_memo, {})


def windows(values, size):
    several = itertools.tee(values, size)
    for skip, each in enumerate(several):
        next(itertools.islice(each, skip, skip), None)
    return zip(*several, strict=False)


def uses_itertools(t):
    numbers = [t.x % 5, t.x % 3, t.x % 2]
    groups = [(key, len(list(some))) for key, some in itertools.groupby(sorted(numbers), key=lambda n: n > 1)]
    sums = list(itertools.accumulate(numbers, operator.mul, initial=1))
    yield t.k, sum(a * b for a, b in windows(numbers, 2)), f"{groups} {sums} {list(itertools.pairwise(numbers))}"


ALL["uses_itertools"] = (lambda: uses_itertools, {})


def walks(tree, depth=0):
    for each in tree:
        if isinstance(each, list):
            yield from walks(each, depth + 1)
        else:
            yield depth, each


def recursive_generator(t):
    tree = [t.x, [t.x + 1, [t.k]], [t.v]]
    for depth, each in walks(tree):
        yield t.k, depth, str(each)


ALL["recursive_generator"] = (lambda: recursive_generator, {})


def averager():
    total, n, average = 0.0, 0, None
    while True:
        value = yield average
        total, n = total + value, n + 1
        average = total / n


def sends_to_a_local_generator(t):
    running = averager()
    next(running)
    for value in (t.x, t.v, 3):
        found = running.send(value)
    yield t.k, round(found), f"{found:.3f}"


ALL["sends_to_a_local_generator"] = (lambda: sends_to_a_local_generator, {})


def structural(t):
    match (t.k, t.x % 4, {"v": t.v}):
        case ("a" | "b" as name, 0, _):
            yield name, 0, "zero"
        case (name, n, {"v": float(v)}) if v > n:
            yield name, n, f"{v}"
        case [_, _, *rest]:
            yield t.k, len(rest), "rest"


ALL["structural"] = (lambda: structural, {})

_pipeline = [str.upper, operator.methodcaller("ljust", 3, "."), operator.itemgetter(slice(0, 2))]


def composed(t):
    yield t.k, t.x, functools.reduce(lambda value, function: function(value), _pipeline, t.k)


ALL["composed"] = (lambda: composed, {})


# -- state machines, joins, windows by hand -----------------------------------------------------------------------


@entry
class Machine:
    def __init__(self):
        self.state = self.idle
        self.log = []

    def idle(self, t):
        self.log.append("i")
        return self.busy if t.x % 3 == 0 else self.idle

    def busy(self, t):
        self.log.append("b")
        return self.idle if t.x % 2 else self.busy

    def __call__(self, t):
        self.state = self.state(t)
        yield t.k, len(self.log), self.state.__name__


@entry
class DispatchTable:
    def __init__(self):
        self.totals = {}
        self.handlers = {0: self.add, 1: self.reset, 2: lambda k, x: self.totals.get(k, -1)}

    def add(self, k, x):
        self.totals[k] = self.totals.get(k, 0) + x
        return self.totals[k]

    def reset(self, k, x):
        return self.totals.pop(k, 0)

    def __call__(self, t):
        yield t.k, self.handlers[t.x % 3](t.k, t.x), "h"


@entry
class Deduplicates:
    def __init__(self):
        self.seen = set()

    def __call__(self, t):
        if (t.k, t.x % 4) not in self.seen:
            self.seen.add((t.k, t.x % 4))
            yield t.k, t.x % 4, "new"


@entry
class Batches:
    def __init__(self):
        self.waiting = []

    def __call__(self, t):
        self.waiting.append(t)
        if len(self.waiting) == 4:
            batch, self.waiting = self.waiting, []
            for key, some in itertools.groupby(sorted(batch, key=lambda each: each.k), key=lambda each: each.k):
                rows = list(some)
                yield key, len(rows), str([row.x for row in rows])


@entry
class JoinsByHand:
    def __init__(self):
        self.left, self.right = collections.defaultdict(list), collections.defaultdict(list)

    def __call__(self, t):
        mine, other = (self.left, self.right) if t.x % 2 else (self.right, self.left)
        mine[t.k].append(t.x)
        for each in other[t.k]:
            yield t.k, t.x * each, "joined"


@entry
class Tree:
    """Nodes that know their parents and children."""

    def __init__(self):
        self.root = types.SimpleNamespace(name="", parent=None, children={}, n=0)

    def __call__(self, t):
        at = self.root
        for letter in t.k + str(t.x % 3):
            if letter not in at.children:
                at.children[letter] = types.SimpleNamespace(name=letter, parent=at, children={}, n=0)
            at = at.children[letter]
        path = []
        while at is not None:
            at.n += 1
            path.append(at.name)
            at = at.parent
        yield t.k, self.root.n, "".join(reversed(path))


@entry
class LibraryObjects:
    """Python's own classes that are written in Python."""

    def __init__(self):
        self.dict, self.list = collections.UserDict(), collections.UserList()
        self.space = types.SimpleNamespace(n=0)

    def __call__(self, t):
        self.dict[t.k] = self.dict.get(t.k, 0) + 1
        self.list += [t.x]
        self.space.n += 1
        self.space.last = t.k
        yield t.k, self.dict[t.k] + self.space.n, str(self.list[-2:])


@entry
class LinkedList:
    class Link:
        __slots__ = ("next", "value")

        def __init__(self, value, following):
            self.value, self.next = value, following

    def __init__(self):
        self.head, self.size = None, 0

    def __call__(self, t):
        self.head = LinkedList.Link(t.x, self.head)
        self.size += 1
        if self.size > 4:
            self.head.next.next.next.next, self.size = None, 4
        values, at = [], self.head
        while at is not None:
            values.append(at.value)
            at = at.next
        yield t.k, self.size, str(values)


@entry
class Graph:
    def __init__(self):
        self.near = collections.defaultdict(set)

    def __call__(self, t):
        self.near[t.x % 7].add((t.x * 3) % 7)
        seen, waiting = {t.x % 7}, [t.x % 7]
        while waiting:
            for each in sorted(self.near[waiting.pop()] - seen):
                seen.add(each)
                waiting.append(each)
        yield t.k, len(seen), str(sorted(seen))


@entry
class UnionFind:
    def __init__(self):
        self.parent = {}

    def find(self, x):
        self.parent.setdefault(x, x)
        while self.parent[x] != x:
            self.parent[x] = self.parent[self.parent[x]]
            x = self.parent[x]
        return x

    def __call__(self, t):
        one, other = self.find(t.x % 9), self.find((t.x * 5 + 1) % 9)
        self.parent[one] = other
        yield t.k, other, str(len({self.find(each) for each in list(self.parent)}))


# -- numbers ----------------------------------------------------------------------------------------------------


@entry
class Exact:
    def __init__(self):
        self.decimals, self.fractions = collections.defaultdict(Decimal), {}

    def __call__(self, t):
        self.decimals[t.k] += Decimal(t.x) / 7
        self.fractions[t.k] = self.fractions.get(t.k, Fraction(0)) + Fraction(t.x, 7)
        yield t.k, self.fractions[t.k].numerator, str(self.decimals[t.k])


@entry
class Welford:
    def __init__(self):
        self.moments = {}

    def __call__(self, t):
        n, mean, spread = self.moments.get(t.k, (0, 0.0, 0.0))
        n += 1
        delta = t.v - mean
        mean += delta / n
        self.moments[t.k] = (n, mean, spread + delta * (t.v - mean))
        yield t.k, n, repr(self.moments[t.k])


@entry
class Statistics:
    def __init__(self):
        self.values = {}

    def __call__(self, t):
        values = self.values.setdefault(t.k, [])
        values.append(t.v)
        spread = statistics.pstdev(values) if len(values) > 1 else 0.0
        yield t.k, len(values), f"{statistics.median(values):.3f} {spread:.4f}"


@entry
class BitSet:
    def __init__(self):
        self.bits = {}

    def __call__(self, t):
        bits = self.bits.get(t.k, 0) | 1 << (t.x * 37 % 200)
        self.bits[t.k] = bits
        yield t.k, bits.bit_count(), hex(bits)[-6:]


@entry
class Days:
    def __init__(self):
        self.by_day = collections.OrderedDict()

    def __call__(self, t):
        day = datetime.date(2024, 2, 27) + datetime.timedelta(days=t.x % 4)
        self.by_day.setdefault(day, []).append(t.k)
        if len(self.by_day) > 3:
            self.by_day.popitem(last=False)
        yield t.k, len(self.by_day[day]) if day in self.by_day else 0, day.isoformat()


# -- ways of keeping ----------------------------------------------------------------------------------------------


@entry
class CopiesBeforeChange:
    def __init__(self):
        self.versions = {}

    def __call__(self, t):
        before = self.versions.get(t.k, {"path": [], "n": 0})
        after = copy.deepcopy(before)
        after["path"].append(t.x)
        after["n"] += 1
        self.versions[t.k] = after
        yield t.k, after["n"] - before["n"], str(after["path"][-2:])


@entry
class Observers:
    def __init__(self):
        self.seen, self.listeners = [], []
        self.listeners.append(self.seen.append)
        self.listeners.append(lambda x: self.seen.append(-x))

    def __call__(self, t):
        for listen in self.listeners:
            listen(t.x)
        yield t.k, sum(self.seen), str(len(self.seen))


@entry
class AddsListeners:
    def __init__(self):
        self.listeners = []

    def __call__(self, t):
        if t.x % 5 == 0:
            total = t.x
            self.listeners.append(lambda x: x + total)
        yield t.k, sum(listen(t.x) for listen in self.listeners), str(len(self.listeners))


@entry
class SetsAttributesByName:
    def __call__(self, t):
        name = f"count_{t.k}"
        setattr(self, name, getattr(self, name, 0) + 1)
        yield t.k, getattr(self, name), str(len(vars(self)))


@entry
class ClassAttributeThatBecomesAnInstances:
    n = 0
    names: ClassVar[list] = []

    def __call__(self, t):
        self.n += 1
        self.names.append(t.k)
        yield t.k, self.n, str(len(type(self).names))


_registry: dict[str, list[int]] = {}


def registers(t):
    _registry.setdefault(t.k, []).append(t.x)
    yield t.k, len(_registry[t.k]), str(_registry[t.k][-1])


ALL["registers"] = (lambda: registers, {})


def remembers_in_a_default(t, seen={}, order=[]):  # noqa: B006 - that is what it is about
    seen[t.k] = seen.get(t.k, 0) + 1
    order.append(t.k)
    yield t.k, seen[t.k], "".join(order[-3:])


ALL["remembers_in_a_default"] = (lambda: remembers_in_a_default, {})


def remembers_in_itself(t):
    remembers_in_itself.calls = getattr(remembers_in_itself, "calls", 0) + 1
    yield t.k, remembers_in_itself.calls, "f"


ALL["remembers_in_itself"] = (lambda: remembers_in_itself, {})


@entry
class TriesAndFails:
    def __init__(self):
        self.failed, self.done = collections.Counter(), []

    def __call__(self, t):
        try:
            value = 12 // (t.x % 4)
        except ZeroDivisionError:
            self.failed[t.k] += 1
            value = -1
        else:
            self.done.append(value)
        finally:
            self.failed["all"] += 1
        yield t.k, value, f"{self.failed['all']} {self.failed[t.k]} {len(self.done)}"


@entry
class SwapsBuffers:
    def __init__(self):
        self.now, self.before = [], []

    def __call__(self, t):
        self.now.append(t.x)
        if len(self.now) == 3:
            self.now, self.before = self.before, self.now
            self.now.clear()
        yield t.k, len(self.now), str(self.before)


@entry(by="k")
class DeclaredAliases(ab.Operator):
    items: list = ab.state(factory=list)
    last: Any = ab.state(default=None)
    index: dict = ab.state(factory=dict)

    def process(self, t):
        entry = {"x": t.x, "n": 0}
        self.items.append(entry)
        self.index[t.x % 3] = self.last = entry
        for each in self.index.values():
            each["n"] += 1
        self.last["x"] += 1
        yield t.k, sum(each["n"] for each in self.items), str([each["x"] for each in self.items[-2:]])
