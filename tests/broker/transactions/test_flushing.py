"""Transactions under flush.messages: what is told, and what follows, waits for the disk, and a failure is told.

Without the setting nothing waits, as everywhere else in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.metadata.partitions import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from minibroker.broker.transactions.transaction import TransactionState
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.offsets import OffsetCommitRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
)
from tests.broker.harness import Harness, TopicData, Waiting, batch
from tests.broker.transactions.producing import TransactionalProducer, fetched
from tests.storage.support import FailingDisk

OffsetTopic = OffsetCommitRequest.OffsetCommitRequestTopic
OffsetPartition = OffsetTopic.OffsetCommitRequestPartition
ONE_PARTITION = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


class Flushing:
    """A harness whose work aside can be held, on a disk that can be made to fail, with a producer that has an id."""

    def __init__(self, directory: Path) -> None:
        self.disk = FailingDisk()
        self.harness = Harness(directory, disk=self.disk, settings=ONE_PARTITION)
        self.harness.create_topic("t")
        self.producer = TransactionalProducer(self.harness)
        self.producer.init()

    def flush_each(self, *topics: str) -> None:
        """From now on, each record of these topics is to be flushed, and nothing is until `sync`."""
        for topic in topics:
            log = self.harness.partition(topic).log
            log.flush()
            log.update_settings(log.settings._replace(flush_messages=1))
        self.harness.clock.holds_aside = True

    def sync(self) -> None:
        while self.harness.clock.do_aside():
            pass

    def ask(self, request: Any, version: int | None = None) -> Any:
        return self.harness.request(request, version)

    def end(self) -> Any:
        producer = self.producer
        return self.ask(
            EndTxnRequest(
                transactional_id="tx",
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=True,
            ),
            5,
        )

    @property
    def state(self) -> TransactionState:
        return self.harness.cluster.transactions.transactions["tx"].state


@pytest.fixture
def flushing(tmp_path: Path) -> Iterator[Flushing]:
    made = Flushing(tmp_path)
    with made.harness:
        yield made


def test_prepare_commit_is_flushed_before_the_end_txn_response_and_any_marker(flushing: Flushing) -> None:
    flushing.producer.send("a")
    flushing.flush_each(TRANSACTIONS_TOPIC)
    waiting = flushing.end()
    flushing.harness.clock.advance(1000)
    assert isinstance(waiting, Waiting) and not waiting.done
    assert (flushing.state, fetched(flushing.harness)) == (TransactionState.PREPARE_COMMIT, [])
    flushing.sync()
    assert waiting.response().error_code == ErrorCode.NONE
    flushing.harness.clock.advance(0)
    assert (flushing.state, fetched(flushing.harness)) == (TransactionState.COMPLETE_COMMIT, ["a"])


def test_a_repeated_end_txn_is_answered_no_sooner_than_the_first(flushing: Flushing) -> None:
    flushing.flush_each(TRANSACTIONS_TOPIC)
    add, version = requests_that_join(flushing.producer)["add"]
    first, again = flushing.ask(add, version), flushing.ask(add, version)
    assert isinstance(again, Waiting) and not again.done
    flushing.sync()
    assert [code_in(each.response()) for each in (first, again)] == [ErrorCode.NONE] * 2


def test_a_prepare_commit_that_cannot_be_flushed_returns_an_error_and_writes_no_markers(flushing: Flushing) -> None:
    flushing.producer.send("a")
    flushing.flush_each(TRANSACTIONS_TOPIC)
    waiting = flushing.end()
    flushing.disk.failing.add("sync")
    flushing.sync()
    assert waiting.response().error_code == ErrorCode.NOT_COORDINATOR
    flushing.harness.clock.advance(1000)
    assert fetched(flushing.harness) == []
    assert flushing.end().error_code == ErrorCode.NOT_COORDINATOR
    flushing.disk.failing.clear()
    flushing.harness.clock.holds_aside = False


def test_the_completed_transaction_is_recorded_once_the_markers_are_flushed(flushing: Flushing) -> None:
    flushing.producer.send("a")
    flushing.producer.send_offset("g", 7)
    flushing.flush_each("t", GROUPS_TOPIC)
    assert flushing.end().error_code == ErrorCode.NONE
    flushing.harness.clock.advance(1000)
    assert flushing.state is TransactionState.PREPARE_COMMIT
    assert flushing.harness.cluster.transactions.markers.get_partitions_without_marker("tx") == {
        ("t", 0),
        (GROUPS_TOPIC, 0),
    }
    end_offset = flushing.harness.partition("t").log.log_end_offset
    flushing.sync()
    flushing.harness.clock.advance(1000)
    assert flushing.state is TransactionState.COMPLETE_COMMIT
    assert flushing.harness.partition("t").log.log_end_offset == end_offset == 2, "the marker was written once"


@pytest.mark.parametrize("lost", ["t", "u"])
def test_a_transaction_is_incomplete_while_one_of_its_markers_cannot_be_flushed(flushing: Flushing, lost: str) -> None:
    flushing.harness.create_topic("u")
    for topic in ("t", "u"):
        flushing.producer.send("a", topic=topic)
    flushing.flush_each("t", "u")
    assert flushing.end().error_code == ErrorCode.NONE
    flushing.harness.clock.advance(0)
    flushing.disk.suffix = f"{lost}-0/00000000000000000000.log"
    flushing.disk.failing.add("sync")
    flushing.sync()
    assert flushing.state is TransactionState.PREPARE_COMMIT
    assert flushing.harness.cluster.transactions.markers.get_partitions_without_marker("tx") == {(lost, 0)}


def test_markers_that_cannot_be_flushed_are_written_after_the_next_start(flushing: Flushing) -> None:
    flushing.producer.send("a")
    flushing.flush_each("t")
    assert flushing.end().error_code == ErrorCode.NONE
    flushing.harness.clock.advance(0)
    flushing.disk.failing.add("sync")
    flushing.sync()
    flushing.harness.clock.advance(1000)
    assert flushing.state is TransactionState.PREPARE_COMMIT
    assert flushing.harness.cluster.transactions.markers.get_partitions_without_marker("tx") == {("t", 0)}
    flushing.disk.failing.clear()
    flushing.harness.clock.holds_aside = False
    flushing.harness.restart(crash=True)
    flushing.harness.clock.advance(0)
    assert flushing.state is TransactionState.COMPLETE_COMMIT
    assert fetched(flushing.harness) == ["a"]


def requests_that_join(producer: TransactionalProducer) -> dict[str, tuple[Any, int]]:
    told = {"transactional_id": "tx", "producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    added = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
    Offsets = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    offset = Offsets.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    again = {"transactional_id": "tx", "transaction_timeout_ms": 60_000}
    return {
        "init": (InitProducerIdRequest(**again, producer_id=-1, producer_epoch=-1), 5),
        "add": (
            AddPartitionsToTxnRequest(
                v3_and_below_topics=[added], **{f"v3_and_below_{name}": value for name, value in told.items()}
            ),
            3,
        ),
        "offsets": (
            TxnOffsetCommitRequest(group_id="g", topics=[Offsets(name="t", partitions=[offset])], **told),
            5,
        ),
    }


def code_in(answer: Any) -> int:
    if isinstance(answer, InitProducerIdResponse):
        return int(answer.error_code)
    if isinstance(answer, AddPartitionsToTxnResponse):
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    return int(answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("kind", ["init", "add", "offsets"])
@pytest.mark.parametrize("fails", [False, True])
def test_requests_that_change_a_transaction_are_answered_after_the_flush(
    flushing: Flushing, kind: str, fails: bool
) -> None:
    flushing.harness.cluster.groups.log.create_topic()
    flushing.flush_each(TRANSACTIONS_TOPIC)
    waiting = flushing.ask(*requests_that_join(flushing.producer)[kind])
    assert isinstance(waiting, Waiting) and not waiting.done
    if fails:
        flushing.disk.failing.add("sync")
    flushing.sync()
    assert code_in(waiting.response()) == (ErrorCode.NOT_COORDINATOR if fails else ErrorCode.NONE)
    flushing.disk.failing.clear()
    flushing.harness.clock.holds_aside = False


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("fails", [False, True])
def test_partitions_added_by_a_broker_are_answered_after_the_flush(
    flushing: Flushing, version: int, fails: bool
) -> None:
    flushing.flush_each(TRANSACTIONS_TOPIC)
    producer = flushing.producer
    Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
    told = {"transactional_id": "tx", "producer_id": producer.producer_id, "topics": [topic]}
    transactions = [
        Transaction(**told, producer_epoch=producer.epoch),
        Transaction(**told, producer_epoch=producer.epoch + 1),
        Transaction(**told, producer_epoch=producer.epoch, verify_only=True),
    ]
    waiting = flushing.ask(AddPartitionsToTxnRequest(transactions=transactions), version)
    assert isinstance(waiting, Waiting) and not waiting.done
    if fails:
        flushing.disk.failing.add("sync")
    flushing.sync()
    codes = [
        result.topic_results[0].results_by_partition[0].partition_error_code
        for result in waiting.response().results_by_transaction
    ]
    flushed = ErrorCode.NOT_COORDINATOR if fails else ErrorCode.NONE
    assert codes == [flushed, ErrorCode.PRODUCER_FENCED, ErrorCode.NONE], "each is told what concerns it"
    flushing.disk.failing.clear()
    flushing.harness.clock.holds_aside = False


@pytest.mark.parametrize("fails", [False, True])
def test_the_first_batch_of_a_partition_is_acknowledged_once_its_transaction_is_flushed(
    flushing: Flushing, fails: bool
) -> None:
    flushing.flush_each(TRANSACTIONS_TOPIC)
    producer = flushing.producer
    waiting = flushing.ask(produced(flushing, producer, 0), 13)
    assert isinstance(waiting, Waiting) and not waiting.done
    if fails:
        flushing.disk.failing.add("sync")
    flushing.sync()
    answer = waiting.response().responses[0].partition_responses[0]
    assert answer.error_code == (ErrorCode.KAFKA_STORAGE_ERROR if fails else ErrorCode.NONE)
    flushing.disk.failing.clear()
    if not fails:
        second = flushing.ask(produced(flushing, producer, 1), 13)
        assert second.responses[0].partition_responses[0].error_code == ErrorCode.NONE, "it has joined already"
    flushing.harness.clock.holds_aside = False


def produced(flushing: Flushing, producer: TransactionalProducer, sequence: int) -> Any:
    records = batch(
        "a",
        transactional=True,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
    )
    data = TopicData(
        topic_id=flushing.harness.partition("t").topic.topic_id,
        partition_data=[TopicData.PartitionProduceData(index=0, records=memoryview(records))],
    )
    return ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=1000, topic_data=[data])


def test_a_batch_is_appended_only_after_the_coordinator_recorded_its_partition(flushing: Flushing) -> None:
    flushing.harness.produce("t", "first")
    flushing.disk.failing.add("write")
    flushing.disk.suffix = f"{TRANSACTIONS_TOPIC}-0/00000000000000000000.log"
    assert flushing.producer.send("a") != ErrorCode.NONE
    log = flushing.harness.partition("t").log
    assert (log.log_end_offset, log.last_stable_offset, log.producers.open_transactions) == (1, 1, {})
    flushing.disk.failing.clear()
    assert flushing.producer.send("a") == ErrorCode.NOT_ENOUGH_REPLICAS, "which has it try again"
    flushing.harness.clock.advance(100)
    assert flushing.producer.send("a") == ErrorCode.NONE
    assert flushing.end().error_code == ErrorCode.NONE
    flushing.harness.clock.advance(1000)
    assert fetched(flushing.harness) == ["first", "a"]


def test_a_prepare_commit_that_cannot_be_written_leaves_the_transaction_ongoing(flushing: Flushing) -> None:
    flushing.producer.send("a")
    flushing.disk.failing.add("write")
    assert flushing.end().error_code == ErrorCode.NOT_COORDINATOR
    flushing.disk.failing.clear()
    flushing.harness.clock.advance(1000)
    assert flushing.state is TransactionState.ONGOING
    assert fetched(flushing.harness) == []
    assert flushing.end().error_code == ErrorCode.NONE
    flushing.harness.clock.advance(1000)
    assert (flushing.state, fetched(flushing.harness)) == (TransactionState.COMPLETE_COMMIT, ["a"])


def test_a_complete_commit_that_cannot_be_recorded_is_recorded_later(flushing: Flushing) -> None:
    flushing.producer.send("a")
    assert flushing.end().error_code == ErrorCode.NONE
    flushing.disk.failing.add("write")
    flushing.disk.suffix = f"{TRANSACTIONS_TOPIC}-0/00000000000000000000.log"
    flushing.harness.clock.advance(0)
    flushing.harness.end_turn()
    flushing.disk.failing.clear()
    flushing.harness.clock.advance(1000)
    assert (flushing.state, fetched(flushing.harness)) == (TransactionState.COMPLETE_COMMIT, ["a"])


def test_offsets_that_cannot_be_written_are_not_committed(flushing: Flushing) -> None:
    def commit(offset: int) -> int:
        partition = OffsetPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topics = [OffsetTopic(name="t", partitions=[partition])]
        answer = flushing.ask(OffsetCommitRequest(group_id="g", topics=topics), 9)
        code: int = answer.topics[0].partitions[0].error_code
        return code

    flushing.harness.coordinator("g")
    assert (commit(5), commit(6)) == (ErrorCode.NONE, ErrorCode.NONE)
    flushing.disk.failing.add("write")
    assert commit(7) == ErrorCode.NOT_COORDINATOR
    flushing.disk.failing.clear()
    flushing.harness.clock.advance(100)
    group = flushing.harness.cluster.groups.groups["g"]
    assert group.offsets.by_partition["t", 0].offset == 6
    assert commit(8) == ErrorCode.NONE
