"""Tuples are instances of the class that a function is annotated with, wherever it could tell."""

import dataclasses
import enum
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.errors import OperatorError
from anabranch.program.annotated_rows import seeing
from anabranch.program.model import State
from anabranch.testing import Harness, run_parallel
from tests.restless import restless_output

SEEN = []


class Side(enum.Enum):
    BUY = 1


class Bid(NamedTuple):
    who: str
    price: int

    @property
    def euros(self) -> float:
        return self.price / 100

    def raised(self, by: int) -> "Bid":
        return self._replace(price=self.price + by)

    def noted(self) -> int:
        SEEN.append(self.price)
        return self.price


@dataclasses.dataclass(frozen=True)
class Offer:
    price: int  # another order than the columns have
    who: str

    def high(self) -> bool:
        return self.price > 5


class Item(NamedTuple):
    name: str
    count: int | None = None

    def weight(self) -> int:
        return len(self.name) * (self.count or 0)


@dataclasses.dataclass
class Order:
    id: int
    first: Item | None
    items: list[Item]


class Last(ab.Operator):
    last: Bid | None = ab.state(default=None)

    def process(self, t: Bid) -> Iterator[Bid]:
        if type(t) is not Bid:  # no assert: pytest would rewrite it, and the compiler could not read the source
            raise TypeError(t)
        before = 0 if self.last is None else self.last.raised(1).price
        self.last = t
        yield t._replace(price=before)


class Told(ab.Operator):
    limit: int = ab.state(default=0)
    rules: list = ab.broadcast(factory=list)

    def on_broadcast(self, rule: Offer) -> None:
        self.rules.append(rule.high())

    def process(self, t: Bid):
        yield t.raised(len(self.rules))


def euros(t: Bid):
    return (t.who, int(t.euros * 100))


def raised(t: Bid) -> Bid:
    if not isinstance(t, Bid):
        raise TypeError(t)
    return t.raised(3)


def high(t: Offer) -> bool:
    return t.high() and isinstance(t, Offer)


def twice(t: Offer) -> Iterator[Bid]:
    yield Bid(t.who, t.price)
    if t.high():
        yield Bid(t.who, -t.price)


def pence(t: Bid) -> int:
    return t.raised(1).price


def initial(t: Bid) -> str:
    return t.raised(1).who[:1]


def both(a: Bid, b: Offer | None):
    if not isinstance(a, Bid) or not isinstance(b, Offer | None):
        raise TypeError(a, b)
    return (a.who, a.raised(1).price + (100 if b is not None and b.high() else 0))


def more(t: Bid, m) -> bool:
    return t.raised(0).price >= m.first[0].price


def added(total: int, t: Offer) -> int:
    return total + t.high()


PROGRAMS = {
    "select": lambda s: s.select("who", price=(pence, "long")),
    "key": lambda s: s.deduplicate(by=pence),
    "named key": lambda s: s.aggregate(
        by=ab.key(initial, "name string"), window=ab.running(), price=ab.agg.max("price")
    ).select(who="name", price="price"),
    "where": lambda s: s.aggregate(by="who", window=ab.running(), price=ab.agg.sum("price").where(high)),
    "where, computed key": lambda s: s.aggregate(
        by=ab.key(lambda t: t.who * 2, "name string"), window=ab.tumbling(2), price=ab.agg.count().where(high)
    ).select(who="name", price="price"),
    "custom": lambda s: s.aggregate(
        by="who", window=ab.tumbling(2), price=ab.agg.custom(int, added, lambda a: a, "long").where(high)
    ),
    "deleted": lambda s: s.aggregate(
        by="who", window=ab.running(latest_of="price", deleted=high), price=ab.agg.count()
    ),
    "changes": lambda s: s.changes(by="who", deleted=high).select("who", "price"),
    "join": lambda s: s.join(s.filter(high), by="who", window=ab.count(2), how="left", function=both, schema=Bid),
    "join, computed key": lambda s: s.join(s, by=(pence, pence), window=ab.count(1), function=both, schema=Bid),
    "match": lambda s: s.match(
        by="who",
        pattern=[ab.step("first", high), ab.step("second", more)],
        emit=lambda m: (m.first[0].who, m.second[0].price),
        schema=Bid,
    ),
    "property": lambda s: s.map(euros, schema=Bid),
    "method": lambda s: s.map(raised),
    "dataclass": lambda s: s.filter(high),
    "generator": lambda s: s.flat_map(twice),
    "state": lambda s: s.process(Last(), by="who"),
    "computed key": lambda s: s.process(Last(), by=lambda t: t.price % 3),
    "route": lambda s: s.route(lambda t: 0 if t.price else 1, 2)[0],
    "split": lambda s: s.split(high)[0],
    "policy": lambda s: s.map(raised, on_error="skip"),
}
bids = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=12)


def outcome(run):
    """The rows, or what the error says: some operators of a chain give a price of null, which others cannot take."""
    try:
        return run()
    except OperatorError as problem:
        return re.sub(r", epoch \d+", "", str(problem))


@settings(max_examples=8, deadline=None)
@given(
    epochs=st.lists(bids, min_size=1, max_size=3),
    chosen=st.lists(st.sampled_from(sorted(PROGRAMS)), min_size=1, max_size=3),
    channels=st.integers(1, 8),
    data=st.data(),
)
def test_parallel_is_what_one_thread_gives(tmp_path_factory, epochs, chosen, channels, data):
    stream = from_epochs(epochs, Bid)
    for name in chosen:
        stream = PROGRAMS[name](stream)
    expected = outcome(stream.run_sequential)
    assert outcome(lambda: run_parallel(stream, channels=channels)) == expected
    if isinstance(expected, list):
        assert restless_output(data, stream, str(tmp_path_factory.mktemp("checkpoint"))) == expected


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_every_place_for_a_function_gives_the_class(name):
    stream = PROGRAMS[name](from_epochs([[("a", 7), ("b", 3)], [("a", 8), ("b", 9), ("a", 1), ("a", 6)]], Bid))
    expected = stream.run_sequential()
    assert expected and run_parallel(stream, channels=3) == expected


def test_nested_classes_are_made_too():
    orders = [
        {"id": 1, "first": {"name": "ab", "count": 2}, "items": [{"name": "c", "count": None}]},
        {"id": 2, "first": None, "items": [{"name": "de", "count": 3}]},
    ]

    def heavy(t: Order) -> bool:
        return (t.first.weight() if t.first else 0) + sum(item.weight() for item in t.items) > 4

    def more(t: Order) -> Order:
        return dataclasses.replace(t, first=Item("new", 1), items=[*t.items, Item("x", 1)])

    stream = ab.from_rows(orders, Order)
    assert [t.id for t in stream.filter(heavy).run_sequential()] == [2]
    made = stream.map(more)
    assert made.run_sequential()[0].first == {"name": "new", "count": 1}
    assert run_parallel(made, channels=2) == made.run_sequential()


def test_what_cannot_tell_is_called_as_it_is():
    """So it is rewritten to columns, and costs nothing."""
    schema = ab.Schema.of(Bid)

    def reads(t: Bid):
        return (t.who, t.price + 1)

    def hands_on(t: Bid):
        if t.price > 3:
            return t
        return t

    def as_a_row(t: Bid):
        return t.but(price=3)

    def other_columns(t: Item):
        return t.weight()

    for function in (reads, hands_on, as_a_row, other_columns, lambda t: t, max):
        assert seeing(function, schema) is function
    assert seeing(raised, schema) is not raised

    def reads_only(t: Bid) -> Bid:
        return (t.who, t.price * 2)

    class Reads(ab.Operator):
        seen: int = ab.state(default=0)

        def process(self, t: Bid):
            self.seen += t.price
            if self.seen > 3:
                yield t

    stream = ab.from_rows([("a", 3)], Bid)
    assert stream.map(reads_only)._node.logic.function is reads_only
    assert type(stream.process(Reads(), by="who")._node.logic.prototype) is Reads


def test_what_methods_of_the_class_do_is_found():
    def notes(t: Bid):
        return (t.who, t.noted())

    (found,) = [each for each in ab.from_rows([], Bid).map(notes, schema=Bid).plan().operators if each.name == "map"]
    assert found.model.state.value is State.UNKNOWN and "SEEN" in found.model.state.reason
    (found,) = [each for each in ab.from_rows([], Bid).map(raised).plan().operators if each.name == "map"]
    assert found.model.state.value is State.STATELESS


def test_errors_tell_the_users_own_line():
    def fails(t: Bid):
        return (t.raised(1 // (t.price - 3)), 1)

    with pytest.raises(ab.errors.OperatorError, match=r"ZeroDivisionError[\s\S]*test_annotated_rows.py:\d+ in fails"):
        ab.from_rows([("a", 3)], Bid).map(fails, schema=Bid).run_sequential()


def test_broadcast_and_elastic_operators_get_them_too():
    harness = Harness(Told(), Bid, by="who", schema=Bid, broadcast=Offer)
    harness.broadcast((3, "x"))
    assert harness.feed(("a", 3)) == [("a", 4)]

    async def later(t: Bid) -> Bid:
        return t.raised(2)

    stream = ab.from_rows([("a", 3)], Bid).map(later, elastic=True)
    assert stream.run_sequential() == run_parallel(stream) == [("a", 5)]
