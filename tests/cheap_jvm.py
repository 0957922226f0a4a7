"""How tests start a JVM: short lives, so cheap starts matter more than fast code.

Half of what a JVM of Spark computes in its first seconds is loading and checking the same four thousand classes. `make`
keeps them in an archive beside the virtual environment (`python -m tests.cheap_jvm FILE`), which all JVMs then map; one
that it does not fit, because Java or Spark are others by now, goes without.
"""

import os
import subprocess
import sys
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_FLAGS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# An archive that does not fit is no news; what a JVM logs of it would be among what tests read.
_MAPPED = f"{_FLAGS} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"
CHEAP_JVM = _MAPPED if ARCHIVE.exists() else _FLAGS


def write_archive(path: Path) -> None:
    """Run a query as tests run them, and keep the classes that it took."""
    from pyspark.sql import SparkSession

    from anabranch.spark.java import ensure_java

    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    ensure_java()
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{_FLAGS} -XX:ArchiveClassesAtExit={path} -Xlog:disable",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    a_query(session)
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=120)


def a_query(session) -> None:
    """Streams files through Python tasks and a shuffle, as the library does."""
    import tempfile

    import anabranch as ab
    from anabranch import agg

    with tempfile.TemporaryDirectory() as place:
        session.createDataFrame([(n % 3, n) for n in range(20)], "k long, x long").write.parquet(f"{place}/in")
        source = ab.session(session).from_files(f"{place}/in", "parquet", "k long, x long")
        summed = source.aggregate(by="k", window=ab.running(), x=agg.sum("x"))
        writer = summed.writeStream.format("parquet").option("checkpointLocation", f"{place}/checkpoint")
        writer.trigger(availableNow=True).start(f"{place}/out").awaitTermination()


if __name__ == "__main__":
    try:
        write_archive(Path(sys.argv[1]))
    except (OSError, subprocess.TimeoutExpired) as problem:
        print(f"no archive of Spark's classes, so tests take longer: {problem}", file=sys.stderr)
