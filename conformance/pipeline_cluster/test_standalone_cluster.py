"""Queries and writes on two workers, of which one has nothing of ours but what is shipped to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.pipeline_cluster.drivers import DriverFailed, RunningDriver, running_driver
from conformance.pipeline_cluster.standalone import StandaloneCluster
from tests.pipeline.sink.committed import create_topic, values
from tests.running import RunningBroker

COUNT = 1000
TASKS = 4


def numbers(topic_values: list[bytes | None]) -> list[int]:
    return sorted(int(value or b"") for value in topic_values)


@pytest.fixture(scope="module")
def to(broker: RunningBroker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture(scope="module")
def orders(broker: RunningBroker, driver: RunningDriver, to: dict[str, str]) -> str:
    """A topic of four partitions, written twice in the same words, and so once."""
    create_topic(broker.bootstrap_servers, "orders", TASKS)
    for _ in range(2):
        options = {**to, "topic": "orders", "delivery": "exactly-once", "writeId": "orders"}
        driver.ask("write", options=options, count=COUNT, tasks=TASKS)
    return "orders"


def test_both_spark_executors_run_tasks(cluster: StandaloneCluster, orders: str) -> None:
    for name in cluster.workers:
        assert list(cluster.directory.glob(f"work-{name}/*/*/minibroker")), name


def test_a_write_repeated_with_its_write_id_is_done_once(broker: RunningBroker, orders: str) -> None:
    assert numbers(values(broker.bootstrap_servers, orders)) == list(range(COUNT))


def test_spark_on_a_cluster_reads_the_same_rows_from_a_broker_and_its_directory(
    broker: RunningBroker, driver: RunningDriver, to: dict[str, str], orders: str
) -> None:
    committed = {"subscribe": orders, "isolation.level": "read_committed"}
    by_broker = driver.ask("values", options={**to, **committed})["rows"]
    by_directory = driver.ask("values", options={"path": str(broker.directory / "data"), **committed})["rows"]
    assert sorted(by_broker) == sorted(by_directory)
    assert sorted(int(value) for _, _, value in by_broker) == list(range(COUNT))


def test_a_stream_copies_a_topic_in_batches(
    broker: RunningBroker, driver: RunningDriver, to: dict[str, str], orders: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, "copies", TASKS)
    source = {**to, "subscribe": orders, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "600"}
    sink = {**to, "topic": "copies", "delivery": "exactly-once"}
    driver.ask("copy", options=source, to=sink, checkpoint=str(tmp_path / "checkpoint"))
    assert numbers(values(broker.bootstrap_servers, "copies")) == list(range(COUNT))


def test_verify_runs_on_the_cluster(broker: RunningBroker, driver: RunningDriver, orders: str) -> None:
    done = driver.ask("command", arguments=["verify", "--path", str(broker.directory / "data"), "--topic", orders])
    assert (done["status"], done["out"]) == (0, ""), done["err"]
    assert "0 findings" in done["err"]


@pytest.mark.thorough  # one more application
def test_spark_reports_an_executor_without_the_archive_of_libraries(
    cluster: StandaloneCluster, to: dict[str, str], orders: str
) -> None:
    """Its own worker needs pyarrow, before anything of ours comes to that executor."""
    once = {"spark.task.maxFailures": "1"}
    with (
        running_driver(cluster, None, **once) as driver,
        pytest.raises(DriverFailed, match="No module named 'pyarrow'"),
    ):
        driver.ask("values", options={**to, "subscribe": orders})
