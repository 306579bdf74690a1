"""A transactional producer without a client library: its requests, sent through a `Harness`, and their answers.

Nothing here tests anything.
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.coordination.coordinators import find_coordinator_or_create_topic
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from minibroker.protocol.records.batch import iterate_batches
from minibroker.protocol.records.payload import iterate_records_of_batch
from tests.broker.handlers.fetching import fetch
from tests.broker.harness import Harness, TopicData, batch

Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
OffsetTopic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
OffsetPartition = OffsetTopic.TxnOffsetCommitRequestPartition

CLASSIC = {"init": 4, "add": 3, "produce": 9, "end": 4, "offsets": 4}
OWN_EPOCHS = {"init": 5, "add": 3, "produce": 13, "end": 5, "offsets": 5}


class TransactionalProducer:
    """A producer with a transactional id; `versions` say of which generation its requests are."""

    def __init__(self, harness: Harness, transactional_id: str = "tx", versions: dict[str, int] = OWN_EPOCHS) -> None:
        self.harness = harness
        self.transactional_id = transactional_id
        self.versions = versions
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}

    @property
    def node(self) -> int:
        """Return the node that coordinates the transactional id."""
        return find_coordinator_or_create_topic(self.harness.cluster.transactions, self.transactional_id).node_id

    def init(self, timeout_ms: int = 60_000, *, again: bool = False) -> ErrorCode:
        """InitProducerId; with `again` it tells the id and epoch that it has."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer_id if again else -1,
            producer_epoch=self.epoch if again else -1,
        )
        answer = self.harness.request(request, self.versions["init"], node=self.node)
        if answer.error_code == ErrorCode.NONE:
            self._goes_on_as(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def _goes_on_as(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def add(self, *partitions: tuple[str, int], version: int | None = None) -> list[ErrorCode]:
        """AddPartitionsToTxn; the code of each partition."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[Topic(name=name, partitions=[index]) for name, index in partitions],
        )
        answer = self.harness.request(request, version or self.versions["add"], node=self.node)
        return [
            ErrorCode(partition.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        ]

    def send(self, *values: str, topic: str = "t", partition: int = 0) -> ErrorCode:
        """Produce a batch of the transaction; an older producer adds the partition first."""
        if self.versions is CLASSIC:
            (code,) = self.add((topic, partition))
            if code != ErrorCode.NONE:
                return code
        return self.produce(*values, topic=topic, partition=partition)

    def produce(self, *values: str, topic: str = "t", partition: int = 0) -> ErrorCode:
        """Produce a batch of the transaction, and no more."""
        sequence = self.sequences.get((topic, partition), 0)
        records = batch(
            *values,
            transactional=True,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        found = self.harness.partition(topic, partition)
        data = TopicData(
            name=topic,
            topic_id=found.topic.topic_id,
            partition_data=[TopicData.PartitionProduceData(index=partition, records=memoryview(records))],
        )
        request = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=1000, topic_data=[data])
        answer = self.harness.request(request, self.versions["produce"], node=found.leader_id)
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code == ErrorCode.NONE:
            self.sequences[topic, partition] = sequence + len(values)
        return code

    def send_offset(self, group: str, offset: int, *, topic: str = "t", partition: int = 0) -> ErrorCode:
        """TxnOffsetCommit as no member; an older producer has the group added first."""
        coordinator = self.harness.cluster.groups
        if self.versions is CLASSIC:
            added = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            code = ErrorCode(self.harness.request(added, node=self.node).error_code)
            if code != ErrorCode.NONE:
                return code
        coordinator.log.create_topic()
        node = coordinator.find_coordinator_node(group)
        assert node is not None
        asked = OffsetPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[OffsetTopic(name=topic, partitions=[asked])],
        )
        answer = self.harness.request(request, self.versions["offsets"], node=node.node_id)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool = True) -> ErrorCode:
        """EndTxn, and no more."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = self.harness.request(request, self.versions["end"], node=self.node)
        if answer.error_code == ErrorCode.NONE and self.versions is OWN_EPOCHS:
            self._goes_on_as(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def finish(self, *, commit: bool = True) -> ErrorCode:
        """EndTxn, and all that follows by itself."""
        code = self.end(commit=commit)
        self.harness.clock.advance(0)
        return code


def fetched(harness: Harness, topic: str = "t", partition: int = 0, *, committed: bool = True) -> list[str]:
    """Return the values that a consumer of this isolation level is shown."""
    where = topic, partition
    found = harness.partition(topic, partition)
    values: list[str] = []
    offset = found.log.log_start_offset
    while True:
        answer = fetch(harness, {where: offset}, node=found.leader_id, isolation_level=int(committed))[where]
        assert answer.error_code == ErrorCode.NONE
        data = bytes(answer.records)
        if not data:
            return values
        values += _shown(data, answer.aborted_transactions if committed else None)
        offset = [header.next_offset for _, header in iterate_batches(data)][-1]


def _shown(data: bytes, aborted: Any) -> list[str]:
    """Return the values that a consumer sees: it skips control batches, and the batches of `aborted` transactions."""
    waiting = sorted(aborted or (), key=lambda each: each.first_offset)
    open_producers: set[int] = set()
    values = []
    for position, header in iterate_batches(data):
        while waiting and waiting[0].first_offset <= header.last_offset:
            open_producers.add(waiting.pop(0).producer_id)
        if header.is_control:
            open_producers.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_producers):
            whole = data[position : position + header.size_bytes]
            values += [(record.value or b"").decode() for record in iterate_records_of_batch(whole)]
    return values
