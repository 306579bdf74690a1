"""Groups of each client library: members come, go, are killed and come again, and so does the broker, while a producer
writes. Every record is read at least once, offsets never go back, and no partition has two owners at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients.confluent import Confluent
from tests.clients.groups import Group, Numbers, group_of
from tests.clients.ports import free_ports
from tests.running import RunningBroker, running_broker

PARTITIONS = 4
KINDS = [
    ("confluent-kafka", "range"),
    ("confluent-kafka", "cooperative-sticky"),
    ("aiokafka", "range"),
    ("aiokafka", "sticky"),
    ("kafka-python", "range"),
    ("kafka-python", "cooperative-sticky"),
]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def own_broker(tmp_path: Path, complaints: list[str]) -> Iterator[RunningBroker]:
    """A broker that may be killed, and comes back at the same address."""
    complaints += ["Disconnected", "Connect to", "brokers are down", "timed out", "Connection refused"]
    address = f"listeners=PLAINTEXT://127.0.0.1:{free_ports()}"
    with running_broker(tmp_path, address) as running:
        yield running


@pytest.fixture
def group(own_broker: RunningBroker, tmp_path: Path) -> Iterator[Group]:
    servers = own_broker.bootstrap_servers
    with Confluent().admin(servers) as admin:
        admin.create_topic("t", PARTITIONS, {})
    with group_of(servers, "g", "t", PARTITIONS, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def broker_of_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of three nodes in a process."""
    with running_broker(tmp_path_factory.mktemp("three"), nodes=3) as running:
        yield running.bootstrap_servers


def check(group: Group, written: set[str]) -> None:
    """What must hold once everybody has left."""
    assert written <= group.read()
    assert group.overlaps() == []
    assert group.steps_back() == []
    assert len(group.seen) > 2  # on a quick machine all is over soon


@pytest.mark.parametrize(("library", "assignor"), KINDS)
def test_members_come_and_go_and_are_killed(
    own_broker: RunningBroker, group: Group, library: str, assignor: str
) -> None:
    with Numbers(own_broker.bootstrap_servers, "t", PARTITIONS) as numbers:
        first = group.join(library, assignor)
        group.await_owners(first, partitions=PARTITIONS)
        second, third = group.join(library, assignor), group.join(library, assignor)
        group.await_owners(first, second, third, partitions=PARTITIONS)
        second.kill()
        group.await_owners(first, third, partitions=PARTITIONS)
        again = group.join(library, assignor)
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


@pytest.mark.parametrize(
    ("assignor", "libraries"),
    [
        ("range", ("confluent-kafka", "aiokafka", "kafka-python")),
        ("cooperative-sticky", ("kafka-python", "confluent-kafka", "kafka-python")),
    ],
)
def test_members_of_different_libraries_share_a_group(
    own_broker: RunningBroker, group: Group, assignor: str, libraries: tuple[str, ...]
) -> None:
    with Numbers(own_broker.bootstrap_servers, "t", PARTITIONS) as numbers:
        first, second, third = (group.join(library, assignor) for library in libraries)
        group.await_owners(first, second, third, partitions=PARTITIONS)
        first.kill()
        own_broker.kill()
        own_broker.start()
        group.await_owners(second, third, partitions=PARTITIONS)
        again = group.join(libraries[0], assignor)
        group.await_owners(second, third, again, partitions=PARTITIONS)
        numbers.stop()
        group.await_end(numbers.acknowledged)
    for member in (second, third, again):
        member.leave()
    group.stop()
    check(group, numbers.acknowledged)


@pytest.mark.parametrize("library", ["confluent-kafka", "aiokafka", "kafka-python"])
def test_five_join_at_once(own_broker: RunningBroker, group: Group, library: str) -> None:
    with Numbers(own_broker.bootstrap_servers, "t", PARTITIONS) as numbers:
        members = [group.join(library, "range") for _ in range(5)]
        group.wait_for(
            lambda: sorted(len(member.owns) for member in members) == [0, 1, 1, 1, 1], "not one partition each"
        )
        numbers.stop()
        group.await_end(numbers.acknowledged)
    for member in members:
        member.leave()
    group.stop()
    check(group, numbers.acknowledged)


@pytest.mark.parametrize("library", ["confluent-kafka", "aiokafka", "kafka-python"])
def test_a_static_member_that_is_killed_comes_back_and_nobody_else_notices(
    own_broker: RunningBroker, group: Group, library: str
) -> None:
    with Numbers(own_broker.bootstrap_servers, "t", PARTITIONS) as numbers:
        first, second = group.join(library, "range", "a"), group.join(library, "range", "b")
        group.await_owners(first, second, partitions=PARTITIONS)
        before = len(first.assignments), second.owns
        second.kill()
        again = group.join(library, "range", "b")
        group.await_owners(first, again, partitions=PARTITIONS)
        assert (len(first.assignments), again.owns) == before
        numbers.stop()
        group.await_end(numbers.acknowledged)
    for member in (first, again):
        member.leave()
    group.stop()
    check(group, numbers.acknowledged)


@pytest.mark.parametrize("library", ["confluent-kafka", "aiokafka", "kafka-python"])
def test_members_find_their_coordinators_among_three_nodes(broker_of_three: str, tmp_path: Path, library: str) -> None:
    """Three groups, of which the nodes lead the partitions in turn."""
    with Confluent().admin(broker_of_three) as admin:
        admin.create_topic(library, PARTITIONS, {})
    with Numbers(broker_of_three, library, PARTITIONS) as numbers, ExitStack() as stack:
        groups = [
            stack.enter_context(group_of(broker_of_three, f"{library}-{index}", library, PARTITIONS, tmp_path))
            for index in range(3)
        ]
        for group in groups:
            group.join(library, "range")
            group.join(library, "range")
        for group in groups:
            group.await_owners(*group.members, partitions=PARTITIONS)
        numbers.stop()
        for group in groups:
            group.await_end(numbers.acknowledged)
            for member in group.members:
                member.leave()
            group.stop()
            check(group, numbers.acknowledged)
