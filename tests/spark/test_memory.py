"""A worker that the system ends, as it does when memory runs out: the query fails in words, and can go on."""

import os
import signal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.errors import WorkerMemoryError
from tests.programs import exact

pytestmark = pytest.mark.spark


def test_a_worker_that_ends_without_a_word_is_told_and_the_query_goes_on_from_there(spark, tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(2):
        path = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(pa.table({"x": list(range(number * 10, number * 10 + 10))}), path)
        os.utime(path, (1_700_000_000 + number,) * 2)
    mark = str(tmp_path / "was here")

    @ab.model(state="stateless", selectivity="1:1")
    def ended_once(t):
        if t.x == 15 and not os.path.exists(mark):
            os.mkdir(mark)
            os.kill(os.getpid(), signal.SIGKILL)
        return (t.x,)

    def start():
        frame = spark.readStream.schema("x long").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        stream = ab.session(spark).read(frame).map(ended_once, schema="x long")
        writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).format("parquet")
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        query.awaitTermination()
        return stream

    with pytest.raises(WorkerMemoryError, match=r"(?s)epoch 1.*ended without a word.*spark.executor.pyspark.memory"):
        start()
    stream = start()
    parts = sorted((tmp_path / "out").glob("part-*"))
    found = exact([row for part in parts for row in stream.schema.rows(pq.read_table(part).columns)])
    assert found == exact(ab.from_rows([(x,) for x in range(20)], "x long").run_sequential())
