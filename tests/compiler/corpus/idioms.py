"""Common ways to write state and pure functions that must be found, and near relatives of them that must not."""

import abc
import dataclasses
import datetime
import enum
import string
import zoneinfo
from collections import OrderedDict, defaultdict

import numpy as np

from tests.compiler.corpus import expect, expect_function

# -- one entry with several things in it ------------------------------------------------------------------------


@expect("partitioned", key="id")
class SetdefaultOfARecord:
    def __init__(self):
        self.entries = {}

    def __call__(self, t):
        entry = self.entries.setdefault(t.id, {"n": 0, "last": []})
        entry["last"].append(t.value)
        entry["n"] += 1
        yield t.but(count=entry["n"] + len(entry["last"]))


@expect("partitioned", key="id")
class SetdefaultInOneLine:
    def __init__(self):
        self.entries = {}

    def __call__(self, t):
        self.entries.setdefault(t.id, {"l": []})["l"].append(t.count)
        yield t.but(count=len(self.entries[t.id]["l"]))


@expect("partitioned", key="id")
class DefaultOfAList:
    def __init__(self):
        self.entries = defaultdict(lambda: [0, {}])

    def __call__(self, t):
        entry = self.entries[t.id]
        entry[0] += 1
        entry[1][t.name] = t.value
        yield t.but(count=entry[0], value=float(len(entry[1])))


@expect("unknown")
class SetdefaultOfOneListTwice:
    """The same list under two keys of the entry: two lists after a restart."""

    def __init__(self):
        self.entries = {}

    def __call__(self, t):
        values = []
        entry = self.entries.setdefault(t.id, {"a": values, "b": values})
        entry["a"].append(t.value)
        yield t.but(count=len(entry["b"]))


@expect("unknown")
class MovesWithinTheEntry:
    def __init__(self):
        self.entries = {}

    def __call__(self, t):
        entry = self.entries.setdefault(t.id, {"now": [], "then": []})
        entry["then"] = entry["now"]
        entry["now"].append(t.value)
        yield t.but(count=len(entry["then"]))


@expect("unknown")
class SwapsWithinTheList:
    def __init__(self):
        self.entries = defaultdict(lambda: [[], 0])

    def __call__(self, t):
        entry = self.entries[t.id]
        entry.reverse()
        entry.append(entry[1])
        yield t.but(count=len(entry))


class Sum:
    def __init__(self):
        self.n = 0
        self.total = 0.0


@expect("partitioned", key="id")
class AccumulatorOfAClass:
    def __init__(self):
        self.sums = {}

    def __call__(self, t):
        found = self.sums.get(t.id)
        if found is None:
            found = self.sums[t.id] = Sum()
        found.n += 1
        found.total += t.value
        yield t.but(count=found.n, value=found.total)


# -- one entry, written in other ways --------------------------------------------------------------------------


@expect("partitioned", key="id")
class PreviousAndNext:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        previous, self.last[t.id] = self.last.get(t.id), t.value
        yield t.but(value=t.value - (previous or 0.0))


@expect("partitioned", key="id")
class PreviousTuple:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        previous, self.last[t.id] = self.last.get(t.id), t
        yield t.but(value=previous.value if previous is not None else 0.0)


@expect("partitioned", key="id")
class MergedIn:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        before = self.last.get(t.id, 0.0)
        self.last |= {t.id: t.value}
        yield t.but(value=before)


@expect("partitioned", key="id")
class UpdatedWithPairs:
    def __init__(self):
        self.last = OrderedDict()

    def __call__(self, t):
        before = self.last.get(t.id, 0.0)
        self.last.update([(t.id, t.value)])
        yield t.but(value=before)


@expect("unknown")
class MergedInAnother:
    def __init__(self):
        self.last = {}

    def __call__(self, t):
        self.last |= {t.id: t.value, t.count: t.value}
        yield t.but(value=self.last[t.id])


@expect("partitioned", key="id")
class AsksForItsType:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        if isinstance(self.counts, dict):
            self.counts[t.id] = self.counts.get(t.id, 0) + 1
        yield t.but(count=self.counts[t.id])


# -- ways to one object -----------------------------------------------------------------------------------------


@expect("partitioned")
class DispatchTable:
    def __init__(self):
        self.counts = {}
        self.ways = {"a": self.one, "b": self.two}

    def one(self, t):
        self.counts[t.id] = self.counts.get(t.id, 0) + 1
        return self.counts[t.id]

    def two(self, t):
        return self.counts.get(t.id, 0)

    def __call__(self, t):
        yield t.but(count=self.ways["a" if t.count % 2 else "b"](t))


class Tool:
    def __init__(self, counts):
        self.counts = counts

    def bump(self, key):
        self.counts[key] = self.counts.get(key, 0) + 1


@expect("partitioned")
class HelperObject:
    def __init__(self):
        self.counts = {}
        self.tool = Tool(self.counts)

    def __call__(self, t):
        self.tool.bump(t.id)
        yield t.but(count=self.counts[t.id])


class Base(abc.ABC):
    @abc.abstractmethod
    def key(self, t): ...


@expect("partitioned", key="id")
class OfAnAbstractClass(Base):
    def __init__(self):
        self.counts = {}

    def key(self, t):
        return t.id

    def __call__(self, t):
        self.counts[self.key(t)] = self.counts.get(self.key(t), 0) + 1
        yield t.but(count=self.counts[t.id])


# -- pure functions -----------------------------------------------------------------------------------------------


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...


class Square(Shape):
    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side * self.side


@expect_function("stateless", selectivity="1:1")
def abstract_shapes(t):
    yield t.but(value=Square(t.value).area())


@dataclasses.dataclass
class Vector:
    x: float
    y: float = 0.0

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)


@expect_function("stateless")
def dataclass_with_an_unused_operator(t):
    yield t.but(value=Vector(t.value).x)


class Colour(enum.Enum):
    RED = 0
    GREEN = 1

    @property
    def label(self):
        return self.name.lower()

    def twice(self):
        return self.value * 2


@expect_function("stateless")
def properties_of_enums(t):
    colour = Colour(t.id % 2)
    yield t.but(name=colour.label, count=colour.twice())


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


@expect_function("stateless")
def time_zones(t):
    utc = datetime.datetime.fromtimestamp(t.id, tz=datetime.timezone.utc)
    yield t.but(name=utc.astimezone(BERLIN).isoformat())


@expect_function("unknown")
def time_zone_of_the_machine(t):
    yield t.but(name=datetime.datetime.fromtimestamp(t.id).isoformat())


@expect_function("stateless")
def translated(t):
    yield t.but(name=t.name.translate(str.maketrans("ab", "xy")))


@expect_function("stateless")
def template(t):
    yield t.but(name=string.Template("$name!").substitute(name=t.name))


@expect_function("stateless")
def hash_of_a_number(t):
    yield t.but(count=hash(int(t.id)) % 3)


@expect_function("unknown")
def hash_of_a_text(t):
    yield t.but(count=hash(t.name) % 3)


# -- copies of what the tuple holds -------------------------------------------------------------------------------


@expect_function("stateless")
def slice_of_a_list(t):
    items = t.items[:]
    items.append(1.0)
    yield t.but(items=items)


@expect_function("stateless")
def array_of_a_list(t):
    items = np.array(t.items, dtype=float)
    items += 1
    yield t.but(value=float(items.sum()))


@expect_function("unknown")
def the_list_itself(t):
    items = t.items
    items.append(1.0)
    yield t.but(items=items)


@expect_function("unknown")
def view_of_the_array_of_a_table(t):
    row = np.asarray(COSTS)[1:]
    row[0] += 1
    yield t.but(value=float(row[0]))


COSTS = np.zeros(4)
