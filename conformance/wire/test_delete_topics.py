"""DeleteTopics, by name and by id: what is deleted, and what is refused and stays.

Codes and messages are what Apache Kafka 4.4 answers; of a message only what tells the case apart.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import TIMEOUT_MS, exists, metadata_of, repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.topics import DeleteTopicsRequest

ZERO = bytes(16)


def delete_by_name(connection: Connection, *names: str, version: int) -> dict[str, Any]:
    if version >= 6:
        states = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
        request = DeleteTopicsRequest(topics=states, timeout_ms=TIMEOUT_MS)
    else:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)
    return {each.name: each for each in connection.ask(request, version).responses}


def delete(connection: Connection, *topics: tuple[str | None, bytes]) -> list[tuple[Any, ...]]:
    """Return the answers of version 6, each as (code, message, name, topic id)."""
    states = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    answer = connection.ask(DeleteTopicsRequest(topics=states, timeout_ms=TIMEOUT_MS), 6)
    return [(ErrorCode(each.error_code), each.error_message, each.name, each.topic_id) for each in answer.responses]


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_deleted(connection: Connection, new_topic: NewTopic, version: int) -> None:
    name, other = new_topic(), new_topic()
    answers = delete_by_name(connection, name, "no-such-topic", version=version)
    codes = {each: answer.error_code for each, answer in answers.items()}
    assert codes == {name: 0, "no-such-topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    if version >= 5:
        assert answers["no-such-topic"].error_message == "This server does not host this topic-partition."
    gone = repeated(lambda: metadata_of(connection, name).error_code, lambda code: code != 0)
    assert gone == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert exists(connection, other)


def test_a_topic_is_deleted_by_its_id(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    topic_id = metadata_of(connection, name).topic_id
    assert delete(connection, (None, topic_id)) == [(ErrorCode.NONE, None, name, topic_id)]
    unknown = ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
    assert delete(connection, (None, topic_id)) == [(*unknown, None, topic_id)]


def test_topics_to_delete_need_one_name_or_id_and_no_duplicates(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    topic_id = metadata_of(connection, name).topic_id
    wrong = ErrorCode.INVALID_REQUEST
    neither, both = "Neither topic name nor id were specified.", "You may not specify both topic name and topic id."
    assert delete(connection, (None, ZERO)) == [(wrong, neither, None, ZERO)]
    assert delete(connection, (name, topic_id)) == [(wrong, both, name, topic_id)]
    assert delete(connection, (name, ZERO), (name, ZERO)) == [(wrong, "Duplicate topic name.", name, ZERO)]
    assert delete(connection, (None, topic_id), (None, topic_id)) == [(wrong, "Duplicate topic id.", None, topic_id)]
    twice = "The provided topic name maps to an ID that was already supplied."
    assert delete(connection, (name, ZERO), (None, topic_id)) == [(wrong, twice, name, topic_id)]
    assert exists(connection, name)


@pytest.mark.parametrize("name", ["__cluster_metadata", "a b"])
def test_deleting_a_topic_with_an_invalid_name_reports_it_as_unknown(connection: Connection, name: str) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    assert delete(connection, (name, ZERO)) == [(*unknown, name, ZERO)]


def test_an_empty_deletion_has_an_empty_response(connection: Connection) -> None:
    assert delete(connection) == []
