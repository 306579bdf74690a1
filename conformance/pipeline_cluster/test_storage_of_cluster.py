"""Log directories and archives in S3 and in HDFS, read and written by a cluster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from conformance import builds
from conformance.pipeline_cluster.drivers import RunningDriver, running_driver
from conformance.pipeline_cluster.standalone import StandaloneCluster
from conformance.pipeline_cluster.storage import CREDENTIALS, ObjectStore, running_hdfs, running_object_store
from tests.pipeline.sink.committed import create_topic, values
from tests.running import RunningBroker, running_broker

pytestmark = pytest.mark.thorough  # servers of S3 and HDFS, and an application for each job
COUNT = 2000
COPY = """
import sys
from urllib.parse import urlsplit
from hdfs_native.fsspec import HdfsFileSystem
url = urlsplit(sys.argv[1])
system = HdfsFileSystem(host=url.hostname, port=url.port)
system.mkdir("/logs")
system.put(sys.argv[2], "/logs/data", recursive=True)
"""
EXPECTED = [b"%d" % number for number in range(COUNT)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory that no broker uses any more."""
    where = tmp_path_factory.mktemp("source")
    with running_broker(where) as broker:
        create_topic(broker.bootstrap_servers, "orders", 2)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd"})
        for number, value in enumerate(EXPECTED):
            producer.produce("orders", value, partition=number % 2)
        assert producer.flush(60) == 0
    return where / "data"


@pytest.fixture(scope="module")
def store(directory: Path) -> Iterator[ObjectStore]:
    """S3 with a bucket `logs`, in which `data` is a copy of the directory, and an empty one, `archives`."""
    with running_object_store() as store, pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        store.copy(directory, "logs/data")
        store.make("archives")
        yield store


@pytest.fixture(scope="module")
def s3_driver(cluster: StandaloneCluster, archive: Path, store: ObjectStore) -> Iterator[RunningDriver]:
    with running_driver(cluster, archive, **store.settings()) as driver:
        yield driver


def test_a_log_directory_in_s3_is_read(s3_driver: RunningDriver, store: ObjectStore) -> None:
    rows = s3_driver.ask("values", options={"path": store.url("logs/data"), "subscribe": "orders"})["rows"]
    assert sorted(int(value) for _, _, value in rows) == list(range(COUNT))


def test_an_archive_in_s3_is_replayed(s3_driver: RunningDriver, store: ObjectStore, broker: RunningBroker) -> None:
    archive_and_replay(s3_driver, store.url("logs/data"), store.url("archives/orders"), broker, "from-s3")


@pytest.fixture(scope="module")
def hdfs(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an HDFS in which `/logs/data` is a copy of the directory; drivers have its client."""
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as url, pytest.MonkeyPatch.context() as patch:
        site = str(builds.hdfs_client())
        patch.setenv("PYTHONPATH", site)
        subprocess.run([sys.executable, "-c", COPY, url, str(directory)], check=True)
        yield url


@pytest.fixture(scope="module")
def hdfs_driver(cluster: StandaloneCluster, archive: Path, hdfs: str) -> Iterator[RunningDriver]:
    both = {"spark.executorEnv.PYTHONPATH": f"minibroker:{builds.hdfs_client()}"}
    with running_driver(cluster, archive, **both) as driver:
        yield driver


def test_a_log_directory_in_hdfs_is_read(hdfs_driver: RunningDriver, hdfs: str) -> None:
    rows = hdfs_driver.ask("values", options={"path": f"{hdfs}/logs/data", "subscribe": "orders"})["rows"]
    assert sorted(int(value) for _, _, value in rows) == list(range(COUNT))


def test_an_archive_in_hdfs_is_replayed(hdfs_driver: RunningDriver, hdfs: str, broker: RunningBroker) -> None:
    archive_and_replay(hdfs_driver, f"{hdfs}/logs/data", f"{hdfs}/archives/orders", broker, "from-hdfs")


def archive_and_replay(driver: RunningDriver, source: str, archive: str, broker: RunningBroker, to: str) -> None:
    """Archive twice, of which the second run has nothing to do, and write the archive to a new topic."""
    for count in (COUNT, 0):
        report = driver.run("archive", "--path", source, "--topic", "orders", "--out", archive)
        assert f"{count:,} records written to {archive}" in report, report
    driver.run(
        "replay", "--from", archive, "--bootstrap-server", broker.bootstrap_servers, "--topic-map", f"orders={to}"
    )
    assert sorted(values(broker.bootstrap_servers, to)) == sorted(EXPECTED)
