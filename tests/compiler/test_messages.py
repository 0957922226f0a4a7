"""What is refused is said so that one knows what, where, and what to change; and what need not be refused runs."""

import datetime
import io
import queue
import threading
from collections import defaultdict

import pytest

import anabranch as ab
from anabranch.errors import ProgramError
from anabranch.testing import ParallelRun
from tests.compiler.product_path import compare

ROWS = [(n, "abc"[n % 3]) for n in range(12)]
OUT = "x long, n long"


def stream():
    return ab.from_rows(ROWS, "x long, k string", rows_per_epoch=5)


def test_operators_of_local_classes_run():
    class Held:
        def __init__(self):
            self.n = 0

    class Counts:
        def __init__(self):
            self.held, self.weeks = Held(), defaultdict(int)

        def __call__(self, t):
            self.held.n += 1
            self.weeks[datetime.date(2024, 1, 1 + t.x).isocalendar()] += 1
            yield t.x, self.held.n + len(self.weeks)

    assert compare(stream().process(Counts(), schema=OUT)).verdict == "equal"


def holding(make):
    class Holds:
        def __init__(self):
            self.held, self.n = make(), 0

        def __call__(self, t):
            self.n += 1
            yield t.x, self.n

    return Holds()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (threading.Lock, r"self\.held holds a _thread\.lock, .* Leave it out"),
        (queue.Queue, r"self\.held\.mutex holds a _thread\.lock"),
        (lambda: (n for n in range(3)), r"self\.held holds a generator, .* make it in the worker"),
        (lambda: io.TextIOWrapper(io.BytesIO()), r"self\.held holds a _io\.TextIOWrapper, .* make it in the worker"),
        (lambda: iter([1]), r"self\.held holds a builtins\.list_iterator, .* Keep its parts"),
    ],
)
def test_what_cannot_be_copied_is_named_with_what_to_do(make, said, tmp_path):
    with pytest.raises(ProgramError, match=f"operator Holds .*{said}"):
        ParallelRun([stream().process(holding(make), schema=OUT)], tmp_path, channels=2)


class Waits(ab.Operator):
    def process(self, t):
        self.timers.at(t.x + 3)
        yield t.x, 1

    def on_timer(self, time):
        yield 1, 2


class NoOperator:
    def process(self, t):
        yield t.x, 1


def test_timers_need_a_key():
    with pytest.raises(ProgramError, match=r"Waits\.on_timer is called for keys that wait; name the key: by="):
        stream().process(Waits(), schema=OUT)


@pytest.mark.parametrize("more", [{}, {"by": "k"}])
def test_an_object_with_a_process_method_must_be_an_operator(more):
    with pytest.raises(ProgramError, match=r"derive its class from ab\.Operator"):
        stream().process(NoOperator(), schema=OUT, **more)


class Noted:
    def __init__(self):
        self.n = 0


class KeepsObjects:
    def __init__(self):
        self.held = {}

    def __call__(self, t):
        found = self.held.setdefault(t.k, Noted())
        found.n += 1
        yield t.x, found.n


def test_explain_says_what_is_not_watched():
    assert "held is not watched where it runs" in stream().process(KeepsObjects(), schema=OUT).plan().explain()
