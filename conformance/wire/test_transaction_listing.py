"""DescribeTransactions, ListTransactions, DescribeProducers: what administrators see of transactions.

Every literal is what Apache Kafka 4.4 answers. What producers are told is in `test_transactions.py`.
"""

from __future__ import annotations

from typing import Any

from conformance.wire.transactional import TransactionalProducer, settle
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)


def test_a_transaction_is_described(producer: TransactionalProducer, name: str) -> None:
    producer.add((name, 0))
    request = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id, "nobody-has-begun-this", ""])
    ours, unknown, empty = producer.connection.ask(request, 0).transaction_states
    assert (ours.error_code, ours.transaction_state, ours.transaction_timeout_ms) == (0, "Ongoing", 60_000)
    assert (ours.producer_id, ours.producer_epoch) == (producer.producer_id, producer.epoch)
    assert [(topic.topic, topic.partitions) for topic in ours.topics] == [(name, [0])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST


def listed(producer: TransactionalProducer, version: int = 2, **fields: Any) -> tuple[int, list[str], list[str]]:
    """(code, unknown filters, states) of those with the producer's transactional id."""
    answer = producer.connection.ask(ListTransactionsRequest(**fields), version)
    states = [
        each.transaction_state
        for each in answer.transaction_states
        if each.transactional_id == producer.transactional_id
    ]
    return answer.error_code, list(answer.unknown_state_filters), states


def test_transactions_are_filtered_by_state_producer_duration_and_pattern(
    producer: TransactionalProducer, name: str
) -> None:
    assert listed(producer) == (0, [], ["Empty"])
    for duration_ms in (0, 3_600_000):  # it has not begun, which is longer ago than anything
        assert listed(producer, duration_filter=duration_ms) == (0, [], ["Empty"])
    producer.add((name, 0))
    assert listed(producer, state_filters=["Ongoing"]) == (0, [], ["Ongoing"])
    assert listed(producer, state_filters=["Empty"]) == (0, [], [])
    assert listed(producer, state_filters=["Nonsense"]) == (0, ["Nonsense"], [])
    assert listed(producer, state_filters=["Nonsense", "Ongoing"]) == (0, ["Nonsense"], ["Ongoing"])
    assert listed(producer, producer_id_filters=[producer.producer_id]) == (0, [], ["Ongoing"])
    assert listed(producer, producer_id_filters=[producer.producer_id + 1_000_000]) == (0, [], [])
    assert listed(producer, duration_filter=3_600_000) == (0, [], [])
    assert listed(producer, duration_filter=0)[2] in ([], ["Ongoing"])  # by the millisecond
    assert listed(producer, transactional_id_pattern="tx-.*") == (0, [], ["Ongoing"])
    assert listed(producer, transactional_id_pattern="x-.*") == (0, [], [])
    assert listed(producer, transactional_id_pattern="(") == (ErrorCode.INVALID_REGULAR_EXPRESSION, [], [])


def test_the_producers_of_a_partition_are_described(producer: TransactionalProducer, name: str) -> None:
    producer.add((name, 0))
    producer.write(name, 3)
    Asked = DescribeProducersRequest.TopicRequest

    def described(topic: str) -> Any:
        request = DescribeProducersRequest(topics=[Asked(name=topic, partition_indexes=[0])])
        return producer.connection.ask(request, 0).topics[0].partitions[0]

    (entry,) = described(name).active_producers
    assert (entry.producer_id, entry.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (entry.last_sequence, entry.coordinator_epoch, entry.current_txn_start_offset) == (2, -1, 0)
    producer.end()
    settle(producer)
    (entry,) = described(name).active_producers
    assert (entry.last_sequence, entry.coordinator_epoch, entry.current_txn_start_offset) == (2, 0, -1)
    assert described("nobody-has-this").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
