"""A broker on which share groups are quick: heartbeats every 0.3 s, and locks that may last a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from conformance.conftest import Broker
from conformance.kafka_reference import running_kafka
from tests.clients.ports import free_ports
from tests.running import running_broker

SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}


@contextmanager
def share_broker(directory: Path, against: str) -> Iterator[Broker]:
    """A broker that comes back at the same address after a kill."""
    running: AbstractContextManager[Broker]
    if against == "kafka":
        running = running_kafka(directory, SETTINGS)
    else:
        settings = {**SETTINGS, "listeners": f"PLAINTEXT://127.0.0.1:{free_ports()}"}
        running = running_broker(directory, *(f"{name}={value}" for name, value in settings.items()))
    with running as broker:
        yield broker
