"""What is told when the tasks of an epoch fail, and it was no tuple and no operator."""

import re

import pytest

from anabranch.engine.driver.job_failures import explained
from anabranch.errors import InputError, ProgramError, StorageError, WorkerMemoryError

# As Spark tells them, somewhere in a long text.
TOLD = {
    "MemoryError": WorkerMemoryError,
    "pyarrow.lib.ArrowMemoryError: malloc of size 134217728 failed": WorkerMemoryError,
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.5 GiB": WorkerMemoryError,
    "java.lang.OutOfMemoryError: Java heap space": WorkerMemoryError,
    "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)": WorkerMemoryError,
    "ExecutorLostFailure (executor 1 exited caused by one of the running tasks)": WorkerMemoryError,
    "ModuleNotFoundError: No module named 'helpers'": ProgramError,
    "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file": InputError,
    "OSError: [Errno 28] No space left on device": StorageError,
}


@pytest.mark.parametrize("line", TOLD)
def test_it_is_an_error_of_ours_that_says_what_spark_said(line):
    problem = Exception(f"Job aborted due to stage failure\nTraceback (most recent call last):\n  File 'x'\n{line}\n")
    error = explained(problem, 7, "rows")
    assert type(error) is TOLD[line]
    assert "epoch 7" in str(error)
    assert re.findall(r"[A-Z]\w+Error|helpers|No space left|exited|FAILED_READ_FILE", line)[-1] in str(error)


def test_a_query_that_is_stopped_has_no_lack_of_memory():
    problem = Exception("[SPARK_JOB_CANCELLED] Job 3 cancelled\nPython worker exited unexpectedly (crashed)")
    assert explained(problem, 7, "rows") is problem


def test_anything_else_stays_as_it_is():
    problem = ValueError("a ValueError that speaks of memory")
    assert explained(problem, 7, "rows") is problem
