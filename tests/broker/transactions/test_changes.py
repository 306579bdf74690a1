"""Transactions that are open while something else changes: leaders, features, topics and groups go.

What a transaction does where nothing changes is tested in `test_coordinator.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.broker.metadata.partitions import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from minibroker.broker.transactions.transaction import TransactionState
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import UpdateFeaturesRequest
from minibroker.protocol.messages.groups import DeleteGroupsRequest
from minibroker.protocol.messages.replicas import AlterPartitionReassignmentsRequest
from minibroker.protocol.messages.transactions import EndTxnRequest
from tests.broker.harness import Harness
from tests.broker.transactions.producing import CLASSIC, OWN_EPOCHS, TransactionalProducer, fetched

OK = ErrorCode.NONE
GENERATIONS = pytest.mark.parametrize("versions", [CLASSIC, OWN_EPOCHS], ids=["classic", "own epochs"])
ONE_PARTITION = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path, settings=ONE_PARTITION) as harness:
        harness.create_topic("t", 2)
        yield harness


def move(harness: Harness, topic: str) -> int:
    """Take the topic's partition 0 away from the node that leads it; which one that was."""
    before = harness.partition(topic).leader_id
    others = [before % 3 + 1, (before + 1) % 3 + 1]
    shape = AlterPartitionReassignmentsRequest.ReassignableTopic
    moved = shape.ReassignablePartition(partition_index=0, replicas=others)
    request = AlterPartitionReassignmentsRequest(topics=[shape(name=topic, partitions=[moved])])
    answer = harness.request(request, node=before)
    assert answer.responses[0].partitions[0].error_code == OK
    harness.clock.advance(0)
    assert harness.partition(topic).leader_id in others
    return before


@GENERATIONS
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("decided", [True, False])
def test_a_transaction_continues_after_leader_changes(
    tmp_path: Path, versions: dict[str, int], commit: bool, decided: bool
) -> None:
    with Harness(tmp_path, nodes=3, settings=ONE_PARTITION) as harness:
        harness.create_topic("t", 1, 3)
        producer = TransactionalProducer(harness, versions=versions)
        producer.init()
        assert (producer.send("a"), producer.send_offset("g", 7)) == (OK, OK)
        if decided:
            assert producer.end(commit=commit) == OK
        epochs = [harness.partition(topic).leader_epoch for topic in (TRANSACTIONS_TOPIC, GROUPS_TOPIC, "t")]
        before, _, _ = [move(harness, topic) for topic in (TRANSACTIONS_TOPIC, GROUPS_TOPIC, "t")]
        ending = EndTxnRequest(transactional_id="tx", producer_id=producer.producer_id, producer_epoch=producer.epoch)
        assert harness.request(ending, node=before).error_code == ErrorCode.NOT_COORDINATOR
        if not decided:
            assert (producer.send("b"), producer.send_offset("g", 8)) == (OK, OK)
            assert producer.end(commit=commit) == OK
        harness.clock.advance(0)
        assert harness.cluster.transactions.transactions["tx"].state is (
            TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        )
        assert fetched(harness) == ((["a"] if decided else ["a", "b"]) if commit else [])
        offsets = harness.cluster.groups.groups["g"].offsets
        assert [each.offset for each in offsets.by_partition.values()] == ([7 if decided else 8] if commit else [])
        assert not offsets.pending
        assert (producer.send("next"), producer.finish()) == (OK, OK)
        now = [harness.partition(topic).leader_epoch for topic in (TRANSACTIONS_TOPIC, GROUPS_TOPIC, "t")]
        assert all(after > first for after, first in zip(now, epochs, strict=True))


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_markers_are_not_written_below_min_insync_replicas(tmp_path: Path, commit: bool) -> None:
    with Harness(tmp_path, nodes=3, settings={**ONE_PARTITION, "transaction.state.log.min.isr": "1"}) as harness:
        harness.create_topic("t", 1, 3, min_insync_replicas="2")
        producer = TransactionalProducer(harness)
        producer.init()
        assert producer.send("a") == OK
        harness.restart(nodes=[1])
        assert producer.end(commit=commit) == OK
        harness.clock.advance(1000)
        transactions = harness.cluster.transactions
        assert transactions.transactions["tx"].state is (
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        )
        assert transactions.markers.get_partitions_without_marker("tx") == {("t", 0)}
        assert harness.partition("t").log.log_end_offset == 1
        harness.restart(nodes=[1, 2])
        harness.clock.advance(0)
        ended = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        assert harness.cluster.transactions.transactions["tx"].state is ended
        assert fetched(harness) == (["a"] if commit else [])


@pytest.mark.parametrize("restart", [True, False])
def test_committing_a_transaction_adds_no_offset_to_a_group_deleted_meanwhile(harness: Harness, restart: bool) -> None:
    producer = TransactionalProducer(harness)
    producer.init()
    assert producer.send_offset("g", 7) == OK
    answer = harness.request(DeleteGroupsRequest(groups_names=["g"]))
    assert answer.results[0].error_code == OK
    if restart:
        harness.restart(crash=True)
    assert producer.finish() == OK
    assert "g" not in harness.cluster.groups.groups
    harness.restart()
    assert "g" not in harness.cluster.groups.groups


@pytest.mark.parametrize("restart", [True, False])
def test_a_recreated_topic_has_no_offset_of_its_namesake(harness: Harness, restart: bool) -> None:
    harness.create_topic("again")
    producer = TransactionalProducer(harness)
    producer.init()
    assert producer.send_offset("g", 7, topic="again") == OK
    harness.cluster.controller.delete_topic(harness.cluster.image.topics["again"])
    harness.create_topic("again")
    if restart:
        harness.restart(crash=True)
    assert producer.finish() == OK
    group = harness.cluster.groups.groups.get("g")
    assert group is None or group.offsets.is_empty


def downgrade(harness: Harness, level: int) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="transaction.version", max_version_level=level, upgrade_type=2
    )
    answer = harness.request(UpdateFeaturesRequest(feature_updates=[update]), 1)
    assert answer.error_code == OK
    assert harness.cluster.transactions.transaction_version == level


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize("restart", [True, False])
def test_a_transaction_ends_in_its_original_version_after_a_downgrade(
    harness: Harness, level: int, decided: bool, restart: bool
) -> None:
    producer = TransactionalProducer(harness)
    producer.init()
    assert producer.send("a") == OK
    if decided:
        assert producer.end() == OK
    downgrade(harness, level)
    if restart:
        harness.restart(crash=True)
    if not decided:
        assert producer.end() == OK
    harness.clock.advance(0)
    assert fetched(harness) == ["a"]
    older = TransactionalProducer(harness, versions=CLASSIC)
    assert older.init() == OK
    assert (older.send("b"), older.finish()) == (OK, OK)
    assert (older.send("c"), older.finish(commit=False)) == (OK, OK)
    assert fetched(harness) == ["a", "b"]


@pytest.mark.parametrize("level", [0, 1])
def test_an_open_transaction_of_a_newer_client_times_out_after_a_downgrade(harness: Harness, level: int) -> None:
    producer = TransactionalProducer(harness)
    producer.init(timeout_ms=1000)
    assert producer.send("a") == OK
    downgrade(harness, level)
    harness.clock.advance(20_000)
    assert harness.cluster.transactions.transactions["tx"].state is TransactionState.COMPLETE_ABORT
    assert producer.produce("late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert fetched(harness) == []
