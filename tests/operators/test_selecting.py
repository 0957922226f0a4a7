"""`select`, aggregations over some of a window's tuples, and the last moment of a window."""

import datetime
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import agg
from anabranch.api.session import from_epochs
from anabranch.engine.sequential import run_epochs
from anabranch.errors import OperatorError, ProgramError, SchemaError
from anabranch.testing import ParallelRun, run_parallel

COLUMNS = "k string, at long, x double, bid struct<price:long, who:struct<name:string>>"
rows = st.tuples(
    st.sampled_from("abc"),
    st.integers(0, 20),
    st.one_of(st.none(), st.floats(-9, 9)),
    st.one_of(st.none(), st.builds(dict, price=st.integers(0, 9), who=st.one_of(st.none(), st.just({"name": "n"})))),
)
epochs = st.lists(st.lists(rows, max_size=12), min_size=1, max_size=3)


@settings(max_examples=15, deadline=None)
@given(st.lists(rows, max_size=12), st.integers(1, 3))
def test_a_selection_is_the_map_that_says_the_same(given, channels):
    stream = ab.from_rows(given, COLUMNS)
    chosen = stream.select("*", "bid.price", name="bid.who.name", twice=lambda t: t.at * 2, half=(half, "double"))
    by_hand = [
        (*t, (t[3] or {}).get("price"), ((t[3] or {}).get("who") or {}).get("name"), t[1] * 2, t[1] / 2) for t in given
    ]
    assert [tuple(row) for row in chosen.run_sequential()] == by_hand
    assert run_parallel(chosen, channels=channels) == chosen.run_sequential()
    assert chosen.columns == ["k", "at", "x", "bid", "price", "name", "twice", "half"]
    assert stream.select("at", "k").deduplicate(by="k").columns == ["at", "k"]


def half(t):
    return t.at / 2


def price(t):
    return t.bid["price"]  # of any type, as far as the compiler sees


@pytest.mark.parametrize(
    ("columns", "named", "complaint"),
    [
        (("nope",), {}, "'nope' is not a column; columns: k, at"),
        (("bid.nope",), {}, "has no field 'nope'; fields: price, who"),
        (("k.nope",), {}, "'k' has the type string"),
        (("at", "at"), {}, "two columns have the name 'at'"),
        ((), {}, "nothing is chosen"),
        ((half,), {}, "is no name; what is computed needs one"),
        ((), {"y": price}, "the type of 'y' is unknown; say it: y="),
        ((), {"y": 3}, "y=3: expected a column, a function"),
        ((), {"y": (half, "nonsense")}, "expected a type"),
    ],
)
def test_what_cannot_be_chosen_is_refused_where_it_is_written(columns, named, complaint):
    with pytest.raises(SchemaError, match=rf"select at .*test_selecting.py:\d+: .*{complaint}"):
        ab.from_rows([], COLUMNS).select(*columns, **named)


def test_a_result_of_another_type_names_operator_and_tuple():
    stream = ab.from_rows([("a", 1, None, None)], COLUMNS).select(y=(half, "long"))
    with pytest.raises(OperatorError, match=r"select \(.*'y' is bigint; found 0.5"):
        stream.run_sequential()


# -- aggregations of some tuples ----------------------------------------------------------------------------

SOME = {
    "n": agg.count(),
    "low": agg.count().where(lambda t: t.at < 9),
    "price": agg.count("x").where(lambda t: t.at % 2),
    "total": agg.sum("at").where(lambda t: t.at > 3),
    "floats": agg.sum("x").where(lambda t: t.at > 3),
    "first": agg.first("at").where(lambda t: t.at > 5),
    "last": agg.last("at").where(lambda t: t.at < 15),
    "most": agg.max("at").where(lambda t: t.x is not None),
    "different": agg.distinct("at").where(lambda t: t.at % 3),
    "best": agg.top("at", 2, by="x").where(lambda t: t.at % 3),
    "all": agg.collect("at").where(lambda t: t.at % 3),
    "own": agg.custom(lambda: 0, lambda a, t: a + t.at, lambda a: a, "long").where(lambda t: t.k != "a"),
}
WINDOWS = {
    "tumbling": lambda s: s.aggregate(by="k", window=ab.tumbling(3), **SOME),
    "sliding": lambda s: s.aggregate(by="k", window=ab.sliding(3, 2), **SOME),
    "sliding delta": lambda s: s.aggregate(by="k", window=ab.sliding(ab.delta("at", 4), ab.delta("at", 2)), **SOME),
    "time": lambda s: s.aggregate(by="k", window=ab.time(1), start=agg.window_start(), end=agg.window_end(), **SOME),
    "event time": lambda s: s.event_time("at", 3).aggregate(
        by="k", window=ab.event_time("at", 5), time=agg.window_time(), **SOME
    ),
    "hopping": lambda s: s.event_time("at").aggregate(
        by="k", window=ab.sliding(ab.event_time("at", 6), 2), time=agg.window_time(), n=SOME["low"], x=SOME["total"]
    ),
    "sessions": lambda s: s.event_time("at", 4).aggregate(
        by="k", window=ab.sessions("at", 3), time=agg.window_time(), **SOME
    ),
    "sessions that combine": lambda s: s.event_time("at", 4).aggregate(
        by="k", window=ab.sessions("at", 3), low=SOME["low"], total=SOME["total"], most=SOME["most"]
    ),
    "windows of windows": lambda s: (
        s.event_time("at", 2)
        .aggregate(by="k", window=ab.event_time("at", 4), n=agg.count(), at=agg.window_time())
        .aggregate(by="at", window=ab.event_time("at", 4), most=agg.max("n"))
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=8, deadline=None)
@given(epochs=epochs, channels=st.integers(1, 4), seed=st.integers(0, 99))
def test_windows_of_some_tuples_are_the_same_in_parallel(name, epochs, channels, seed):
    program = WINDOWS[name](from_epochs(epochs, COLUMNS, name="stream"))
    clocks = [(at + 1) * 600 for at in range(len(epochs))]
    expected = [repr(row) for row in run_epochs([program._node], clocks).output]
    with tempfile.TemporaryDirectory() as scratch:
        run = ParallelRun(program, scratch, channels=channels, seed=seed, clocks_ms=clocks)
        run.run_epochs()
        assert [repr(row) for row in run.output] == expected


@settings(max_examples=25, deadline=None)
@given(st.lists(rows, min_size=1, max_size=15))
def test_a_filtered_aggregation_is_that_of_the_filtered_tuples(given):
    size = len(given)
    (found,) = ab.from_rows(given, COLUMNS).aggregate(by=None, window=ab.tumbling(size), **SOME).run_sequential()
    stream = ab.from_rows(given, COLUMNS)

    def of(aggregation, predicate, nothing):
        kept = [t for t in stream.run_sequential() if predicate(t)]
        if not kept:
            return nothing
        return (
            ab.from_rows(kept, COLUMNS)
            .aggregate(by=None, window=ab.tumbling(len(kept)), y=aggregation)
            .run_sequential()[0]
            .y
        )

    assert found.low == of(agg.count(), lambda t: t.at < 9, 0)
    assert found.floats == of(agg.sum("x"), lambda t: t.at > 3, None)
    assert found.first == of(agg.first("at"), lambda t: t.at > 5, None)
    assert found.last == of(agg.last("at"), lambda t: t.at < 15, None)
    assert found.different == of(agg.distinct("at"), lambda t: t.at % 3, 0)
    assert found.best == of(agg.top("at", 2, by="x"), lambda t: t.at % 3, [])
    assert found.own == of(agg.custom(lambda: 0, lambda a, t: a + t.at, lambda a: a, "long"), lambda t: t.k != "a", 0)


def test_results_of_windows_meet_by_the_last_moment_of_their_windows():
    """Counts of a window, and the largest of them, computed by hand: nothing is late, also with silent keys."""
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    pairs = [("a", 0), ("a", 3), ("b", 4), ("b", 11), ("c", 12), ("c", 13), ("a", 40)]
    given = [(k, start + datetime.timedelta(seconds=s)) for k, s in pairs]
    stream = ab.from_rows(given, "k string, at timestamp").event_time("at")
    counts = stream.aggregate(by="k", window=ab.event_time("at", 10), n=agg.count(), at=agg.window_time())
    most = counts.aggregate(by="at", window=ab.event_time("at", 10), most=agg.max("n"))
    best = counts.join(most, by=["at", ("n", "most")], window=ab.event_time("at", 0))
    ends = [start + datetime.timedelta(seconds=s, microseconds=-1) for s in (10, 20)]
    assert best.run_sequential() == [("a", 2, ends[0]), ("c", 2, ends[1])]


def test_where_and_window_time_are_refused_where_they_mean_nothing():
    with pytest.raises(ProgramError, match="expected a function of a tuple"):
        agg.count().where(3)
    with pytest.raises(ProgramError, match="no tuples to leave out"):
        agg.window_start().where(lambda t: True)
    with pytest.raises(ProgramError, match=r"window_time.*expected windows of event_time"):
        ab.from_rows([], COLUMNS).aggregate(by="k", window=ab.event_time("at", 5), y=agg.window_time())
    with pytest.raises(ProgramError, match=r"window_start.*expected windows of event_time"):
        ab.from_rows([], COLUMNS).aggregate(by="k", window=ab.tumbling(5), y=agg.window_start())
