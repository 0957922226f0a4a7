"""Enrichment from tables that are read again: an epoch has one version, and one that runs again has the same."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import faults
from anabranch.api.session import from_epochs
from anabranch.engine.sequential import SequentialRun
from anabranch.errors import CheckpointError, InputError, ProgramError, SchemaError
from anabranch.testing import ParallelRun, run_parallel

EXAMPLES = int(os.environ.get("ANABRANCH_TABLES_EXAMPLES", "10"))
COLUMNS = "k long, x long"
PRICES = "k long, price double"


class Versions:
    """A table that a test changes."""

    def __init__(self, versions):
        self.versions = versions
        self.now = 0
        self.reads = 0

    def __call__(self):
        self.reads += 1
        return self.versions[min(self.now, len(self.versions) - 1)]


def enriched(epochs, table, how="left"):
    found = from_epochs(epochs, COLUMNS).enrich(table, by="k", how=how)
    return found.aggregate(by="k", window=ab.count(1), x=ab.agg.sum("x"), price=ab.agg.sum("price"))


@pytest.mark.parametrize("damage", ["deleted", "empty", "flipped", "a directory"])
def test_a_version_that_is_damaged_is_made_again_if_the_table_still_has_it(tmp_path, damage):
    epochs = [[(1, 2), (2, 3)], [(1, 4)], [(2, 5)]]
    table = Versions([{1: 10.0, 2: 20.0}, {1: 11.0}])
    stream = enriched(epochs, ab.table(table, schema=PRICES, refresh=0))

    def dies(point, facts):
        if point == "sink written" and facts["epoch"] == 1:
            raise Crash

    faults.install(dies)
    with pytest.raises(Crash):
        ParallelRun(stream, str(tmp_path), channels=2).run_epochs()
    faults.install(None)
    (path,) = tmp_path.glob("anabranch/tables/*/*.arrow")
    data = path.read_bytes()
    path.unlink()
    if damage == "a directory":
        path.mkdir()
    elif damage != "deleted":
        path.write_bytes(b"" if damage == "empty" else bytes([data[0] ^ 1]) + data[1:])
    table.now = 1
    with pytest.raises(CheckpointError, match=rf"{path.name}.*([Rr]estore it from a copy)"):
        ParallelRun(stream, str(tmp_path), channels=2).run_epochs(1)
    if damage == "a directory":
        path.rmdir()
    table.now = 0
    run = ParallelRun(stream, str(tmp_path), channels=2)
    run.run_epochs(1)
    assert run.output == stream.run_sequential()[2:] and path.read_bytes() == data


class Crash(BaseException):
    """The end of a driver."""


@settings(max_examples=EXAMPLES, deadline=None, print_blob=True)
@given(data=st.data(), how=st.sampled_from(["left", "inner"]))
def test_every_epoch_meets_the_version_it_was_begun_with(tmp_path_factory, data, how):
    """The table changes before every epoch, and once more when a driver has died."""
    prices = st.dictionaries(st.integers(0, 4), st.integers(0, 99).map(float), max_size=4)
    epochs = data.draw(
        st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=9), min_size=1, max_size=5)
    )
    versions = data.draw(st.lists(prices, min_size=len(epochs), max_size=len(epochs)))
    alone = Versions(versions)
    run = SequentialRun(enriched(epochs, ab.table(alone, schema=PRICES, refresh=0), how)._node)
    for number, epoch in enumerate(epochs):
        alone.now = number
        run.feed(epoch)
    points = ["epoch begun", "job done", "sink written", "commit checked", "manifest written"]
    crashes = data.draw(st.lists(st.tuples(st.sampled_from(points), st.integers(0, 4)), max_size=3))

    def die(point, facts):
        if (point, facts.get("epoch")) in crashes:
            crashes.remove((point, facts.get("epoch")))
            raise Crash

    table, checkpoint, written = Versions([*versions, {}]), str(tmp_path_factory.mktemp("checkpoint")), {}
    faults.install(die)
    try:
        done = False
        while not done:
            stream = enriched(epochs, ab.table(table, schema=PRICES, refresh=0), how)
            channels = data.draw(st.integers(1, 3))
            found = ParallelRun(stream, checkpoint, channels=channels, written=written, versions_kept=2)
            try:
                for number in range(found.runner.epochs_done, len(epochs)):
                    begun = found.checkpoint.begun(number) is not None
                    table.now = len(versions) if begun else number  # what is there by now counts for nobody
                    found.run_epochs(number, number)
                done = True
            except Crash:
                continue
    finally:
        faults.install(None)
    assert found.output == run.output


def parquet(path, rows):
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"k": [k for k, _ in rows], "price": [price for _, price in rows]}), path)


def test_a_path_is_read_when_its_time_has_come_and_it_changed(tmp_path):
    files = tmp_path / "prices"
    parquet(files / "1.parquet", [(1, 1.0), (2, 2.0)])
    epochs = [[(1, n), (2, n), (3, n)] for n in range(6)]
    stream = from_epochs(epochs, COLUMNS).enrich(ab.table(files, refresh="10 seconds"), by="k")
    clocks = [0, 5000, 12_000, 13_000, 30_000, 31_000]
    run = ParallelRun(stream, str(tmp_path / "checkpoint"), clocks_ms=clocks)
    run.run_epochs(0, 0)
    parquet(files / "2.parquet", [(3, 3.0), (1, 9.0)])
    run.run_epochs(1, 1)  # too early
    run.run_epochs(2, 2)
    for file in files.iterdir():
        file.unlink()
    run.run_epochs(3, 3)  # nobody looks
    with pytest.raises(InputError, match=r"operator enrich .*prices has no files\nThe epoch was not begun. Put the"):
        run.run_epochs(4, 4)
    prices = [row.price for row in run.output]
    assert prices == [1.0, 2.0, None, 1.0, 2.0, None, 9.0, 2.0, 3.0, 9.0, 2.0, 3.0]
    # Restarted with missing="keep", the version of the checkpoint goes on; the file may come again.
    kept = ab.table(files, schema="k long, price double", format="parquet", refresh=0, missing="keep")
    again = from_epochs(epochs, COLUMNS).enrich(kept, by="k")
    run = ParallelRun(again, str(tmp_path / "checkpoint"), clocks_ms=clocks)
    run.run_epochs(4, 4)
    parquet(files / "3.parquet", [(1, 5.0)])
    run.run_epochs(5, 5)
    assert [row.price for row in run.output] == [9.0, 2.0, 3.0, 5.0, None, None]


def test_versions_that_no_manifest_needs_are_removed(tmp_path):
    table = Versions([{k: float(n) for k in range(3)} for n in range(8)])
    stream = from_epochs([[(1, 1)]] * 8, COLUMNS).enrich(ab.table(table, schema=PRICES, refresh=0), by="k")
    run = ParallelRun(stream, str(tmp_path), versions_kept=2)
    for number in range(8):
        table.now = number
        run.run_epochs(number, number)
    assert [row.price for row in run.output] == [float(n) for n in range(8)]
    assert len(list((tmp_path / "anabranch" / "tables" / "enrich").iterdir())) <= 3
    table.now = 0
    ParallelRun(stream, str(tmp_path), versions_kept=2)


def test_one_thread_looks_at_it_when_the_clock_says():
    table = Versions([{1: 1.0}, {1: 2.0}])
    stream = from_epochs([[(1, 1)]] * 3, COLUMNS).enrich(ab.table(table, schema=PRICES, refresh=2), by="k", how="inner")
    assert len(stream.run_sequential(clocks_ms=[0, 1000, 2000])) == 3
    assert table.reads == 2
    assert run_parallel(stream, clocks_ms=[0, 1000, 2000]) == stream.run_sequential()


def test_what_does_not_go_is_told(tmp_path):
    stream = from_epochs([[(1, 1)]], COLUMNS)
    for make, match in [
        (lambda: ab.table([(1, 2.0)]), "Rows that never change need no table"),
        (lambda: ab.table("s3://prices/"), "Let Spark read others"),
        (lambda: ab.table(tmp_path / "prices"), "give its format"),
        (lambda: ab.table(dict, refresh="soon"), "expected a duration"),
        (lambda: ab.table(dict, missing="wait"), "'fail' or 'keep'"),
        (lambda: ab.table(dict, format="csv"), "a format is that of files"),
    ]:
        with pytest.raises(ProgramError, match=match):
            make()
    with pytest.raises(SchemaError, match="unknown; give schema"):
        ab.table(dict)
    with pytest.raises(InputError, match="does not exist"):
        ab.table(tmp_path / "prices.parquet")
    with pytest.raises(ProgramError, match="has its schema"):
        stream.enrich(ab.table(dict, schema=PRICES), by="k", schema=PRICES)
    with pytest.raises(InputError, match="row 0 of the table does not fit"):
        stream.enrich(ab.table(lambda: [("one", 1.0)], schema=PRICES), by="k").run_sequential()
    wrong = ab.table(lambda: pa.table({"k": [1]}), schema=PRICES)
    with pytest.raises(InputError, match="no columns price"):
        run_parallel(stream.enrich(wrong, by="k"))
