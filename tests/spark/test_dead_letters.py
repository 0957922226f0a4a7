"""Dead letters on Spark: calls that fail and rows that cannot be read, exactly once and in order, over a restart."""

import json
import os

import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.engine.sequential import run_epochs
from anabranch.errors import ProgramError

pytestmark = pytest.mark.spark
COLUMNS = "k string, x long"


class Total(ab.Operator):
    total: int = ab.state(default=0)

    def process(self, t):
        self.total += t.x
        if t.x % 7 == 0:
            raise ValueError(f"seven in {t.x}")
        yield (t.k, self.total, 100 // (t.x % 5 - 1))


def program(stream):
    made = stream.process(Total(), by="k", schema="k string, total long, n long")
    kept = made.filter(lambda t: 10 // (t.n - 100) < 7, name="kept", on_error="skip")
    letters = kept.dead_letters()
    failures = letters.filter(lambda t: t.operator != "source_readable")
    return kept, letters, failures.aggregate(by="operator", window=ab.running(), n=ab.agg.count())


def read(path):
    tables = [pq.read_table(each) for each in sorted(path.glob("part-*"))]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def test_letters_are_written_exactly_once_and_in_order(spark, tmp_path):
    files, letters = tmp_path / "in", tmp_path / "letters"
    files.mkdir()
    lines = [json.dumps({"k": f"k{x % 4}", "x": x}) for x in range(60)]
    lines[10], lines[31] = '{"k": "k1", "x": "many"}', "no JSON at all"
    streams = ab.session(spark, on_error="dead_letter")

    def run(*numbers):
        for at in numbers:
            (files / f"{at}.json").write_text("\n".join(lines[at * 20 : at * 20 + 20]) + "\n")
            os.utime(files / f"{at}.json", (1_700_000_000 + at, 1_700_000_000 + at))
        stream = streams.from_files(str(files), "json", COLUMNS, maxFilesPerTrigger=1)
        kept, dead, counts = program(stream)
        writer = kept.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).option("channels", 2)
        query = (
            writer.also(dead.writeStream.option("path", str(letters)))
            .also(counts.writeStream.option("path", str(tmp_path / "counts")))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
        return query

    run(0, 1)
    query = run(2)

    good = [json.loads(line) if at not in (10, 31) else None for at, line in enumerate(lines)]
    epochs = [[row for row in good[at * 20 : at * 20 + 20] if row is not None] for at in range(3)]
    expected = run_epochs([each._node for each in program(ab.from_rows([], COLUMNS).on_error("dead_letter"))])
    for rows in epochs:
        expected.feed(rows)
    unreadable = [row for row in read(letters) if row[1] == "source_readable"]
    assert [(json.loads(row[0])["unreadable"]) for row in unreadable] == [lines[10], lines[31]]
    assert "ValueError: the row cannot be read" in unreadable[0][3]
    found = [row for row in read(letters) if row[1] != "source_readable"]
    assert found == [(*row[:4], row[4] - 1) for row in expected.outputs[1]]
    assert read(tmp_path / "out") == [tuple(row) for row in expected.outputs[0]]
    assert read(tmp_path / "counts") == [tuple(row) for row in expected.outputs[2]]
    assert "dead_letters" in str(query.recentProgress)


def test_letters_that_nobody_reads_are_refused(spark, tmp_path):
    stream = ab.session(spark).from_rows([("a", 1)], COLUMNS).map(lambda t: t, on_error="dead_letter", name="f")
    with pytest.raises(ProgramError, match=r"operator f .*nobody reads its dead letters"):
        stream.writeStream.option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "out"))
