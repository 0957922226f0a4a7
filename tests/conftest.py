"""What all tests share: one Spark session, started by the first test that asks for it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.cheap_jvm import CHEAP_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# A shared machine may stop a test for longer than hypothesis' patience; slowness is not what it looks for.
settings.register_profile("anabranch", deadline=None)
settings.load_profile("anabranch")


# First, because pytest-xdist reads the groups in its own hook of this name.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What shares a JVM stays in one process: ``make test`` has two, and gives each whole groups (pytest-xdist).

    The tests with the session come first, in one process, then those that start clusters and drivers of their own, in
    the other. The rest, file by file, is for whichever has time.
    """

    def rank(item: pytest.Item) -> int:
        if item.get_closest_marker("cluster") or "spark" not in getattr(item, "fixturenames", ()):
            return 1 if item.get_closest_marker("cluster") or item.get_closest_marker("spark") else 2
        return 0

    items.sort(key=rank)
    for item in items:
        group = ("session", "processes", item.nodeid.partition("::")[0])[rank(item)]
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A SparkSession with two task slots. Tests that use it carry the marker ``spark``."""
    # Imported here, not above: the pure tests must run without paying for pyspark.
    from pyspark.sql import SparkSession

    from anabranch.spark.java import ensure_java

    # Without these Spark takes the first python3 on PATH for its workers, and asks what the machine's host
    # name resolves to, which on a machine without a network is nothing.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Operators that tests define in modules of their own are imported by the workers.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    ensure_java()
    scratch = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("anabranch-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # Queries are short, and there are hundreds of different ones: code that is compiled well is used a few times.
        .config("spark.driver.extraJavaOptions", CHEAP_JVM)
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
