"""Groups of the next generation (KIP-848) with real clients: their members come, go, are killed and come again, and so
does the broker, while a producer writes; and groups that go over from the classic protocol and back meanwhile.

Every record is read at least once, offsets never go back, and no partition has two owners at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient

from tests.clients.confluent import LOG, Confluent
from tests.clients.groups import Group, Numbers, group_of
from tests.clients.ports import free_ports
from tests.clients.test_groups import check
from tests.running import RunningBroker, running_broker

PARTITIONS = 4
CONFLUENT = "confluent-kafka"
UNIFORM, RANGE = "consumer:uniform", "consumer:range"
SOON = (  # Kafka's least values are 45 seconds and 5
    "group.min.session.timeout.ms=1000",
    "group.consumer.min.session.timeout.ms=1000",
    "group.consumer.session.timeout.ms=3000",
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=300",
)
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def own_broker(tmp_path: Path, complaints: list[str]) -> Iterator[RunningBroker]:
    """A broker that may be killed, and comes back at the same address; members that fall silent are soon missed."""
    complaints += ["Disconnected", "Connect to", "brokers are down", "[tT]imed out", "Connection refused"]
    with running_broker(tmp_path, f"listeners=PLAINTEXT://127.0.0.1:{free_ports()}", *SOON) as running:
        yield running


@pytest.fixture
def group(own_broker: RunningBroker, tmp_path: Path) -> Iterator[Group]:
    servers = own_broker.bootstrap_servers
    with Confluent().admin(servers) as admin:
        admin.create_topic("t", PARTITIONS, {})
    with group_of(servers, "g", "t", PARTITIONS, tmp_path) as made:
        yield made


def kind_of_group(servers: str) -> ConsumerGroupType:
    """Which protocol the group has gone over to."""
    admin = AdminClient({"bootstrap.servers": servers}, logger=LOG)
    return admin.describe_consumer_groups(["g"])["g"].result().type


@pytest.mark.parametrize("assignor", [UNIFORM, RANGE])
def test_members_come_and_go_and_are_killed(own_broker: RunningBroker, group: Group, assignor: str) -> None:
    with Numbers(own_broker.bootstrap_servers, "t", PARTITIONS) as numbers:
        first = group.join(CONFLUENT, assignor)
        group.await_owners(first, partitions=PARTITIONS)
        second, third = group.join(CONFLUENT, assignor), group.join(CONFLUENT, assignor)
        group.await_owners(first, second, third, partitions=PARTITIONS)
        assert kind_of_group(own_broker.bootstrap_servers) is ConsumerGroupType.CONSUMER
        second.kill()
        group.await_owners(first, third, partitions=PARTITIONS)
        again = group.join(CONFLUENT, assignor)
        group.await_owners(first, third, again, partitions=PARTITIONS)
        own_broker.kill()
        own_broker.start()
        first.leave()
        group.await_owners(third, again, partitions=PARTITIONS)
        numbers.stop()
        group.await_end(numbers.acknowledged)
    third.leave()
    again.leave()
    group.stop()
    check(group, numbers.acknowledged)


def test_five_join_at_once(own_broker: RunningBroker, group: Group) -> None:
    with Numbers(own_broker.bootstrap_servers, "t", PARTITIONS) as numbers:
        members = [group.join(CONFLUENT, UNIFORM) for _ in range(5)]
        group.wait_for(
            lambda: sorted(len(member.owns) for member in members) == [0, 1, 1, 1, 1], "not one partition each"
        )
        numbers.stop()
        group.await_end(numbers.acknowledged)
    for member in members:
        member.leave()
    group.stop()
    check(group, numbers.acknowledged)


def test_a_static_member_that_leaves_comes_back_and_nobody_else_notices(
    own_broker: RunningBroker, group: Group
) -> None:
    with Numbers(own_broker.bootstrap_servers, "t", PARTITIONS) as numbers:
        first, second = group.join(CONFLUENT, UNIFORM, "a"), group.join(CONFLUENT, UNIFORM, "b")
        group.await_owners(first, second, partitions=PARTITIONS)
        before = len(first.assignments), second.owns
        second.leave()
        again = group.join(CONFLUENT, UNIFORM, "b")
        group.await_owners(first, again, partitions=PARTITIONS)
        assert (len(first.assignments), again.owns) == before
        numbers.stop()
        group.await_end(numbers.acknowledged)
    for member in (first, again):
        member.leave()
    group.stop()
    check(group, numbers.acknowledged)


@pytest.mark.parametrize("library", [CONFLUENT, "aiokafka", "kafka-python"])
def test_a_group_goes_over_and_back_while_its_members_work(
    own_broker: RunningBroker, group: Group, library: str
) -> None:
    servers = own_broker.bootstrap_servers
    with Numbers(servers, "t", PARTITIONS) as numbers:
        old = [group.join(library, "range"), group.join(library, "range")]
        group.await_owners(*old, partitions=PARTITIONS)
        assert kind_of_group(servers) is ConsumerGroupType.CLASSIC
        new = group.join(CONFLUENT, UNIFORM)
        group.await_owners(*old, new, partitions=PARTITIONS)
        assert kind_of_group(servers) is ConsumerGroupType.CONSUMER
        own_broker.kill()
        own_broker.start()
        old.pop().leave()
        group.await_owners(*old, new, partitions=PARTITIONS)
        new.leave()
        group.await_owners(*old, partitions=PARTITIONS)
        assert kind_of_group(servers) is ConsumerGroupType.CLASSIC
        numbers.stop()
        group.await_end(numbers.acknowledged)
    old.pop().leave()
    group.stop()
    check(group, numbers.acknowledged)


def test_a_pattern_finds_topics_that_come_later(own_broker: RunningBroker, tmp_path: Path) -> None:
    servers = own_broker.bootstrap_servers
    with group_of(servers, "g", "^t.*", 1, tmp_path) as group, Confluent().admin(servers) as admin:
        admin.create_topic("other", 1, {})
        admin.create_topic("t1", 2, {})
        member = group.join(CONFLUENT, UNIFORM)
        group.wait_for(lambda: member.owns == {0, 1}, "the topic that was there is not assigned")
        admin.create_topic("t2", 3, {})
        group.wait_for(lambda: member.owns == {0, 1, 2}, "the topic that came later is not assigned")
        member.leave()
