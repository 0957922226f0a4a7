"""Programs whose verdict is wrong: the proof is switched off, and what it would have seen is believed not to be there.

Each keeps something that outlives a call, or looks at other keys than the tuple's, in one of many ways; and is run as
if it kept nothing (`STATELESS`), or only the entry of its key in its dicts (`BY_KEY`), or only its declared state
(`DECLARED`).
"""

from __future__ import annotations

import collections
import functools
import itertools
import random
import time
import types
from collections.abc import Callable, Iterator

import numpy as np

import anabranch as ab
from anabranch.compiler.layout import analysis
from anabranch.compiler.models import built_in, inference
from anabranch.compiler.reading.values import Text, column_text
from anabranch.program.model import Key

STATELESS, BY_KEY, DECLARED = "no state", "the entry of its key", "declared state"
COLUMNS, COUNTED = "k string, x long", "k string, n long"
ROWS = [(random.Random(n).choice("abcdefgh"), n % 7) for n in range(90)]


def source() -> ab.Stream:
    return ab.from_rows(ROWS, COLUMNS, rows_per_epoch=30)


def switch_proof_off(monkeypatch, verdict: str) -> None:
    """Have the compiler believe a verdict, whatever the code does."""

    def believing(target, method, schema, *arguments, **named):
        found = inference.infer(target, method, schema, *arguments, **named)
        facts = found.facts
        found.blocks, facts.found, facts.accesses, found.dicts, found.key = [], {}, {}, {}, None
        facts.written, facts.globals_written = {}, set()
        if verdict == BY_KEY:
            owner = target.__self__ if isinstance(target, types.MethodType) else target
            for name, held in vars(owner).items():
                if isinstance(held, (dict, set)):
                    found.dicts[id(held)] = name
                    facts.objects[id(held)], facts.routes[id(held)] = held, [("operator", name)]
            found.key, found.key_text = Key(("k",)), Text(column_text("k"), frozenset({"k"}))
        return found

    monkeypatch.setattr(analysis, "infer", believing)
    monkeypatch.setattr(built_in, "infer", believing)


PLANTED: dict[str, tuple[str, Callable[[], ab.Stream], bool]] = {}
"""Name → what is believed, the program, and whether one thread always gives the same."""


def planted(verdict: str, repeatable: bool = True):
    def register(make):
        PLANTED[make.__name__.replace("_", " ")] = verdict, make, repeatable
        return make

    return register


# -- believed to keep nothing ----------------------------------------------------------------------------------

counter = 0
counted: dict[str, int] = {}


@planted(STATELESS)
def a_variable_closed_over():
    n = 0

    def f(t):
        nonlocal n
        n += 1
        return t.k, n

    return source().map(f, COUNTED)


@planted(STATELESS)
def a_list_closed_over():
    seen: list[int] = []

    def f(t):
        seen.append(t.x)
        return t.k, len(seen)

    return source().map(f, COUNTED)


@planted(STATELESS)
def a_global_number():
    def f(t):
        global counter
        counter += t.x
        return t.k, counter

    return source().map(f, COUNTED)


@planted(STATELESS)
def a_global_dict():
    def f(t):
        counted["n"] = counted.get("n", 0) + 1
        return t.k, counted["n"]

    return source().map(f, COUNTED)


class Classy:
    n = 0
    seen: list[str] = []  # noqa: RUF012 - that is the fault

    def __call__(self, t):
        Classy.n += 1
        return t.k, Classy.n


@planted(STATELESS)
def an_attribute_of_the_class():
    return source().map(Classy(), COUNTED)


@planted(STATELESS)
def a_list_of_the_class():
    class Seeing(Classy):
        def __call__(self, t):
            self.seen.append(t.k)
            return t.k, len(self.seen)

    return source().map(Seeing(), COUNTED)


@planted(STATELESS)
def a_default_argument():
    def f(t, seen=[]):  # noqa: B006 - that is the fault
        seen.append(t.x)
        return t.k, len(seen)

    return source().map(f, COUNTED)


@planted(STATELESS)
def an_attribute_of_the_function():
    def f(t):
        f.n = getattr(f, "n", 0) + 1
        return t.k, f.n

    return source().map(f, COUNTED)


class Counting:
    def __init__(self):
        self.n, self.seen, self.last = 0, [], None

    def __call__(self, t):
        self.n += 1
        return t.k, self.n

    def listing(self, t):
        self.seen.append(t.x)
        return t.k, sum(self.seen)

    def before(self, t):
        last, self.last = self.last, t.x
        return t.k, last

    @property
    def next(self):
        self.n += 1
        return self.n

    def asked(self, t):
        return t.k, self.next


@planted(STATELESS)
def an_attribute_of_the_object():
    return source().map(Counting(), COUNTED)


@planted(STATELESS)
def a_list_of_the_object():
    return source().map(Counting().listing, COUNTED)


@planted(STATELESS)
def the_tuple_before():
    return source().map(Counting().before, COUNTED)


@planted(STATELESS)
def a_property_that_counts():
    return source().map(Counting().asked, COUNTED)


@planted(STATELESS)
def an_endless_iterator():
    numbers = itertools.count(1)
    return source().map(lambda t: (t.k, next(numbers)), COUNTED)


@planted(STATELESS)
def an_iterator_over_a_list():
    numbers = iter(list(range(1000)))
    return source().map(lambda t: (t.k, next(numbers)), COUNTED)


@planted(STATELESS, repeatable=False)
def chance():
    return source().map(lambda t: (t.k, random.randrange(10**9)), COUNTED)


@planted(STATELESS)
def chance_with_a_seed():
    numbers = random.Random(7)
    return source().map(lambda t: (t.k, numbers.randrange(10**9)), COUNTED)


@planted(STATELESS)
def chance_of_numpy():
    numbers = np.random.default_rng(7)
    return source().map(lambda t: (t.k, int(numbers.integers(10**9))), COUNTED)


@planted(STATELESS, repeatable=False)
def the_clock():
    return source().map(lambda t: (t.k, time.perf_counter_ns()), COUNTED)


@planted(STATELESS)
def a_set_of_what_passed():
    seen: set[int] = set()

    def new(t):
        if t.x in seen:
            return False
        seen.add(t.x)
        return True

    return source().filter(new)


@planted(STATELESS)
def more_and_more():
    seen: list[int] = []

    def f(t):
        seen.append(1)
        return [(t.k, n) for n in range(len(seen) % 4)]

    return source().flat_map(f, COUNTED)


@planted(STATELESS)
def a_cache_of_the_first():
    first: dict[str, int] = {}
    return source().map(lambda t: (t.k, first.setdefault("x", t.x)), COUNTED)


@planted(STATELESS)
def a_method_of_another_object():
    bag = collections.Counter()

    def f(t):
        bag.update([t.k])
        return t.k, bag.total()

    return source().map(f, COUNTED)


@planted(STATELESS)
def a_partial_with_a_list():
    def f(seen, t):
        seen.append(t.x)
        return t.k, len(seen)

    return source().map(functools.partial(f, []), COUNTED)


@planted(STATELESS)
def an_array_that_is_filled():
    cells = np.zeros(4, dtype=np.int64)

    def f(t):
        cells[t.x % 4] += 1
        return t.k, int(cells.sum())

    return source().map(f, COUNTED)


@planted(STATELESS)
def a_heap_of_objects():
    class Box:
        def __init__(self):
            self.inside = {"deep": [0]}

    box = Box()

    def f(t):
        box.inside["deep"][0] += t.x
        return t.k, box.inside["deep"][0]

    return source().map(f, COUNTED)


@planted(STATELESS)
def ways_in_turn():
    taken: list[int] = []

    def choose(t):
        taken.append(1)
        return len(taken) % 2

    left, right = source().route(choose, 2)
    return left.union(right.map(lambda t: t.but(x=-t.x)))


# -- believed to look at the entry of its key only -------------------------------------------------------------


class Own:
    """Counts by key, and does something else beside."""

    def __init__(self, make=dict):
        self.d = make()

    def __call__(self, t) -> Iterator[tuple[str, int]]:
        self.d[t.k] = self.d.get(t.k, 0) + 1
        yield t.k, self.beside(t)


def own(make=dict):
    """Register an operator that counts by key and emits what a function makes of its dict and the tuple."""

    def register(beside):
        @functools.wraps(beside)
        def program():
            kind = type("Own", (Own,), {"beside": beside, "__module__": __name__})
            return source().process(kind(make), schema=COUNTED)

        return planted(BY_KEY)(program)

    return register


@own()
def the_sum_of_all_keys(self, t):
    return sum(self.d.values())


@own()
def how_many_keys_there_are(self, t):
    return len(self.d)


@own()
def the_entry_of_another_key(self, t):
    return self.d.get("a", 0)


@own()
def whether_another_key_is_there(self, t):
    return 1 if "b" in self.d else 0


@own()
def an_entry_for_all(self, t):
    self.d["all"] = self.d.get("all", 0) + 1
    return self.d["all"]


@own()
def an_entry_that_only_counts(self, t):
    self.d["all"] = self.d.get("all", 0) + 1
    return self.d[t.k]


@own()
def the_first_key(self, t):
    return ord(next(iter(self.d)))


@own()
def the_greatest_key(self, t):
    return ord(max(self.d))


@own()
def another_column_for_an_index(self, t):
    self.d[str(t.x)] = self.d.get(str(t.x), 0) + 1
    return self.d[str(t.x)]


@own()
def all_is_forgotten_now_and_then(self, t):
    if len(self.d) > 3:
        self.d.clear()
    return len(self.d)


@own()
def another_key_is_taken_out(self, t):
    return self.d.popitem()[1] if len(self.d) > 1 else 0


@own(collections.OrderedDict)
def the_oldest_key_makes_room(self, t):
    self.d.move_to_end(t.k)
    if len(self.d) > 2:
        self.d.popitem(last=False)
    return len(self.d)


@own(collections.Counter)
def the_most_common_key(self, t):
    return self.d.most_common(1)[0][1]


@own()
def an_attribute_beside_the_dict(self, t):
    self.n = getattr(self, "n", 0) + 1
    return self.n


@planted(BY_KEY)
def one_list_for_all_keys():
    class Sharing:
        def __init__(self):
            self.d, self.all = {}, []

        def __call__(self, t):
            self.d[t.k] = self.all
            self.d[t.k].append(t.x)
            yield t.k, len(self.d[t.k])

    return source().process(Sharing(), schema=COUNTED)


@planted(BY_KEY)
def the_list_of_the_tuple_before():
    class Lending:
        def __init__(self):
            self.d, self.e = {}, {}

        def __call__(self, t):
            mine = self.d.setdefault(t.k, [])
            self.e["last"] = self.e.get("last", mine)
            self.e["last"].append(t.x)
            yield t.k, len(mine)

    return source().process(Lending(), schema=COUNTED)


@planted(BY_KEY)
def a_set_that_is_counted():
    class Seen:
        def __init__(self):
            self.seen = set()

        def __call__(self, t):
            self.seen.add(t.k)
            yield t.k, len(self.seen)

    return source().process(Seen(), schema=COUNTED)


@planted(BY_KEY)
def a_filter_by_all_keys():
    class Rare:
        def __init__(self):
            self.d = {}

        def __call__(self, t):
            self.d[t.k] = self.d.get(t.k, 0) + 1
            return self.d[t.k] <= max(self.d.values()) // 2 + 1

    return source().filter(Rare())


# -- believed to keep declared state only ----------------------------------------------------------------------


class Declared(ab.Operator):
    n: int = ab.state(default=0)
    all_keys = 0
    known: dict[str, int] = {}  # noqa: RUF012 - that is the fault
    box = None

    def process(self, t):
        self.n += 1
        yield t.k, self.beside(t)


def declared(repeatable: bool = True, **configuration):
    def register(beside):
        @functools.wraps(beside)
        def program():
            kind = type("Declaring", (Declared,), {"beside": beside, "__module__": __name__, "known": {}})
            made = kind(**{name: make() for name, make in configuration.items()})
            return source().process(made, by="k", schema=COUNTED)

        return planted(DECLARED, repeatable)(program)

    return register


@declared()
def a_number_of_the_class_beside_state(self, t):
    type(self).all_keys += 1
    return type(self).all_keys


@declared()
def a_dict_of_the_class_beside_state(self, t):
    self.known[t.k] = self.n
    return sum(self.known.values())


@declared(box=list)
def a_list_of_the_configuration(self, t):
    self.box.append(t.x)
    return len(self.box)


@declared(box=lambda: random.Random(3))
def chance_of_the_configuration(self, t):
    return self.box.randrange(10**9)


@declared(repeatable=False)
def chance_beside_state(self, t):
    return random.randrange(10**9)


@declared()
def a_global_beside_state(self, t):
    counted[t.k] = counted.get(t.k, 0) + 1
    return len(counted)


@declared()
def a_default_argument_beside_state(self, t, seen=[]):  # noqa: B006 - that is the fault
    seen.append(t.k)
    return len(seen)
