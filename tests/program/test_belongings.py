"""What user code keeps is put back in its place, wherever it was kept."""

import collections
import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as some

import anabranch as ab
from anabranch.engine.sequential import SequentialRun
from anabranch.program.belongings import Belongings

TOTALS = {"n": 0}
RANDOM = random.Random(1)
count = 0


def keeps_in_globals(t):
    global count
    count += 1
    TOTALS["n"] += t.x
    return (t.x, TOTALS["n"] + count + int(RANDOM.random() * 1000))


class Keeps:
    shared = []  # noqa: RUF012 - that is what it is here for
    number = 0

    def __init__(self):
        self.f = lambda: self.seen
        self.seen = 0
        self.cells = np.zeros(3)
        self.queue = collections.deque(maxlen=2)

    def __call__(self, t):
        self.seen += 1
        self.shared.append(t.x)
        type(self).number += 1
        self.cells[t.x % 3] += 1
        self.queue.append(t.x)
        self.later = t.x
        yield t.x, self.f() + len(self.shared) + self.number + int(self.cells.sum()) + sum(self.queue)


def in_closures():
    kept, seen = [], set()
    total = 0

    def f(t):
        nonlocal total
        total += t.x
        kept.append(t.x)
        seen.add(t.x % 2)
        return (t.x, total + len(kept) + len(seen))

    return f


def looped(function, rows):
    """What a loop of the user's over its own objects gives; told as one number each."""
    return [found if isinstance(found, tuple) else next(found) for found in map(function, rows)]


def stream_of(rows, function):
    stream = ab.from_rows(rows, "x long", rows_per_epoch=3)
    return (
        stream.process(function, schema="x long, n long")
        if isinstance(function, Keeps)
        else stream.map(function, schema="x long, n long")
    )


@given(some.lists(some.integers(0, 50), min_size=1, max_size=12))
def test_a_sequential_run_is_the_users_own_loop_and_leaves_nothing_behind(numbers):
    for make in (lambda: keeps_in_globals, Keeps, in_closures):
        function = make()
        stream = stream_of([(x,) for x in numbers], function)
        runs = [[tuple(row) for row in stream.run_sequential()] for _ in range(2)]
        row = collections.namedtuple("row", "x")
        before = Belongings([function])
        expected = looped(function, [row(x) for x in numbers])
        before.put_back()
        assert runs == [expected, expected]
    assert (TOTALS, count, Keeps.shared, Keeps.number) == ({"n": 0}, 0, [], 0)


def test_two_runs_that_take_turns_do_not_see_each_other():
    stream = stream_of([(1,)], Keeps())
    one, other = SequentialRun(stream._node), SequentialRun(stream._node)
    for x in (1, 2, 3):
        one.feed([(x,)])
        other.feed([(x,)])
    assert one.output == other.output and len(one.output) == 3


def test_attributes_made_later_are_gone_and_deleted_ones_are_back():
    held = Keeps()
    before = Belongings([held])
    held.later, held.seen = 1, 5
    del held.queue
    before.put_back()
    assert not hasattr(held, "later") and held.seen == 0 and list(held.queue) == []
