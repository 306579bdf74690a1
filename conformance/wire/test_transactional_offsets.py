"""Offsets that are committed in transactions: when a group has them, and whose are refused.

Every literal is what Apache Kafka 4.4 answers. What else of a group's offsets waits for a transaction is in
`test_pending_offsets.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.wire.connection import Connection
from conformance.wire.requests import repeated
from conformance.wire.transactional import (
    INVALID_STATE,
    MAPPING,
    OLD_EPOCH,
    OWN_EPOCHS,
    TransactionalProducer,
    settle,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.offsets import OffsetFetchRequest
from minibroker.protocol.messages.transactions import TxnOffsetCommitRequest


def offset_of(connection: Connection, group: str, topic: str, *, stable: bool) -> tuple[int, int]:
    """(error code, offset)."""
    Asked = OffsetFetchRequest.OffsetFetchRequestGroup
    wanted = Asked(group_id=group, topics=[Asked.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])])
    answer = connection.ask(OffsetFetchRequest(groups=[wanted], require_stable=stable), 8).groups[0]
    partition = answer.topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
def test_transactional_offsets_become_visible_with_the_commit(
    producer: TransactionalProducer, name: str, group: str, version: int, commit: bool
) -> None:
    connection = producer.connection
    if version < 5:
        assert producer.add_offsets(group) == 0
    assert producer.commit_offset(group, name, 7, version=version) == 0
    assert offset_of(connection, group, name, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert offset_of(connection, group, name, stable=False) == (0, -1)
    assert producer.end(commit=commit) == 0
    expected = (0, 7 if commit else -1)
    assert repeated(lambda: offset_of(connection, group, name, stable=True), lambda seen: seen[0] == 0) == expected


@pytest.mark.parametrize(
    ("version", "code"), [(0, INVALID_STATE), (3, INVALID_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_offsets_of_a_group_not_added_to_the_transaction_are_rejected(
    producer: TransactionalProducer, name: str, group: str, version: int, code: int
) -> None:
    assert producer.commit_offset(group, name, 7, version=version) == code


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"generation_id_or_member_epoch": 3, "member_id": "m"}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": 3}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "m"}, 0),
    ],
)
def test_a_transactional_commit_with_a_generation_to_an_unknown_group_is_rejected(
    producer: TransactionalProducer, name: str, group: str, version: int, fields: dict[str, Any], code: int
) -> None:
    producer.add_offsets(group)
    assert producer.commit_offset(group, name, 7, version=version, **fields) == code


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_only_the_producer_of_the_transactional_id_commits_offsets(
    producer: TransactionalProducer, name: str, group: str, version: int
) -> None:
    ours = producer.producer_id
    producer.add_offsets(group)
    producer.goes_on_as(ours, 1)
    assert producer.commit_offset(group, name, 7, version=version) == OLD_EPOCH
    producer.goes_on_as(ours + 1_000_000, 0)
    assert producer.commit_offset(group, name, 7, version=version) == MAPPING


@pytest.mark.parametrize("version", [3, 5])
def test_the_producer_is_validated_before_the_group(
    producer: TransactionalProducer, name: str, group: str, version: int
) -> None:
    producer.add_offsets(group)
    producer.goes_on_as(producer.producer_id, 1)
    asked = {"generation_id_or_member_epoch": 3, "member_id": "m", "version": version}
    assert producer.commit_offset(group, name, 7, **asked) == OLD_EPOCH


@pytest.mark.parametrize("version", [3, 4, 5])
def test_offsets_of_an_unknown_topic_are_rejected(producer: TransactionalProducer, group: str, version: int) -> None:
    producer.add_offsets(group)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit_offset(group, "nobody-has-this", 7, version=version) == unknown


def test_nonexistent_partitions_come_first_in_a_txn_offset_commit_response(
    connection: Connection, producer: TransactionalProducer, group: str, name: str
) -> None:
    producer.add_offsets(group)
    kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    asked = [kind.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=5) for index in (0, 9)]
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[kind(name=name, partitions=asked)],
    )
    (topic,) = connection.ask(request, 3).topics
    answered = [(each.partition_index, each.error_code) for each in topic.partitions]
    assert answered == [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (0, ErrorCode.NONE)]


@pytest.mark.parametrize("more", [-1, 5])
def test_a_wrong_member_epoch_is_an_illegal_generation_in_older_versions(
    connection: Connection, producer: TransactionalProducer, group: str, name: str, more: int
) -> None:
    joining = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="m", rebalance_timeout_ms=60_000, subscribed_topic_names=[name], topic_partitions=[]
    )
    epoch = repeated(lambda: connection.ask(joining, 1), lambda answer: answer.error_code == 0).member_epoch
    asked = {"member_id": "m", "version": 5}
    codes = [
        producer.commit_offset(group, name, 7, generation_id_or_member_epoch=epoch + each, **asked)
        for each in (0, more)
    ]
    assert codes == [0, ErrorCode.ILLEGAL_GENERATION]


@pytest.mark.parametrize("version", [3, 5])
def test_an_epoch_older_than_that_of_the_offsets_partition_is_rejected(
    producer: TransactionalProducer, connection: Connection, name: str, group: str, version: int
) -> None:
    ours = producer.producer_id
    assert producer.commit_offset(group, name, 7, version=5) == 0
    assert producer.end(OWN_EPOCHS) == 0
    settle(producer)
    other = TransactionalProducer(connection)
    assert other.init() == 0
    other.goes_on_as(ours, 0)  # as after its transactional id has moved to another producer id
    assert other.commit_offset(group, name, 7, version=version) == OLD_EPOCH
    other.goes_on_as(ours, 1)
    assert other.commit_offset(group, name, 7, version=version) == MAPPING
