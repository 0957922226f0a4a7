"""What is needed of a source, and that nothing else is read of its files."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.engine.worker.file_pieces import ListedFile, cut, examined, read_pieces
from anabranch.engine.worker.needed_columns import needed_of

COLUMNS = "kind long, bid struct<auction: long, price: double, who: struct<name: string, id: long>>, tags array<string>"


def source() -> ab.Stream:
    return ab.from_rows([], COLUMNS, name="source")


PROGRAMS = {
    "columns and fields": (
        lambda s: s.filter(lambda t: t.bid is not None and t.kind == 2).map(
            lambda t: (t.bid["price"], t.bid["who"]["id"]), schema="price double, id long"
        ),
        {"kind", "bid.price", "bid.who.id"},
    ),
    "whether it is null": (
        lambda s: s.filter(lambda t: t.bid is None).map(lambda t: (1,), schema="one long"),
        {"bid.auction"},
    ),
    "nothing": (lambda s: s.map(lambda t: (1,), schema="one long"), {"kind"}),
    "lists are read whole": (lambda s: s.map(lambda t: (len(t.tags),), schema="n long"), {"tags"}),
    "a struct that is used whole": (
        lambda s: s.map(lambda t: (len(t.bid), t.bid["price"]), schema="n long, price double"),
        {"bid"},
    ),
    "of what is passed on, what is read behind": (
        lambda s: (
            s.filter(lambda t: t.kind == 2)
            .map(lambda t: t.bid, schema="auction long, price double, who struct<name: string, id: long>")
            .select("price", "who.name")
        ),
        {"kind", "bid.price", "bid.who.name"},
    ),
    "nothing of what is passed on": (
        lambda s: s.map(lambda t: (t.bid["who"]["id"], t.kind), schema="id long, kind long").map(
            lambda t: (t.kind,), schema="k long"
        ),
        {"kind", "bid.who.name"},
    ),
    "what leaves is read whole": (lambda s: s.filter(lambda t: t.kind == 2), {"kind", "bid", "tags"}),
    "who uses the tuple gets all of it": (
        lambda s: s.filter(lambda t: t.kind).map(lambda t: (len(t),), schema="n long"),
        {"kind", "bid", "tags"},
    ),
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_what_is_needed_of_a_source(what):
    program, expected = PROGRAMS[what]
    layout = program(source()).plan().layout
    (node,) = layout.sources
    assert set(needed_of(layout, node).names) == expected


def test_two_consumers_need_what_either_does():
    tuples = source()
    kinds = tuples.map(lambda t: (t.kind,), schema="x long")
    prices = tuples.filter(lambda t: t.bid is not None).map(lambda t: (t.bid["auction"],), schema="x long")
    layout = kinds.union(prices).plan().layout
    (node,) = layout.sources
    assert set(needed_of(layout, node).names) == {"kind", "bid.auction"}


def test_only_what_is_needed_is_read(tmp_path):
    rows = [
        {"kind": 2, "bid": {"auction": 7, "price": 1.5, "who": {"name": "a", "id": 3}}, "tags": ["x"]},
        {"kind": 1, "bid": None, "tags": None},
    ]
    schema = source().schema
    pq.write_table(pa.Table.from_pylist(rows, schema.arrow), tmp_path / "a.parquet")
    file = ListedFile(0, str(tmp_path / "a.parquet"), "a", 0)
    layout = PROGRAMS["columns and fields"][0](source()).plan().layout
    footer = examined(file, schema)
    assert not isinstance(footer, str)
    (read,) = read_pieces(cut(file, footer, None), [needed_of(layout, layout.sources[0])])
    assert [column.to_pylist() for column in read.columns] == [
        [2, 1],
        [{"price": 1.5, "who": {"id": 3}}, None],
        [None, None],
    ]
