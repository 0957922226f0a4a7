"""Files that are partitioned by key: Spark's own status has a shuffle fewer; what lies in the wrong file is refused."""

import datetime
import decimal
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.errors import InputError, OrderError, ProgramError, SchemaError
from tests.programs import COLUMNS, Running, exact
from tests.spark.ran import Ran

pytestmark = pytest.mark.spark

PARTITIONS = 3
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("x", pa.float64())])


def table(rows):
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def written(directory, rows, first, together=1):
    """Files of one partition each, later than those before; the rows in the order of the files."""
    directory.mkdir(exist_ok=True)
    numbers = ab.partitions_of(table(rows), "k", PARTITIONS)
    ordered = []
    files = [[row for row, each in zip(rows, numbers, strict=True) if each == part] for part in range(PARTITIONS)]
    if together > 1:  # two files of each partition
        files = [half for each in files for half in (each[: len(each) // 2], each[len(each) // 2 :])]
    for at, each in enumerate(files, first):
        put(directory / f"{at:03d}.parquet", each, at)
        ordered += each
    return ordered


def put(path, rows, at):
    pq.write_table(table(rows), path)
    os.utime(path, (1_700_000_000 + at, 1_700_000_000 + at))


def program(source):
    return source.filter(lambda t: t.x != 4).process(Running(), by=["s", "k"], schema=COLUMNS, name="running")


def run(stream, path, name):
    writer = stream.writeStream.format("memory").queryName(name).option("checkpointLocation", str(path))
    return writer.trigger(availableNow=True).start()


def expected(epochs):
    return exact(program(ab.from_rows([row for each in epochs for row in each], COLUMNS)).run_sequential())


def delivered(stream, query):
    return exact(stream.schema.rows(query.sink.table().columns))


def test_there_is_a_shuffle_fewer_and_the_output_is_that_of_one_thread(spark, tmp_path, capsys, monkeypatch):
    ran = Ran(monkeypatch, spark)
    epochs = []
    for epoch in range(2):
        rows = [(None if n % 9 == 0 else n % 7, "ab"[n % 2], float(n + epoch)) for n in range(60)]
        epochs.append(written(tmp_path / "in", rows, epoch * PARTITIONS))
    source = ab.session(spark).from_files(
        str(tmp_path / "in"), "parquet", COLUMNS, partitioned_by="k", partitions=PARTITIONS
    )
    stream = program(source)
    query = run(stream, tmp_path / "checkpoint", "partitioned")
    query.awaitTermination()
    assert delivered(stream, query) == expected(epochs)
    capsys.readouterr()
    query.explain("json")
    said = json.loads(capsys.readouterr().out)
    assert said["shuffles"] == 0 and len(said["depths"]) == 1
    assert ran.epochs(query) == [[said["depths"][0]["tasks"]]] * 2
    assert [each["shuffled"] for each in query.recentProgress] == ["", ""]
    assert query.lastProgress["channels"] == {"running": PARTITIONS}
    with pytest.raises(ProgramError, match="as many channels as that has partitions: 3"):
        query.rescale("running", 2)
    # Two files of a partition in one epoch, in two tasks: that epoch is shuffled; and the state is where it was. Those
    # of partition 1 are empty.
    rows = [(n % 5, "ab"[n % 2], float(n)) for n in range(40)]
    epochs.append(written(tmp_path / "in", rows, 2 * PARTITIONS, together=2))
    frame = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "in"))
    again = program(ab.session(spark).read(frame, partitioned_by=["k"], partitions=PARTITIONS, name="source"))
    query = run(again, tmp_path / "checkpoint", "partitioned_again")
    query.awaitTermination()
    done = len(expected(epochs[:2]))
    assert delivered(again, query) == expected(epochs)[done:]
    slots = spark.sparkContext.defaultParallelism
    last = [slots, PARTITIONS]
    assert ran.epochs(query) == [[2 * PARTITIONS], last]  # first as declared
    assert "several tasks" in query.lastProgress["shuffled"]
    capsys.readouterr()
    query.explain("json")
    said = json.loads(capsys.readouterr().out)
    assert said["shuffles"] == 1 and [each["tasks"] for each in said["depths"]] == last
    assert said["shuffled_because"] == query.lastProgress["shuffled"]


def test_a_key_in_the_wrong_file_is_an_error_and_without_the_declaration_it_runs(spark, tmp_path):
    rows = written(tmp_path / "in", [(n % 5, "a", float(n)) for n in range(30)], 0)
    wrong = next(n for n in range(99) if ab.partitions_of(table([(n, "a", 0.0)]), "k", PARTITIONS) == [1])
    last = [*(row for row in rows if ab.partitions_of(table([row]), "k", PARTITIONS) == [2]), (wrong, "wrong", 0.5)]
    put(tmp_path / "in" / "002.parquet", last, 2)
    session = ab.session(spark)
    read = {"path": str(tmp_path / "in"), "format": "parquet", "schema": COLUMNS, "name": "source"}
    query = run(
        program(session.from_files(**read, partitioned_by="k", partitions=PARTITIONS)), tmp_path / "checkpoint", "wrong"
    )
    with pytest.raises(InputError) as caught:
        query.awaitTermination()
    text = str(caught.value)
    assert f"the tuple (k={wrong}, s='wrong', x=0.5)" in text and f"k={wrong} belongs to partition 1 of 3" in text
    assert "those of partition 2, in file:" in text and "002.parquet" in text
    stream = program(session.from_files(**read))
    query = run(stream, tmp_path / "checkpoint", "right")
    query.awaitTermination()
    first = [row for row in rows if row not in last]
    assert delivered(stream, query) == expected([first + last])


def test_spark_partitions_data_as_it_is_read(spark, tmp_path):
    """`partition_of` is `partitions_of`, for every kind of key; and what it writes is read without a shuffle."""
    rows = [
        (
            n % 7 if n % 5 else None,
            f"{n % 3}",
            n / 2,
            bool(n % 2),
            datetime.date(2024, 1, 1 + n % 9),
            datetime.datetime(2024, 1, 1, n % 24, tzinfo=datetime.UTC),
            decimal.Decimal(n % 4),
            bytes([n % 6]),
        )
        for n in range(40)
    ]
    kinds = "k long, s string, x double, b boolean, d date, t timestamp, m decimal(9,2), y binary"
    frame = spark.createDataFrame(rows, kinds)
    for columns in (["k"], ["s", "k"], ["x"], ["b", "d"], ["t"], ["m", "y"]):
        shown = frame.withColumn("p", ab.partition_of(columns, 5)).toArrow()
        assert shown["p"].to_pylist() == ab.partitions_of(shown, columns, 5)
    parted = frame.withColumn("p", ab.partition_of("k", PARTITIONS)).repartitionById(PARTITIONS, "p")
    parted.select("k", "s", "x").write.parquet(str(tmp_path / "in"))
    source = ab.session(spark).from_files(
        str(tmp_path / "in"), "parquet", COLUMNS, partitioned_by="k", partitions=PARTITIONS
    )
    stream = program(source)
    query = run(stream, tmp_path / "checkpoint", "written")
    query.awaitTermination()
    assert len(delivered(stream, query)) == len([row for row in rows if row[2] != 4])
    assert {each["shuffled"] for each in query.recentProgress} == {""}


def test_declarations_that_cannot_be(spark, tmp_path):
    session = ab.session(spark)
    frame = spark.readStream.schema("k long, l array<int>").parquet(str(tmp_path))
    for error, said, arguments in [
        (ProgramError, "belong together", {"partitioned_by": "k"}),
        (ProgramError, "belong together", {"partitions": 3}),
        (ProgramError, "belong together", {"partitioned_by": [], "partitions": 3}),
        (ProgramError, "a whole number", {"partitioned_by": "k", "partitions": 0}),
        (ProgramError, "a whole number", {"partitioned_by": "k", "partitions": True}),
        (ProgramError, "'z', which is no column; columns: k, l", {"partitioned_by": ["z"], "partitions": 3}),
        (ProgramError, "'k', twice", {"partitioned_by": ["k", "k"], "partitions": 3}),
        (SchemaError, "'l' cannot be a key", {"partitioned_by": "l", "partitions": 3}),
        (ProgramError, "exclude each other", {"partitioned_by": "k", "partitions": 3, "order_by": "k"}),
    ]:
        with pytest.raises(error, match=said):
            session.read(frame, **arguments)
    # Kafka's reader is not at hand here, but any reader keeps its options.
    cut = spark.readStream.schema("k long").option("minPartitions", 8).parquet(str(tmp_path))
    with pytest.raises(OrderError, match="minpartitions has Spark cut"):
        session.read(cut, partitioned_by="k", partitions=3)
