"""Sends rows in Produce requests until brokers have them: retries, splits, and the handling of errors.

At most one batch of a partition is in flight. So order is kept, and a retry has the same sequence, which brokers accept
only once. `sink_transaction` has the producer's identity, and adds partitions to a transaction before they are written
to.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from minibroker.client.client_errors import ClientError, get_error_name, is_retriable_code
from minibroker.client.cluster_client import SentRequest
from minibroker.client.producer_identity import PRODUCE_VERSION
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.encoder import EncodeError, encode_rows
from minibroker.pipeline.log_source import TopicPartition
from minibroker.pipeline.sink.sink_settings import SinkSettings
from minibroker.pipeline.sink.sink_transaction import (
    FENCED,
    ProducerFenced,
    ProducerIdentity,
    RecordRefused,
    WriteFailed,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.records.compression import Compression

_TOPIC_DATA: Final = ProduceRequest.TopicProduceData
_PARTITION_DATA: Final = ProduceRequest.TopicProduceData.PartitionProduceData
_FORMAT_2_VERSION: Final = 3
_ZSTD_VERSION: Final = 7
_KEY_BYTES_SHOWN: Final = 40
_FIRST_OFFSET: Final = bytes(8)  # 0, of each batch in a request


@dataclass(slots=True)
class OutgoingBatch:
    """A batch to be sent. Its rows are kept for error messages, and to split it."""

    partition: TopicPartition
    rows: pa.RecordBatch
    data: bytes
    deadline: float = 0.0  # monotonic seconds, set at the first attempt
    attempts: int = 0


WaitingBatches = dict[TopicPartition, list[OutgoingBatch]]  # by partition: the next batch, and some more
BatchSources = dict[TopicPartition, Iterator[OutgoingBatch]]  # the source of further batches


class ProduceSender:
    """Produces rows to brokers under an identity.

    `before` is called with the partitions of a request before it is sent.
    """

    def __init__(
        self,
        client: Client,
        settings: SinkSettings,
        identity: ProducerIdentity,
        before: Callable[[Iterable[TopicPartition]], None] | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._identity = identity
        self._before = before

    def send_rows(self, rows: Mapping[TopicPartition, pa.RecordBatch]) -> None:
        """Write the rows of each partition, in order. When it returns, brokers have them all.

        Raises `RecordRefused` if no broker accepts a row, `ProducerFenced`, and `WriteFailed`, also if a batch was not
        accepted within `delivery_timeout_ms` of its first attempt.
        """
        queues = {partition: self._encode_batches(partition, some) for partition, some in rows.items()}
        waiting: WaitingBatches = {}
        _fill_queues(waiting, queues, 1)
        while waiting:
            self._send_next_batches(waiting, queues)
            _fill_queues(waiting, queues, 1)

    # From rows to batches

    def _encode_batches(
        self, partition: TopicPartition, rows: pa.RecordBatch, batch_records: int | None = None
    ) -> Iterator[OutgoingBatch]:
        settings = (
            self._settings.batches
            if batch_records is None
            else replace(self._settings.batches, batch_records=batch_records)
        )
        position = 0
        try:
            for batch in encode_rows(rows, settings, self._identity.make_producer_fields(partition)):
                some = rows.slice(position, batch.record_count)
                position += batch.record_count
                if batch.record_count == 1 and len(batch.data) > self._settings.max_request_bytes:
                    limit = f"kafka.max.request.size={self._settings.max_request_bytes}"
                    raise self._make_record_refused_error(partition, some, f"{len(batch.data)} bytes exceed {limit}")
                yield OutgoingBatch(partition, some, _FIRST_OFFSET + batch.data[len(_FIRST_OFFSET) :])
        except EncodeError as error:
            raise RecordRefused(f"{partition}: {error}") from None

    def _split_batch(self, batch: OutgoingBatch) -> list[OutgoingBatch]:
        """Return the batch's rows in batches with half as many records."""
        return list(self._encode_batches(batch.partition, batch.rows, (batch.rows.num_rows + 1) // 2))

    # Requests

    def _send_next_batches(self, waiting: WaitingBatches, queues: BatchSources) -> None:
        """Send each partition's next batch, and remove those that were written. Wait if some must be retried."""
        sent = self._send_first_batches(waiting)
        try:
            _fill_queues(waiting, queues, 2)  # encode the next ones while these are in flight
        finally:
            answered = [
                answer for request in sent for answer in self._read_answers(*request)
            ]  # then nothing is in flight
        again = 0
        for batch, code, detail in answered:
            queue = waiting[batch.partition]
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._identity.count_acknowledged(batch.partition, batch.rows.num_rows)
                queue.pop(0)
            elif code == ErrorCode.MESSAGE_TOO_LARGE and batch.rows.num_rows > 1:
                queue[:1] = self._split_batch(batch)
            else:
                self._fail_unless_retriable(batch, code, detail)
                again = max(again, batch.attempts)
            if not queue:
                del waiting[batch.partition]
        if again:
            self._wait_to_retry(again)

    def _send_first_batches(self, waiting: WaitingBatches) -> list[tuple[list[OutgoingBatch], SentRequest]]:
        """Send requests to all leaders, each with one batch for each partition."""
        if self._before is not None:
            self._before(waiting)
        by_node: dict[int, list[OutgoingBatch]] = defaultdict(list)
        for partition, queue in waiting.items():
            by_node[self._find_leader(partition)].append(queue[0])
        sent = []
        for node_id, batches in by_node.items():
            for some in _group_by_request(batches, self._settings.max_request_bytes):
                lowest = _ZSTD_VERSION if self._settings.batches.codec is Compression.ZSTD else _FORMAT_2_VERSION
                request = self._client.send(self._make_request(some), node_id, lowest=lowest, highest=PRODUCE_VERSION)
                sent.append((some, request))
        return sent

    def _find_leader(self, partition: TopicPartition) -> int:
        try:
            return self._client.find_leader(partition).node_id
        except ClientError as error:
            raise WriteFailed(str(error)) from None

    def _make_request(self, batches: list[OutgoingBatch]) -> ProduceRequest:
        deadline = time.monotonic() + self._settings.delivery_timeout_ms / 1000
        topics: dict[str, list[Any]] = defaultdict(list)
        for batch in batches:
            batch.attempts += 1
            batch.deadline = batch.deadline or deadline
            data = _PARTITION_DATA(index=batch.partition.partition, records=memoryview(batch.data))
            topics[batch.partition.topic].append(data)
        return ProduceRequest(
            transactional_id=self._identity.transactional_id,
            acks=self._settings.acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=[_TOPIC_DATA(name=name, partition_data=data) for name, data in topics.items()],
        )

    def _read_answers(self, batches: list[OutgoingBatch], sent: SentRequest) -> list[tuple[OutgoingBatch, int, Any]]:
        """Return each batch's error code, with the partition's answer or else the reason."""
        try:
            answer = self._client.wait(sent)
        except ClientError as error:
            code = ErrorCode.NETWORK_EXCEPTION if error.is_retriable else ErrorCode.UNKNOWN_SERVER_ERROR
            return [(batch, code, error) for batch in batches]
        answers = {(topic.name, each.index): each for topic in answer.responses for each in topic.partition_responses}
        found = [answers.get(batch.partition) for batch in batches]
        return [
            (batch, ErrorCode.UNKNOWN_SERVER_ERROR if each is None else each.error_code, each)
            for batch, each in zip(batches, found, strict=True)
        ]

    # Errors

    def _fail_unless_retriable(self, batch: OutgoingBatch, code: int, detail: Any) -> None:
        """Raise `WriteFailed` unless the batch may be sent again: retriable, and neither retries nor time are over."""
        if code in FENCED:
            raise ProducerFenced(
                f"{batch.partition}: {get_error_name(code)}: another producer has the transactional id by now"
            )
        if code == ErrorCode.MESSAGE_TOO_LARGE:
            raise self._make_record_refused_error(
                batch.partition, batch.rows, f"{get_error_name(code)}, {len(batch.data)} bytes"
            )
        if not is_retriable_code(code):
            raise self._make_failure(batch, code, detail)
        if batch.attempts > self._settings.retries or time.monotonic() > batch.deadline:
            why = str(detail) if isinstance(detail, ClientError) else get_error_name(code)
            limit = f"{batch.attempts} attempts within kafka.delivery.timeout.ms={self._settings.delivery_timeout_ms}"
            raise WriteFailed(f"{batch.partition}: not written in {limit}: {why}")

    def _make_failure(self, batch: OutgoingBatch, code: int, answer: Any) -> WriteFailed:
        if isinstance(answer, ClientError):
            return WriteFailed(f"{batch.partition}: {answer}")
        said = getattr(answer, "error_message", None)
        records = getattr(answer, "record_errors", None) or []
        if records:
            first = records[0]
            reason = first.batch_index_error_message or said or ""
            return self._make_record_refused_error(
                batch.partition, batch.rows.slice(first.batch_index), f"{get_error_name(code)} {reason}"
            )
        return WriteFailed(f"{batch.partition}: {get_error_name(code)}" + (f" ({said})" if said else ""))

    def _make_record_refused_error(self, partition: TopicPartition, rows: pa.RecordBatch, reason: str) -> RecordRefused:
        """Return the error that a broker refuses the first of the rows."""
        row = rows.slice(0, 1).to_pylist()[0]
        key = None if row["key"] is None else row["key"][:_KEY_BYTES_SHOWN]
        return RecordRefused(f"row {row['row']} to {partition}, key {key!r}: {reason.rstrip()}")

    def _wait_to_retry(self, attempts: int) -> None:
        self._client.forget_leaders_and_coordinators()
        backoff_ms = self._settings.retry_backoff_ms << min(attempts - 1, 20)
        time.sleep(min(backoff_ms, self._settings.retry_backoff_max_ms) / 1000)


def _fill_queues(waiting: WaitingBatches, queues: BatchSources, batches_max: int) -> None:
    """Fill the queue of each partition up to `batches_max` batches, if there are as many."""
    for partition in list(queues):
        queue = waiting.setdefault(partition, [])
        while len(queue) < batches_max:
            following = next(queues[partition], None)
            if following is None:
                del queues[partition]
                break
            queue.append(following)
        if not queue:
            del waiting[partition]


def _group_by_request(batches: list[OutgoingBatch], size_bytes: int) -> Iterator[list[OutgoingBatch]]:
    """Yield a node's batches by requests of at most about `size_bytes`, but at least one batch."""
    some: list[OutgoingBatch] = []
    held = 0
    for batch in batches:
        if some and held + len(batch.data) > size_bytes:
            yield some
            some, held = [], 0
        some.append(batch)
        held += len(batch.data)
    if some:
        yield some
