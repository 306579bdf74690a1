"""What the tests on a cluster share: the cluster, a broker, and what is shipped to executors."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.builds import get_installer
from conformance.pipeline_cluster.drivers import REPOSITORY, RunningDriver, running_driver
from conformance.pipeline_cluster.standalone import StandaloneCluster, running_cluster
from tests.running import RunningBroker, running_broker


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive for executors, as the page says it is made, with a client of HDFS; packed, not compressed."""
    directory = tmp_path_factory.mktemp("archive")
    path, packed = directory / "minibroker.tar.gz", str(directory / "executors")
    libraries = (".[arrow,registry]", "pandas<3", "hdfs-native", "fsspec")
    subprocess.run([*get_installer(packed), *libraries], cwd=REPOSITORY, check=True)
    with tarfile.open(path, "w:gz", compresslevel=0) as archive:  # each executor has it from this machine
        archive.add(packed, ".")
    return path


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="module")
def driver(cluster: StandaloneCluster, archive: Path) -> Iterator[RunningDriver]:
    with running_driver(cluster, archive) as driver:
        yield driver
