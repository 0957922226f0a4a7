"""Outputs that several tasks put in order and write."""

import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.testing import run_sequential
from tests.programs import COLUMNS, build, exact

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("mergers", [1, 3])
def test_files_written_by_several_mergers_are_the_stream_in_the_order_of_their_names(spark, tmp_path, mergers):
    rows = [(n * 7 % 11, "ab"[n % 2], n / 3) for n in range(4000)]
    streams = ab.session(spark)
    stream = build(streams.from_rows(rows, COLUMNS, rows_per_epoch=1500), ["running", "history"])
    other = stream.union(stream.map(lambda t: t, schema=COLUMNS))
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "ck"))
    writer.option("mergers", mergers).option("channels", 3)
    writer.also(other.writeStream.format("parquet").option("path", str(tmp_path / "other")))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    query.awaitTermination()
    expected = run_sequential([stream, other])
    for name, wanted in zip(["out", "other"], expected, strict=True):
        files = sorted((tmp_path / name).glob("part-*"))
        assert len(files) == 3 * mergers
        found = [row for file in files for row in stream.schema.rows(pq.read_table(file).columns)]
        assert exact(found) == exact(wanted)
    assert sum(each["rows_out"] for each in query.recentProgress) == len(expected[0]) + len(expected[1])
    assert not list((tmp_path / "out").glob("_staged-*"))
