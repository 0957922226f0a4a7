"""Results that are updated: running aggregates, time to live, tables that are waited for. Against plain Python."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.engine.sequential import SequentialRun
from anabranch.errors import ProgramError, SchemaError
from anabranch.testing import run_parallel

ROWS = [("abc"[n % 3], n * 7 % 11, float("nan") if n % 20 < 12 else float(n % 2)) for n in range(60)]
COLUMNS = "k string, x long, y double"


def test_a_result_is_given_when_it_changes_and_only_then():
    stream = ab.from_rows(ROWS, COLUMNS, rows_per_epoch=7)
    made = stream.aggregate(
        by="k", window=ab.running(), n=ab.agg.distinct("x"), best=ab.agg.top("x", 2), last=ab.agg.last("y")
    )
    expected, seen, shown = [], {}, {}
    for k, x, y in ROWS:
        seen.setdefault(k, []).append(x)
        result = (len(set(seen[k])), sorted(seen[k], reverse=True)[:2], repr(y))
        if shown.get(k) != result:
            shown[k] = result
            expected.append((k, *result))
    found = made.run_sequential()
    assert [(t.k, t.n, t.best, repr(t.last)) for t in found] == expected
    assert len(found) < len(ROWS)
    for channels in (1, 3):
        assert repr(run_parallel(made, channels=channels, seed=channels)) == repr(found)


def test_the_last_update_of_each_key_is_the_aggregate_of_all():
    stream = ab.from_rows(ROWS, COLUMNS)
    made = stream.aggregate(by="k", window=ab.running(), n=ab.agg.count(), total=ab.agg.sum("x"))
    last = {t.k: (t.n, t.total) for t in made.run_sequential()}
    assert last == {k: (20, sum(x for key, x, _ in ROWS if key == k)) for k in "abc"}


def test_a_key_that_brings_nothing_is_forgotten():
    stream = ab.from_rows([], "k string, x long").aggregate(by="k", window=ab.running(), ttl=10, m=ab.agg.max("x"))
    run = SequentialRun(stream._node)
    for clock_ms, row in [(0, ("a", 5)), (5000, ("a", 3)), (12_000, ("a", 4)), (30_000, ("a", 1))]:
        run.clock_ms = clock_ms
        run.feed([row])
    # The second and third changed nothing, but they came: so at 12 s the maximum is still that of the first.
    assert [tuple(row) for row in run.output] == [("a", 5), ("a", 1)]


def test_a_row_of_a_table_is_forgotten():
    left, table = ab.from_rows([], "k string"), ab.from_rows([], "k string, y long")
    run = SequentialRun(left.enrich(table, by="k", ttl=10)._node)
    for clock_ms, rows in [(0, [("a", 1)]), (6000, [("a", 1)]), (14_000, []), (17_000, [])]:
        run.clock_ms = clock_ms
        run.epoch({"source-2": rows})
        run.epoch({"source": [("a",)]})
    assert [row.y for row in run.output] == [1, 1, 1, None]


def test_tuples_that_wait_for_a_table_do_not_depend_on_who_comes_first():
    orders = [(f"k{n % 5}", n) for n in range(30)]
    table = [(f"k{n}", n * 100) for n in range(4)]
    found = set()
    for seed in range(4):
        cut = random.Random(seed).randint(0, 30)
        one = ab.from_rows(orders, "k string, x long", rows_per_epoch=max(cut, 1))
        other = ab.from_rows(table, "k string, y long", rows_per_epoch=seed + 1)
        made = one.enrich(other, by="k", wait=True)
        rows = made.run_sequential()
        assert run_parallel(made, channels=3, seed=seed) == rows
        found.add(tuple(sorted(map(tuple, rows))))
    assert found == {tuple(sorted((k, x, int(k[1]) * 100) for k, x in orders if k != "k4"))}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.aggregate(by="k", window=ab.time(1), ttl=5, n=ab.agg.count()), "kept until its window closes"),
        (lambda s: s.aggregate(by="k", window=ab.running(), ttl=-5, n=ab.agg.count()), "ttl=-5"),
        (lambda s: s.enrich({"a": 1}, by="k", schema="k string, z long", ttl=3), "for a table that is a stream"),
        (lambda s: s.enrich(s.map(lambda t: (t.k, 1), schema="k string, z long"), by="k", wait=True, ttl=3), "exclude"),
        (
            lambda s: s.aggregate(by="k", window=ab.running(), at=ab.agg.window_start()),
            "expected windows of event_time",
        ),
    ],
)
def test_mistakes_are_told(build, message):
    with pytest.raises(ProgramError, match=message):
        build(ab.from_rows(ROWS, COLUMNS))


# -- updates of a table -------------------------------------------------------------------------------------

TABLES = {
    "taken out": {"n": ab.agg.count(), "total": ab.agg.sum("x"), "mean": ab.agg.avg("x")},
    "counted": {"n": ab.agg.count()},
    "anew": {"n": ab.agg.count(), "most": ab.agg.max("x"), "all": ab.agg.collect("y"), "first": ab.agg.first("x")},
    "some": {"n": ab.agg.count().where(lambda t: t.x > 4), "total": ab.agg.sum("y")},
}


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=12, deadline=None)
@given(
    given=st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 9), st.floats(0, 9)), max_size=25
    ),
    channels=st.integers(1, 3),
    size=st.integers(3, 30),
)
def test_an_aggregate_of_updates_is_that_of_the_table(name, given, channels, size):
    columns = "k string, id long, x long, y double"
    stream = ab.from_rows(given, columns, rows_per_epoch=size)
    made = stream.aggregate(by="k", window=ab.running(latest_of="id"), **TABLES[name])
    found = made.run_sequential()
    expected, tables, shown = [], {"a": {}, "b": {}}, {}
    for row in given:
        table = tables[row[0]]
        table[row[1]] = row
        whole = ab.from_rows(list(table.values()), columns).aggregate(
            by="k", window=ab.tumbling(len(table)), **TABLES[name]
        )
        (now,) = whole.run_sequential()
        if shown.get(row[0]) != now:
            shown[row[0]] = now
            expected.append(now)
    assert found == expected
    assert run_parallel(made, channels=channels) == found


def test_updates_are_told_apart_by_columns_that_can():
    stream = ab.from_rows(ROWS, COLUMNS)
    for column, message in (("nope", "no such column"), ("y", "does not tell tuples apart")):
        with pytest.raises(SchemaError, match=message):
            stream.aggregate(by="k", window=ab.running(latest_of=column), n=ab.agg.count())


FLOATS = [0.0, -0.0, 1.5, float("nan"), -float("nan"), float("inf"), None, 2.0**60]


@settings(max_examples=40, deadline=None, print_blob=True)
@given(
    data=st.data(),
    kind=st.sampled_from(["double", "float"]),
    window=st.sampled_from([ab.running(), ab.count(3), ab.sliding(ab.count(4), every=1), ab.event_time("at", 3)]),
    channels=st.integers(1, 8),
)
def test_different_floats_are_counted_as_in_sql(data, kind, window, channels):
    """All NaN are one value, the two zeros another; with restarts, as NaN read back is another object."""
    rows = data.draw(st.lists(st.tuples(st.integers(0, 1), st.sampled_from(FLOATS)), max_size=20))
    tuples = [(k, at, x) for at, (k, x) in enumerate(rows)]
    stream = ab.from_rows(tuples, f"k long, at long, x {kind}", rows_per_epoch=2).event_time("at")
    counts = stream.aggregate(
        by="k", window=window, n=ab.agg.distinct("x"), xs=ab.agg.collect("x"), odd=ab.agg.distinct("x").where(is_odd)
    )
    found = counts.run_sequential(ends=True)
    for each in found:
        values = [x for x in each.xs if x is not None]
        assert each.n == len({str(x + 0.0).replace("-nan", "nan") for x in values})
    assert [str(row) for row in run_parallel(counts, channels=channels, ends=True)] == [str(row) for row in found]


def is_odd(t):
    return t.at % 2 == 1
