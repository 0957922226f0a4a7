"""Keys that are run again on one thread, beside a query on Spark."""

import pytest

import anabranch as ab
from anabranch.errors import VerifyError
from anabranch.testing import replay
from tests.engine import planted_verdicts
from tests.engine.planted_verdicts import PLANTED, switch_proof_off
from tests.programs import COLUMNS, build, exact

pytestmark = pytest.mark.spark


def test_a_right_program_is_verified_and_a_wrong_verdict_is_found(spark, tmp_path, monkeypatch):
    streams = ab.session(spark)
    rows = [(n * 7 % 11, "ab"[n % 2], n / 3) for n in range(600)]
    stream = build(streams.from_rows(rows, COLUMNS, rows_per_epoch=300), ["running", "history", "mean"])
    writer = stream.writeStream.format("memory").queryName("verified").option("verify", 1.0).option("channels", 2)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    found = [tuple(row) for row in spark.table("verified").collect()]
    assert exact(found) == exact([tuple(row) for row in stream.run_sequential()])
    for progress in query.recentProgress:
        verified = progress["verify"]
        assert verified["differences"] == 0 and verified["tuples"] > 300 and verified["keys"] and not verified["files"]

    verdict, make, _ = PLANTED["a number of the class beside state"]
    switch_proof_off(monkeypatch, verdict)
    monkeypatch.setattr(
        planted_verdicts, "source", lambda: streams.from_rows(planted_verdicts.ROWS, "k string, x long")
    )
    wrong = make()
    writer = wrong.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "ck")).option("verify", 1)
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    with pytest.raises(VerifyError, match="one thread") as caught:
        query.awaitTermination()
    assert not list((tmp_path / "out").glob("part-*"))
    again = replay(wrong, caught.value.file.removeprefix("file:"))
    assert again is not None and again.kind == "output"
