"""A query whose state is in an object store, on Spark: Spark's own notes stay on this machine."""

from pathlib import Path

import pytest

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.errors import ProgramError, StorageError
from tests.object_store import ACCESS_KEY, BUCKET, SECRET_KEY
from tests.programs import COLUMNS, build

pytestmark = pytest.mark.spark

ROWS = [[(k, "a", float(n)) for k in range(7)] for n in range(4)]


@pytest.fixture
def told(spark, object_store):
    """The session knows the store."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in object_store.settings.items():
        settings.set(name, value)
    yield f"s3a://{BUCKET}/spark"
    for name in object_store.settings:
        settings.unset(name)


def run(stream: ab.Stream, path: Path, state: str) -> list[dict]:
    writer = stream.writeStream.option("checkpointLocation", f"{path}/ck").option("stateLocation", state)
    writer = writer.option("segmentCache", f"{path}/cache").trigger(availableNow=True)
    query = writer.start(f"{path}/out")
    query.awaitTermination()
    return query.recentProgress


def test_a_query_goes_on_from_an_object_store_and_no_key_is_written_anywhere(spark, told, object_store, tmp_path):
    streams = ab.session(spark)
    run(build(from_epochs(ROWS[:2], COLUMNS, session=streams), ["running"]), tmp_path, told)
    whole = build(from_epochs(ROWS, COLUMNS, session=streams), ["running"])
    run(whole, tmp_path, told)
    parts = sorted((tmp_path / "out").glob("part-*"))
    delivered = [tuple(row) for part in parts for row in spark.read.parquet(str(part)).collect()]
    assert delivered == [tuple(row) for row in whole.run_sequential()]
    assert streams.read_state(told).collect()[0]["keys"] == 7
    assert not (tmp_path / "ck" / "anabranch" / "state").exists() and list((tmp_path / "cache").rglob("*.segment"))
    held = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    held += [
        object_store.files("spark/anabranch").read(f"{folder}{name}") or b""
        for folder in ("", "epochs/", "owners/")
        for name in object_store.files("spark/anabranch").names(folder.rstrip("/"))
    ]
    assert not [data for data in held if SECRET_KEY.encode() in data or ACCESS_KEY.encode() in data]


def test_a_state_location_without_a_checkpoint_or_without_a_bucket_is_an_error(spark, told, tmp_path):
    stream = build(from_epochs(ROWS, COLUMNS, session=ab.session(spark)), ["running"])
    with pytest.raises(ProgramError, match="stateLocation needs a checkpointLocation"):
        stream.writeStream.format("memory").queryName("q").option("stateLocation", told).start()
    with pytest.raises(StorageError, match=r"cannot (read|write) s3a://no-such-bucket"):
        run(stream, tmp_path, "s3a://no-such-bucket/here")
