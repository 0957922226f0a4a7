"""One standalone cluster for all tests of this folder, whole again before each of them."""

from collections.abc import Iterator

import pytest

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
    standing_cluster.start_missing_workers()
    standing_cluster.wait_until_idle()
    yield standing_cluster
    standing_cluster.kill_drivers()
