"""What all tests share: one Spark session, started by the first test that asks for it."""

import functools
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.cheap_jvm import CHEAP_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.object_store import ObjectStore


# A shared machine may stop a test for longer than hypothesis' patience; slowness is not what it looks for.
settings.register_profile("anabranch", deadline=None)
settings.load_profile("anabranch")


MEMORY, ROOM = Path("/dev/shm"), 2**31


def scratch_in_memory() -> None:
    """Have what tests write be in memory, if there is room: a disk has them wait for every file that is removed."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK | os.X_OK):
        return
    place = os.statvfs(MEMORY)
    # Some tests write programs, and run them.
    if place.f_bavail * place.f_frsize > ROOM and not place.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(MEMORY)  # for all processes that tests start, too
        tempfile.tempdir = None


scratch_in_memory()

SESSION, PROCESSES = "session", "processes"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests with the session come first, then those that start clusters and drivers of their own, then the rest.

    Of these, files with random cases first: they take long, and what is short fills the end of both processes.
    """

    def rank(item: pytest.Item) -> int:
        if item.get_closest_marker("cluster") or "spark" not in getattr(item, "fixturenames", ()):
            if item.get_closest_marker("cluster") or item.get_closest_marker("spark"):
                return 1
            return 2 if has_random_cases(item.path) else 3
        return 0

    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)  # `-p no:xdist` has no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """What shares a JVM stays in one process: ``make test`` has two, and gives each whole groups of files.

    Files with tests that start clusters or drivers are for one process, the others that need Spark for the other; the
    rest, file by file, is for whichever has time. (The groups of pytest-xdist itself have no effect with pytest 9.2.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByJvm(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid.partition("::")[0])

    return ByJvm(config, log)


@functools.cache
def has_random_cases(file: Path) -> bool:
    """Whether a file of tests makes up cases, by hypothesis or by itself."""
    text = file.read_text()
    return "from hypothesis" in text or "random.Random(" in text or "ANABRANCH_" in text


@functools.cache
def group_of(path: str) -> str:
    """The group of a file of tests: what it shares with others, or itself."""
    file = Path(__file__).resolve().parents[1] / path
    text = file.read_text() if file.suffix == ".py" and file.name.startswith("test_") else ""
    if "pytest.mark.cluster" in text or ("pytest.mark.spark" in text and "/faults/" in path):
        return PROCESSES
    return SESSION if "pytest.mark.spark" in text else path


@pytest.fixture(scope="session")
def object_store() -> Iterator["ObjectStore"]:
    """A server that speaks S3, with a bucket."""
    pytest.importorskip("moto", reason="no object store to test with: pip install 'moto[server]' (in the extra 'dev')")
    from tests import object_store as module

    with module.object_store() as store:
        yield store


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A SparkSession with two task slots. Tests that use it carry the marker ``spark``."""
    # Imported here, not above: the pure tests must run without paying for pyspark.
    from pyspark.sql import SparkSession

    from anabranch.spark.java import ensure_java
    from anabranch.spark.spark_session import LOG_WRITER

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
        # As in ab.session(): a tenth of a second less for every epoch.
        .config("spark.sql.streaming.checkpointFileManagerClass", LOG_WRITER)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
