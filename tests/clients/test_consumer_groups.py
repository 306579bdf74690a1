"""Groups of the next generation (KIP-848) with real clients: their members come, go, are killed and come again, and so
does the broker, while a producer writes; and groups that go over from the classic protocol and back meanwhile.

Every record is read at least once, offsets never go back, and no partition has two owners at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.confluent import Confluent
from tests.clients.group_scenarios import (
    five_join_at_once,
    goes_over_and_back,
    group_with_topic,
    members_come_and_go,
    static_member_comes_back,
)
from tests.clients.groups import Group, Member, group_of
from tests.clients.ports import free_ports
from tests.running import RunningBroker, running_broker

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
    complaints += ["Disconnected", "Connect to", "brokers are down", "[tT]imed out", "Connection (refused|reset)"]
    with running_broker(tmp_path, f"listeners=PLAINTEXT://127.0.0.1:{free_ports()}", *SOON) as running:
        yield running


@pytest.fixture
def group(own_broker: RunningBroker, tmp_path: Path) -> Iterator[Group]:
    with group_with_topic(own_broker.bootstrap_servers, tmp_path) as made:
        yield made


@pytest.mark.parametrize("assignor", [UNIFORM, pytest.param(RANGE, marks=pytest.mark.thorough)])
def test_partitions_are_reassigned_when_members_join_leave_or_die(
    own_broker: RunningBroker, group: Group, assignor: str
) -> None:
    members_come_and_go(own_broker, group, CONFLUENT, CONFLUENT, assignor)


def test_five_members_that_join_at_once_share_four_partitions(group: Group) -> None:
    five_join_at_once(group, CONFLUENT, UNIFORM)


def test_a_static_member_that_leaves_and_returns_causes_no_rebalance(group: Group) -> None:
    static_member_comes_back(group, CONFLUENT, UNIFORM, Member.leave)


@pytest.mark.parametrize(
    "library",
    [
        CONFLUENT,
        pytest.param("aiokafka", marks=pytest.mark.thorough),
        pytest.param("kafka-python", marks=pytest.mark.thorough),
    ],
)
def test_a_group_is_upgraded_and_downgraded_while_its_members_work(
    own_broker: RunningBroker, group: Group, library: str
) -> None:
    goes_over_and_back(own_broker, group, (library, "range"), (CONFLUENT, UNIFORM))


def test_a_regex_subscription_finds_later_topics(own_broker: RunningBroker, tmp_path: Path) -> None:
    servers = own_broker.bootstrap_servers
    with group_of(servers, "g", "^t.*", 1, tmp_path) as group, Confluent().admin(servers) as admin:
        admin.create_topic("other", 1, {})
        admin.create_topic("t1", 2, {})
        member = group.join(CONFLUENT, UNIFORM)
        group.wait_for(lambda: member.owns == {0, 1}, "the topic that was there is not assigned")
        admin.create_topic("t2", 3, {})
        group.wait_for(lambda: member.owns == {0, 1, 2}, "the topic that came later is not assigned")
        member.leave()
