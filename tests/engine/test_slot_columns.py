"""Users' methods whose state is lists by slot: rows, state and errors of one thread, on, off, in turns."""

import linecache
import random
import zlib
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.engine.worker.slot_columns import SlotCalls, SlotStep, distinct_keys, slot_code, slots_in
from anabranch.program.options import OVER_COLUMNS
from anabranch.state.files import LocalFiles
from anabranch.state.reader import CheckpointReader
from anabranch.testing import ParallelRun
from tests.engine.column_ways import EXAMPLES, NULL_KEYS, PHASES, arounds, epochs_of, in_all_ways, ways
from tests.engine.test_method_columns import output_of

LIMIT = 7


class Sums(ab.Operator):
    """One tuple for each: a column passed on, one of state."""

    many: int = ab.state(default=0)
    total: float = ab.state(default=-0.0)

    def process(self, t):
        self.many += 1
        self.total += t.x
        yield t.k, t.n, self.many


class Words(ab.Operator):
    """Text, nothing, truth; leaves rounds early; fails for some tuples."""

    last: str = ab.state(default=None)
    longest: str = ab.state(default="")
    is_odd: bool = ab.state(default=False)
    factor = 2

    def __init__(self, least=1):
        self.least = least

    def process(self, t):
        self.is_odd = not self.is_odd
        if t.name is None:
            return
        before = self.last
        self.last = t.name
        if len(self.longest) < 12:
            self.longest = self.longest + t.name
        if self.is_odd or before == t.name:
            yield t.k, t.n, len(self.longest) * self.factor + self.least
        if t.small == -1 and self.is_odd:
            yield {"many": 5 // (t.small + LIMIT - 5 - len(self.longest) % 3), "k": t.k, "n": t.n}


class Grows(ab.Operator):
    """Numbers that leave 64 bits, and change their type."""

    number: int = ab.state(default=1)
    other: float = ab.state(default=0.0)

    def process(self, t):
        self.number = self.number * 3 if self.number < 2**70 else True
        self.other = {0: 0, 1: -0.0, 2: float("nan"), 3: None, 4: "text", 5: b"bytes"}.get(self.number % 7, self.other)
        yield t.k, t.n, len(repr(self.other)) + self.number % 1000


class Turns(ab.Operator):
    """Holds what can change in place, for some keys and some of the time."""

    many: int = ab.state(default=0)
    held: list = ab.state(default=None)

    def process(self, t):
        self.many += 1
        if self.many % 5 == 4:
            self.held = [t.n]
        elif self.many % 5 == 2:
            self.held = None
        yield t.k, t.n, self.many if self.held is None else -len(self.held)


class Helped(ab.Operator):
    """Uses all of itself."""

    many: int = ab.state(default=0)

    def process(self, t):
        self.many = self.more()
        yield t.k, t.n, self.many

    def more(self):
        return self.many + 1


class Reads(ab.Operator):
    """Reads locals that some rounds do not bind."""

    many: int = ab.state(default=0)

    def process(self, t):
        self.many += 1
        if t.small != 1 or self.many < 15:
            found = self.many
        yield t.k, t.n, found


class Returns(ab.Operator):
    """Returns tuples, lists, nothing; what it makes is made when it is asked for."""

    many: int = ab.state(default=0)
    last: str = ab.state(default=None)

    def process(self, t):
        self.many += 1
        before, self.last = self.last, t.name
        if self.many % 4 == 0:
            return ((t.k, t.n, self.many + n) for n in range(2))
        if before == t.name:
            return None
        return [(t.k, t.n, self.many)] if self.many % 2 else (t["k"], t.n, 60 // (self.many - 30))


class Passes(ab.Operator):
    """Hands over to generators of its own."""

    many: int = ab.state(default=0)

    def process(self, t):
        self.many += 1
        yield from [(t.k, t.n, self.many)] * (self.many % 3)
        held = lambda: self.many  # noqa: E731
        self.many += 1
        yield t.k, t.n, held()


OPERATORS = [Sums, Words, Grows, Turns, Helped, Reads, Returns, Passes]


@settings(max_examples=3 * EXAMPLES, deadline=None, phases=PHASES)
@given(
    ways=ways,
    what=st.sampled_from(OPERATORS),
    by=st.sampled_from(["k", "s", ["k", "s"], ["s", ab.key(lambda t: f"{t.at:%M}", "minute")]]),
    nulls=st.sampled_from([0.0, 0.1, NULL_KEYS]),
    around=arounds,
    hot=st.booleans(),
    ttl=st.sampled_from([None, None, 7200]),
    seed=st.integers(0, 10_000),
)
def test_state_in_slots(tmp_path_factory, ways, what, by, nulls, around, hot, ttl, seed):
    chance = random.Random(seed)
    columns = around["columns"]
    sizes = [chance.choice([1, 30, 120]) for _ in ways]
    epochs = epochs_of(chance, columns, sizes, 100, nulls=nulls)
    if hot:
        epochs = [[(None if row[0] is None else epochs[0][0][0], *row[1:]) for row in rows] for rows in epochs]
    source = from_epochs(epochs, columns, name="rows").on_error(around["policy"])
    more = {} if ttl is None else {"ttl": ttl}
    stream = source.process(what(), by=by, schema=output_of(columns), **more)
    found, expected = in_all_ways(tmp_path_factory, stream, ways, **around)
    assert found == expected


def counted(stream, folder, columns):
    """Run; how many batches had slots, the rows and the state."""
    taken = []
    original = SlotStep._taken

    def noted(self, batch, node, slots):
        taken.append(len(batch))
        return original(self, batch, node, slots)

    def called(self, batch, node):
        slots = slots_in(self._table, batch, self._places)
        taken.append(0 if slots is None else len(batch))
        return original_call(self, batch, node)

    original_call = SlotCalls.__call__
    with mock.patch.object(SlotStep, "_taken", noted), mock.patch.object(SlotCalls, "__call__", called):
        run = ParallelRun(stream, folder, channels=2, columns=columns)
        run.run_epochs()
    reader = CheckpointReader(LocalFiles(f"{folder}/anabranch"))
    (name,) = [each.operator for each in reader.stores()]
    return sum(taken), list(map(repr, run.output)), {repr(k): repr(v) for k, v in reader.items(name)}


@pytest.mark.parametrize("what", [Sums, Words, Grows, Reads, Returns, Passes, Helped])
def test_plain_state_has_slots(tmp_path, what):
    has_slots = what is not Helped
    chance = random.Random(5)
    columns = "k long, s string, at timestamp, n long, small int, name string, x double, d decimal(20, 2), extra string"
    stream = from_epochs(epochs_of(chance, columns, [60, 80], 100), columns, name="rows")
    stream = stream.filter(lambda t: t.small == 0).process(what(), by="k", schema=output_of(columns))
    on = counted(stream, str(tmp_path / "on"), OVER_COLUMNS)
    off = counted(stream, str(tmp_path / "off"), set(OVER_COLUMNS) - {"slots"})
    assert on[1:] == off[1:]
    assert bool(on[0]) is has_slots and off[0] == 0
    assert what not in (Sums, Grows, Reads) or on[0] >= len(on[1])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 3), st.integers(0, 60))
def test_distinct_keys_are_those_of_tuples(seed, width, length):
    chance = random.Random(seed)
    kinds = [chance.choice([pa.int64(), pa.string(), pa.bool_(), pa.date32()]) for _ in range(width)]
    pool = {pa.int64(): [None, 0, 1, -(2**63)], pa.string(): [None, "", "a"], pa.bool_(): [None, True, False]}
    columns = [[chance.choice(pool.get(kind, [None])) for _ in range(length)] for kind in kinds]
    keys, of = distinct_keys([pa.array(*pair) for pair in zip(columns, kinds, strict=True)], length)
    expected = columns[0] if width == 1 else list(zip(*columns, strict=True)) if width else [()] * length
    assert [keys[at] for at in of.tolist()] == expected and len(set(map(repr, keys))) == len(keys)


def test_keys_that_arrow_tells_apart_otherwise_have_instances():
    assert distinct_keys([pa.array([0.0, -0.0])], 2) is None
    assert distinct_keys([pa.array([1, 2], pa.int64()), None], 2) is None


def loops(text, outputs="k long, n long"):
    """How a body runs: a loop that gives one tuple for each, a loop, a function of each, or with instances."""
    names = {"ab": ab, "LIMIT": LIMIT}
    lines = "".join(f"        {line}\n" for line in text.split("\n"))
    source = (
        "class Made(ab.Operator):\n    a: int = ab.state(default=0)\n    b: float = ab.state(default=0.0)\n"
        f"    c = 3\n\n    def process(self, t):\n{lines}"
    )
    name = f"<made {hash_of(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), names)
    names["Made"].__module__ = __name__
    code = slot_code(
        ab.from_rows([], "k long, n long, x double").process(names["Made"](), by="k", schema=outputs)._node
    )
    if code is None:
        return "instances"
    return "function" if code.loop is None else "loop" if code.passed is None else f"one {dict(code.passed)}"


def hash_of(text):
    return zlib.crc32(text.encode())


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("self.a += t.n\nyield t.k, self.a", "one {0: 0}"),
        ("u = t.n\nself.a += u\nyield t.k, t.n", "one {0: 0, 1: 1}"),
        ("self.a += t.n\nyield t.k, self.a\nself.b = t.x", "one {0: 0}"),
        ("self.a += self.c\nyield (t.k, self.a) if t.n else (t.k, 0)", "one {}"),
        ("self.a += t.n\nif t.n:\n    yield t.k, self.a", "loop"),
        ("if t.n is None:\n    return\nself.a += t.n\nyield t.k, self.a", "loop"),
        ("for i in [1]:\n    pass\nyield t.k, self.a", "function"),  # i may be that of the round before
        ("if t.n:\n    u = 1\nyield t.k, u", "function"),
        ("u = u + 1\nyield t.k, u", "function"),
        ("u = lambda: t.n\nyield t.k, u()", "function"),
        ("u = 0\nwhile True:\n    if t.n:\n        return\n    break\nyield t.k, u", "function"),
        ("u = 1\ndel u\nyield t.k, self.a", "function"),
        ("try:\n    self.a += t.n\nexcept TypeError as u:\n    pass\nyield t.k, self.a", "function"),
        (
            "try:\n    self.a += 1 // t.n\nexcept TypeError:\n    return\nfinally:\n    self.b = t.x\nyield t.k, 1",
            "loop",
        ),
        ("try:\n    yield t.k, self.a\nfinally:\n    self.a += 1", "loop"),
        ("self.a += 1\nreturn t.k, self.a", "one {0: 0}"),
        ("self.a += 1\nreturn [(t.k, self.a)]", "one {0: 0}"),
        ("self.a += 1\nif t.n:\n    return [{'k': t.k, 'n': 1}]\nreturn []", "loop"),
        ("if self.a is None:\n    return\nself.a += 1", "loop"),
        ("return [t.k, 1]", "instances"),
        ("return [(t.k, 1), (t.k, self.a)]", "instances"),
        ("return [(t.k, 1)] * 2", "instances"),
        ("while True:\n    return t.k, 1", "instances"),
        ("try:\n    return t.k, 1\nfinally:\n    return None", "instances"),
        ("return t.k", "instances"),
        ("del self.a\nyield t.k, 1", "instances"),
        ("self.d = t.n\nyield t.k, 1", "instances"),
        ("self.c = t.n\nyield t.k, 1", "instances"),
        ("yield t.k, len(repr(self))", "instances"),
    ],
)
def test_which_bodies_become_loops(text, how):
    assert loops(text) == how


def test_attributes_that_are_not_plain_have_instances():
    class Slotted(ab.Operator):
        a: int = ab.state(default=0)

        def __setattr__(self, name, value):
            object.__setattr__(self, name, value)

        def process(self, t):
            self.a += 1
            yield t.k, self.a

    stream = ab.from_rows([], "k long").process(Slotted(), by="k", schema="k long, n long")
    assert slot_code(stream._node) is None
