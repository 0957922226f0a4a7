"""What is needed of a source, and that nothing else is read of its files."""

import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.engine.worker import file_pieces
from anabranch.engine.worker.file_pieces import ListedFile, cut, examined, read_pieces
from anabranch.engine.worker.join_columns import JoinColumns
from anabranch.engine.worker.needed_columns import needed_of, sent_on
from anabranch.errors import OperatorError
from anabranch.program.options import OVER_COLUMNS
from anabranch.testing import ParallelRun

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


def test_wide_rows_come_fewer_at_a_time(tmp_path, monkeypatch):
    """By what is read of them: columns that nobody reads may be as wide as they like."""
    monkeypatch.setattr(file_pieces, "BATCH_BYTES", 50_000)
    wide = [{"kind": at, "tags": [f"{at:5}" * 200] * 2} for at in range(500)]
    pq.write_table(pa.Table.from_pylist(wide, source().schema.arrow), tmp_path / "a.parquet", row_group_size=200)
    file = ListedFile(0, str(tmp_path / "a.parquet"), "a", 0)
    footer = examined(file, source().schema)
    assert not isinstance(footer, str)
    batches = {}
    for program in ("nothing", "lists are read whole"):
        layout = PROGRAMS[program][0](source()).plan().layout
        needed = needed_of(layout, layout.sources[0])
        found = list(read_pieces(cut(file, footer, 1), [needed]))
        assert sum(len(each.columns[0]) for each in found) == 500
        batches[program] = len(found)
    assert batches["nothing"] == 3 and batches["lists are read whole"] >= 10


class Winner(ab.Operator):
    """Reads three of its columns; waits for a time; fails for a price."""

    best: tuple = ab.state(default=None)

    def process(self, t):
        if self.best is None:
            self.timers.at(t.until)
        if self.best is None or t.price > self.best[1]:
            self.best = t.seller, 100 // (t.price - WORST) + t.price

    def on_timer(self, time):
        yield self.best
        self.best = None


WORST = 977


def won(bids, auctions):
    """A join, a filter, and what an operator with timers makes of it, in another stage."""
    timed = ab.from_rows(bids, "auction long, price long, at timestamp, note string", rows_per_epoch=40)
    of = ab.from_rows(auctions, "id long, until timestamp, seller long, about string, from timestamp", rows_per_epoch=9)
    pairs = timed.event_time("at", lateness=2).join(of.event_time("from", lateness=2), by=("auction", "id"))
    return pairs.filter(lambda t: t.at <= t.until).process(Winner(), by="seller", schema="seller long, price long")


@pytest.mark.parametrize("worst", [-1, WORST])
def test_an_operator_with_timers_is_sent_and_given_what_it_reads(tmp_path, worst, monkeypatch):
    start = datetime.datetime(2024, 3, 1, tzinfo=datetime.UTC)
    seconds = datetime.timedelta(seconds=1)
    bids = [(n % 11, n * 7 % 23, start + n * seconds, f"note {n}") for n in range(120)]
    bids[30] = (bids[30][0], worst, *bids[30][2:])
    auctions = [(n, start + (n + 40) * seconds, n % 4, f"auction {n}", start + n * seconds) for n in range(27)]
    stream = won(bids, auctions)
    layout = stream.plan().layout
    (edge,) = (
        each for each in layout.edges if each.target >= 0 and layout.steps[each.target].node.name == stream._node.name
    )
    assert set(sent_on(layout, edge).names) == {"seller", "until", "price"}

    def outcome(run):
        try:
            return [repr(row) for row in run()]
        except OperatorError as error:
            return str(error).partition(" raised ")[2].partition("The epoch failed")[0]

    expected = outcome(lambda: stream.run_sequential(ends=True))
    assert (worst == WORST) is isinstance(expected, str)
    made = []
    original = JoinColumns._made
    monkeypatch.setattr(JoinColumns, "_made", lambda *given: made.append(original(*given)) or made[-1])
    for columns in (OVER_COLUMNS, {"joins"}, ()):
        run = ParallelRun(stream, str(tmp_path / "-".join(columns) / "none"), channels=2, columns=columns)

        def all_of(run=run):
            run.run_epochs()
            run.end()
            return run.output

        assert outcome(all_of) == expected
        if columns == OVER_COLUMNS:
            names = layout.steps[edge.source].node.schema.names
            assert made and all(
                each.null_count == len(each) for columns in made for each in [columns[names.index("about")]]
            )
