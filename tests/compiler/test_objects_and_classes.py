"""State that hides in classes, singletons and enumerations: found out, or kept whole. Written by a second reader."""

import dataclasses
import enum

import pytest

import anabranch as ab
from anabranch.errors import ProgramError
from anabranch.testing import ParallelRun

ROWS = [(i, f"k{i % 3}") for i in range(8)]
OUTPUT = "i long, r string"


class Singleton:
    def __new__(cls):
        if not hasattr(cls, "only"):
            cls.only = object.__new__(cls)
            cls.only.n = 0
        return cls.only

    def hit(self):
        self.n += 1
        return self.n


class WithSingleton(ab.Operator):
    def __init__(self):
        self.d = {}

    def process(self, t):
        if t.k not in self.d:
            self.d[t.k] = Singleton()
        yield (t.i, repr(self.d[t.k].hit()))


class WithClassList:
    hits = []  # noqa: RUF012 - what it is about

    def __init__(self):
        self.n = 0

    def hit(self):
        self.n += 1
        self.hits.append(1)
        return len(self.hits)


class HidesInAClass(ab.Operator):
    def __init__(self):
        self.d = {}

    def process(self, t):
        if t.k not in self.d:
            self.d[t.k] = WithClassList()
        yield (t.i, repr(self.d[t.k].hit()))


class Colour(enum.Enum):
    RED = 1
    BLUE = 2

    def other(self):
        self.asked = getattr(self, "asked", 0) + 1
        return Colour.BLUE if self is Colour.RED else Colour.RED


class HidesInAMember(ab.Operator):
    colour: Colour = ab.state(default=Colour.RED)

    def process(self, t):
        self.colour = self.colour.other()
        yield (t.i, repr(getattr(Colour.RED, "asked", 0)))


class Hashed:
    def __init__(self, v):
        self.v = v

    def __eq__(self, other):
        return self.v == other.v

    def __hash__(self):
        return hash(self.v)


class WithObjectKeys(ab.Operator):
    def __init__(self):
        self.d = {}

    def process(self, t):
        key = Hashed(t.i % 3)
        self.d[key] = self.d.get(key, 0) + 1
        yield (t.i, repr(self.d[key]))


class Marks(enum.Flag):
    A = 1
    B = 2


class KeepsFlags(ab.Operator):
    marks: Marks = ab.state(default=Marks.A)

    def process(self, t):
        self.marks |= Marks.B
        yield (t.i, repr(self.marks))


class OwnFlags(ab.Operator):
    def __init__(self):
        self.d = {}

    def process(self, t):
        self.d[t.k] = self.d.get(t.k, Marks.A) | Marks.B
        yield (t.i, repr(self.d[t.k]))


@dataclasses.dataclass(frozen=True)
class Count:
    n: int = 0

    def next(self):
        return dataclasses.replace(self, n=self.n + 1)


class NamedInItsDeclarationOnly(ab.Operator):
    count: Count = ab.state(factory=Count)

    def process(self, t):
        self.count = self.count.next()
        yield (t.i, repr(self.count))


CASES = {
    "singleton": (WithSingleton, None),
    "list of a class": (HidesInAClass, None),
    "objects as keys": (WithObjectKeys, None),
    "flags": (KeepsFlags, "k"),
    "flags in a dict": (OwnFlags, None),
    "class of the declaration": (NamedInItsDeclarationOnly, "k"),
}


def program(operator, by):
    source = ab.from_rows(ROWS, "i long, k string", rows_per_epoch=4)
    return source.process(operator(), by=by, schema=OUTPUT, name="op")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("channels", [1, 3])
def test_it_gives_what_one_thread_gives_or_is_refused(name, channels, tmp_path):
    expected = program(*CASES[name]).run_sequential()
    written = {}
    for epoch in range(2):
        run = ParallelRun(
            program(*CASES[name]), str(tmp_path), channels=channels, seed=epoch, written=written, fresh_tasks=True
        )
        run.run_epochs(epoch, epoch)
    assert run.output == expected


def test_what_is_written_to_a_member_of_an_enumeration_is_no_state_of_a_key(tmp_path):
    with pytest.raises(ProgramError, match=r"assigns Colour\.asked"):
        ParallelRun(program(HidesInAMember, "k"), str(tmp_path), channels=2)


made: list[int] = []


class Counted:
    def __new__(cls, i):
        made.append(i)
        return object.__new__(cls)


def test_what_is_done_when_an_object_is_made_is_seen():
    def count(t):
        Counted(t.i)
        return (t.i, repr(len(made)))

    plan = ab.from_rows(ROWS, "i long, k string").map(count, schema=OUTPUT).plan()
    assert plan.operators[-1].model.state.value.value == "unknown"
