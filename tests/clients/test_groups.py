"""Groups of each client library: members come, go, are killed and come again, and so does the broker, while a producer
writes. Every record is read at least once, offsets never go back, and no partition has two owners at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients.confluent import Confluent
from tests.clients.group_scenarios import (
    PARTITIONS,
    five_join_at_once,
    group_with_topic,
    members_come_and_go,
    static_member_comes_back,
    written_to,
)
from tests.clients.groups import Group, Member, group_of
from tests.clients.ports import free_ports
from tests.running import RunningBroker, running_broker

THOROUGH = pytest.mark.thorough
KINDS = [
    pytest.param("confluent-kafka", "range", marks=THOROUGH),
    ("confluent-kafka", "cooperative-sticky"),
    pytest.param("aiokafka", "range", marks=THOROUGH),
    pytest.param("aiokafka", "sticky", marks=THOROUGH),
    pytest.param("kafka-python", "range", marks=THOROUGH),
    pytest.param("kafka-python", "cooperative-sticky", marks=THOROUGH),
]
LIBRARIES = ["confluent-kafka", pytest.param("aiokafka", marks=THOROUGH), pytest.param("kafka-python", marks=THOROUGH)]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def own_broker(tmp_path: Path, complaints: list[str]) -> Iterator[RunningBroker]:
    """A broker that may be killed, and comes back at the same address."""
    complaints += ["Disconnected", "Connect to", "brokers are down", "timed out", "Connection (refused|reset)"]
    address = f"listeners=PLAINTEXT://127.0.0.1:{free_ports()}"
    with running_broker(tmp_path, address) as running:
        yield running


@pytest.fixture
def group(own_broker: RunningBroker, tmp_path: Path) -> Iterator[Group]:
    with group_with_topic(own_broker.bootstrap_servers, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def broker_of_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of three nodes in a process."""
    with running_broker(tmp_path_factory.mktemp("three"), nodes=3) as running:
        yield running.bootstrap_servers


@pytest.mark.parametrize(("library", "assignor"), KINDS)
def test_partitions_are_reassigned_when_members_join_leave_or_die(
    own_broker: RunningBroker, group: Group, library: str, assignor: str
) -> None:
    members_come_and_go(own_broker, group, library, library, assignor)


@pytest.mark.parametrize(
    ("assignor", "libraries"),
    [
        ("range", ("confluent-kafka", "aiokafka", "kafka-python")),
        pytest.param("cooperative-sticky", ("kafka-python", "confluent-kafka", "kafka-python"), marks=THOROUGH),
    ],
)
def test_members_of_different_libraries_share_a_group(
    own_broker: RunningBroker, group: Group, assignor: str, libraries: tuple[str, ...]
) -> None:
    with written_to(group):
        first, second, third = (group.join(library, assignor) for library in libraries)
        group.await_owners(first, second, third, partitions=PARTITIONS)
        first.kill()
        own_broker.kill()
        own_broker.start()
        group.await_owners(second, third, partitions=PARTITIONS)
        again = group.join(libraries[0], assignor)
        group.await_owners(second, third, again, partitions=PARTITIONS)


@pytest.mark.parametrize("library", LIBRARIES)
def test_five_members_that_join_at_once_share_four_partitions(group: Group, library: str) -> None:
    five_join_at_once(group, library, "range")


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_static_member_that_is_killed_and_returns_causes_no_rebalance(group: Group, library: str) -> None:
    static_member_comes_back(group, library, "range", Member.kill)


@pytest.mark.parametrize("library", LIBRARIES)
def test_members_find_their_coordinators_among_three_nodes(broker_of_three: str, tmp_path: Path, library: str) -> None:
    """Three groups, of which the nodes lead the partitions in turn."""
    with Confluent().admin(broker_of_three) as admin:
        admin.create_topic(library, PARTITIONS, {})
    with ExitStack() as stack:
        groups = [
            stack.enter_context(group_of(broker_of_three, f"{library}-{index}", library, PARTITIONS, tmp_path))
            for index in range(3)
        ]
        with written_to(*groups):
            for group in groups:
                group.join(library, "range")
                group.join(library, "range")
            for group in groups:
                group.await_owners(*group.members, partitions=PARTITIONS)
