"""Groups of the Java client, of franz-go, and of clients together, with the classic protocol, with KIP-848's, and while
they go over from the one to the other: members come, go and are killed, and so is the broker, while a producer writes.

Every record is read at least once, offsets never go back, and no partition has two owners at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from conformance.clients import franz_go_member, java_member
from conformance.conftest import Broker
from conformance.kafka_reference import running_kafka
from tests.clients.group_scenarios import goes_over_and_back, group_with_topic, members_come_and_go
from tests.clients.groups import Group
from tests.clients.ports import free_ports
from tests.running import running_broker

JAVA, CONFLUENT, FRANZ_GO = "java", "confluent-kafka", "franz-go"
UNIFORM, RANGE = "consumer:uniform", "consumer:range"
SETTINGS = {  # Kafka's least values are 45 seconds and 5
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
# Kafka takes longer to come back after a kill than a short session lasts.
SESSION_MS = {"minibroker": "3000", "kafka": "15000"}


@pytest.fixture
def own_broker(tmp_path: Path, against: str) -> Iterator[Broker]:
    """A broker that may be killed, and comes back at the same address; members that fall silent are soon missed."""
    running: AbstractContextManager[Broker]
    settings = {**SETTINGS, "group.consumer.session.timeout.ms": SESSION_MS[against]}
    if against == "kafka":
        running = running_kafka(tmp_path, settings)
    else:
        settings["listeners"] = f"PLAINTEXT://127.0.0.1:{free_ports()}"
        running = running_broker(tmp_path, *(f"{name}={value}" for name, value in settings.items()))
    with running as broker:
        yield broker


@pytest.fixture
def group(own_broker: Broker, tmp_path: Path) -> Iterator[Group]:
    with group_with_topic(own_broker.bootstrap_servers, tmp_path) as made:
        made.programs |= {JAVA: java_member(), FRANZ_GO: franz_go_member()}
        yield made


@pytest.mark.parametrize(
    ("library", "other", "assignor"),
    [
        (JAVA, JAVA, "cooperative-sticky"),
        (JAVA, CONFLUENT, "range"),
        (FRANZ_GO, FRANZ_GO, "cooperative-sticky"),
        (FRANZ_GO, JAVA, "range"),
        (JAVA, CONFLUENT, UNIFORM),
        (CONFLUENT, JAVA, RANGE),
    ],
)
def test_partitions_are_reassigned_when_members_join_leave_or_die(
    own_broker: Broker, group: Group, library: str, other: str, assignor: str
) -> None:
    members_come_and_go(own_broker, group, library, other, assignor)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_group_is_upgraded_and_downgraded_while_its_members_work(
    own_broker: Broker, group: Group, assignor: str
) -> None:
    goes_over_and_back(own_broker, group, (JAVA, assignor), (JAVA, UNIFORM))
