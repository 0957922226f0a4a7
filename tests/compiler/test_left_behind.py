"""What a call leaves behind that cannot be kept, and what differs from run to run: refused before anything starts."""

import linecache
import re

import pytest

import anabranch as ab
from anabranch.errors import ProgramError
from tests.compiler.product_path import compare

NAMES = """
import csv, datetime, functools, hashlib, io, itertools, json, math, os, queue, random, re
import socket, sqlite3, threading, time, uuid
import numpy as np
import anabranch as ab

PATTERN = re.compile("[a-z]")

def numbers():
    n = 0
    while True:
        yield n
        n += 1
"""


def loaded(text):
    source = NAMES + text
    file = f"<left behind {abs(hash(text))}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space = {"__name__": "left_behind"}
    exec(compile(source, file, "exec"), space)
    return space["Op"]()


def leaving(expression, use):
    """An operator that makes something with its first tuple, keeps it, and uses it with every tuple."""
    return loaded(f"""
class Op:
    def __init__(self):
        self.held, self.n = None, 0
    def __call__(self, t):
        if self.held is None:
            self.held = {expression}
        self.n += 1
        yield t.k, int({use})
""")


def stream(operator, **more):
    rows = [("ab"[n % 2], n) for n in range(14)]
    return ab.from_rows(rows, "k string, x long", rows_per_epoch=5).process(operator, schema="k string, n long", **more)


@pytest.mark.parametrize(
    "expression, use",
    [
        ("(x for x in range(99))", "next(self.held)"),
        ("numbers()", "next(self.held)"),
        ("iter([1] * 99)", "next(self.held)"),
        ("map(abs, range(99))", "next(self.held)"),
        ("zip(range(99), range(99))", "next(self.held)[0]"),
        ("itertools.cycle([1, 2])", "next(self.held)"),
        ("[iter([1] * 99)]", "next(self.held[0])"),
        ("{'inner': (numbers(), 1)}", "next(self.held['inner'][0])"),
        ("open(os.devnull)", "self.n"),
        ("threading.Lock()", "self.n"),
        ("threading.RLock()", "self.n"),
        ("threading.Event()", "self.n"),
        ("sqlite3.connect(':memory:')", "self.n"),
        ("socket.socket()", "self.n"),
        ("hashlib.sha256()", "self.n"),
        ("csv.writer(io.StringIO())", "self.n"),
    ],
)
def test_what_cannot_be_kept_is_refused_at_the_start(expression, use):
    found = compare(stream(leaving(expression, use)), ways=((1, 1),))
    assert found.verdict == "refused", found.difference
    assert re.search(r"self\.held gets .*\(line \d+\), which cannot be kept .* Keep what", found.parallel[0].refused)


@pytest.mark.parametrize(
    "expression, use",
    [
        ("itertools.count(3)", "next(self.held)"),
        ("re.match('(a|b)(c?)', t.k)", "self.held.end() + len(self.held.groups())"),
        ("PATTERN.search(t.k, 0)", "len(self.held.group())"),
        ("{t.x: 1}.keys()", "len(self.held)"),
        ("max if t.x else min", "self.held(self.n, 3)"),
        ("math.floor", "self.held(self.n / 2)"),
        ("functools.partial(max, 4)", "self.held(self.n)"),
        ("list(map(abs, range(3)))", "self.held.append(1) or len(self.held)"),
        ("np.zeros((2, 3))[1]", "self.held.__iadd__(1).sum()"),
    ],
)
def test_what_can_be_kept_runs(expression, use):
    found = compare(stream(leaving(expression, use)), ways=((2, 1),))
    assert found.verdict == "equal", found.difference


def test_a_view_of_a_dict_that_is_kept_shows_what_comes_later():
    operator = loaded("""
class Op:
    def __init__(self):
        self.seen, self.values, self.shown = {}, None, None
    def __call__(self, t):
        self.seen[t.x] = t.x
        if self.values is None:
            self.values, self.shown = self.seen.values(), (self.seen.items(),)
        yield t.k, sum(self.values) + len(self.shown[0])
""")
    assert compare(stream(operator)).verdict == "equal"


def test_explain_tells_of_what_it_cannot_see():
    operator = leaving("getattr(json, 'lo' + 'ads')('[]')", "self.n")
    (note,) = [each for each in stream(operator).plan().operators[-1].model.notes if "is not seen" in each.reason]
    assert "self.held" in note.reason and note.location.line
    assert compare(stream(operator), ways=((1, 1),)).verdict == "equal"


CHANCE = [
    *("time.time()", "time.monotonic()", "time.strftime('%S')", "datetime.datetime.now()", "datetime.date.today()"),
    *("random.random()", "random.Random().random()", "np.random.rand()", "uuid.uuid4()", "uuid.uuid1()"),
    *(
        "os.urandom(2)",
        "os.environ['HOME']",
        "os.environ.get('x')",
        "os.getenv('x')",
        "os.getpid()",
        "id(t)",
        "hash(t.k)",
    ),
]
NO_CHANCE = ["random.Random(t.x).random()", "time.gmtime(t.x)", "hash(int(t.x))", "time.sleep(0)", "uuid.UUID(int=t.x)"]


def keyed(expression, before=""):
    return loaded(f"""
{before}
class Op(ab.Operator):
    n = ab.state(default=0)
    def process(self, t):
        self.n += 1
        yield t.k, len(str({expression})) * 0 + self.n
""")


@pytest.mark.parametrize("expression", CHANCE)
def test_clock_and_chance_are_not_believed_under_a_declared_key(expression):
    with pytest.raises(
        ProgramError, match=r"another run would give something else: .*\(line \d+\).* let the tuple carry"
    ):
        stream(keyed(expression), by="k").plan().layout  # noqa: B018 - refuses
    plan = stream(keyed(expression), by="k").plan().explain()
    assert "blocked" in plan and "let the tuple carry" in plan
    declared = keyed(expression, "@ab.model(state='partitioned', key='k')")
    assert stream(declared, by="k").plan().layout is not None


@pytest.mark.parametrize("expression", NO_CHANCE)
def test_what_the_tuple_decides_is_no_chance(expression):
    assert compare(stream(keyed(expression), by="k"), ways=((2, 1),)).verdict == "equal"


def test_functions_that_the_library_calls_follow_the_same_rule():
    import random

    source = ab.from_rows([(1,)], "x long")
    with pytest.raises(ProgramError, match="draws a random number"):
        source.split(lambda t: random.random() < 0.5)[0].plan().layout  # noqa: B018 - refuses


def test_what_only_may_hold_an_iterator_is_no_reason_to_refuse():
    operator = loaded("""
import collections
class Op:
    def __init__(self):
        self.first, self.second = [{}], [[[], []]]
    def __call__(self, t):
        yield from collections.OrderedDict(k=self)["k"].inner(self, t)
    @staticmethod
    def inner(self, t):
        self.second[0][t.x % 2].append(1)
        while True:
            self.first[0][t.k] = {**self.first[0].get(t.k, {}), t.x: t.x}
            break
        yield t.k, len(self.first[0][t.k])
""")
    assert compare(stream(operator), ways=((2, 1),)).verdict == "equal"
