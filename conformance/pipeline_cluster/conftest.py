"""What the tests on a cluster share: the cluster, a broker, and what is shipped to executors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.pipeline_cluster.drivers import RunningDriver, running_driver
from conformance.pipeline_cluster.standalone import StandaloneCluster, running_cluster
from minibroker.cli.pipeline.pipeline_command import pipeline
from tests.running import RunningBroker, running_broker


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `minibroker pipeline package` packs."""
    path = tmp_path_factory.mktemp("archive") / "minibroker.tar.gz"
    result = CliRunner().invoke(pipeline, ["package", "--out", str(path)])
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="module")
def driver(cluster: StandaloneCluster, archive: Path) -> Iterator[RunningDriver]:
    with running_driver(cluster, archive) as driver:
        yield driver
