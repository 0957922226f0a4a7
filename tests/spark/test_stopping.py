"""Stopping a query in the middle of an epoch says nothing on the user's screen."""

import traceback

import pytest

from anabranch.errors import OperatorError
from anabranch.spark.stopping import EpochInterrupted, interruptible

CANCELLED = "An error occurred while calling o1.getResult.\n: org.apache.spark.SparkException: Exception thrown\n"
CANCELLED += "\tat java.base/some.where.in.Java(Somewhere.java:1)\n" * 200
CANCELLED += "Caused by: org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 0 cancelled Query was stopped"


def raising(problem: Exception):
    def run(batch: object, number: int) -> None:
        raise problem

    return interruptible(run)


def shown(problem: Exception) -> str:
    """What py4j tells Spark of an exception."""
    try:
        raising(problem)(None, 0)
    except Exception:
        return traceback.format_exc()
    raise AssertionError("nothing was raised")


def test_an_interruption_is_told_in_a_few_words():
    text = shown(RuntimeError(CANCELLED))
    assert "EpochInterrupted: py4j.protocol.Py4JJavaError: An error occurred while calling the function" in text
    assert len(text) < 1500 and "Somewhere.java" not in text


@pytest.mark.parametrize("problem", [ValueError("of the user's"), OperatorError("an operator; InterruptedException")])
def test_everything_else_is_told_as_it_is(problem):
    with pytest.raises(type(problem)) as raised:
        raising(problem)(None, 0)
    assert raised.value is problem


def test_what_went_on_is_passed_on():
    calls: list[tuple] = []
    interruptible(lambda batch, number: calls.append((batch, number)))("batch", 3)
    assert calls == [("batch", 3)]


@pytest.mark.spark
def test_spark_takes_it_for_an_interruption(spark):
    """By its own judgement, of which the text of a Java exception is too much."""
    jvm = spark.sparkContext._jvm
    judge = jvm.org.apache.spark.sql.execution.streaming.runtime.StreamExecution
    context = spark.sparkContext._jsc.sc()

    def is_interruption(text: str) -> bool:
        return judge.isInterruptionException(jvm.py4j.Py4JException(text), context)

    assert is_interruption(shown(RuntimeError(CANCELLED)))
    assert not is_interruption(shown(ValueError("of the user's")))
    assert issubclass(EpochInterrupted, Exception)
