"""Updates as changes: insert, update, delete; in any number of channels what one thread says."""

import os

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.engine.driver.latest_rows import Latest, latest_rows
from anabranch.errors import ProgramError, SchemaError
from anabranch.testing import run_parallel
from tests.restless import restless_output

EXAMPLES = int(os.environ.get("ANABRANCH_EXAMPLES", "0")) or 10
FEED = "shop string, id long, stock long"
tuples = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.one_of(st.none(), st.integers(0, 3))), max_size=20
)
epochs = st.lists(tuples, min_size=1, max_size=4)

PROGRAMS = {
    "upserts": lambda s: s.changes(by=["shop", "id"]),
    "deletes": lambda s: s.changes(by=["shop", "id"], deleted=lambda t: t.stock is None),
    "before": lambda s: s.changes(by="id", deleted=lambda t: t.stock is None, before=True),
    "top": lambda s: s.top(2, "stock", by="shop", change="change"),
    "of ranks": lambda s: s.top(2, "stock", by="shop", rank="place").changes(by=["shop", "place"]),
    "running": lambda s: s.aggregate(
        by="shop", window=ab.running(), n=ab.agg.count(), least=ab.agg.min("stock")
    ).changes(by="shop", deleted=lambda t: t.n % 5 == 0),
    "summed": lambda s: s.aggregate(
        by="shop",
        window=ab.running(latest_of="id", deleted=lambda t: t.stock is None),
        n=ab.agg.count(),
        stock=ab.agg.sum("stock"),
    ),
    "collected": lambda s: s.aggregate(
        by="shop",
        window=ab.running(latest_of="id", deleted=lambda t: t.stock is None),
        n=ab.agg.count(),
        most=ab.agg.max("stock"),
    ),
}


@settings(max_examples=2 * EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), feed=epochs, name=st.sampled_from(sorted(PROGRAMS)), channels=st.integers(1, 8))
def test_parallel_is_what_one_thread_gives(tmp_path_factory, data, feed, name, channels):
    stream = PROGRAMS[name](from_epochs(feed, FEED))
    expected = stream.run_sequential()
    assert run_parallel(stream, channels=channels) == expected
    assert restless_output(data, stream, str(tmp_path_factory.mktemp("checkpoint"))) == expected


@given(feed=tuples, channels=st.integers(1, 3))
@settings(max_examples=2 * EXAMPLES, deadline=None)
def test_the_changes_make_the_table_that_the_updates_make(feed, channels):
    """By plain Python: a dict to which each is applied."""
    expected: dict = {}
    for shop, number, stock in feed:
        if stock is None:
            expected.pop((shop, number), None)
        else:
            expected[shop, number] = stock
    found: dict = {}
    stream = ab.from_rows(feed, FEED).changes(by=["shop", "id"], deleted=lambda t: t.stock is None, before=True)
    for shop, number, stock, change in stream.run_sequential():
        key = shop, number
        if change == "insert":
            assert key not in found
            found[key] = stock
        elif change == "before":
            assert found[key] == stock
        elif change == "update":
            assert found[key] != stock
            found[key] = stock
        else:
            assert found.pop(key) == stock
    assert found == expected
    table = pa.Table.from_pylist([t.asDict() for t in stream.run_sequential()], stream.schema.arrow)
    shown = latest_rows(table, ["shop", "id"], "change").to_pylist()
    assert {(each["shop"], each["id"]): each["stock"] for each in shown} == expected


@given(feed=tuples)
@settings(max_examples=2 * EXAMPLES, deadline=None)
def test_sums_of_a_table_follow_its_deletions(feed):
    rows: dict = {}
    last: dict = {}
    for shop, number, stock in feed:
        table = rows.setdefault(shop, {})
        if stock is None and number not in table:
            continue
        if stock is None:
            del table[number]
        else:
            table[number] = stock
        last[shop] = (len(table), sum(table.values()) if table else None)
    stream = PROGRAMS["summed"](ab.from_rows(feed, FEED))
    assert {t.shop: (t.n, t.stock) for t in stream.run_sequential()} == last


@given(feed=tuples)
@settings(max_examples=EXAMPLES, deadline=None)
def test_what_leaves_the_first_is_told(feed):
    held: dict = {}
    for shop, number, stock, change in PROGRAMS["top"](ab.from_rows(feed, FEED)).run_sequential():
        mine = held.setdefault(shop, [])
        if change == "insert":
            mine.append((number, stock))
        else:
            mine.remove((number, stock))
    for shop, mine in held.items():
        stocks = sorted((-1 if s is None else s for name, _, s in feed if name == shop), reverse=True)[:2]
        assert sorted((-1 if s is None else s for _, s in mine), reverse=True) == stocks


def test_what_makes_no_sense_is_refused():
    feed = ab.from_rows([], FEED)
    with pytest.raises(SchemaError, match="cannot be called 'stock'"):
        feed.changes(by="id", column="stock")
    with pytest.raises(ProgramError, match="expected a function"):
        feed.changes(by="id", deleted="stock")
    with pytest.raises(ProgramError, match="columns of it"):
        feed.changes(by=lambda t: t.id % 2)
    with pytest.raises(ProgramError, match="two forms"):
        feed.top(2, "stock", by="shop", rank="place", change="change")
    with pytest.raises(ProgramError, match="latest_of"):
        ab.running(deleted=lambda t: True)
    with pytest.raises(SchemaError, match="not a column"):
        Latest.of(feed.schema, "shop, what", "change")
