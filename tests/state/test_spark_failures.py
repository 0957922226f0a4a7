"""Spark fails when another driver writes its log, in many words: the error that is told says what happened."""

import pytest

from anabranch.errors import CheckpointError, StorageError
from anabranch.spark.spark_failures import explain_failure, start_query
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.described_program import DescribedProgram
from anabranch.state.files import MemoryFiles

PLACE = "/data/checkpoint"
RACES = [
    "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 3.",
    f"Multiple streaming queries are concurrently using {PLACE}/sources/0",
    f"An error occurred\nCaused by: org.apache.hadoop.fs.FileAlreadyExistsException: rename destination "
    f"{PLACE}/metadata already exists",
    f"java.io.IOException: Failed to rename temp file {PLACE}/offsets/.3.tmp to {PLACE}/offsets/3",
]


def driver(files):
    held = Checkpoint(files)
    held.bind(DescribedProgram())
    return held


class Writer:
    """Spark's, which fails so often."""

    def __init__(self, *problems):
        self.problems = list(problems)

    def start(self):
        if self.problems:
            raise self.problems.pop(0)
        return "query"


@pytest.mark.parametrize("said", RACES)
def test_the_owner_starts_in_spite_of_a_driver_that_was_fenced(said):
    held = driver(MemoryFiles())
    assert start_query(Writer(RuntimeError(said), RuntimeError(said)), held, PLACE) == "query"
    with pytest.raises(CheckpointError, match=r"(?s)which this one has taken over from.*start the query again"):
        start_query(Writer(*[RuntimeError(said)] * 3), held, PLACE)


@pytest.mark.parametrize("said", [*RACES, "Python worker failed to connect back.", "Executor heartbeat timed out"])
def test_a_fenced_driver_says_so_whatever_spark_failed_of(said):
    files = MemoryFiles()
    first, _second = driver(files), driver(files)
    writer = Writer(RuntimeError(said))
    with pytest.raises(CheckpointError, match=r"(?s)has taken over.*Spark's own part of this one ended with"):
        start_query(writer, first, PLACE)
    assert not writer.problems


@pytest.mark.parametrize(
    "said",
    [
        "FileAlreadyExistsException: /data/mine/part-0 already exists",  # what a function of the user's wrote
        "rename of /data/checkpoint2/offsets failed",
        "AnalysisException: no such column",
    ],
)
def test_what_is_neither_another_driver_nor_the_disk_is_told_as_it_is(said):
    problem = RuntimeError(said)
    assert explain_failure(problem, driver(MemoryFiles()), PLACE) is problem
    with pytest.raises(RuntimeError):
        start_query(Writer(problem), driver(MemoryFiles()), PLACE)


def test_a_full_disk_under_spark_s_log_is_the_error_of_a_full_disk():
    problem = RuntimeError(f"failed\nCaused by: java.io.IOException: {PLACE}/offsets/.7.tmp: No space left on device")
    found = explain_failure(problem, driver(MemoryFiles()), PLACE)
    assert isinstance(found, StorageError) and "Make room" in str(found)
