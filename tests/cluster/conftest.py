"""One standalone cluster for all tests of this folder, whole again before each of them; and one application on it."""

from collections.abc import Iterator

import pytest

from tests.cluster.applications import Application
from tests.cluster.standalone import StandaloneCluster


@pytest.fixture(scope="session")
def standing_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master and two workers with one core each."""
    cluster = StandaloneCluster(tmp_path_factory.mktemp("cluster"), workers=2)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(standing_cluster: StandaloneCluster) -> Iterator[StandaloneCluster]:
    """The cluster with all its workers and no application."""
    standing_cluster.kill_drivers()
    standing_cluster.start_missing_workers()
    standing_cluster.wait_until_idle()
    yield standing_cluster
    standing_cluster.kill_drivers()


@pytest.fixture(scope="session")
def standing_applications() -> list[Application]:
    """The application that tests share, if there is one."""
    return []


@pytest.fixture
def application(
    standing_cluster: StandaloneCluster,
    standing_applications: list[Application],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Application]:
    """An application with an executor on each worker, warm from earlier tests: for those that let its driver live."""
    standing_cluster.start_missing_workers()
    if not (standing_applications and standing_applications[-1].is_idle):
        standing_cluster.kill_drivers()
        standing_cluster.wait_until_idle()
        standing_applications.append(Application(standing_cluster, tmp_path_factory.mktemp("jobs")))
    yield standing_applications[-1]
