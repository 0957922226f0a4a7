"""A local SparkSession for people who have none yet."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from anabranch.spark.java import ensure_java

# The JVM of a local session plans small jobs for ever and computes next to nothing. What it would gain from code that
# is optimised once more (the compiler's last tier) it has not earned back when a query ends: a third of an epoch's
# processor time was such compiling. With thresholds ten times as high, what really loops over rows still gets there.
JVM_OPTIONS = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 "
    "-XX:Tier4BackEdgeThreshold=400000"
)

# Spark writes three small files of its own for every epoch. By default it does so through Hadoop's FileContext, which
# on a local disk starts 30 processes for them (chmod, readlink): 80 ms of an epoch and 40 ms of the processors. This
# one writes the same files, checks as much before it renames them, and starts 6.
LOG_WRITER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def local_session(cores: int | str = "*") -> SparkSession:
    """A SparkSession on this machine; the running one, if there is one.

    Parameters
    ----------
    cores : int or "*"
        How many tasks run at once; all cores by default.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    ensure_java()
    # Otherwise Spark takes the first python3 on PATH for its workers, which may lack our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("anabranch")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        # Some 40 ms less for every Python stage of a job than by TCP; since Spark 4.1.
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.driver.defaultJavaOptions", JVM_OPTIONS)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    _write_logs_cheaply(session)
    return session


def _write_logs_cheaply(session: SparkSession) -> None:
    """Where this Spark has `LOG_WRITER`, have queries use it."""
    try:
        session._jvm.org.apache.spark.util.Utils.classForName(LOG_WRITER, False, False)  # type: ignore[union-attr]
    except Exception:  # another version keeps it elsewhere: then it is done as ever
        return
    session.conf.set("spark.sql.streaming.checkpointFileManagerClass", LOG_WRITER)
