"""Jobs, queries and writes on Kubernetes, whose pods have nothing of ours but what is shipped to them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.pipeline_cluster.drivers import DriverFailed, RunningDriver, running_driver
from conformance.pipeline_cluster.kubernetes import KubernetesCluster, running_kubernetes
from conformance.pipeline_cluster.test_kills_on_cluster import await_records
from tests.pipeline.sink.committed import create_topic, values
from tests.running import RunningBroker

COUNT, MANY = 1000, 200_000
COUNT_RECORDS = """
import sys
from minibroker.pipeline.session import session
servers, topic, out = sys.argv[1:]
spark = session()
options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "isolation.level": "read_committed"}
count = spark.read.format("minibroker").options(**options).load().count()
open(out, "w").write(f"{spark.sparkContext.master} {count}")
spark.stop()
"""
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


def test_both_pods_import_the_archive(kubernetes: KubernetesCluster, topic: str) -> None:
    assert len(list(kubernetes.directory.glob("pods/*/work-dir/minibroker/pyarrow"))) == 2


def test_a_topic_written_twice_with_the_same_id_is_read_once(
    broker: RunningBroker, pods_driver: RunningDriver, topic: str
) -> None:
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    committed = {**servers, "subscribe": topic, "isolation.level": "read_committed"}
    rows = pods_driver.ask("values", options=committed)["rows"]
    assert sorted(int(value) for _, _, value in rows) == list(range(COUNT))


def test_a_directory_is_verified_and_its_statistics_counted(
    broker: RunningBroker, pods_driver: RunningDriver, topic: str
) -> None:
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


def test_a_write_survives_a_killed_pod(
    broker: RunningBroker, kubernetes: KubernetesCluster, pods_driver: RunningDriver
) -> None:
    create_topic(broker.bootstrap_servers, "with-pod-killed", TASKS)
    sink = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "with-pod-killed"}
    options = {**sink, "delivery": "exactly-once", "writeId": "with-pod-killed"}
    before = len(kubernetes.pods)
    pods_driver.tell("write", options=options, count=MANY, tasks=3 * TASKS)
    await_records(broker.bootstrap_servers, "with-pod-killed", 1)
    kubernetes.pods[-1].end(signal.SIGKILL)
    pods_driver.answer()
    assert sorted(int(value or b"") for value in values(broker.bootstrap_servers, "with-pod-killed")) == [*range(MANY)]
    kubernetes.await_pods(before + 1)


def test_a_driver_in_a_pod_has_the_settings_of_spark_submit(
    broker: RunningBroker, kubernetes: KubernetesCluster, archive: Path, topic: str, tmp_path: Path
) -> None:
    program = tmp_path / "count.py"
    program.write_text(COUNT_RECORDS)
    kubernetes.submit(program, archive, broker.bootstrap_servers, topic, str(tmp_path / "counted"))
    assert (tmp_path / "counted").read_text() == f"{kubernetes.url} {COUNT}"


@pytest.mark.parametrize(
    ("missing", "complaint"),
    [
        ("spark.kubernetes.authenticate.oauthToken", 'User "system:anonymous" cannot create'),
        ("spark.kubernetes.container.image", "need an image: set spark.kubernetes.container.image"),
    ],
    ids=["account", "image"],
)
def test_a_missing_kubernetes_setting_is_reported_in_one_line(
    kubernetes: KubernetesCluster, archive: Path, missing: str, complaint: str
) -> None:
    settings = {name: value for name, value in kubernetes.settings().items() if name != missing}
    with running_driver(kubernetes, archive, **settings) as driver, pytest.raises(DriverFailed, match=complaint):
        driver.ask("stop")
