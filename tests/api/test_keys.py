"""Keys that are computed, or lie in structs: `by=` takes them wherever it takes a column."""

import datetime
import decimal
import enum
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import agg
from anabranch.api.session import from_epochs
from anabranch.engine.sequential import run_epochs
from anabranch.errors import OperatorError, ProgramError, SchemaError
from anabranch.operators.key_columns import text_of_key
from anabranch.testing import ParallelRun

COLUMNS = "n long, at long, bid struct<auction:long, who:struct<name:string>>"
TABLE = "id long, then long, more struct<auction:long>"
bids = st.one_of(
    st.none(),
    st.tuples(st.integers(0, 4), st.sampled_from(["a", "B", "b", None])).map(
        lambda pair: {"auction": pair[0], "who": {"name": pair[1]}}
    ),
)
rows = st.tuples(st.integers(0, 30), st.integers(0, 20), bids)
found = st.one_of(st.none(), st.builds(dict, auction=st.integers(0, 4)))
others = st.tuples(st.integers(0, 4), st.integers(0, 20), found)
epochs = st.lists(st.tuples(st.lists(rows, max_size=10), st.lists(others, max_size=6)), min_size=1, max_size=3)


class Running(ab.Operator):
    total: int = ab.state(default=0)

    def process(self, t):
        assert len(t) == 3 and t._fields == ("n", "at", "bid")
        self.total += t.n
        yield t.n, self.total


class Waiting(ab.Operator):
    total: int = ab.state(default=0)

    def process(self, t):
        assert len(t) == 3
        self.total += t.n
        if not self.timers.pending:
            self.timers.at(t.at + 3)

    def on_timer(self, time):
        yield time, self.total
        self.total = 0


def lower(t):
    return (t.bid or {"who": {"name": None}})["who"]["name"] or t.n % 3


def aligned(s, t):
    return s.event_time("at").align(s.filter(lambda t: t.n > 4).event_time("at"), on="at", by=lambda t: t.n % 3)


def lates(s, t):
    window = ab.event_time("at", 4)
    results, late = s.event_time("at").aggregate(by=lambda t: t.n % 3, window=window, late="stream", n=agg.count())
    return late.map(lambda t: (t.n, t.at), schema="n long, at long").union(
        results.map(lambda t: (t.key, t.n), schema="n long, at long")
    )


climb = [ab.step("low", lambda t: t.at < 9 and len(t) == 3), ab.step("high", lambda t, m: t.at >= m.low[0].at)]
PROGRAMS = {
    "nested": lambda s, t: s.aggregate(by="bid.auction", window=ab.tumbling(2), total=agg.sum("n")),
    "deeper, and a column": lambda s, t: s.aggregate(by=["at", "bid.who.name"], window=ab.tumbling(2), n=agg.count()),
    "found type": lambda s, t: s.aggregate(by=lambda t: t.n % 3, window=ab.tumbling(2), n=agg.count()),
    "said type": lambda s, t: s.aggregate(
        by=ab.key(lambda t: (t.n % 2, f"{t.at}"), "odd long, at_text string"), window=ab.tumbling(2), n=agg.count()
    ),
    "renamed": lambda s, t: s.aggregate(by=[ab.key("at", "time"), "bid.auction"], window=ab.tumbling(2), n=agg.count()),
    "windows": lambda s, t: s.event_time("at").aggregate(
        by=lambda t: t.n % 3, window=ab.event_time("at", 4), total=agg.sum("n")
    ),
    "sessions": lambda s, t: s.event_time("at").aggregate(by="bid.auction", window=ab.sessions("at", 3), n=agg.count()),
    "late": lates,
    "deduplicate": lambda s, t: s.deduplicate(by=lower),
    "deduplicate twice": lambda s, t: s.deduplicate(by=["n", "bid.auction"]).deduplicate(by=lambda t: t.n % 10),
    "sort": lambda s, t: s.sort("at", window=ab.count(2), key=lambda t: t.n % 3),
    "process": lambda s, t: s.process(Running(), by=lower, schema="n long, total long"),
    "process nested": lambda s, t: s.process(Running(), by=["bid.auction", "at"], schema="n long, total long"),
    "timers": lambda s, t: s.event_time("at").process(Waiting(), by=lambda t: t.n % 4, schema="at long, total long"),
    "match": lambda s, t: s.match(by="bid.auction", pattern=climb),
    "match emit": lambda s, t: s.match(
        by=lower, pattern=climb, emit=lambda m: (m.low[0].n, len(m.high[0])), schema="n long, width long"
    ),
    "join": lambda s, t: s.join(t, by=("bid.auction", "id"), window=ab.count(2), how="outer"),
    "join both nested": lambda s, t: s.join(t, by=("bid.auction", "more.auction"), window=ab.count(2), how="outer"),
    "join a column with a function": lambda s, t: s.join(t, by=("n", lambda t: t.id * 2), window=ab.count(2)),
    "join as text": lambda s, t: s.join(
        t, by=(lower, "id"), function=lambda one, other: (one.n, len(one), len(other)), schema="n long, a long, b long"
    ),
    "join several": lambda s, t: s.join(t, by=[("bid.auction", "id"), ("at", "then")], how="left", ttl=5),
    "enrich": lambda s, t: s.enrich(t, by=("bid.auction", "id")),
    "enrich nested table": lambda s, t: s.enrich(t, by=(lambda t: t.n % 5, "more.auction"), how="inner"),
    "static enrich": lambda s, t: s.enrich(
        {0: "none", 1: "one"}, by=(lambda t: t.n % 3, "third"), schema="third long, word string"
    ),
    "combine": lambda s, t: s.combine(s.filter(lambda t: t.n > 4), on="at", by="bid.auction"),
    "align": aligned,
}


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=8, deadline=None)
@given(epochs=epochs, channels=st.integers(1, 4), seed=st.integers(0, 99))
def test_an_operator_with_a_computed_key_is_the_same_in_parallel(name, epochs, channels, seed):
    stream = from_epochs([each[0] for each in epochs], COLUMNS, name="stream")
    table = from_epochs([each[1] for each in epochs], TABLE, name="table")
    program = PROGRAMS[name](stream, table)
    expected = [repr(row) for row in run_epochs([program._node]).output]
    with tempfile.TemporaryDirectory() as scratch:
        run = ParallelRun(program, scratch, channels=channels, seed=seed)
        run.run_epochs()
        assert [repr(row) for row in run.output] == expected


@given(st.lists(rows, max_size=20))
@settings(max_examples=20, deadline=None)
def test_a_computed_key_means_what_a_column_with_it_means(given):
    stream = ab.from_rows(given, COLUMNS)
    wide = stream.map(lambda t: (*t, t.n % 3), schema=COLUMNS + ", third long")
    by_column = wide.aggregate(by="third", window=ab.tumbling(2), total=agg.sum("n"))
    computed = stream.aggregate(by=ab.key(lambda t: t.n % 3, "third"), window=ab.tumbling(2), total=agg.sum("n"))
    assert computed.run_sequential() == by_column.run_sequential()
    assert computed.columns == ["third", "total"]
    kept = wide.deduplicate(by="third").map(lambda t: tuple(t)[:3], schema=COLUMNS)
    assert stream.deduplicate(by=lambda t: t.n % 3).run_sequential() == kept.run_sequential()


def test_the_key_is_computed_where_the_stream_is_split_and_runs_in_channels():
    stream = ab.from_rows([(n, n, None) for n in range(9)], COLUMNS)
    made = stream.process(Running(), by=lambda t: t.n % 3, schema="n long, total long", name="running")
    layout = made.plan().layout
    names = [[layout.steps[at].node.name for at in stage.steps] for stage in layout.stages]
    assert names == [["source", "running-key"], ["running"]]
    assert [stage.kind for stage in layout.stages] == ["source", "keyed"]


def test_what_is_said_of_the_stream_is_said_of_the_operator():
    stream = ab.from_rows([(1, 1, None)], COLUMNS)
    made = stream.deduplicate(by="bid.auction", name="once").isolate()
    layout = made.plan().layout
    assert ["once"] in [[layout.steps[at].node.name for at in stage.steps] for stage in layout.stages]
    assert made.columns == stream.columns


class Colour(enum.Enum):
    RED = 1


class Number(enum.IntEnum):
    ONE = 1


noon = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
KEYS = [
    *[None, 0, -0.0, 1, True, 1.0, decimal.Decimal("1.0"), 1.5, decimal.Decimal("1.50"), Number.ONE, Colour.RED],
    *["1", "", b"", b"1", "None", (), (1,), (1, 2), ("1", 2), ((1,), 2), (None,), float("inf"), decimal.Decimal("Inf")],
    *[noon, noon.astimezone(datetime.timezone(datetime.timedelta(hours=2))), noon.replace(tzinfo=None), noon.date()],
    *[datetime.timedelta(days=1), datetime.timedelta(hours=24), 10**30, 1e30, "date"],
]


def test_texts_of_keys_are_equal_if_and_only_if_keys_are():
    for one in KEYS:
        for other in KEYS:
            assert (text_of_key(one) == text_of_key(other)) == (one == other), (one, other)
    assert text_of_key(float("nan")) == text_of_key(decimal.Decimal("NaN"))


@pytest.mark.parametrize(
    "by, message",
    [
        ("bid.nobody", "has no field 'nobody'; fields: auction, who"),
        ("n.x", "'n' has the type int64, and no field 'x'"),
        ("nothing.x", "'nothing.x' is not a column"),
        ("bid.who", "cannot be a key"),
        (["at", "bid.auction", "bid.auction"], "twice"),
        ([], "empty"),
        (3, "the key 3 is not a column; expected a column, a field"),
        (lower, r"the type of the computed key is unknown.*ab.key"),
        (ab.key(lower, "at long"), "so has the stream"),
        (ab.key(lower, "x nonsense"), "x nonsense"),
    ],
)
def test_what_is_no_key_is_refused_where_it_is_written(by, message):
    stream = ab.from_rows([(1, 1, None)], COLUMNS)
    with pytest.raises(SchemaError, match=rf"(?s)test_keys.py:\d+: .*{message}"):
        stream.aggregate(by=by, window=ab.tumbling(2), total=agg.count())


def test_errors_of_a_function_name_the_operator_and_the_tuple():
    stream = ab.from_rows([(1, 1, None), (2, 2, None)], COLUMNS)
    program = stream.deduplicate(by=lambda t: 1 // (t.n - 2), name="once")
    with pytest.raises(OperatorError, match=r"(?s)once \(.*ZeroDivisionError.*n=2"):
        program.run_sequential()
    with pytest.raises(OperatorError, match="a key cannot be"):
        stream.deduplicate(by=lambda t: [t.n]).run_sequential()
    with pytest.raises(OperatorError, match="the key has 2 columns"):
        stream.deduplicate(by=ab.key(lambda t: t.n, "a long, b long")).run_sequential()


def test_two_sides_whose_keys_cannot_be_compared_are_refused():
    one, other = ab.from_rows([(1, 1, None)], COLUMNS), ab.from_rows([("x",)], "s string")
    with pytest.raises(SchemaError, match="is int64 on the left"):
        one.join(other, by=("bid.auction", "s"))
    with pytest.raises(ProgramError, match="type of the computed key is unknown"):
        one.enrich({1: "a"}, by=(lower, "k"), schema="k long, v string")
