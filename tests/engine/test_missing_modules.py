"""A module that workers lack: what is missing, and the remedy, whatever Spark says around it."""

import pytest

import anabranch as ab
from anabranch.errors import ProgramError
from anabranch.testing import ParallelRun

TRACE = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure:
  File "/usr/lib/python3/site-packages/pyspark/worker.py", line 1800, in main
ModuleNotFoundError: No module named '{name}'
        at org.apache.spark.api.python.BasePythonRunner"""


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("helpers", "--py-files helpers.py"), ("shop.prices", "--py-files shop.py"), ("anabranch", "PYSPARK_PYTHON=")],
)
def test_three_lines_and_the_remedy(tmp_path, monkeypatch, name, remedy):
    stream = ab.from_rows([(1,)], "x long").map(lambda t: t, schema="x long")
    run = ParallelRun(stream, str(tmp_path))

    def fails(*_):
        raise RuntimeError(TRACE.format(name=name))

    monkeypatch.setattr(ParallelRun, "_partitions", fails)
    with pytest.raises(ProgramError, match=f"the workers have no module '{name}'") as found:
        run.run_epochs()
    lines = str(found.value).splitlines()
    assert len(lines) == 3 and remedy in lines[1]
