"""A producer's identity, by which brokers drop duplicates, and its transaction (KIP-98).

    InitProducerId -> AddPartitionsToTxn, Produce ... -> EndTxn

Without a transactional id there is only InitProducerId. The requests are those of the first generation, before KIP-890,
which all brokers since 0.11 accept.
"""

from __future__ import annotations

from typing import Any, Final

from minibroker.client.blocking import Client
from minibroker.client.client_errors import check_error_code
from minibroker.client.cluster_client import Partition
from minibroker.client.coordinator_requests import send_request_to_coordinator
from minibroker.protocol.messages.transactions import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from minibroker.protocol.records.batch import MAX_SEQUENCE

TIMEOUT_MS: Final = 60_000  # of a transaction, as the Java client's; without a transactional id it has no meaning
PRODUCE_VERSION: Final = 11  # newer ones are of the second generation, as are these
END_VERSION: Final = 4
ADD_PARTITIONS_VERSION: Final = 3


class ProducerIdentity:
    """A producer's id and epoch, the next sequence of each partition, and the partitions of its transaction.

    With a transactional id, the last producer with it is fenced, and its transaction aborted. Raises `ClientError`.
    """

    def __init__(self, client: Client, transactional_id: str | None = None) -> None:
        self.transactional_id = transactional_id
        self._client = client
        self._sequences: dict[Partition, int] = {}
        self._added: set[Partition] = set()
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        answer = (
            client.retry(lambda: self._init_producer_id(request))
            if transactional_id is None
            else self._send_request_to_coordinator(request)
        )
        self.producer_id: int = answer.producer_id
        self.epoch: int = answer.producer_epoch

    def get_next_sequence(self, partition: Partition) -> int:
        """Return the sequence of a partition's next record."""
        return self._sequences.get(partition, 0)

    def advance_sequence(self, partition: Partition, records: int) -> None:
        """Add the number of records that were written to a partition's next sequence."""
        self._sequences[partition] = self.get_next_sequence(partition) + records & MAX_SEQUENCE

    def add_partition_to_transaction(self, partition: Partition) -> None:
        """Add a partition to the transaction before it is written to, if there is one. Raises `ClientError`."""
        if self.transactional_id is None or partition in self._added:
            return
        topic, index = partition
        of_topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[of_topic(name=topic, partitions=[index])],
        )
        answer = self._send_request_to_coordinator(request, ADD_PARTITIONS_VERSION)
        for each in answer.results_by_topic_v3_and_below[0].results_by_partition:
            check_error_code(
                each.partition_error_code, f"adding {topic}-{index} to transaction {self.transactional_id}"
            )
        self._added.add(partition)

    def end_transaction(self, *, commits: bool) -> None:
        """Commit or abort the transaction. Raises `ClientError`."""
        if self.transactional_id is None or not self._added:
            return
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )
        self._send_request_to_coordinator(request, END_VERSION)
        self._added.clear()

    def _send_request_to_coordinator(self, request: Any, highest: int = InitProducerIdRequest.versions[-1]) -> Any:
        assert self.transactional_id is not None
        answer = send_request_to_coordinator(
            self._client, "transaction", self.transactional_id, request, highest=highest
        )
        check_error_code(getattr(answer, "error_code", 0), f"transaction {self.transactional_id}")
        return answer

    def _init_producer_id(self, request: InitProducerIdRequest) -> Any:
        answer = self._client.request(request)
        self._client.check(answer.error_code, "asking for a producer id")
        return answer
