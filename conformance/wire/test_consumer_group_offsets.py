"""What members of a group of the next generation (KIP-848) may commit, fetch and delete.

Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.groups import Fetched, Member, commit, committed, delete, fetch_group, find_coordinator
from conformance.wire.requests import metadata_of, repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest

HEARTBEAT_VERSION = 1
JOIN, LEAVE = 0, -1
REBALANCE_TIMEOUT_MS = 60_000
STALE, UNKNOWN = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def group(connection: Connection, new_name: Callable[[], str]) -> str:
    """The name of a group that there is not yet, and that somebody coordinates."""
    name = f"group-{new_name()}"
    find_coordinator(connection, name)
    return name


def heartbeat(connection: Connection, group: str, member_id: str, epoch: int, **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
    answer = connection.ask(request, HEARTBEAT_VERSION)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer


def join(connection: Connection, group: str, *topics: str, member_id: str = "m-1") -> Member:
    """A member that has confirmed the partitions it was given."""
    fields: dict[str, Any] = {
        "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
        "subscribed_topic_names": list(topics),
        "topic_partitions": [],
    }
    answer = heartbeat(connection, group, member_id, JOIN, **fields)
    given: Sequence[Any] = answer.assignment.topic_partitions if answer.assignment else ()
    owned = ConsumerGroupHeartbeatRequest.TopicPartitions
    fields = {"topic_partitions": [owned(topic_id=each.topic_id, partitions=each.partitions) for each in given]}
    answer = heartbeat(connection, group, member_id, answer.member_epoch, **fields)
    return Member(member_id, answer.member_epoch)


def test_a_member_commits_in_its_member_epoch(connection: Connection, new_topic: NewTopic, group: str) -> None:
    name = new_topic()
    member = join(connection, group, name)
    for code, who in (
        (UNKNOWN, {}),
        (UNKNOWN, {"member_id": "nobody", "generation_id_or_member_epoch": member.generation}),
        (STALE, member.fields(generation_id_or_member_epoch=member.generation + 1)),
        (STALE, member.fields(generation_id_or_member_epoch=member.generation - 1)),
        (STALE, member.fields(generation_id_or_member_epoch=-1)),
        (ErrorCode.NONE, member.fields()),
    ):
        assert commit(connection, group, (name, 0, 7), **who) == {(name, 0): code}, who
    assert committed(connection, group) == {(name, 0): 7}


@pytest.mark.parametrize("version", range(2, 9))
def test_consumer_group_members_cannot_commit_in_versions_without_epochs(
    connection: Connection, new_topic: NewTopic, group: str, version: int
) -> None:
    name = new_topic()
    member = join(connection, group, name)
    answered = commit(connection, group, (name, 0, 7), version=version, **member.fields())
    assert answered == {(name, 0): ErrorCode.UNSUPPORTED_VERSION}


def test_a_member_fetches_in_its_member_epoch(connection: Connection, new_topic: NewTopic, group: str) -> None:
    name = new_topic()
    member = join(connection, group, name)
    commit(connection, group, (name, 0, 7), **member.fields())
    found = (0, {(name, 0): Fetched(7)})
    for expected, who in (
        (found, {}),
        (found, {"member_id": member.member_id, "member_epoch": member.generation}),
        ((STALE, {}), {"member_id": member.member_id, "member_epoch": member.generation + 1}),
        ((STALE, {}), {"member_id": member.member_id, "member_epoch": member.generation - 1}),
        ((UNKNOWN, {}), {"member_id": "nobody", "member_epoch": member.generation}),
        ((STALE, {}), {"member_id": member.member_id}),
        ((UNKNOWN, {}), {"member_id": "", "member_epoch": member.generation}),
    ):
        assert fetch_group(connection, group, (name, [0]), **who) == expected, who


def test_a_commit_in_an_older_member_epoch_is_accepted_for_partitions_owned_since(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic(2)
    topic_id = metadata_of(connection, name).topic_id
    first = join(connection, group, name)
    join(connection, group, name, member_id="m-2")

    def kept() -> Any:
        return heartbeat(connection, group, first.member_id, first.generation, topic_partitions=None)

    answer = repeated(kept, lambda seen: seen.assignment is not None)
    (left,) = answer.assignment.topic_partitions
    (index,) = left.partitions
    owned = ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=[index])
    answer = heartbeat(connection, group, first.member_id, first.generation, topic_partitions=[owned])
    assert answer.member_epoch > first.generation
    gone = 1 - index
    assert commit(connection, group, (name, index, 7), **first.fields()) == {(name, index): 0}
    assert commit(connection, group, (name, gone, 8), **first.fields()) == {(name, gone): STALE}
    both = commit(connection, group, (name, index, 9), (name, gone, 8), **first.fields())
    assert both == {(name, index): STALE, (name, gone): STALE}
    assert committed(connection, group) == {(name, index): 7}


def test_clients_that_are_not_members_commit_once_the_group_is_empty(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic()
    member = join(connection, group, name)
    heartbeat(connection, group, member.member_id, LEAVE)
    assert commit(connection, group, (name, 0, 7)) == {(name, 0): 0}
    assert commit(connection, group, (name, 0, 8), **member.fields()) == {(name, 0): UNKNOWN}
    assert committed(connection, group) == {(name, 0): 7}


def test_offsets_of_subscribed_topics_cannot_be_deleted(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    read, other = new_topic(), new_topic()
    member = join(connection, group, read)
    commit(connection, group, (read, 0, 7), (other, 0, 8), **member.fields())
    answer = delete(connection, group, (read, 0), (other, 0))
    assert answer == (0, {(read, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, (other, 0): 0})
    assert committed(connection, group) == {(read, 0): 7}
