"""The clients that write: a producer, and a transactional one."""

from __future__ import annotations

import time
from typing import Any, Final

from minibroker.client.client_errors import check_error_code
from minibroker.client.cluster_client import Partition
from minibroker.lab.clients import LabClient
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.transactions import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record

TOPIC: Final = ProduceRequest.TopicProduceData
TRANSACTION_TIMEOUT_MS: Final = 30_000
ABORTED: Final = 4  # every fourth transaction is
# The transactions of the first generation, in which each partition is added by a request.
PRODUCE_VERSION: Final = 11
END_VERSION: Final = 4
ADD_VERSION: Final = 3
NAMES: Final = ("tea", "coffee", "cocoa", "water", "juice")


class Producer(LabClient):
    """Writes a record each second, to one partition after the other."""

    kind = "producer"

    async def set_up(self) -> None:
        """Find the topic's partitions; create the topic if there is none."""
        self._of_topic = await self.find_partitions()

    async def run_one_round(self) -> None:
        """Append a record to the next partition, and wait for the next round."""
        partition = self._of_topic[self.count % len(self._of_topic)]
        offset = await self.retry_until_done(lambda: self.produce_record(partition))
        self.count += 1
        self.said = f"{partition[0]}-{partition[1]} has the record at {offset}"
        await self.wait_for_next_round()

    async def produce_record(self, partition: Partition, **batch_arguments: Any) -> int:
        """Append a record, in a batch with these arguments of `build_batch`; return its offset. Raises ClientError."""
        name = NAMES[self.count % len(NAMES)]
        record = Record(timestamp=time.time_ns() // 1_000_000, key=name.encode(), value=f"{self.count}".encode())
        batch = memoryview(build_batch([record], **batch_arguments))
        data = TOPIC.PartitionProduceData(index=partition[1], records=batch)
        request = ProduceRequest(
            transactional_id=self.name if batch_arguments else None,
            acks=-1,
            timeout_ms=self.client.settings.request_timeout_ms,
            topic_data=[TOPIC(name=partition[0], partition_data=[data])],
        )
        leader = await self.client.find_leader(partition)
        answer = await self.client.request(request, leader.node_id, highest=PRODUCE_VERSION)
        (written,) = answer.responses[0].partition_responses
        check_error_code(written.error_code, f"writing to {partition[0]}-{partition[1]}", written.error_message)
        return int(written.base_offset)


class TransactionalProducer(Producer):
    """Writes to each partition in one transaction, and commits; every fourth one it aborts.

    One that starts later with the same transactional id fences it.
    """

    kind = "transactional-producer"

    async def set_up(self) -> None:
        """Get a producer id and an epoch, which fences an older producer of the transactional id."""
        await super().set_up()
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        answer = await self.send_request_to_coordinator("transaction", request)
        check_error_code(answer.error_code, f"transaction {self.name}")
        self._id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences = dict.fromkeys(self._of_topic, 0)
        self._is_open = False
        self._transactions = 0
        self.said = f"producer id {self._id}, epoch {self._epoch}"

    async def run_one_round(self) -> None:
        """Append a record to each partition in a transaction, and end it: every fourth is aborted."""
        self._transactions += 1
        for partition in self._of_topic:
            await self._add_partition_to_transaction(partition)
            await self.retry_until_done(lambda partition=partition: self._produce_in_transaction(partition))  # type: ignore[misc]
            self.count += 1
            self._sequences[partition] += 1
        await self.wait_for_next_round()
        if self._stopping.is_set():
            return  # `tear_down` aborts it
        await self._end_transaction(commits=self._transactions % ABORTED != 0)
        await self.wait_for_next_round()

    async def tear_down(self) -> None:
        """Abort the transaction, if one is open."""
        if self._is_open:
            await self._end_transaction(commits=False)

    async def _produce_in_transaction(self, partition: Partition) -> int:
        """Append a record with the partition's next sequence; return its offset."""
        sequence = self._sequences[partition]
        producer_fields = {"producer_id": self._id, "producer_epoch": self._epoch, "base_sequence": sequence}
        return await self.produce_record(partition, transactional=True, **producer_fields)

    async def _add_partition_to_transaction(self, partition: Partition) -> None:
        of_topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[of_topic(name=partition[0], partitions=[partition[1]])],
        )
        answer = await self.send_request_to_coordinator("transaction", request, ADD_VERSION)
        for each in answer.results_by_topic_v3_and_below[0].results_by_partition:
            check_error_code(
                each.partition_error_code, f"adding {partition[0]}-{partition[1]} to transaction {self.name}"
            )
        self._is_open = True
        self.said = f"transaction {self._transactions} is open, epoch {self._epoch}"

    async def _end_transaction(self, *, commits: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self._id, producer_epoch=self._epoch, committed=commits
        )
        answer = await self.send_request_to_coordinator("transaction", request, END_VERSION)
        check_error_code(answer.error_code, f"transaction {self.name}")
        self._is_open = False
        self.said = f"transaction {self._transactions} is {'committed' if commits else 'aborted'}, epoch {self._epoch}"
