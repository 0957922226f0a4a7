"""The state of a key: objects of the user's classes and what is in two places exactly as they were, never pickled."""

import collections
import dataclasses
import enum
from typing import Any, NamedTuple

import numpy as np
import pytest

import anabranch as ab
from anabranch.errors import StateError
from anabranch.program.graph import Keyed, Location, Node, Source, StateField
from anabranch.program.object_filling import Reference
from anabranch.program.object_graph import ObjectGraph
from anabranch.program.object_views import UserObject
from anabranch.program.schema import Schema
from anabranch.state.codec import comparable
from anabranch.state.key_states import KeyStates, viewed
from anabranch.testing import ParallelRun, run_parallel


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Point(NamedTuple):
    x: int
    y: float = 0.5


@dataclasses.dataclass
class Track:
    first: Point
    colour: Colour = Colour.RED
    points: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    low: Any
    high: Any


class Plain:
    def __init__(self, n):
        self.n = n
        self.inner = {"n": [n]}

    def __eq__(self, other):
        return type(other) is Plain and vars(other) == vars(self)

    __hash__ = None


class Names:
    """An operator whose code names all of them."""

    def process(self, t):
        return Colour, Point, Track, Pair, Plain


def states(prototype=None, fields=("a",)):
    source = Node(0, "source", "s", Source(None), (), Schema.of("x long"), Location("f", 1))
    logic = Keyed(prototype or Names(), "process", tuple(map(StateField, fields)))
    return KeyStates(Node(1, "process", "p", logic, (source,), Schema.of("x long"), Location("f", 1), ("x",)))


def again(value, reader=None, writer=None):
    (found,) = (reader or states()).decoded((writer or states()).encoded((value,)))
    return found


def graph_of(kind, contents):
    """A graph of one field that holds one object, as another version of the program may have written it."""
    root = [None, "namespace", [["a", Reference(1)]]]
    return ObjectGraph([root, [None, kind, contents], [None, "named", [f"{__name__}.Point", [9, 0.5], ["x", "y"]]]])


VALUES = [
    Colour.BLUE,
    Point(3),
    Track(Point(1, 2.0), Colour.BLUE, [Point(2), {"a": Colour.RED}]),
    Pair(Point(1), [Pair(None, 1)]),
    Plain(4),
    [Plain(1), (Plain(2), {"k": Track(Point(0))})],
    {Colour.RED: 1, Point(1): [Colour.BLUE]},
    {Colour.RED, Colour.BLUE},
    frozenset({Point(1), Point(2)}),
    collections.deque([Pair(1, 2)], maxlen=3),
    collections.defaultdict(list, {"a": [Colour.RED]}),
]


@pytest.mark.parametrize("value", VALUES, ids=[type(each).__name__ + str(at) for at, each in enumerate(VALUES)])
def test_what_is_read_back_is_what_was_kept(value):
    found = again(value)
    assert found == value and type(found) is type(value)
    assert comparable(found) == comparable(value)


def test_without_the_program_it_can_be_looked_at():
    _, graph = states().kept((Track(Point(1)),))
    shown = viewed({"a": None, "#together": graph})["a"]
    assert isinstance(shown, UserObject)
    assert repr(shown) == "Track(first=Point(x=1, y=0.5), colour=Colour.RED, points=[])"


def test_reading_runs_no_code_of_the_class():
    class Loud:
        made = 0

        def __init__(self):
            type(self).made += 1

        def __setattr__(self, name, value):
            raise AssertionError("called")

    class Operator:
        def process(self, t):
            return Loud

    known = states(Operator())
    assert type(again(Loud(), known, known)) is Loud and Loud.made == 1


def test_a_class_that_the_code_does_not_name_is_refused():
    class Operator:
        def process(self, t):
            yield t

    with pytest.raises(StateError, match=r"self\.a is of the class .*Point, which the operator's code does not name"):
        again(Point(1), writer=states(Operator()))
    with pytest.raises(StateError, match=r"the state holds a .*Point, a class that the operator's code does not name"):
        again(Point(1), reader=states(Operator()))


def test_fields_may_come_with_a_default_and_may_not_go():
    def restored(kind, contents):
        return states().restored((None,), graph_of(kind, contents))

    assert restored("instance", [f"{__name__}.Track", [["first", Reference(2)]], None]) == (Track(Point(9)),)
    with pytest.raises(StateError, match=r"fields of .*Track have changed .* the class now needs first"):
        restored("instance", [f"{__name__}.Track", [["points", None]], None])
    with pytest.raises(StateError, match=r"fields of .*Pair have changed .* the state has middle"):
        restored("instance", [f"{__name__}.Pair", [["low", 1], ["middle", 2], ["high", 3]], None])
    with pytest.raises(StateError, match=r"fields of .*Point have changed .* the state has z"):
        restored("named", [f"{__name__}.Point", [1, 2], ["x", "z"]])
    with pytest.raises(StateError, match="which the enumeration no longer has"):
        restored("member", [f"{__name__}.Colour", "GREEN"])


def test_a_field_that_was_never_set_stays_so():
    @dataclasses.dataclass
    class Late:
        value: int = dataclasses.field(init=False)

    class Operator:
        def process(self, t):
            return Late

    known = states(Operator())
    assert not vars(again(Late(), known, known))


class OwnDict:
    """The runtime keeps its dict."""

    def __init__(self):
        self.tracks = {}

    def __call__(self, t):
        track = self.tracks.get(t.k)
        if track is None:
            track = self.tracks[t.k] = Track(Point(t.x))
        track.points.append(Point(t.x, t.x / 2))
        track.colour = Colour.BLUE if t.x % 2 else Colour.RED
        yield (t.k, len(track.points), track.colour.name, track.first.x)


class Declared(ab.Operator):
    pair = ab.state(default=None)
    seen = ab.state(factory=list)

    def process(self, t):
        self.pair = Pair(t.x, self.pair.low if self.pair is not None else None)
        self.seen.append(Plain(t.x))
        yield (t.k, len(self.seen), str(self.pair.high), self.seen[0].n)


@pytest.mark.parametrize("operator", [OwnDict, Declared])
@pytest.mark.parametrize("ttl", [None, 1000])
def test_parallel_is_sequential_through_restarts_and_rescaling(operator, ttl, tmp_path):
    rows = [(f"k{n * 7 % 5}", n) for n in range(60)]

    def make():
        stream = ab.from_rows(rows, "k string, x long", rows_per_epoch=10)
        more = {} if operator is OwnDict else {"by": "k"} | ({} if ttl is None else {"ttl": ttl})
        return stream.process(operator(), schema="k string, n long, c string, f long", name="op", **more)

    expected = make().run_sequential()
    assert run_parallel(make(), channels=3) == expected
    written = {}
    for number in range(6):
        run = ParallelRun(make(), str(tmp_path), channels=1 + number % 3, seed=number, written=written)
        run.run_epochs(number, number)
    assert run.output == expected


class Shares(ab.Operator):
    """What its fields hold is one object here and there, in every way."""

    first = ab.state(default=None)
    second = ab.state(factory=list)
    third = ab.state(factory=dict)
    table = ab.state(default=None)
    row = ab.state(default=None)
    cells = ab.state(default=None)
    stored = ab.store()

    def process(self, t):
        if self.first is None:
            self.first = Plain(t.x)
            self.second.append(self.first)
            self.third["self"] = self.third
            self.third["list"] = self.second
            self.table = np.zeros((2, 3), order="F" if t.x % 2 else "C")
            self.row, self.cells = self.table[1], self.table.T[::2, :1]
            self.stored.put("list", self.second)
            self.stored.put("first", self.first)
        self.first.n += t.x
        self.second.append(t.x)
        self.table[1, 0] += t.x
        self.row[1] += 1
        self.cells[0, 0] += 2
        self.stored.get("list").append("s")
        self.stored.get("first").n += 1
        inner = self.third["self"]["self"]["list"]
        yield (t.k, self.second[0].n, len(inner), f"{self.table.tolist()} {self.row.tolist()} {self.cells.tolist()}")


@pytest.mark.parametrize("operator", [OwnDict, Declared, Shares])
def test_what_is_shared_stays_so_and_verify_sees_no_difference(operator, tmp_path):
    rows = [(f"k{n * 7 % 5}", n) for n in range(60)]

    def make():
        stream = ab.from_rows(rows, "k string, x long", rows_per_epoch=10)
        more = {} if operator is OwnDict else {"by": "k"}
        schema = "k string, n long, c long, f string" if operator is Shares else "k string, n long, c string, f long"
        return stream.process(operator(), schema=schema, name="op", **more)

    expected = make().run_sequential()
    verified = ParallelRun(make(), str(tmp_path / "verified"), channels=2, fresh_tasks=True, verify=1.0)
    verified.run_epochs()
    assert verified.output == expected
    written = {}
    for number in range(6):
        run = ParallelRun(make(), str(tmp_path), channels=1 + number % 3, seed=number, written=written)
        run.run_epochs(number, number)
    assert run.output == expected


def test_arrays_in_one_object_share_their_memory_after_an_epoch(tmp_path):
    class Views:
        def __init__(self):
            self.table = np.zeros((4, 4))
            self.parts = {}

        def __call__(self, t):
            if t.x not in self.parts:
                hidden = np.zeros(8)  # nobody keeps it by a name of its own
                self.parts[t.x] = (self.table[t.x], hidden[:6], hidden[2:])
            row, low, high = self.parts[t.x]
            self.table += 1
            row[0] += 1
            low[3] += 1
            yield (t.x, float(self.table.sum() + row.sum()), float(high.sum()))

    stream = ab.from_rows([(n % 3,) for n in range(20)], "x long", rows_per_epoch=4)
    stream = stream.process(Views(), schema="x long, a double, b double")
    run = ParallelRun(stream, str(tmp_path), channels=2, fresh_tasks=True, verify=1.0)
    run.run_epochs()
    assert run.output == stream.run_sequential()
