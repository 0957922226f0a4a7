"""Sets in state are gone through in the order of the user's own, wherever epochs are cut and tasks begin anew.

The user's own loop is the measure: one object for each key, one thread, no epochs. The sequential run and the product's
path, in 1 to 5 channels and with a restart, must give what it gives.
"""

import collections
import os
import random

import pytest

import anabranch as ab
from anabranch.testing import ParallelRun
from tests.compiler.product_path import parallel, sequential

CASES = int(os.environ.get("ANABRANCH_SET_CASES", "4"))
COLUMNS = "k string, op string, x long"
KINDS = {
    "number": lambda x: x,
    "place": lambda x: (x % 12) << 5,
    "float": lambda x: x / 4,
    "text": lambda x: f"t{x}",
    "tuple": lambda x: (x % 7, x),
    "mixed": lambda x: (x, str(x), -x / 2, (x,))[x % 4],
}


def step(found, op, x, member):
    """What an operator does to a set, and what it shows of it."""
    if op == "add":
        found.add(member(x))
    elif op == "several":
        found |= {member(x + n) for n in range(6)}
    elif op == "discard":
        found.discard(member(x))
    elif op == "keep":
        found &= {member(n) for n in range(x % 50, 120)}
    elif op == "pop" and found:
        return str(found.pop())
    elif op == "clear" and x % 4 == 0:
        found.clear()
    return ",".join(map(str, found))


class Declared(ab.Operator):
    found: set = ab.state(factory=set)

    def __init__(self, member):
        self.member = member

    def process(self, t):
        yield t.k, step(self.found, t.op, t.x, self.member)


class Nested(ab.Operator):
    """A set in a dict in a list, and frozen ones as keys."""

    held: list = ab.state(factory=lambda: [{"a": set()}])
    seen: dict = ab.state(factory=dict)

    def __init__(self, member):
        self.member = member

    def process(self, t):
        shown = step(self.held[0]["a"], t.op, t.x, self.member)
        self.seen[frozenset(self.held[0]["a"])] = t.x
        yield t.k, f"{shown} {[list(each) for each in self.seen][-3:]} {[*frozenset(self.held[0]['a'])]}"


class Whole(ab.Operator):
    """Nothing that can be parted: the whole object is taken over."""

    def __init__(self, member):
        self.member = member
        self.found = collections.defaultdict(set)
        self.latest = {"of": self.found["a"]}

    def process(self, t):
        shown = step(self.found[t.k], t.op, t.x, self.member)
        yield t.k, f"{shown} {','.join(map(str, self.latest['of']))}"


def rows_of(draw, count):
    ops = ["add"] * 6 + ["several", "discard", "discard", "keep", "pop", "pop", "clear"]
    return [(draw.choice("abc"), draw.choice(ops), draw.randrange(120)) for _ in range(count)]


def program(kind, rows, rows_per_epoch, member):
    stream = ab.from_rows(rows, COLUMNS, rows_per_epoch=rows_per_epoch)
    by = None if kind is Whole else "k"
    return stream.process(kind(member), by=by, schema="k string, y string")


def own_loop(kind, rows, member):
    """The user's, without this library."""
    objects = {}
    shown = []
    schema = ab.Schema.of(COLUMNS)
    for row in rows:
        key = row[0] if kind is not Whole else None
        if key not in objects:
            objects[key] = kind(member)
            if kind is Declared:
                objects[key].found = set()
            elif kind is Nested:
                objects[key].held, objects[key].seen = [{"a": set()}], {}
        shown += objects[key].process(schema.row_class(row))
    return tuple(map(repr, shown))


@pytest.mark.parametrize("kind", [Declared, Nested, Whole], ids=lambda kind: kind.__name__)
def test_a_set_is_gone_through_as_in_the_users_own_loop(kind):
    for seed in range(CASES):
        draw = random.Random(f"{kind.__name__} {seed}")
        rows, member = rows_of(draw, 60), KINDS[draw.choice(list(KINDS))]
        expected = own_loop(kind, rows, member)
        stream = program(kind, rows, draw.choice([7, 13, 31]), member)
        assert sequential([stream]).rows == (expected,), seed
        found = parallel([stream], channels=1 + (seed + len(kind.__name__)) % 5, seed=seed)
        assert (found.rows, found.error, found.refused) == ((expected,), "", ""), seed


def test_a_set_is_the_same_after_a_restart(tmp_path):
    draw = random.Random(5)
    rows = rows_of(draw, 80)
    expected = own_loop(Declared, rows, KINDS["place"])
    first = ParallelRun(program(Declared, rows[:36], 9, KINDS["place"]), tmp_path, channels=3)
    first.run_epochs()
    again = ParallelRun(program(Declared, rows, 9, KINDS["place"]), tmp_path, channels=2)
    again.run_epochs()
    assert 0 < len(again.output) < len(expected)
    assert tuple(repr(tuple(row)) for row in again.output) == expected[-len(again.output) :]


CONSTANT = {n << 4 for n in range(40)} - {n << 4 for n in range(0, 40, 3)}
FROZEN = frozenset(CONSTANT) | {7, 23, 1000}


def test_sets_that_code_only_reads_have_their_order_in_every_task():
    rows = [("a", "x", n) for n in range(6)]
    closed = set(CONSTANT)
    closed.pop()
    stream = ab.from_rows(rows, COLUMNS, rows_per_epoch=2).map(
        lambda t: f"{list(CONSTANT)} {list(FROZEN)} {list(closed)} {list({8, 0} | closed)}", "y string"
    )
    expected = sequential([stream])
    assert parallel([stream], channels=2) == expected and str(list(closed)) in expected.rows[0][0]


@pytest.mark.parametrize("channels", [1, 4])
def test_what_does_not_depend_on_the_order_runs_in_parallel(channels, capsys):
    class Usual(ab.Operator):
        def __init__(self):
            self.seen = {}

        def process(self, t):
            names = self.seen.setdefault(t.k, set())
            known = str(t.x) in names
            names.add(str(t.x))
            yield t.k, f"{known} {len(names)} {sorted(names)} {names >= {'1'}}"

    rows = [("abcde"[n % 5], "", n * 7 % 11) for n in range(60)]
    stream = ab.from_rows(rows, COLUMNS, rows_per_epoch=13).process(Usual(), schema="k string, y string")
    stream.explain()
    assert "hash of k" in capsys.readouterr().out
    assert parallel([stream], channels=channels) == sequential([stream])
