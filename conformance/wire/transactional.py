"""A transactional producer by hand: its requests in one line each, and what it looks at in the answers.

What has to come back stands in the tests.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from conformance.wire.batches import batch
from conformance.wire.connection import Connection
from conformance.wire.groups import find_coordinator
from conformance.wire.requests import asked, fetch_request, metadata_of, produce_request, repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
OffsetTopic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
OffsetPartition = OffsetTopic.TxnOffsetCommitRequestPartition

NAMES = itertools.count()
TRANSACTIONAL_BIT = 0x10
TRANSACTION = 1
OWN_EPOCHS = 5  # the version of EndTxn with which each transaction gets an epoch of its own
FENCED, MAPPING = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
OLD_EPOCH, INVALID_STATE = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE
TRANSIENT = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


def settled(ask: Callable[[], int]) -> int:
    """The code, once the coordinator is there and has ended what went before."""
    return int(repeated(ask, lambda code: code not in TRANSIENT))


def find_transaction_coordinator(connection: Connection, transactional_id: str) -> None:
    """Ask until there is one: the first who asks has the topic of the transactions created."""
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id])
    assert settled(lambda: connection.ask(request, 4).coordinators[0].error_code) == 0


class TransactionalProducer:
    """A producer with a transactional id of its own, unless one is given; it has no id before `init`."""

    def __init__(self, connection: Connection, transactional_id: str | None = None) -> None:
        self.connection = connection
        self.transactional_id = transactional_id or f"tx-{next(NAMES)}-{time.time_ns()}"
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, version: int = 4, timeout_ms: int = 60_000, *, again: bool = False, wait: bool = True) -> int:
        """The code; `again` tells the id and epoch it has, without `wait` the first answer counts."""
        if self.transactional_id:
            find_transaction_coordinator(self.connection, self.transactional_id)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer_id if again else -1,
            producer_epoch=self.epoch if again else -1,
        )

        def ask() -> int:
            answer = self.connection.ask(request, version)
            if answer.error_code == 0:
                self.goes_on_as(answer.producer_id, answer.producer_epoch)
            return int(answer.error_code)

        return settled(ask) if wait else ask()

    def goes_on_as(self, producer_id: int, epoch: int) -> None:
        """Be this producer from now on."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def add(self, *topics: tuple[str, int], version: int = 3) -> list[int]:
        """AddPartitionsToTxn as producers send it; the code of each (topic, partition)."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[Topic(name=name, partitions=[partition]) for name, partition in topics],
        )

        def ask() -> list[int]:
            results = self.connection.ask(request, version).results_by_topic_v3_and_below
            found = {topic.name: topic.results_by_partition[0].partition_error_code for topic in results}
            return [found[name] for name, _ in topics]

        codes: list[int] = repeated(ask, lambda codes: not TRANSIENT & set(codes))
        return codes

    def write(
        self, topic: str, count: int = 1, *, version: int = 9, partition: int = 0, transactional: bool = True
    ) -> int:
        """Produce a batch; the code."""
        sequence = self.sequences.get((topic, partition), 0)
        records = batch(
            [b"value"] * count,
            timestamp=int(time.time() * 1000),
            attributes=TRANSACTIONAL_BIT if transactional else 0,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        by: str | bytes = topic if version < 13 else metadata_of(self.connection, topic).topic_id
        request = produce_request(by, (partition, records))
        request.transactional_id = self.transactional_id

        def ask() -> int:
            return int(self.connection.ask(request, version).responses[0].partition_responses[0].error_code)

        code = settled(ask)
        if code == 0:
            self.sequences[topic, partition] = sequence + count
        return code

    def add_offsets(self, group: str, version: int = 3) -> int:
        """AddOffsetsToTxn; the code."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return settled(lambda: int(self.connection.ask(request, version).error_code))

    def commit_offset(self, group: str, topic: str, offset: int, *, version: int = 3, **fields: Any) -> int:
        """TxnOffsetCommit; the code."""
        find_coordinator(self.connection, group)
        partition = OffsetPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[OffsetTopic(name=topic, partitions=[partition])],
            **fields,
        )
        return settled(lambda: int(self.connection.ask(request, version).topics[0].partitions[0].error_code))

    def end(self, version: int = 3, *, commit: bool = True) -> int:
        """EndTxn; the code. From version 5 on the producer goes on as the answer says."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

        def ask() -> int:
            answer = self.connection.ask(request, version)
            if answer.error_code == 0 and version >= 5:
                self.goes_on_as(answer.producer_id, answer.producer_epoch)
            return int(answer.error_code)

        return settled(ask)


def settle(producer: TransactionalProducer) -> None:
    """Wait until the producer's transaction has ended."""
    request = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])

    def state() -> str:
        return str(producer.connection.ask(request, 0).transaction_states[0].transaction_state)

    repeated(state, lambda state: not state.startswith("Prepare"))


def committed_read(connection: Connection, topic: str) -> Any:
    """Return what Fetch answers a reader of committed records for partition 0 from the first offset on."""
    request = fetch_request({topic: [asked(0)]}, isolation_level=1)
    return connection.ask(request, 12).responses[0].partitions[0]
