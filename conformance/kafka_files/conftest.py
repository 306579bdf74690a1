"""The directories that the tests start from: written by Apache Kafka, and by minibroker, stopped in order and killed.

Each is made once, by whichever worker needs it first, and tests that write get a copy.
"""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

from conformance.kafka_files.contents import Topic, contents
from conformance.kafka_files.scenario import wait_until, write, write_metadata, write_security
from conformance.kafka_reference import KafkaProcess, running_kafka
from tests.class_archives import locked
from tests.running import RunningBroker, running_broker

METADATA = "__cluster_metadata-0"
START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
# The records say that they are years old, and that some were deleted is to outlive a kill.
COMMON_SETTINGS = {
    "log.retention.ms": "-1",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
}
# Snapshots of the metadata every 2 s at least, a log of it that rolls, and ACLs that stop nobody.
KAFKA_PROPERTIES = {
    **COMMON_SETTINGS,
    "metadata.log.max.snapshot.interval.ms": "2000",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "internal.metadata.log.segment.bytes": "20000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
OUR_SETTINGS = (
    "node.id=0",
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    *(f"{name}={value}" for name, value in COMMON_SETTINGS.items()),
)


class Written(NamedTuple):
    """A directory as a broker has left it, and what clients saw in it before."""

    path: Path
    contents: dict[str, Topic]


class Brokers(NamedTuple):
    """Starts a broker on a data directory, in a new directory for the rest."""

    kafka: Callable[[Path], AbstractContextManager[KafkaProcess]]
    minibroker: Callable[[Path], AbstractContextManager[RunningBroker]]


def copied(source: Path, target: Path) -> Path:
    """A copy of a directory. Kafka's indexes are mostly holes while it runs, and so are their copies."""
    subprocess.run(["cp", "--archive", "--sparse=always", str(source), str(target)], check=True)
    return target


def shortened(logs: Path) -> bool:
    """Whether a kill no longer brings back the records that `scenario.shorten` deletes."""
    checkpoint = logs / START_OFFSETS
    return checkpoint.exists() and "shortened 0 255" in checkpoint.read_text()


def emptied(logs: Path) -> bool:
    """Whether the high watermark of the topic that was removed is no longer taken for that of its namesake."""
    return "gone 0 0" in (logs / HIGH_WATERMARKS).read_text()


def complaints(broker: RunningBroker) -> list[str]:
    """Return what our broker has logged, but for settings of these tests that it knows and does not follow yet.

    Segments that go are no news: some of what was deleted was still there. Nor is it news that indexes of the metadata
    log are made anew: Kafka 4.4 does not complete them when it stops.
    """
    usual = ("has no effect here: ", "as it lies below the log start offset")
    lines = (line for line in broker.log.splitlines() if not any(text in line for text in usual))
    return [
        line for line in lines if not (METADATA in line and line.endswith("ends before the first timestamp of the log"))
    ]


def made_once(
    name: str, make: Callable[[Path], dict[str, Written]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Written]:
    """Return what `make` made in a directory, in this process or in another worker of the same run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    made = shared / f"{name}.pickle"
    with locked(shared / f"{name}.lock"):
        if not made.exists():
            made.write_bytes(pickle.dumps(make(tmp_path_factory.mktemp(name))))
    written: dict[str, Written] = pickle.loads(made.read_bytes())
    return written


@pytest.fixture(scope="session")
def kafka_written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """By "killed" and "stopped" what Apache Kafka has written."""
    return made_once("kafka", write_by_kafka, tmp_path_factory)


def write_by_kafka(directory: Path) -> dict[str, Written]:
    """Let Apache Kafka write in a directory."""
    with running_kafka(directory, KAFKA_PROPERTIES) as kafka:
        write(kafka.bootstrap_servers)
        write_security(kafka.bootstrap_servers)
        write_metadata(kafka.bootstrap_servers)
        logs = directory / "logs"
        wait_until(lambda: len(list((logs / METADATA).glob("*.checkpoint"))) > 1, "snapshots of the metadata")
        wait_until(lambda: shortened(logs), "the start of a shortened log")
        wait_until(lambda: emptied(logs), "the high watermark of an empty log")
        kafka.kill()
        killed = copied(logs, directory / "killed")
        kafka.start()
        seen = contents(kafka.bootstrap_servers)
        kafka.stop()
        return {"killed": Written(killed, seen), "stopped": Written(logs, seen)}


STARTS = 4  # of our own broker on the directory that it was stopped in


@pytest.fixture(scope="session")
def our_written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """By "killed" and "stopped" what minibroker has written, which was killed and started again before."""
    return made_once("minibroker", write_by_minibroker, tmp_path_factory)


def write_by_minibroker(directory: Path) -> dict[str, Written]:
    """Let minibroker write in a directory."""
    with running_broker(directory, *OUR_SETTINGS) as broker:
        write(broker.bootstrap_servers)
        wait_until(lambda: shortened(directory / "data"), "the start of a shortened log")
        broker.kill()
        broker.start()
        broker.restart()
        seen = contents(broker.bootstrap_servers)
        broker.kill()
        killed = copied(directory / "data", directory / "killed")
        broker.start()
        assert broker.stop() == 0
        return {"killed": Written(killed, seen), "stopped": Written(directory / "data", seen)}


@pytest.fixture
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Starts Apache Kafka, or minibroker as the same node, on a data directory."""

    def kafka(logs: Path) -> AbstractContextManager[KafkaProcess]:
        return running_kafka(tmp_path_factory.mktemp("kafka"), KAFKA_PROPERTIES, logs=logs)

    def minibroker(logs: Path) -> AbstractContextManager[RunningBroker]:
        return running_broker(tmp_path_factory.mktemp("minibroker"), *OUR_SETTINGS, f"log.dirs={logs}")

    yield Brokers(kafka, minibroker)
