"""Operators of the user's that make, take, pass on and remove punctuations (*Safe*, 5.2 and 5.3): as on one thread."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.errors import ProgramError
from anabranch.testing import run_parallel
from tests.restless import restless_output

EXAMPLES = int(os.environ.get("ANABRANCH_PUNCTUATION_EXAMPLES", "25"))
COLUMNS = "k long, x long"
MARK = -99


class Marking(ab.Operator):
    """Makes a mark behind every third tuple of a key, and one before each that is 7."""

    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        if t.x == 7:
            yield (t.k, MARK)
        yield t
        if self.seen % 3 == 0:
            yield (t.k, MARK)


class Summing(ab.Operator):
    """Emits at punctuations."""

    total: int = ab.state(default=0)
    key: int = ab.state(default=None)

    def process(self, t):
        self.total, self.key = self.total + t.x, t.k
        if t.x % 4 == 0:
            yield (t.k, 1000 + t.x)

    def on_punctuation(self):
        yield (self.key + 1, self.total)
        self.total = 0


STEPS = {
    "mark": lambda s: s.process(Marking(), by="k", schema=COLUMNS).punctuate(lambda t: t.x == MARK, drop=True),
    "mark and keep": lambda s: s.process(Marking(), by="k", schema=COLUMNS).punctuate(lambda t: t.x == MARK),
    "map": lambda s: s.map(lambda t: (t.k, t.x + 1), schema=COLUMNS),
    "other key": lambda s: s.process(Marking(), by="x", schema=COLUMNS),
    "remove": lambda s: s.unpunctuate(),
    "twice": lambda s: s.union(s.filter(lambda t: t.x > 2)),
    "beside": lambda s: s.union(s.filter(lambda t: t.x > 2).unpunctuate()),
    "sum": lambda s: s.process(Summing(), by="k", schema=COLUMNS),
    "window": lambda s: s.aggregate(by="k", window=ab.punctuation(), x=ab.agg.sum("x")),
    "whole": lambda s: s.aggregate(by=None, window=ab.punctuation(), k=ab.agg.count(), x=ab.agg.sum("x")),
}
EXPECTING = {"sum", "window", "whole"}


def built(epochs, steps):
    """The program, and whether its rules are kept: an operator that expects punctuations has one punctuated stream."""
    stream = epochs if isinstance(epochs, ab.Stream) else from_epochs(epochs, COLUMNS)
    punctuated, is_right = False, True
    for step in steps:
        is_right &= step not in EXPECTING or punctuated
        stream = STEPS[step](stream)
        if step in ("mark", "mark and keep"):
            punctuated = True
        elif step in ("remove", "twice"):
            punctuated = False
    return stream, is_right


@settings(max_examples=EXAMPLES, deadline=None, print_blob=True)
@given(data=st.data(), chosen=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5))
def test_punctuations_of_users_operators_are_those_of_one_thread(tmp_path_factory, data, chosen):
    rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=12)
    epochs = data.draw(st.lists(rows, min_size=1, max_size=4))
    stream, is_right = built(epochs, ["mark", *chosen])
    if not is_right:
        with pytest.raises(ProgramError, match=r"expects (a|one) punctuated stream"):
            run_parallel(stream)
        return
    found = restless_output(data, stream, str(tmp_path_factory.mktemp("checkpoint")))
    assert found == stream.run_sequential()


def test_marks_that_are_dropped_leave_punctuations_only():
    stream, _ = built([[(1, 1), (1, 2), (2, 3), (1, 7), (2, 5), (2, 6)]], ["mark", "whole"])
    assert stream.run_sequential() == [(3, 6), (1, 7), (2, 11)]
    assert run_parallel(stream, channels=3) == stream.run_sequential()


def test_what_is_removed_cannot_be_waited_for():
    stream, _ = built([[]], ["mark", "remove", "sum"])
    with pytest.raises(ProgramError, match=r"expects a punctuated stream, but its input has no punctuations"):
        run_parallel(stream)
