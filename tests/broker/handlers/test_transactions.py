"""The requests of transactions that coordinators and brokers send, and what a waiting reader gets at an end.

What producers send is tested in `broker/transactions`, and asked of Apache Kafka too in `conformance/wire`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.handlers.transactional_offsets import txn_offset_commit
from minibroker.broker.handlers.transactions import add_partitions_to_txn
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.steps import run_all_steps
from tests.broker.delaying import steps_of
from tests.broker.harness import Harness, Waiting
from tests.broker.transactions.producing import CLASSIC, TransactionalProducer, fetched

Asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
Marker = WriteTxnMarkersRequest.WritableTxnMarker
SETTINGS = {"transaction.state.log.num.partitions": "3"}
OF_BROKERS = pytest.mark.parametrize("version", [4, 5])


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path, settings=SETTINGS) as harness:
        harness.create_topic("t", 2)
        yield harness


@pytest.fixture
def producer(harness: Harness) -> TransactionalProducer:
    made = TransactionalProducer(harness, versions=CLASSIC)
    assert made.init() == ErrorCode.NONE
    return made


# --- AddPartitionsToTxn from brokers ------------------------------------------------------------


def asked(producer: TransactionalProducer, *partitions: int, topic: str = "t", **more: Any) -> Asked:
    fields = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, **more}
    return Asked(
        transactional_id=producer.transactional_id, topics=[Topic(name=topic, partitions=list(partitions))], **fields
    )


def codes(harness: Harness, version: int, *transactions: Asked) -> list[list[int]]:
    """By transaction, the code of each partition."""
    answer = harness.request(AddPartitionsToTxnRequest(transactions=list(transactions)), version)
    assert answer.error_code == ErrorCode.NONE
    assert [each.transactional_id for each in answer.results_by_transaction] == [
        each.transactional_id for each in transactions
    ]
    return [
        [partition.partition_error_code for topic in each.topic_results for partition in topic.results_by_partition]
        for each in answer.results_by_transaction
    ]


@OF_BROKERS
def test_partitions_are_added_to_several_transactions_at_once(harness: Harness, version: int) -> None:
    producers = [TransactionalProducer(harness, name) for name in ("one", "two")]
    for each in producers:
        each.init()
    one, two = producers
    assert codes(harness, version, asked(one, 0, 1), asked(two, 1)) == [[0, 0], [0]]
    transactions = harness.cluster.transactions.transactions
    assert transactions["one"].partitions == {("t", 0), ("t", 1)}
    assert transactions["two"].partitions == {("t", 1)}


@OF_BROKERS
def test_verify_only_answers_which_partitions_are_in_the_transaction(
    harness: Harness, producer: TransactionalProducer, version: int
) -> None:
    producer.add(("t", 0))
    found = codes(harness, version, asked(producer, 0, 1, verify_only=True))
    assert found == [[ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]]
    assert harness.cluster.transactions.transactions["tx"].partitions == {("t", 0)}


@OF_BROKERS
@pytest.mark.parametrize("verify_only", [True, False])
def test_add_partitions_to_txn_rejects_each_transaction_separately(
    harness: Harness, producer: TransactionalProducer, version: int, verify_only: bool
) -> None:
    stranger = TransactionalProducer(harness, "stranger")
    stranger.producer_id, stranger.epoch = 77, 0
    refused = codes(
        harness,
        version,
        asked(producer, 0, producer_epoch=producer.epoch + 1, verify_only=verify_only),
        asked(producer, 0, producer_id=producer.producer_id + 1, verify_only=verify_only),
        asked(stranger, 0, verify_only=verify_only),
        asked(producer, 0, topic="unknown", verify_only=verify_only),
    )
    assert refused == [
        [ErrorCode.PRODUCER_FENCED],
        [ErrorCode.INVALID_PRODUCER_ID_MAPPING],
        [ErrorCode.INVALID_PRODUCER_ID_MAPPING],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]


def test_only_the_coordinator_adds_offsets_to_a_transaction(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2, settings=SETTINGS) as harness:
        producer = TransactionalProducer(harness, versions=CLASSIC)
        assert producer.init() == ErrorCode.NONE
        fields = {"transactional_id": producer.transactional_id, "producer_id": producer.producer_id}
        request = AddOffsetsToTxnRequest(**fields, producer_epoch=producer.epoch, group_id="g")
        assert harness.request(request, node=3 - producer.node).error_code == ErrorCode.NOT_COORDINATOR
        assert harness.request(request, node=producer.node).error_code == ErrorCode.NONE


# --- WriteTxnMarkers ----------------------------------------------------------------------------


def mark(
    harness: Harness,
    producer: TransactionalProducer,
    *partitions: tuple[str, int],
    version: int = 2,
    commit: bool = True,
    node: int = 1,
    **more: int,
) -> list[int]:
    """The code of each partition."""
    fields = {"producer_epoch": producer.epoch, "coordinator_epoch": 0, **more}
    marker = Marker(
        producer_id=producer.producer_id,
        transaction_result=commit,
        topics=[Marker.WritableTxnMarkerTopic(name=name, partition_indexes=[index]) for name, index in partitions],
        **fields,
    )
    answer = harness.request(WriteTxnMarkersRequest(markers=[marker]), version, node=node)
    (result,) = answer.markers
    assert result.producer_id == producer.producer_id
    return [partition.error_code for topic in result.topics for partition in topic.partitions]


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_the_transaction_in_its_partition(
    harness: Harness, producer: TransactionalProducer, version: int, commit: bool
) -> None:
    producer.send("a")
    assert mark(harness, producer, ("t", 0), version=version, commit=commit) == [0]
    assert fetched(harness) == (["a"] if commit else [])


def test_each_partition_of_a_marker_request_is_answered_separately(
    harness: Harness, producer: TransactionalProducer
) -> None:
    producer.send("a")
    found = mark(harness, producer, ("t", 0), ("t", 9), ("unknown", 0))
    assert found == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_markers_of_old_epochs_are_rejected(harness: Harness, producer: TransactionalProducer) -> None:
    producer.epoch = 5
    assert mark(harness, producer, ("t", 0), coordinator_epoch=3) == [0]
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert mark(harness, producer, ("t", 0), coordinator_epoch=2) == [fenced]
    assert mark(harness, producer, ("t", 0), producer_epoch=4, coordinator_epoch=3) == [
        ErrorCode.INVALID_PRODUCER_EPOCH
    ]


def test_only_leaders_accept_markers(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2, settings=SETTINGS) as harness:
        harness.create_topic("t", 2)
        producer = TransactionalProducer(harness)
        producer.producer_id, producer.epoch = 7, 0
        leader = harness.partition("t").leader_id
        assert mark(harness, producer, ("t", 0), node=3 - leader) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert mark(harness, producer, ("t", 0), node=leader) == [0]


# --- who waits, and who asks --------------------------------------------------------------------


def waiting_reader(harness: Harness, min_bytes: int) -> Waiting:
    Partition = FetchRequest.FetchTopic.FetchPartition
    partition = Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20, log_start_offset=-1)
    topic_id = harness.partition("t").topic.topic_id
    request = FetchRequest(
        max_wait_ms=5000,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation_level=1,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])],
    )
    waiting = harness.request(request)
    assert isinstance(waiting, Waiting)
    return waiting


@pytest.mark.parametrize("min_bytes", [1, 300])
def test_a_commit_completes_a_delayed_read_committed_fetch(
    harness: Harness, producer: TransactionalProducer, min_bytes: int
) -> None:
    waiting = waiting_reader(harness, min_bytes)
    producer.send("a" * 400)
    assert not waiting.done
    producer.finish()
    harness.clock.advance(0)
    harness.end_turn()
    assert waiting.done
    (answer,) = waiting.response().responses[0].partitions
    assert len(answer.records) > 400


def test_only_the_coordinator_of_a_transactional_id_answers_its_requests(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2, settings=SETTINGS) as harness:
        harness.create_topic("t")
        producer = TransactionalProducer(harness)
        producer.init()
        other = 3 - producer.node
        ended = EndTxnRequest(transactional_id="tx", producer_id=0, producer_epoch=0, committed=True)
        assert harness.request(ended, node=other).error_code == ErrorCode.NOT_COORDINATOR
        described = harness.request(DescribeTransactionsRequest(transactional_ids=["tx"]), node=other)
        assert described.transaction_states[0].error_code == ErrorCode.NOT_COORDINATOR
        assert harness.request(ListTransactionsRequest(), node=other).transaction_states == []
        (listed,) = harness.request(ListTransactionsRequest(), node=producer.node).transaction_states
        assert (listed.transactional_id, listed.transaction_state) == ("tx", "Empty")


def test_list_transactions_filters_by_the_time_since_the_transaction_started(
    harness: Harness, producer: TransactionalProducer
) -> None:
    """One that has not begun has lasted longer than any."""

    def lists(duration_ms: int) -> bool:
        request = ListTransactionsRequest(duration_filter=duration_ms)
        return harness.request(request, version=1).transaction_states != []

    assert lists(-1)
    assert lists(10**12)
    producer.send("a")
    assert [lists(duration_ms) for duration_ms in (-1, 0, 10**12)] == [True, False, False]
    harness.clock.advance(1000)
    assert [lists(duration_ms) for duration_ms in (-1, 0, 999, 1000)] == [True, True, True, False]


def test_an_ending_transaction_is_described_with_partitions_without_a_marker(
    harness: Harness, producer: TransactionalProducer
) -> None:
    producer.send("a")
    producer.send("b", partition=1)
    harness.partition("t", 1).log.offline = "its disk is away"
    producer.finish()
    (state,) = harness.request(DescribeTransactionsRequest(transactional_ids=["tx"])).transaction_states
    assert state.transaction_state == "PrepareCommit"
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("t", [1])]


def test_describe_producers_is_rejected_for_partitions_without_a_local_replica(harness: Harness) -> None:
    Asked = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(topics=[Asked(name="t", partition_indexes=[0, 7])])
    known, unknown = harness.request(request).topics[0].partitions
    assert (known.error_code, known.active_producers) == (ErrorCode.NONE, [])
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_producer_is_described_with_its_last_sequence(harness: Harness, producer: TransactionalProducer) -> None:
    producer.send("a", "b")
    asked = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])
    (known,) = harness.request(DescribeProducersRequest(topics=[asked])).topics[0].partitions[0].active_producers
    assert (known.producer_id, known.producer_epoch, known.last_sequence) == (producer.producer_id, producer.epoch, 1)
    assert (known.current_txn_start_offset, known.coordinator_epoch) == (0, -1)


def test_each_replica_of_a_partition_describes_its_producers(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.create_topic("t", 1, 2)
        leader, follower = harness.partition("t").replicas
        (stranger,) = {1, 2, 3} - {leader, follower}
        request = DescribeProducersRequest(
            topics=[DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])]
        )
        answers = [harness.request(request, node=node).topics[0].partitions[0] for node in (leader, follower, stranger)]
        assert [answer.error_code for answer in answers] == [0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_the_error_for_a_transactional_commit_of_an_unknown_group_depends_on_the_version(
    harness: Harness, producer: TransactionalProducer, version: int, code: ErrorCode
) -> None:
    assert offset_codes(harness, producer, version, generation_id_or_member_epoch=0) == [code]
    assert offset_codes(harness, producer, version) == [ErrorCode.NONE]


def test_transactional_offset_commits_use_topic_ids(harness: Harness, producer: TransactionalProducer) -> None:
    assert offset_codes(harness, producer, 6, topic_id=bytes(range(16))) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert offset_codes(harness, producer, 6) == [ErrorCode.NONE]


def offset_codes(
    harness: Harness, producer: TransactionalProducer, version: int, topic_id: bytes | None = None, **fields: Any
) -> list[int]:
    """The codes of a TxnOffsetCommit for t, in this version, by name and by id."""
    harness.coordinator("g")
    shape = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    known = harness.cluster.image.topics["t"].topic_id if topic_id is None else topic_id
    part = shape.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id="tx", group_id="g", producer_id=producer.producer_id, producer_epoch=producer.epoch, **fields
    )
    request.topics = [shape(name="t", topic_id=known, partitions=[part])]
    (topic,) = harness.request(request, version).topics
    assert (topic.name, topic.topic_id) == (("t", ZERO_UUID) if version < 6 else ("", known))
    return [partition.error_code for partition in topic.partitions]


def test_a_topic_deleted_during_a_long_commit_gets_no_offsets(harness: Harness) -> None:
    harness.create_topic("gone")
    producer = TransactionalProducer(harness)
    assert producer.init() == ErrorCode.NONE
    harness.coordinator("g")
    asked = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="gone")
    part = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition
    asked.partitions = [part(partition_index=0, committed_offset=7, committed_metadata="") for _ in range(250)]
    request = TxnOffsetCommitRequest(
        transactional_id="tx", group_id="g", producer_id=producer.producer_id, producer_epoch=producer.epoch
    )
    request.topics = [asked]
    context = harness.make_context(ApiKey.TXN_OFFSET_COMMIT, 5)
    steps = steps_of(txn_offset_commit(context, request))
    for _ in range(50):
        next(steps)
    harness.cluster.controller.delete_topic(harness.cluster.image.topics["gone"])
    answer: Any = run_all_steps(steps)
    codes = [one.error_code for one in answer.topics[0].partitions]
    unknown = codes.index(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # these are answered first
    assert unknown > 0 and set(codes[:unknown]) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert set(codes[unknown:]) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    harness.create_topic("gone")
    assert "g" not in harness.cluster.groups.groups


@pytest.mark.parametrize("verify_only", [True, False])
def test_many_partitions_of_a_transaction_are_processed_in_steps(harness: Harness, verify_only: bool) -> None:
    producer = TransactionalProducer(harness)
    producer.init()
    harness.create_topic("many", 100)
    assert producer.add(*[("many", index) for index in range(100)]) == [ErrorCode.NONE] * 100
    asked_topic = Topic(name="many", partitions=list(range(100)))
    transaction = Asked(transactional_id="tx", producer_id=producer.producer_id, producer_epoch=producer.epoch)
    transaction.topics, transaction.verify_only = [asked_topic], verify_only
    request = AddPartitionsToTxnRequest(transactions=[transaction])
    context = harness.make_context(ApiKey.ADD_PARTITIONS_TO_TXN, 5)
    assert sum(1 for _ in steps_of(add_partitions_to_txn(context, request))) >= (200 if verify_only else 100)
