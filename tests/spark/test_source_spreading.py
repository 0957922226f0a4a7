"""Heavy operators without state behind a source of one piece: the runtime gives them channels."""

import os
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from tests.programs import COLUMNS, Running, exact

pytestmark = pytest.mark.spark

ROWS, COST_S = 250, 0.010


@ab.model(state="stateless", selectivity="1:1", forwards="*")
def slow(t):
    time.sleep(COST_S)
    return t


def test_a_file_of_heavy_work_is_shared_by_the_slots_and_epochs_get_shorter(spark, tmp_path):
    files, epochs = tmp_path / "in", 7
    files.mkdir()
    rows = [[(n % 7, "ab"[n % 2], float(n + epoch)) for n in range(ROWS)] for epoch in range(epochs)]
    for epoch, each in enumerate(rows):
        columns = {name: [row[at] for row in each] for at, name in enumerate("ksx")}
        path = files / f"{epoch:03d}.parquet"
        pq.write_table(pa.table(columns), path)
        os.utime(path, (1_700_000_000 + epoch, 1_700_000_000 + epoch))
    source = ab.session(spark).from_files(str(files), "parquet", COLUMNS, maxFilesPerTrigger=1)
    stream = source.map(slow, schema=COLUMNS, name="slow").process(Running(), by="k", schema=COLUMNS)
    writer = stream.writeStream.format("memory").queryName("spreading").trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    listed = ab.from_rows([row for each in rows for row in each], COLUMNS, rows_per_epoch=ROWS)
    expected = listed.process(Running(), by="k", schema=COLUMNS).run_sequential()
    assert exact(stream.schema.rows(query.sink.table().columns)) == exact(expected)
    progress = query.recentProgress
    channels = [each["channels"].get("source-spread", 0) for each in progress]
    assert channels[:3] == [0, 0, 0] and min(channels[3:]) >= 2
    jobs = [each["duration_ms"]["job"] for each in progress]
    assert min(jobs[4:]) < 0.75 * min(jobs[1:3]), jobs
    assert "channels of its own save" in progress[-1]["spread"]
    assert "source-spread" in [operator.name for operator in query.plan.operators]
