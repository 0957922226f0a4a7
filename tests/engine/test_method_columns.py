"""Users' methods that are given columns instead of tuples: rows, state and errors of one thread, on, off, in turns."""

import random
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import agg
from anabranch.api.session import from_epochs
from anabranch.compiler.rewriting.inline import body_over_columns
from anabranch.engine.worker.batch import ColumnBatch
from anabranch.program.options import OVER_COLUMNS
from anabranch.testing import ParallelRun
from tests.engine.column_ways import (
    COLUMNS,
    EXAMPLES,
    NULL_KEYS,
    OTHERS,
    PHASES,
    arounds,
    epochs_of,
    in_all_ways,
    ways,
)

OUTPUT = "k {k}, n {n}, many long"


class Lists(ab.Operator):
    """Returns lists, tuples or nothing."""

    many: int = ab.state(default=0)

    def process(self, t):
        self.many += 1
        if t.n is None:
            return None
        if t.n > 5:
            return t["k"], t.n, self.many
        return [(t.k, t[3] // (t.n + 3), self.many)] * (self.many % 3)


class WrittenOut(Lists):
    """Returns what is written out: a tuple or none; some calls fail, some give what does not fit."""

    def process(self, t):
        self.many += 1
        if t.small == 1:
            return [(t.k, None, 12 // (self.many % 9 - 8) if t.n == 4 else 0)]
        for each in range(3):
            if each == t.n:
                return t.k, t["n"], each
            if t.n == 7:
                return
        if t.n == 5:
            return [(t.k, t.n, "text" if self.many > 20 else 2)]
        if t.n is None or t.n < 0:
            return []
        return [(t.k, t[3], -self.many)]


class Several(Lists):
    """Several that are written out: the second may fail when the first does not fit."""

    def process(self, t):
        self.many += 1
        if t.n == 5:
            return [(t.k, t.n, "text" if self.many > 20 else 1), (t.k, t.n, 2 // (self.many % 25))]
        return None if t.n is None else [] if t.n < 0 else [(t.k, t.n, -self.many), (t["k"], t[3], 0)]


class Tries(Lists):
    """Its own end may have the last word."""

    def process(self, t):
        self.many += 1
        try:
            return [(t.k, t.n, 12 // t.small)]
        except (ZeroDivisionError, TypeError):
            return [(t.k, t.n, -1)]
        finally:
            if self.many % 3 == 0:
                return []  # noqa: B012 - that is what is tried


class Delegates(Lists):
    def process(self, t):
        self.many += 1
        yield from ((t.k, t.n, self.many + n) for n in range(self.many % 3))


class Stops(Lists):
    """Raises what would end a loop in C."""

    def process(self, t):
        self.many += 1
        if self.many > 20 and t.small == 0:
            raise StopIteration(t.n)
        return [(t.k, t.n, self.many)]


class Counts(Lists):
    """Reads nothing."""

    def process(self, t):
        self.many += 1
        return {"k": None, "n": None, "many": self.many}


class Reminds(ab.Operator):
    """Has timers; some calls fail."""

    most: tuple = ab.state(default=None)
    many: int = ab.state(default=0)

    def process(self, t):
        self.many += 1
        if self.most is None:
            self.timers.after(2)
        if t.n is not None and (self.most is None or t.n > self.most[1]):
            self.most = t.k, t.n
        if self.many % 4 == 0:
            return [(t.k, 12 // (t.small + 2), self.many)]

    def on_timer(self, time):
        yield (*(self.most or (None, None)), -self.many)
        self.most = None


def several(t):
    for n in range(t.n if t.n is not None and 0 < t.n < 4 else 1):
        yield t.k, t.n, n
    if t.small == 1:
        yield {"many": len(t.name or ""), "k": t.k, "n": None}


def listed(t):
    return [(t.k, t.n, each) for each in range(len(t.name or "") % 3)]


def failing(t):
    yield t.k, t.n, 3 // (t.small + 1)


def nested(t):
    return [(t.k, t.n, len(str(t.extra)))] if t.extra else None


OPERATORS = [Lists, WrittenOut, Several, Tries, Delegates, Stops, Counts]
FUNCTIONS = [several, listed, failing, nested]


def output_of(columns):
    kinds = dict(each.split(" ", 1) for each in columns.split(", ")[:4])
    return OUTPUT.format(k=kinds["k"], n=kinds["n"])


@settings(max_examples=2 * EXAMPLES, deadline=None, phases=PHASES)
@given(
    ways=ways,
    what=st.sampled_from([*OPERATORS, *FUNCTIONS, Reminds, "chain"]),
    by=st.sampled_from(["k", "s", ["k", "s"]]),
    nulls=st.sampled_from([0.0, 0.2, NULL_KEYS]),
    around=arounds,
    seed=st.integers(0, 10_000),
)
def test_methods_and_functions(tmp_path_factory, ways, what, by, nulls, around, seed):
    chance = random.Random(seed)
    columns = COLUMNS if around["columns"] != OTHERS else OTHERS
    sizes = [chance.choice([1, 30, 120]) for _ in ways]
    epochs = epochs_of(chance, columns, sizes, 100, nulls=nulls, spread=chance.choice([1, 5]))
    source = from_epochs(epochs, columns, name="rows").on_error(around["policy"])
    output = output_of(columns)
    if what in FUNCTIONS:
        stream = source.flat_map(what, schema=output).aggregate(by="many", window=ab.running(), sum=agg.count("n"))
    elif what is Reminds:
        stream = source.event_time("at", lateness=chance.choice([1, 20])).process(what(), by=by, schema=output)
    elif what == "chain":
        changed = source.map(lambda t: t.but(name=f"{t.name}!"), schema=columns).filter(lambda t: t.small != 1)
        stream = changed.flat_map(several, schema=output).process(Last(), by="k", schema=output)
    else:
        stream = source.process(what(), by=by, schema=output)
    found, expected = in_all_ways(tmp_path_factory, stream, ways, **around)
    assert found == expected


class Last(ab.Operator):
    last: int = ab.state(default=0)

    def process(self, t):
        yield t.but(many=t.many - self.last)
        self.last = t.many


@pytest.mark.parametrize(("what", "is_inlined"), [(WrittenOut, True), (Stops, True), (Tries, False), (Lists, False)])
def test_what_is_written_out_becomes_appends(what, is_inlined):
    names = ab.from_rows([], COLUMNS).schema.names
    assert (body_over_columns(what.process, names, ("k", "n", "many")) is not None) == is_inlined


@pytest.mark.parametrize("what", [Lists, Delegates, Reminds, several, listed])
def test_hardly_a_tuple_is_made(monkeypatch, what):
    """Only those that are timed one by one are."""
    rows = [row for row in epochs_of(random.Random(3), COLUMNS, [3000], 0)[0] if row[3] > 0]
    source = from_epochs([rows], COLUMNS, name="rows").event_time("at", lateness=20)
    output = output_of(COLUMNS)
    is_function = what in FUNCTIONS
    stream = source.flat_map(what, schema=output) if is_function else source.process(what(), by="k", schema=output)
    expected = stream.run_sequential()
    made = []
    original = ColumnBatch.rows.fget
    monkeypatch.setattr(ColumnBatch, "rows", property(lambda self: made.append(len(self)) or original(self)))
    for columns, least in ((OVER_COLUMNS, 0), ((), len(rows))):
        made.clear()
        with tempfile.TemporaryDirectory() as folder:
            run = ParallelRun(stream, folder, channels=1, columns=columns)
            run.run_epochs()
        assert run.output == expected
        assert least <= sum(made) and (least or sum(made) < len(rows) / 4)
