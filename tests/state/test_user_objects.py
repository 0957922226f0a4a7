"""Objects of the user's classes in state: exactly as they were, by name and fields, never pickled."""

import collections
import dataclasses
import enum
from typing import Any, NamedTuple

import pytest

import anabranch as ab
from anabranch.errors import StateError
from anabranch.program.graph import Keyed, Location, Node, Source, StateField
from anabranch.program.schema import Schema
from anabranch.state.codec import comparable, decode, encode
from anabranch.state.user_objects import UserClasses, UserObject
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


def classes(prototype=None):
    source = Node(0, "source", "s", Source(None), (), Schema.of("x long"), Location("f", 1))
    logic = Keyed(prototype or Names(), "process", (StateField("a"),))
    return UserClasses(Node(1, "process", "p", logic, (source,), Schema.of("x long"), Location("f", 1), ("x",)))


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
    known = classes()
    again = decode(encode(value, known), known)
    assert again == value and type(again) is type(value)
    # Without the program it is data, which is written again as it was.
    assert comparable(decode(encode(value, known))) == comparable(value, known)


def test_without_the_program_it_can_be_looked_at():
    shown = decode(encode(Track(Point(1)), classes()))
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

    known = classes(Operator())
    again = decode(encode(Loud(), known), known)
    assert type(again) is Loud and Loud.made == 1


def test_a_class_that_the_code_does_not_name_is_refused():
    class Operator:
        def process(self, t):
            yield t

    with pytest.raises(StateError, match=r"cannot keep a .*Point as state: the operator's code does not name"):
        encode(Point(1), classes(Operator()))
    with pytest.raises(StateError, match=r"the state holds a .*Point, a class that the operator's code does not name"):
        decode(encode(Point(1), classes()), classes(Operator()))


def test_fields_may_come_with_a_default_and_may_go():
    kept = UserObject(f"{__name__}.Track", "object", (("first", Point(9)),))
    known = classes()
    assert known.made(kept) == Track(Point(9))
    with pytest.raises(StateError, match=r"fields of .*Track have changed .* the class now needs first"):
        known.made(UserObject(f"{__name__}.Track", "object", (("colour", Colour.RED),)))
    assert known.made(UserObject(f"{__name__}.Point", "named", (("x", 1), ("z", 2)))) == Point(1)
    assert vars(known.made(UserObject(f"{__name__}.Track", "data", (("first", 1), ("z", 2)), (("own", 3),)))) == {
        **vars(Track(1)),
        "own": 3,
    }
    with pytest.raises(StateError, match="which the enumeration no longer has"):
        known.made(UserObject(f"{__name__}.Colour", "member", (("GREEN", None),)))


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
