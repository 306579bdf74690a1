"""Writes records to the partitions of a topic: collects them, sends them in batches, and reports what became of them.

A request is repeated until the time is up, so a record may be written twice, unless the producer has an identity. Order
within a partition is kept: one batch of a partition is under way at a time.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from minibroker.client.blocking import Client
from minibroker.client.client_errors import ClientError, UnsupportedVersion, choose_error_reaction, get_error_name
from minibroker.client.cluster_client import SentRequest
from minibroker.client.murmur2 import choose_partition
from minibroker.client.producer_identity import PRODUCE_VERSION, ProducerIdentity
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.records.batch import MAGIC
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.conversion import build_records_in_format
from minibroker.protocol.records.record import Record

BATCH_BYTES: Final = 512 << 10  # brokers take 1 MiB by default
BATCH_RECORDS: Final = 10_000
RECORD_OVERHEAD_BYTES: Final = 16
RETRY_S: Final = 0.1

_TOPIC: Final = ProduceRequest.TopicProduceData


class RecordsFormat(NamedTuple):
    """A format of records, and the versions of Produce that carry it."""

    magic: int
    lowest: int
    highest: int


FORMATS: Final = (
    RecordsFormat(MAGIC, 3, 12),
    RecordsFormat(1, 2, 2),
    RecordsFormat(0, 0, 1),
)  # newer versions have topic ids
ZSTD_VERSION: Final = 7


class ProduceOutcome(NamedTuple):
    """What became of records that followed each other: their first offset (None: not told), or why they failed.

    `gave_up` is true if the time was up, false if a retry could not have helped.
    """

    partition: int
    records: int
    first_offset: int | None
    error: str | None = None
    gave_up: bool = False


class OutgoingBatch(NamedTuple):
    """A batch on its way."""

    partition: int
    records: list[Record]
    sent: SentRequest


class RecordWriter:
    """Records for one topic, which is created if the broker does that. `report` is called for each batch.

    `acks` is 0, 1 or -1, which an identity needs. `timeout_ms` bounds one `flush`.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        report: Callable[[ProduceOutcome], None],
        *,
        acks: int = -1,
        codec: Compression = Compression.NONE,
        timeout_ms: int = 30_000,
        identity: ProducerIdentity | None = None,
    ) -> None:
        """Look the topic up. Raises `ClientError`."""
        self._client = client
        self._topic = topic
        self._report = report
        self._acks = acks
        self._codec = codec
        self._timeout_ms = timeout_ms
        self._identity = identity
        self._formats: tuple[RecordsFormat, ...] = (
            FORMATS if identity is None else (RecordsFormat(MAGIC, 3, PRODUCE_VERSION),)
        )
        self._waiting: dict[int, deque[list[Record]]] = {}
        self._bytes = self._records = 0
        self.partitions = client.retry(self._count_partitions, timeout_ms)
        self._for_no_key = random.randrange(self.partitions)

    @property
    def unacknowledged_count(self) -> int:
        """The number of records that were added and not reported: some may have been written."""
        return sum(len(batch) for queue in self._waiting.values() for batch in queue)

    def add_record(self, record: Record, partition: int | None = None) -> None:
        """Add a record to a partition, by default to that of its key. Flushes if there is enough for a batch."""
        if partition is None:
            partition = self._for_no_key if record.key is None else choose_partition(record.key, self.partitions)
        queue = self._waiting.setdefault(partition, deque(([],)))
        queue[-1].append(record)
        self._records += 1
        self._bytes += len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES
        if self._bytes >= BATCH_BYTES or self._records >= BATCH_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Write all records, and report each batch. Raises `ClientError` if no server can be asked at all."""
        deadline_s = time.monotonic() + self._timeout_ms / 1000
        while self._waiting:
            outgoing = [self._send_batch(partition, queue[0]) for partition, queue in self._waiting.items()]
            again = [self._await_or_retry_batch(each, deadline_s) for each in outgoing]
            self._waiting = {partition: queue for partition, queue in self._waiting.items() if queue}
            if any(again):
                time.sleep(RETRY_S)
        self._bytes = self._records = 0
        self._for_no_key = random.randrange(self.partitions)

    def _count_partitions(self) -> int:
        """Return the number of the topic's partitions."""
        (topic,) = self._client.fetch_metadata([self._topic], create=True).topics
        self._client.check(topic.error_code, f"topic {self._topic}")
        return len(topic.partitions)

    # --- one batch --------------------------------------------------------------------------------

    def _send_batch(self, partition: int, records: list[Record]) -> OutgoingBatch:
        """Send a batch to the partition's leader, in the newest format that it knows."""
        while True:
            sent = self._send_batch_once(partition, records)
            is_unknown = isinstance(sent.error, UnsupportedVersion)
            needs_newest = self._codec is Compression.ZSTD or any(record.headers for record in records)
            if not is_unknown or len(self._formats) == 1 or needs_newest:
                return OutgoingBatch(partition, records, sent)
            self._formats = self._formats[1:]

    def _send_batch_once(self, partition: int, records: list[Record]) -> SentRequest:
        """Send a batch to the partition's leader. The returned request keeps a failure."""
        magic, lowest, highest = self._formats[0]
        if self._codec is Compression.ZSTD:
            lowest = ZSTD_VERSION
        try:
            leader = self._client.find_leader((self._topic, partition)).node_id
            if self._identity is not None:
                self._identity.add_partition_to_transaction((self._topic, partition))
        except ClientError as error:
            return SentRequest(-1, "Produce", None, -1, error)
        wanted = _TOPIC.PartitionProduceData(index=partition, records=self._make_batch(partition, records, magic))
        request = ProduceRequest(
            transactional_id=None if self._identity is None else self._identity.transactional_id,
            acks=self._acks,
            timeout_ms=self._client.settings.request_timeout_ms,
            topic_data=[_TOPIC(name=self._topic, partition_data=[wanted])],
        )
        return self._client.send(request, leader, lowest=lowest, highest=highest)

    def _make_batch(self, partition: int, records: list[Record], magic: int) -> memoryview:
        """Return the records in the format `magic`, with producer id and sequence if there is an identity."""
        if self._identity is None:
            numbered = (record._replace(offset=number) for number, record in enumerate(records))
            return memoryview(build_records_in_format(numbered, magic, compression=self._codec))
        batch = build_batch(
            records,
            compression=self._codec,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=self._identity.get_next_sequence((self._topic, partition)),
            transactional=self._identity.transactional_id is not None,
        )
        return memoryview(batch)

    def _await_or_retry_batch(self, batch: OutgoingBatch, deadline_s: float) -> bool:
        """Wait for a batch's answer. Return True if it must be sent again; else report it, or queue its halves."""
        queue = self._waiting[batch.partition]
        try:
            first_offset = self._await_acknowledgement(batch, max(1, int((deadline_s - time.monotonic()) * 1000)))
        except ClientError as error:
            if error.is_retriable and time.monotonic() < deadline_s:
                self._client.forget_leaders_and_coordinators(error.reaction)
                return True
            queue.popleft()
            if error.code == ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1:
                half = len(batch.records) // 2
                queue.extendleft((batch.records[half:], batch.records[:half]))
            else:
                self._report(ProduceOutcome(batch.partition, len(batch.records), None, str(error), error.is_retriable))
            return False
        queue.popleft()
        if self._identity is not None:
            self._identity.advance_sequence((self._topic, batch.partition), len(batch.records))
        self._report(ProduceOutcome(batch.partition, len(batch.records), first_offset))
        return False

    def _await_acknowledgement(self, batch: OutgoingBatch, timeout_ms: int) -> int | None:
        """Return the first offset of a batch that was written, None if the broker tells none. Raises `ClientError`."""
        if isinstance(batch.sent.error, ClientError):
            raise batch.sent.error
        if self._acks == 0 and batch.sent.error is None:
            return None
        answer = self._client.wait(batch.sent, timeout_ms).responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return None  # an earlier request has written it, and the broker does not remember where
        if answer.error_code:
            told = [each.batch_index_error_message for each in answer.record_errors or ()]
            reason = answer.error_message or next(filter(None, told), None)
            text = get_error_name(answer.error_code) + (f" ({reason})" if reason else "")
            raise ClientError(text, choose_error_reaction(answer.error_code), answer.error_code)
        return int(answer.base_offset) if answer.base_offset >= 0 else None
