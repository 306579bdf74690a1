"""Jobs, queries and writes on Kubernetes, whose pods have nothing of ours but what is shipped to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.pipeline_cluster.drivers import RunningDriver, running_driver
from conformance.pipeline_cluster.kubernetes import KubernetesCluster, running_kubernetes
from tests.pipeline.sink.committed import create_topic
from tests.running import RunningBroker

COUNT = 1000
TASKS = 4
BUILD_TIMEOUT_S = 3600
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(BUILD_TIMEOUT_S)]  # the API server is compiled


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def pods_driver(kubernetes: KubernetesCluster, archive: Path) -> Iterator[RunningDriver]:
    with running_driver(kubernetes, archive, **kubernetes.settings()) as driver:
        yield driver


@pytest.fixture(scope="module")
def topic(broker: RunningBroker, pods_driver: RunningDriver) -> str:
    """A topic of four partitions, written twice in the same words, and so once."""
    create_topic(broker.bootstrap_servers, "of-pods", TASKS)
    sink = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "of-pods"}
    for _ in range(2):
        options = {**sink, "delivery": "exactly-once", "writeId": "of-pods"}
        pods_driver.ask("write", options=options, count=COUNT, tasks=TASKS)
    return "of-pods"


def test_both_pods_ran_with_the_archive(kubernetes: KubernetesCluster, topic: str) -> None:
    assert len(list(kubernetes.directory.glob("pods/*/work-dir/minibroker/pyarrow"))) == 2


def test_a_topic_written_twice_with_the_same_id_is_read_once(
    broker: RunningBroker, pods_driver: RunningDriver, topic: str
) -> None:
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    committed = {**servers, "subscribe": topic, "isolation.level": "read_committed"}
    rows = pods_driver.ask("values", options=committed)["rows"]
    assert sorted(int(value) for _, _, value in rows) == list(range(COUNT))


def test_a_directory_is_verified_and_counted(broker: RunningBroker, pods_driver: RunningDriver, topic: str) -> None:
    directory = str(broker.directory / "data")
    done = pods_driver.ask("command", arguments=["verify", "--path", directory])
    assert (done["status"], done["out"]) == (0, ""), done["err"]
    report = json.loads(pods_driver.run("stats", "--path", directory, "--topic", topic, "--json"))
    assert report["all"]["records"] == COUNT


def test_a_topic_is_archived(broker: RunningBroker, pods_driver: RunningDriver, topic: str, tmp_path: Path) -> None:
    for count in (COUNT, 0):
        report = pods_driver.run(
            "archive", "--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--out", str(tmp_path / "out")
        )
        assert f"{count:,} records written to" in report, report
