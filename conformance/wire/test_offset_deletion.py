"""OffsetDelete: what is taken back, and what is kept because somebody reads it or might.

Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.groups import commit, committed, delete, find_coordinator, join, sync
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import LeaveGroupRequest
from minibroker.protocol.messages.offsets import OffsetDeleteRequest

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def group(connection: Connection, new_name: Callable[[], str]) -> str:
    """The name of a group that there is not yet, and that somebody coordinates."""
    name = f"group-{new_name()}"
    find_coordinator(connection, name)
    return name


def test_a_committed_offset_is_deleted(connection: Connection, new_topic: NewTopic, group: str) -> None:
    name = new_topic(2)
    commit(connection, group, (name, 0, 7), (name, 1, 8))
    assert delete(connection, group, (name, 0)) == (0, {(name, 0): 0})
    assert committed(connection, group) == {(name, 1): 8}
    assert delete(connection, group, (name, 0), (name, 1)) == (0, {(name, 0): 0, (name, 1): 0})
    assert committed(connection, group) == {}


def test_offset_delete_rejects_unknown_partitions_individually(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic()
    commit(connection, group, (name, 0, 7))
    answer = delete(connection, group, (name, 0), (name, 9), ("no-such-topic", 0))
    assert answer == (0, {(name, 0): 0, (name, 9): UNKNOWN, ("no-such-topic", 0): UNKNOWN})


def test_an_unknown_group_is_an_error_of_the_whole_request(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic()
    assert delete(connection, group, (name, 0)) == (ErrorCode.GROUP_ID_NOT_FOUND, {})
    assert delete(connection, group) == (ErrorCode.GROUP_ID_NOT_FOUND, {})
    assert delete(connection, "", (name, 0)) == (ErrorCode.INVALID_GROUP_ID, {})


def test_an_unknown_group_takes_precedence_over_an_unknown_topic(connection: Connection, group: str) -> None:
    assert delete(connection, group, ("no-such-topic", 0)) == (ErrorCode.GROUP_ID_NOT_FOUND, {})


def test_offsets_of_subscribed_topics_cannot_be_deleted(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    read, other = new_topic(), new_topic()
    commit(connection, group, (read, 0, 7), (other, 0, 8))
    member = join(connection, group, read)
    sync(connection, group, member)
    answer = delete(connection, group, (read, 0), (other, 0), (read, 9))
    assert answer == (0, {(read, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, (other, 0): 0, (read, 9): UNKNOWN})
    assert committed(connection, group) == {(read, 0): 7}
    leave = LeaveGroupRequest(group_id=group, members=[LeaveGroupRequest.MemberIdentity(member_id=member.member_id)])
    assert connection.ask(leave, 3).error_code == 0
    assert delete(connection, group, (read, 0)) == (0, {(read, 0): 0})


def test_offsets_of_a_group_of_another_protocol_type_cannot_be_deleted(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic()
    commit(connection, group, (name, 0, 7))
    sync(connection, group, join(connection, group, protocol_type="connect"))
    assert delete(connection, group, (name, 0)) == (ErrorCode.NON_EMPTY_GROUP, {})
    assert committed(connection, group) == {(name, 0): 7}


def test_offset_delete_answers_a_topic_without_partitions_only_if_the_topic_is_unknown(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic()
    commit(connection, group, (name, 0, 7))
    topics = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=each) for each in (name, "no-such-topic")]
    response = connection.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)
    assert (response.error_code, [(topic.name, topic.partitions) for topic in response.topics]) == (
        0,
        [("no-such-topic", [])],
    )
