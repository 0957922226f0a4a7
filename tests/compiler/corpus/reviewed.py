"""Classes of faults an adversarial reading found, several variants of each: what was judged safe and was not."""

import copy
import dataclasses
import functools
import heapq
from collections import Counter, defaultdict, deque

import numpy as np

from tests.compiler.corpus import expect, expect_function

# -- positions in tuple keys ----------------------------------------------------------------------------------


@expect("unknown")
class SwappedPair:
    def __init__(self):
        self.follows = {}

    def __call__(self, t):
        self.follows[t.id, t.count] = True
        yield t.but(value=1.0 if (t.count, t.id) in self.follows else 0.0)


@expect("unknown")
class ShiftedTriple:
    def __init__(self):
        self.seen = set()

    def __call__(self, t):
        new = (t.id, t.count, t.name) not in self.seen
        self.seen.add((t.count, t.id, t.id))
        if new:
            yield t


@expect("unknown")
class PairThroughHelper:
    def __init__(self):
        self.edges = defaultdict(int)

    def bump(self, a, b):
        self.edges[a, b] += 1
        return self.edges[b, a]

    def __call__(self, t):
        yield t.but(count=self.bump(t.id, t.count))


@expect("partitioned", key="id")
class SamePlaceInAll:
    def __init__(self):
        self.pairs = {}
        self.triples = {}

    def __call__(self, t):
        self.pairs[t.id, t.name] = self.pairs.get((t.id, t.count), 0) + 1
        self.triples[t.count, t.id] = t.value
        yield t.but(count=self.pairs[t.id, t.name])


@expect("partitioned", key="id")
class DifferentPlacesInDifferentDicts:
    def __init__(self):
        self.first = {}
        self.second = {}

    def __call__(self, t):
        self.first[t.id, t.name] = t.value
        self.second[t.count, t.id] = t.value
        yield t.but(value=self.first[t.id, t.name] + self.second[t.count, t.id])


# -- what leaves by return ---------------------------------------------------------------------------------------


@expect("unknown", mode="map")
class ReturnsTheDict:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        self.counts[t.id] = self.counts.get(t.id, 0) + 1
        return t.id, self.counts


@expect("unknown", mode="filter")
class ReturnsTheSet:
    def __init__(self):
        self.active = set()

    def __call__(self, t):
        if t.value > 0:
            self.active.add(t.id)
        else:
            self.active.discard(t.id)
        return self.active


@expect("unknown", mode="flat_map")
class ReturnsInAList:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        self.counts[t.id] = 1
        return [self.counts]


@expect("partitioned", key="id", mode="map")
class HelperReturnsTheDict:
    def __init__(self):
        self.counts = {}

    def table(self):
        return self.counts

    def __call__(self, t):
        self.table()[t.id] = self.table().get(t.id, 0) + 1
        return t.but(count=self.table()[t.id])


LEAVES = []


class Leaving:
    def __iter__(self):
        LEAVES.append(1)
        return iter([(len(LEAVES), "a", 0.0, 0, [], None)])

    def __bool__(self):
        LEAVES.append(1)
        return len(LEAVES) % 2 == 0


@expect_function("unknown", mode="flat_map")
def returns_what_iterates_with_effect(t):
    return Leaving()


@expect_function("unknown", mode="filter")
def returns_what_tests_with_effect(t):
    return Leaving()


@expect_function("unknown")
def yields_what_iterates_with_effect(t):
    yield Leaving()


# -- views of arrays ---------------------------------------------------------------------------------------------

TABLE = np.zeros((5, 2))
RECORDS = np.zeros(5, dtype=[("n", "i8"), ("v", "f8")])
WEIGHTS = np.ones(5)


@expect_function("unknown")
def changes_an_item_of_a_row(t):
    TABLE[t.id][0] += 1
    yield t.but(value=float(TABLE[t.id][0]))


@expect_function("unknown")
def changes_a_row_in_place(t):
    row = TABLE[t.id]
    row += 1
    yield t.but(value=float(row[0]))


@expect_function("unknown")
def changes_rows_in_a_loop(t):
    for row in TABLE:
        row += 1
    yield t.but(value=float(TABLE[0][0]))


@expect_function("unknown")
def changes_a_field_of_a_record(t):
    RECORDS["n"][t.id] += 1
    yield t.but(count=int(RECORDS["n"][t.id]))


@expect_function("unknown")
def changes_a_record(t):
    record = RECORDS[t.id]
    record["n"] += 1
    yield t.but(count=int(record["n"]))


@expect_function("unknown")
def changes_a_view_of_a_view(t):
    part = TABLE[1:3].reshape(4)
    part[0] += 1
    yield t.but(value=float(part[0]))


@expect("unknown")
class KeepsRowAndArray:
    def __init__(self):
        self.arrays = {}
        self.rows = {}

    def __call__(self, t):
        if t.id not in self.arrays:
            self.arrays[t.id] = np.zeros((2, 2))
            self.rows[t.id] = self.arrays[t.id][0]
        self.arrays[t.id][0][0] += 1
        yield t.but(value=float(self.rows[t.id][0]))


@expect_function("stateless")
def reads_a_row(t):
    row = TABLE[t.id]
    yield t.but(value=float(row[0] + row[1] + WEIGHTS[t.id]))


# -- arguments by ** -----------------------------------------------------------------------------------------------

CHANGES = {"id": 1, "name": "z"}
BOX = {"n": []}
OPTIONS = {"key": lambda x: LEAVES.append(x) or len(LEAVES)}


@expect_function("stateless", mode="map")
def but_with_a_mapping(t):
    return t.but(**CHANGES)


@expect_function("unknown")
def update_with_a_mapping(t):
    local = {}
    local.update(**BOX)
    local["n"].append(t.id)
    yield t.but(count=len(local["n"]))


@expect_function("unknown")
def sort_with_a_mapping(t):
    items = [3, 1, 2]
    items.sort(**OPTIONS)
    yield t.but(count=items[0])


class Counted:
    def __format__(self, spec):
        LEAVES.append(1)
        return str(len(LEAVES))


COUNTED = {"n": Counted()}


@expect_function("unknown")
def format_with_a_mapping(t):
    yield t.but(name="{n}".format(**COUNTED))


@expect_function("unknown")
def sum_with_a_mapping(t):
    where = {"out": TABLE[0]}
    options = {name: value for name, value in where.items()}
    np.sum(np.ones((2, 2)), 0, **options)
    yield t.but(value=float(TABLE[0][0]))


@expect("unknown")
class StateUpdatedWithAMapping:
    def __init__(self):
        self.counts = {}

    def __call__(self, t):
        options = {name: 1 for name in (t.name,)}
        self.counts.update(**options)
        yield t.but(count=self.counts.get(t.name, 0))


# -- special methods of objects made during the call ----------------------------------------------------------------


class Sneaky:
    """Counts how often it is looked at."""

    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        LEAVES.append(1)
        return len(LEAVES) % 2 == 0

    def __hash__(self):
        LEAVES.append(1)
        return 1

    def __lt__(self, other):
        LEAVES.append(1)
        return len(LEAVES) % 2 == 0

    def __next__(self):
        LEAVES.append(1)
        return len(LEAVES)

    def __copy__(self):
        LEAVES.append(1)
        return Sneaky(len(LEAVES))

    def __reversed__(self):
        LEAVES.append(1)
        return iter([len(LEAVES)])


@expect_function("unknown")
def next_of_an_object(t):
    yield t.but(count=next(Sneaky(1)))


@expect_function("unknown")
def searches_among_objects(t):
    yield t.but(count=int(1 in [Sneaky(1)]))


@expect_function("unknown")
def counts_objects(t):
    yield t.but(count=[Sneaky(1)].count(1))


@expect_function("unknown")
def finds_an_object(t):
    items = deque([Sneaky(1), 2])
    yield t.but(count=items.index(2))


@expect_function("unknown")
def sorts_objects(t):
    items = [Sneaky(2), Sneaky(1)]
    items.sort()
    yield t.but(count=items[0].n)


@expect_function("unknown")
def heap_of_objects(t):
    items = [Sneaky(2), Sneaky(1)]
    heapq.heapify(items)
    yield t.but(count=items[0].n)


@expect_function("unknown")
def pushes_objects(t):
    items = []
    heapq.heappush(items, Sneaky(2))
    heapq.heappush(items, Sneaky(1))
    yield t.but(count=heapq.heappop(items).n)


@expect_function("unknown")
def copies_an_object(t):
    yield t.but(count=copy.copy(Sneaky(1)).n)


@expect_function("unknown")
def set_of_objects(t):
    yield t.but(count=len(set([Sneaky(1), Sneaky(2)])))


@expect_function("unknown")
def reverses_an_object(t):
    yield t.but(count=next(iter(reversed(Sneaky(1)))))


@expect_function("unknown")
def removes_an_object(t):
    items = [Sneaky(1), Sneaky(2)]
    items.remove(2)
    yield t.but(count=len(items))


class Point:
    def __init__(self, x):
        self.x = x


@expect_function("stateless")
def copies_a_plain_object(t):
    point = Point(t.value)
    other = copy.copy(point)
    other.x += 1
    yield t.but(value=other.x)


# -- generators that are talked to ------------------------------------------------------------------------------------

INBOX = []


def receiver():
    box = yield
    while True:
        box.append(1)
        box = yield len(box)


@expect_function("unknown")
def sends_into_a_generator(t):
    helper = receiver()
    next(helper)
    yield t.but(count=helper.send(INBOX))


def finisher():
    yield 1
    return INBOX


def delegating():
    box = yield from finisher()
    box.append(1)
    yield len(box)


@expect_function("unknown")
def result_of_yield_from(t):
    for n in delegating():
        yield t.but(count=n)


@expect_function("stateless")
def sends_numbers(t):
    def averager():
        total, n = 0.0, 0
        while True:
            value = yield (total / n if n else 0.0)
            if value is not None:
                total, n = total + value, n + 1

    helper = averager()
    next(helper)
    yield t.but(value=helper.send(t.value))


# -- caches that take equal values for the same ------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def sign(value):
    return str(value)


@functools.lru_cache(maxsize=64)
def title(name, n):
    return name.title() * n


@expect_function("unknown")
def cache_of_floats(t):
    yield t.but(name=sign(t.value))


@expect_function("unknown")
def cache_of_mixed_numbers(t):
    yield t.but(name=sign(t.id if t.count else t.value > 0))


@expect_function("stateless")
def cache_of_text(t):
    yield t.but(name=title(t.name, t.id))


# -- state inside large containers ----------------------------------------------------------------------------------------


@expect("unknown")
class StateAmongMany:
    def __init__(self):
        self.counts = {}
        self.all = [self.counts, *({} for _ in range(30))]

    def __call__(self, t):
        self.counts[t.id] = self.counts.get(t.id, 0) + 1
        yield t.but(count=sum(len(each) for each in self.all))


@expect("unknown")
class StateDeepAmongMany:
    def __init__(self):
        self.counts = Counter()
        self.all = {n: [n, {}] for n in range(40)}
        self.all[7][1] = self.counts

    def __call__(self, t):
        self.counts[t.id] += 1
        yield t.but(count=len(self.all[7][1]))


# -- dataclasses of notebooks ------------------------------------------------------------------------------------------------

_NOTEBOOK = """
@dataclasses.dataclass
class Ticket:
    n: int = 0

    def __init__(self, n):
        LEAVES.append(n)
        self.n = len(LEAVES)


def makes_a_ticket(t):
    yield t.but(count=Ticket(t.id).n)
"""


def _cell(source, name, file):
    space = {"dataclasses": dataclasses, "LEAVES": LEAVES, "__name__": __name__}
    exec(compile(source, file, "exec"), space)
    return space[name]


expect("unknown", name="dataclass_of_a_notebook")(lambda: _cell(_NOTEBOOK, "makes_a_ticket", "<ipython-input-7>"))
expect("unknown", name="dataclass_made_by_exec")(lambda: _cell(_NOTEBOOK, "makes_a_ticket", "<string>"))
