"""DescribeLogDirs and AlterReplicaLogDirs of a broker with one log directory.

Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.wire.batches import batch
from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import produce
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.replicas import AlterReplicaLogDirsRequest, DescribeLogDirsRequest

NOW_MS = 1_700_000_000_000
Directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir


def described(connection: Connection, version: int, topics: dict[str, list[int]] | None) -> Any:
    """Return the answer for the one directory."""
    shape = DescribeLogDirsRequest.DescribableLogDirTopic
    asked = None if topics is None else [shape(topic=name, partitions=found) for name, found in topics.items()]
    (directory,) = connection.ask(DescribeLogDirsRequest(topics=asked), version).results
    assert directory.error_code == 0
    return directory


def sizes(directory: Any) -> dict[tuple[str, int], int]:
    assert not any(one.is_future_key or one.offset_lag for topic in directory.topics for one in topic.partitions)
    return {
        (topic.name, one.partition_index): one.partition_size for topic in directory.topics for one in topic.partitions
    }


def alter(connection: Connection, version: int, path: str, name: str, *partitions: int) -> list[int]:
    """The error code of each partition, by their numbers."""
    topic = Directory.AlterReplicaLogDirTopic(name=name, partitions=list(partitions))
    request = AlterReplicaLogDirsRequest(dirs=[Directory(path=path, topics=[topic])])
    (answer,) = connection.ask(request, version).results
    assert answer.topic_name == name
    return [one.error_code for one in sorted(answer.partitions, key=lambda one: int(one.partition_index))]


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories_are_listed_with_their_logs(connection: Connection, new_topic: NewTopic, version: int) -> None:
    name, records = new_topic(2), batch([b"value"], timestamp=NOW_MS)
    produce(connection, name, records, partition=1)
    directory = described(connection, version, {name: [0, 1, 9], "nope": [0]})
    assert sizes(directory) == {(name, 0): 0, (name, 1): len(records)}
    assert (name, 1) in sizes(described(connection, version, None))
    assert (directory.total_bytes > directory.usable_bytes > 0) == (version >= 4)
    assert sizes(described(connection, version, {})) == {}


@pytest.mark.parametrize("version", [1, 2])
def test_moving_a_log_to_the_directory_where_it_is_succeeds(
    connection: Connection, new_topic: NewTopic, version: int
) -> None:
    name = new_topic(2)
    path = described(connection, 4, {}).log_dir
    assert alter(connection, version, path, name, 0, 1) == [0, 0]
    assert sizes(described(connection, 4, {name: [0, 1]})) == {(name, 0): 0, (name, 1): 0}


@pytest.mark.parametrize("version", [1, 2])
def test_logs_that_cannot_move_are_rejected(connection: Connection, new_topic: NewTopic, version: int) -> None:
    name = new_topic()
    path = described(connection, 4, {}).log_dir
    for elsewhere in ("/nowhere", "relative", f"{path}/"):
        assert alter(connection, version, elsewhere, name, 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(connection, version, path, name, 9) == [unknown]
    assert alter(connection, version, path, name, -1) == [unknown]
    assert alter(connection, version, path, "nope", 0) == [unknown]
    assert alter(connection, version, path, "no name", 0) == [unknown]
    assert alter(connection, version, path, "__cluster_metadata", 0) == [unknown]
    assert alter(connection, version, path, "x" * 240, 0) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


@pytest.mark.parametrize("version", [1, 2])
def test_a_request_without_log_moves_has_an_empty_response(connection: Connection, version: int) -> None:
    assert connection.ask(AlterReplicaLogDirsRequest(dirs=[]), version).results == []
