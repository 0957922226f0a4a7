"""Of the rows that Spark reads only what is needed crosses to Python, and the output is that of one thread."""

import datetime
import json
import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch import agg
from anabranch.engine.worker.splitters import SplitTask
from anabranch.errors import OperatorError
from tests.programs import exact

pytestmark = pytest.mark.spark

COLUMNS = (
    "kind long, at timestamp, bid struct<auction: long, price: double, who: struct<name: string, id: long>>, "
    "tags array<string>, names map<string, long>, note string"
)


def rows_of(seed: int, count: int) -> list[tuple]:
    """Rows with nulls at every level."""
    chance = random.Random(seed)

    def perhaps(value):
        return value if chance.random() < 0.8 else None

    def bid():
        who = perhaps({"name": perhaps(chance.choice(["a", "b", "ü"])), "id": perhaps(chance.randrange(5))})
        return {"auction": perhaps(chance.randrange(4)), "price": perhaps(chance.randrange(99) / 4), "who": who}

    start = datetime.datetime(2024, 3, 1, tzinfo=datetime.UTC)
    return [
        (
            chance.randrange(3),
            perhaps(start + datetime.timedelta(milliseconds=chance.randrange(10**7))),
            perhaps(bid()),
            perhaps([perhaps("x")] * chance.randrange(3)),
            perhaps({"one": perhaps(chance.randrange(3))}),
            perhaps(f"note {number}"),
        )
        for number in range(count)
    ]


def write_files(place, kind: str, seed: int, count: int = 4) -> list[tuple]:
    """Files of one kind; their rows, in order."""
    place.mkdir(exist_ok=True)
    schema = ab.from_rows([], COLUMNS).schema
    rows = []
    first = len(list(place.iterdir()))
    for number in range(first, first + count):
        mine = rows_of(seed + number, 40)
        rows += mine
        path = place / f"{number}.{kind}"
        columns = [
            pa.array(column, field.type) for column, field in zip(zip(*mine, strict=True), schema.arrow, strict=True)
        ]
        table = pa.table(columns, schema=schema.arrow)
        if kind == "parquet":
            pq.write_table(table, path, row_group_size=15)
        else:
            lines = [dict(zip(schema.names, row, strict=True)) for row in mine]
            path.write_text("".join(json.dumps(line, default=lambda at: at.isoformat()) + "\n" for line in lines))
        os.utime(path, (1_700_000_000 + number,) * 2)
    return rows


class Spread(ab.Operator):
    """Reads two columns; keeps a sum."""

    total: float = ab.state(default=0.0)

    def process(self, t):
        self.total += t.price or 0.0
        yield (t.kind, self.total)


def fields(stream: ab.Stream) -> ab.Stream:
    bids = stream.filter(lambda t: t.bid is not None and t.bid["who"] is not None)
    return bids.map(
        lambda t: (t.kind, t.bid["price"], t.bid["who"]["id"]), schema="kind long, price double, id long"
    ).process(Spread(), by="kind", schema="kind long, total double")


def nothing(stream: ab.Stream) -> ab.Stream:
    return stream.map(lambda t: (1,), schema="one long").aggregate(by=None, window=ab.running(), n=agg.count())


def is_null(stream: ab.Stream) -> ab.Stream:
    return stream.map(lambda t: (t.bid is None, t.kind), schema="none boolean, kind long").filter(lambda t: t.kind != 1)


def nested_values(stream: ab.Stream) -> ab.Stream:
    return stream.filter(lambda t: t.tags is not None).map(
        lambda t: (len(t.tags), t.names, t.at), schema="n long, names map<string, long>, at timestamp"
    )


def whole(stream: ab.Stream) -> ab.Stream:
    return stream.filter(lambda t: len(t) == 6 and t.kind > 0)


PROGRAMS = {each.__name__: each for each in (fields, nothing, is_null, nested_values, whole)}
LEFT_OUT = {"fields": {"at", "tags", "names", "note"}, "nothing": {"at", "bid", "tags", "names", "note"}}


def read(spark, place, kind: str) -> ab.Stream:
    frame = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 2).format(kind).load(str(place))
    return ab.session(spark).read(frame, name=place.name)


def run(stream: ab.Stream, place, **options) -> list:
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    writer = writer.options(**{"fileReading": "spark", "channels": 2, **options}).trigger(availableNow=True)
    writer.start(str(place / "output")).awaitTermination()
    parts = sorted((place / "output").glob("part-*"))
    return exact([row for part in parts for row in stream.schema.rows(pq.read_table(part).columns)])


@pytest.fixture
def handed(monkeypatch):
    """What Spark was asked to hand over, epoch by epoch."""
    found = []
    needed = SplitTask.needed

    def noted(task):
        found.append(needed(task))
        return found[-1]

    monkeypatch.setattr(SplitTask, "needed", noted)
    return found


@pytest.mark.parametrize("kind", ["json", "parquet"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_left_out_changes_nothing(spark, tmp_path, kind, name, handed):
    program = PROGRAMS[name]
    rows = write_files(tmp_path / "in", kind, 7)
    stream = program(read(spark, tmp_path / "in", kind))
    expected = exact(program(ab.from_rows(rows, COLUMNS)).run_sequential())
    assert run(stream, tmp_path / "narrow") == expected != []
    assert len(handed) == 2
    assert set(stream.schema.names) and LEFT_OUT.get(name, set()).isdisjoint(handed[0][0].read)
    assert run(stream, tmp_path / "wide", columns="off") == expected
    assert len(handed) == 2, "with columns off nothing is left out"


FILTERS = [
    lambda t: t.bid is not None,
    lambda t: t.kind % 2 == 0,
    lambda t: t.kind < 2,
    lambda t: t.bid is None or t.bid["price"] is None or t.bid["price"] > 3,
    lambda t: t.note is None or t.note.endswith("1"),
    lambda t: t.tags is None or None in t.tags,
]
MAPS = [
    (lambda t: (t.kind, t.bid, t.note), "kind long, bid struct<auction: long, price: double, who: struct<name: string, "
     "id: long>>, note string"),
    (lambda t: (t.note, t.kind, t.at), "note string, kind long, at timestamp"),
    (lambda t: (t.bid and t.bid["who"] and t.bid["who"]["name"], t.kind), "name string, kind long"),
    (lambda t: (t.kind, t.kind + 1, t.names), "kind long, more long, names map<string, long>"),
]  # fmt: skip


def random_program(seed: int, *streams: ab.Stream) -> ab.Stream:
    """Filters and a map for each source, then something with a key, perhaps, over all."""
    chance = random.Random(seed)
    mapped, columns = chance.choice(MAPS)
    parts = []
    for stream in streams:
        for wanted in chance.sample(FILTERS, chance.randrange(3)):
            stream = stream.filter(wanted)
        parts.append(stream.map(mapped, schema=columns))
    both = parts[0].union(*parts[1:]) if len(parts) > 1 else parts[0]
    if chance.random() < 0.5:
        return both.select("kind")
    if chance.random() < 0.5:
        return both.aggregate(by="kind", window=ab.running(), n=agg.count())
    return both


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_over_two_sources_and_a_restart(spark, tmp_path, seed):
    kinds = random.Random(seed).choices(["json", "parquet"], k=2)
    places = [tmp_path / "one", tmp_path / "two"]
    for part in range(2):
        for number, (place, kind) in enumerate(zip(places, kinds, strict=True)):
            write_files(place, kind, 10 * number + seed, 1 + part)
        frames = [read(spark, place, kind) for place, kind in zip(places, kinds, strict=True)]
        found = run(random_program(seed, *frames), tmp_path / "narrow")
        expected = run(random_program(seed, *frames), tmp_path / "wide", columns="off")
    assert found == expected != []


def test_one_source_sorted_by_columns(spark, tmp_path, handed):
    rows = write_files(tmp_path / "in", "json", 3)
    frame = spark.readStream.schema(COLUMNS).json(str(tmp_path / "in"))

    def program(stream):
        return stream.filter(lambda t: t.kind < 2).map(lambda t: (t.note, t.kind), schema="note string, kind long")

    streams = [ab.session(spark).read(frame, order_by=["kind", "note"]) for _ in range(2)]
    assert run(program(streams[0]), tmp_path / "narrow") == run(program(streams[1]), tmp_path / "wide", columns="off")
    assert handed[0][0].read == {"note", "kind"}
    by_kind = sorted(rows, key=lambda row: (row[0], row[5] is not None, row[5]))
    expected = exact(program(ab.from_rows(by_kind, COLUMNS)).run_sequential())
    assert run(program(streams[0]), tmp_path / "again") == expected


def test_what_the_user_does_in_spark_is_narrowed_too(spark, tmp_path, handed):
    """Texts that Spark takes apart, and rows of a source that has no columns to choose."""
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"a": number, "b": "x" * number, "c": [number]}) for number in range(30)]
    (tmp_path / "in" / "lines.txt").write_text("\n".join(["not JSON", *lines]))
    frame = spark.readStream.text(str(tmp_path / "in"))
    frame = frame.selectExpr("from_json(value, 'a long, b string, c array<long>') as e").where("e.a is null or e.a > 3")
    stream = ab.session(spark).read(frame).map(lambda t: (t.e and t.e["a"],), schema="a long")
    wide = run(stream, tmp_path / "wide", columns="off")
    assert run(stream, tmp_path / "narrow") == wide
    assert len(wide) == 27 and handed


def test_rows_that_cannot_be_read_are_what_they_were(spark, tmp_path, handed):
    """What is left out is left out behind the reader: it does not decide whether a row can be read."""
    (tmp_path / "in").mkdir()
    good, bad = {"kind": 1, "note": "a"}, ['{"kind": 2, "note": "\\x"}', '{"kind": 3', '{"kind": 4, "at": "never"}']
    (tmp_path / "in" / "0.json").write_text("\n".join([json.dumps(good), *bad, json.dumps(good)]))
    os.utime(tmp_path / "in" / "0.json", (1_700_000_000,) * 2)
    stream = read(spark, tmp_path / "in", "json").map(lambda t: (t.kind,), schema="kind long")
    wide = run(stream, tmp_path / "wide", columns="off")
    assert run(stream, tmp_path / "narrow") == wide
    assert handed[0][0].read == {"kind"} and len(wide) == 5


def test_an_error_tells_all_of_its_tuple(spark, tmp_path):
    rows = write_files(tmp_path / "in", "json", 5)
    program = lambda stream: stream.map(lambda t: (10 // (t.kind - 2),), schema="x long")  # noqa: E731
    with pytest.raises(OperatorError) as expected:
        program(ab.from_rows(rows, COLUMNS, name="in")).run_sequential()
    with pytest.raises(OperatorError) as found:
        run(program(read(spark, tmp_path / "in", "json")), tmp_path / "out")
    (row,) = [each for each in rows if each[0] == 2][:1]
    assert f"note={row[5]!r}" in str(expected.value) and f"note={row[5]!r}" in str(found.value)


def test_fields_that_differ_in_case_only_are_left_together(spark, tmp_path):
    (tmp_path / "in").mkdir()
    columns = "s struct<a: long, A: long, b: long>"
    lines = [{"s": {"a": number, "A": -number, "b": 0}} for number in range(5)]
    (tmp_path / "in" / "0.json").write_text("\n".join(map(json.dumps, lines)))
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        stream = ab.session(spark).read(spark.readStream.schema(columns).json(str(tmp_path / "in")))
        stream = stream.map(lambda t: (t.s["A"],), schema="a long")
        assert run(stream, tmp_path / "out") == exact(
            ab.from_rows([(-n,) for n in range(5)], "a long").run_sequential()
        )
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_column_that_must_not_be_null_is_looked_at_although_nobody_reads_it(spark, tmp_path):
    rows = [(number, None if number == 7 else number) for number in range(9)]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist([{"x": x, "y": y} for x, y in rows]), tmp_path / "in" / "0.parquet")

    def program(stream):
        passed = stream.map(lambda t: (t.x, t.y), schema="x long, y long not null", name="passed")
        return passed.filter(lambda t: t.x < 5).map(lambda t: (t.x,), schema="x long")

    with pytest.raises(OperatorError, match="passed"):
        program(ab.from_rows(rows, "x long, y long")).run_sequential()
    for reading in ("auto", "spark"):
        frame = spark.readStream.schema("x long, y long").parquet(str(tmp_path / "in"))
        stream = program(ab.session(spark).read(frame))
        with pytest.raises(OperatorError, match="passed"):
            run(stream, tmp_path / reading, fileReading=reading)
    assert [each[0] for each in program(ab.from_rows(rows[:7], "x long, y long")).run_sequential()] == [0, 1, 2, 3, 4]
