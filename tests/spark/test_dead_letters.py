"""Dead letters on Spark: calls that fail and rows that cannot be read, exactly once and in order, over a restart."""

import json

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
    kept = made.filter(lambda t: 10 // (t.n - 100) > -1, name="kept", on_error="skip")
    return kept, kept.dead_letters()


def read(spark, path):
    return [tuple(row) for row in spark.read.parquet(str(path)).collect()]


def test_letters_are_written_exactly_once_and_in_order(spark, tmp_path):
    files, letters = tmp_path / "in", tmp_path / "letters"
    files.mkdir()
    lines = [json.dumps({"k": f"k{x % 4}", "x": x}) for x in range(60)]
    lines[10], lines[31] = '{"k": "k1", "x": "many"}', "no JSON at all"
    for at in range(3):
        (files / f"{at}.json").write_text("\n".join(lines[at * 20 : at * 20 + 20]) + "\n")
    streams = ab.session(spark, on_error="dead_letter")

    def run(epochs):
        stream = streams.from_files(str(files), "json", COLUMNS, maxFilesPerTrigger=1)
        kept, dead = program(stream)
        writer = kept.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).option("channels", 2)
        query = (
            writer.also(dead.writeStream.option("path", str(letters))).trigger(**epochs).start(str(tmp_path / "out"))
        )
        query.awaitTermination()
        return query

    run({"once": True})
    query = run({"availableNow": True})

    good = [json.loads(line) if at not in (10, 31) else None for at, line in enumerate(lines)]
    epochs = [[row for row in good[at * 20 : at * 20 + 20] if row is not None] for at in range(3)]
    expected = run_epochs([each._node for each in program(ab.from_rows([], COLUMNS).on_error("dead_letter"))])
    for rows in epochs:
        expected.feed(rows)
    # `once` took all files, or one: epochs are numbered as they were cut.
    unreadable = [row for row in read(spark, letters) if row[1] == "source_readable"]
    assert [(json.loads(row[0])["unreadable"]) for row in unreadable] == [lines[10], lines[31]]
    assert "ValueError: the row cannot be read" in unreadable[0][3]
    found = [row[:4] for row in read(spark, letters) if row[1] != "source_readable"]
    assert found == [tuple(row)[:4] for row in expected.outputs[1]]
    assert read(spark, tmp_path / "out") == [tuple(row) for row in expected.outputs[0]]
    assert "dead_letters" in str(query.recentProgress)


def test_letters_that_nobody_reads_are_refused(spark, tmp_path):
    stream = ab.session(spark).from_rows([("a", 1)], COLUMNS).map(lambda t: t, on_error="dead_letter", name="f")
    with pytest.raises(ProgramError, match=r"operator f .*nobody reads its dead letters"):
        stream.writeStream.option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "out"))
