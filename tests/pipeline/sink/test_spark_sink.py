"""Spark writes to a running broker; each row is there exactly once after a task, a commit or the driver has died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.pipeline.sink import copying, failing
from tests.pipeline.sink.committed import Read, create_topic, read
from tests.pipeline.sink.failing import ACCIDENT
from tests.running import RunningBroker, running_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
PATIENCE_S = 200
pytestmark = pytest.mark.timeout(400)  # the last of them starts a JVM of its own, on a machine that may be busy


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker with rows in topic `from`, and the topic `to`, which is empty."""
    with running_broker(tmp_path) as broker:
        for topic in (copying.FROM, copying.TO):
            create_topic(broker.bootstrap_servers, topic, copying.PARTITIONS, retention_ms="-1")  # the rows are old
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(copying.ROWS):
            partition = number % copying.PARTITIONS
            producer.produce(copying.FROM, b"%06d" % number, b"key", partition, timestamp=1_700_000_000_000 + number)
        assert producer.flush(PATIENCE_S) == 0
        yield broker


@pytest.fixture
def accident(tmp_path: Path) -> Path:
    """The file that a sink of `failing` makes when its accident happens: it has one only."""
    return tmp_path / "accident"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """Where a stream keeps how far it is."""
    return str(tmp_path / "checkpoint")


def records(broker: RunningBroker, topic: str, isolation: str = "read_committed") -> list[Read]:
    """The records in order, but without their offsets: between them are the markers of transactions."""
    return [record._replace(offset=0) for record in read(broker.bootstrap_servers, topic, isolation)]


def assert_each_row_once(broker: RunningBroker) -> None:
    assert records(broker, copying.TO) == records(broker, copying.FROM)


def test_written_rows_are_read_unchanged(spark: SparkSession, broker: RunningBroker) -> None:
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    reader = spark.read.format("minibroker").options(**servers, includeHeaders="true")
    columns = ("key", "value", "partition", "timestamp", "headers")
    changed = "array(named_struct('key', cast(partition AS string), 'value', value)) AS headers"
    rows = reader.option("subscribe", copying.FROM).load().selectExpr(*columns[:-1], changed)
    rows.write.format("minibroker").options(**servers, topic=copying.TO).mode("append").save()
    found = reader.option("subscribe", copying.TO).load().select(*columns)
    assert sorted(found.collect()) == sorted(rows.collect())
    assert len(read(broker.bootstrap_servers, copying.TO)) == copying.ROWS
    first = read(broker.bootstrap_servers, copying.TO)[0]
    assert first == (0, 0, b"key", b"000000", 1_700_000_000_000, [("0", b"000000")])


def test_a_write_repeated_with_its_write_id_is_done_once(spark: SparkSession, broker: RunningBroker) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "named", "delivery": "exactly-once"}
    rows = spark.range(0, 100, 1, 3).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
    for _ in range(2):
        rows.write.format("minibroker").options(**options, writeId="march").mode("append").save()
    found = sorted(int(record.value or b"") for record in read(broker.bootstrap_servers, "named"))
    assert found == list(range(100))


def test_a_row_for_a_missing_partition_fails_the_query_and_the_error_names_it(
    spark: SparkSession, broker: RunningBroker
) -> None:
    rows = spark.sql("SELECT 'v' AS value, 99 AS partition")
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": copying.TO, "kafka.max.block.ms": "10"}
    with pytest.raises(Exception, match="partition 99 of topic to, which has 3, is not present in metadata"):
        rows.write.format("minibroker").options(**options).mode("append").save()


def test_a_task_that_fails_after_producing_causes_no_duplicates(
    spark: SparkSession, broker: RunningBroker, accident: Path, checkpoint: str
) -> None:
    failing.register(spark)
    copying.copy(spark, broker.bootstrap_servers, checkpoint, "dying", **{ACCIDENT: str(accident)})
    assert accident.read_text() == "attempt 0, 200 rows"
    assert_each_row_once(broker)
    assert len(records(broker, copying.TO, "read_uncommitted")) == copying.ROWS + 200


def test_a_partially_failed_commit_is_completed_by_the_next_run(
    spark: SparkSession, broker: RunningBroker, accident: Path, checkpoint: str
) -> None:
    failing.register(spark)
    with pytest.raises(Exception, match="the driver fails between two commits"):
        copying.copy(spark, broker.bootstrap_servers, checkpoint, "halfcommitting", **{ACCIDENT: str(accident)})
    assert accident.read_text() == "1 of 3"
    assert len(records(broker, copying.TO)) == copying.BATCH_ROWS + 200
    copying.copy(spark, broker.bootstrap_servers, checkpoint)
    assert_each_row_once(broker)


def test_a_commit_interrupted_by_a_killed_driver_is_completed_by_the_next(
    spark: SparkSession, broker: RunningBroker, accident: Path, checkpoint: str, tmp_path: Path
) -> None:
    arguments = [broker.bootstrap_servers, checkpoint, "stalling", str(accident)]
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.sink.copying", *arguments],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,  # its JVM with it
        )
    try:
        _wait_for(accident, driver)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert accident.read_text() == "1 of 3", (tmp_path / "driver.log").read_text()[-4000:]
    copying.copy(spark, broker.bootstrap_servers, checkpoint)
    assert_each_row_once(broker)
    assert len(records(broker, copying.TO, "read_uncommitted")) == copying.ROWS + 400


def _wait_for(accident: Path, driver: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not accident.exists() and driver.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
