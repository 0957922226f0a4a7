"""With `by=` an operator has one object for each key, which keeps what was declared and nothing else.

A dict that the code indexes with that very key is no exception: nobody keeps it. Where it stands, of which type it is
and whether the operator declares something beside it changes nothing.
"""

import collections
import functools

import pytest

import anabranch as ab
from anabranch.errors import ProgramError
from tests.compiler.product_path import compare

ROWS = [("abc"[n * 7 % 3], n) for n in range(20)]
EMPTY = {
    "dict": dict,
    "defaultdict": lambda: collections.defaultdict(int),
    "Counter": collections.Counter,
    "OrderedDict": collections.OrderedDict,
}
IN_MODULE: dict[str, int] = {}


def of_attribute(make):
    class Counting(ab.Operator):
        def __init__(self):
            self.counts = make()

        def process(self, t):
            self.counts[t.k] = self.counts.get(t.k, 0) + t.x
            yield t.k, self.counts[t.k]

    return Counting


def of_class(make):
    class Counting(ab.Operator):
        counts = make()

        def process(self, t):
            self.counts[t.k] = self.counts.get(t.k, 0) + t.x
            yield t.k, self.counts[t.k]

    return Counting


def of_closure(make):
    counts = make()

    class Counting(ab.Operator):
        def process(self, t):
            counts[t.k] = counts.get(t.k, 0) + t.x
            yield t.k, counts[t.k]

    return Counting


def of_default(make):
    class Counting(ab.Operator):
        def process(self, t, counts=make()):  # noqa: B008 - that one is kept is the point
            counts[t.k] = counts.get(t.k, 0) + t.x
            yield t.k, counts[t.k]

    return Counting


def of_module(make):
    IN_MODULE.clear()

    class Counting(ab.Operator):
        def process(self, t):
            IN_MODULE[t.k] = IN_MODULE.get(t.k, 0) + t.x
            yield t.k, IN_MODULE[t.k]

    return Counting


PLACES = [of_attribute, of_class, of_closure, of_default, of_module]


def plain(kind):
    return kind


def ending(kind):
    class Ending(kind):
        def on_end(self):
            yield "end", 0

    return Ending


def declaring(kind):
    class Declaring(kind):
        seen: int = ab.state(default=0)

    return Declaring


@pytest.mark.parametrize("form", [plain, ending, declaring])
@pytest.mark.parametrize("make", EMPTY.values(), ids=EMPTY)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_dict_beside_what_is_declared_is_refused_although_its_key_is_that_of_the_operator(place, make, form):
    stream = ab.from_rows(ROWS, "k string, x long", rows_per_epoch=6)
    made = stream.process(form(place(make))(), by="k", schema="k string, v long")
    found = compare(made)
    assert found.verdict == "refused"
    assert "it has more state than what is kept for its key" in found.parallel[0].refused
    assert ("leave out by=" in found.parallel[0].refused) == (form is plain)


@pytest.mark.parametrize("make", EMPTY.values(), ids=EMPTY)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_without_by_the_same_operator_runs_as_the_refusal_says(place, make):
    stream = ab.from_rows(ROWS, "k string, x long", rows_per_epoch=6)
    found = compare(stream.process(place(make)(), schema="k string, v long"))
    assert found.verdict == "equal", found.difference


def test_operators_that_share_state_keep_no_dict_beside_it():
    one, other = (ab.from_rows(ROWS, "k string, x long") for _ in range(2))
    gives = "k string, v long"
    made = (declaring(of_attribute(dict))(), declaring(of_closure(dict))())
    streams = ab.share((one, made[0], gives), (other, made[1], gives), by="k")
    with pytest.raises(ProgramError, match="keeps something beside the state it declared"):
        streams[0].explain()


def test_a_cached_property_is_an_attribute_that_was_not_declared(capsys):
    """Its value is left on the object of the key, which keeps what was declared: told before anything starts."""

    class Scaled(ab.Operator):
        seen: int = ab.state(default=0)
        scale: int = 3

        @functools.cached_property
        def table(self):
            return {n: n * self.scale for n in range(40)}

        @functools.cached_property
        def factor(self):
            return self.scale * 2

        def process(self, t):
            self.seen += 1
            yield t.k, self.table[t.x] if self.seen % 2 else self.factor

    stream = ab.from_rows(ROWS, "k string, x long", rows_per_epoch=6)
    found = compare(stream.process(Scaled(), by="k", schema="k string, v long"))
    assert found.verdict == "refused"
    stream.process(Scaled(), by="k", schema="k string, v long").explain("json")
    told = capsys.readouterr().out
    assert all(f"reads self.{name}, a cached property" in told for name in ("table", "factor"))
    assert "compute self." in found.parallel[0].refused


class Hits(collections.Counter):
    def hit(self, key):
        self[key] += 1
        return self[key]


class Ordered(collections.OrderedDict):
    def hit(self, key):
        self[key] = self.get(key, 0) + 1
        return self[key]


class Plain(dict):
    hit = Ordered.hit


class Recent(collections.deque):
    def hit(self, key):
        self.append(key)
        return len(self)


class Wrapped(collections.UserDict):
    hit = Ordered.hit


@pytest.mark.parametrize("kind", [Hits, Ordered, Plain, Recent, Wrapped])
def test_a_field_of_a_class_that_cannot_be_kept_is_refused_before_anything_starts(kind):
    class Keeping(ab.Operator):
        held = ab.state(factory=kind)

        def process(self, t):
            yield t.k, self.held.hit(t.x % 2)

    class Holding:
        def __init__(self):
            self.held = collections.defaultdict(kind)

        def __call__(self, t):
            yield t.k, self.held[t.k].hit(t.x % 2)

    stream = ab.from_rows(ROWS, "k string, x long", rows_per_epoch=6)
    found = compare(stream.process(Keeping(), by="k", schema="k string, v long"))
    assert found.verdict == ("equal" if kind is Wrapped else "refused"), found.difference
    assert kind is Wrapped or f"is derived from {kind.__mro__[1].__name__}" in found.parallel[0].refused
    # Where the whole object is kept there is more that can be.
    found = compare(stream.process(Holding(), schema="k string, v long"))
    expected = ("equal",) if kind in (Hits, Plain, Wrapped) else ("refused", "stopped")
    assert found.verdict in expected, found.difference
