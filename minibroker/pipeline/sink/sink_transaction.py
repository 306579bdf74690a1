"""The transactions of one transactional id, as requests to its coordinators: begin, add, mark and end.

The requests are those of the first generation, before KIP-890, which all brokers since 0.11 accept. `delivery` knows
when a transaction ends, and what its marker means; the sender writes records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from minibroker.client.client_connection import NEWEST
from minibroker.client.client_errors import ClientError, check_error_code
from minibroker.client.producer_identity import ADD_PARTITIONS_VERSION, END_VERSION
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.encoder import Producer
from minibroker.pipeline.log_source import PipelineError, TopicPartition
from minibroker.pipeline.sink.sink_settings import SinkSettings
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.offsets import OffsetFetchRequest
from minibroker.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from minibroker.protocol.records.batch import MAX_SEQUENCE
from minibroker.protocol.response_errors import collect_error_codes

# Another producer has the transactional id now, or the transaction took too long and was aborted.
FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})


class WriteFailed(PipelineError):
    """Rows could not be written. The message has the broker or partition, and its reason."""


class RecordRefused(WriteFailed):
    """A row cannot become a record, or no broker accepts it. The message names it."""


class ProducerFenced(WriteFailed):
    """Another producer uses the transactional id, or the transaction took too long and was aborted."""


_TIMEOUT_MS: Final = 60_000  # InitProducerId requires one; it has no meaning without a transactional id


@dataclass(slots=True)
class ProducerIdentity:
    """A producer's id and epoch (-1: none), and the next sequence of each partition."""

    producer_id: int = -1
    epoch: int = -1
    transactional_id: str | None = None
    sequences: dict[TopicPartition, int] = field(default_factory=dict)

    def make_producer_fields(self, partition: TopicPartition) -> Producer:
        """Return the producer's fields of the next batch of a partition."""
        if self.producer_id < 0:
            return Producer()
        return Producer(
            self.producer_id, self.epoch, self.sequences.get(partition, 0), self.transactional_id is not None
        )

    def count_acknowledged(self, partition: TopicPartition, record_count: int) -> None:
        """Count records that a partition has accepted."""
        self.sequences[partition] = self.sequences.get(partition, 0) + record_count & MAX_SEQUENCE


def request_producer_id(client: Client) -> tuple[int, int]:
    """Return a new producer id and epoch without a transactional id. Raises `WriteFailed`."""

    def send_request() -> tuple[int, int]:
        answer = client.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TIMEOUT_MS))
        client.check(answer.error_code, "asking for a producer id")
        return answer.producer_id, answer.producer_epoch

    try:
        return client.retry(send_request)
    except ClientError as error:
        denied = error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        remedy = "; kafka.enable.idempotence=false does without" if denied else ""
        raise WriteFailed(f"{error}{remedy}") from None


_OFFSETS_VERSION: Final = 4  # newer ones are of the second generation
_STABLE_OFFSET_FETCH_VERSION: Final = 7  # Kafka 2.5
_MARKER_PARTITION: Final = 0


@dataclass(frozen=True, slots=True)
class PositionMarker:
    """The position of a transactional id, as an offset that its group has committed, and a note beside it."""

    value: int
    note: str


class SinkTransaction:
    """The transactions of one transactional id, which is also the id of the group with its marker.

    Its methods raise `ProducerFenced` if another producer has the id or the transaction took too long, and
    `WriteFailed`.
    """

    def __init__(
        self, client: Client, settings: SinkSettings, transactional_id: str, identity: ProducerIdentity | None = None
    ) -> None:
        self._client = client
        self._settings = settings
        self.transactional_id = transactional_id
        self.identity = identity or ProducerIdentity(transactional_id=transactional_id)
        self._partitions: set[TopicPartition] = set()

    def init_producer_id(self) -> None:
        """Take the id over: fence its last producer, and abort an open transaction."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self._settings.transaction_timeout_ms
        )
        answer = self._send_request_to_coordinator("transaction", "taking over", request)
        self.identity.producer_id, self.identity.epoch = answer.producer_id, answer.producer_epoch

    def fetch_marker(self) -> PositionMarker | None:
        """Return the newest marker of ended transactions, or None.

        While an open transaction has a marker, it is unknown: `init_producer_id` aborts such a transaction.
        """
        request = OffsetFetchRequest(group_id=self.transactional_id, topics=None, require_stable=True)
        version = _STABLE_OFFSET_FETCH_VERSION
        answer = self._send_request_to_coordinator("group", "fetching the marker", request, version, version)
        found = [each for topic in answer.topics for each in topic.partitions if each.committed_offset >= 0]
        newest = max(found, key=lambda each: each.committed_offset, default=None)
        return None if newest is None else PositionMarker(newest.committed_offset, newest.metadata or "")

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction before they are written to."""
        new = set(partitions) - self._partitions
        if new:
            request = self._make_partitions_request(new)
            self._send_request_to_coordinator(
                "transaction", "adding partitions", request, highest=ADD_PARTITIONS_VERSION
            )
        self._partitions |= new

    def _make_partitions_request(self, new: set[TopicPartition]) -> AddPartitionsToTxnRequest:
        of_topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        topics = [of_topic(name=topic, partitions=sorted(indexes)) for topic, indexes in _group_by_topic(new).items()]
        return AddPartitionsToTxnRequest(**self._get_producer_fields("v3_and_below_"), v3_and_below_topics=topics)

    def add_marker(self, marker: PositionMarker) -> None:
        """Put a marker into the transaction, for each of its topics: so it stays until the last one is deleted."""
        request = AddOffsetsToTxnRequest(**self._get_producer_fields(), group_id=self.transactional_id)
        self._send_request_to_coordinator("transaction", "adding the marker", request)
        self._send_request_to_coordinator(
            "group", "committing the marker", self._make_marker_request(marker), highest=_OFFSETS_VERSION
        )

    def _make_marker_request(self, marker: PositionMarker) -> TxnOffsetCommitRequest:
        of_topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        of_partition = of_topic.TxnOffsetCommitRequestPartition
        offset = of_partition(
            partition_index=_MARKER_PARTITION, committed_offset=marker.value, committed_metadata=marker.note
        )
        return TxnOffsetCommitRequest(
            **self._get_producer_fields(),
            group_id=self.transactional_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[of_topic(name=topic, partitions=[offset]) for topic in sorted(_group_by_topic(self._partitions))],
        )

    def end_transaction(self, commit: bool) -> None:
        """Commit or abort. It may be called again. Raises `ProducerFenced` also if the transaction no longer exists."""
        request = EndTxnRequest(**self._get_producer_fields(), committed=commit)
        self._send_request_to_coordinator(
            "transaction", "committing" if commit else "aborting", request, highest=END_VERSION
        )
        self._partitions.clear()

    def _get_producer_fields(self, prefix: str = "") -> dict[str, Any]:
        """Return the fields with the producer, which all these requests have."""
        return {
            f"{prefix}transactional_id": self.transactional_id,
            f"{prefix}producer_id": self.identity.producer_id,
            f"{prefix}producer_epoch": self.identity.epoch,
        }

    def _send_request_to_coordinator(
        self,
        kind: Literal["group", "transaction"],
        purpose: str,
        request: Message,
        lowest: int = 0,
        highest: int = NEWEST,
    ) -> Any:
        """Return the coordinator's answer without an error. Retry within the delivery timeout."""

        def send_request() -> Any:
            node_id = self._client.find_coordinator(kind, self.transactional_id)
            answer = self._client.request(request, node_id, lowest=lowest, highest=highest)
            for code in collect_error_codes(answer):
                check_error_code(code, self._client.address(node_id))
            return answer

        try:
            return self._client.retry(send_request, self._settings.delivery_timeout_ms)
        except ClientError as error:
            raise self._make_failure(
                error.code, f"transactional id {self.transactional_id}: {purpose}: {error}"
            ) from None

    def _make_failure(self, code: int | None, message: str) -> WriteFailed:
        if code in FENCED or code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            return ProducerFenced(message)
        if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            given = self._settings.transaction_timeout_ms
            return WriteFailed(f"{message}: kafka.transaction.timeout.ms={given} is above the broker's maximum")
        return WriteFailed(message)


def _group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        topics[partition.topic].append(partition.partition)
    return topics
