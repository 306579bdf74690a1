"""A fast path for a Produce that differs from an earlier one only in its records, so that it need not be decoded.

The bytes between the correlation id and the records of a Produce (client id, acks, timeout, topic, partition) are
mostly the same in one request after the other. If they are, and the cluster's metadata, configs and rights have not
changed since, only the records are new, and whoever had no right to write to the topic has none now. This path decides
nothing else: it leaves everything unusual to `produce`, which decodes.

    size  key  version  correlation id | head: client id ... partition | length  records | tail: empty tags
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Final

from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.network.output_items import ErrorAnswerItems
from minibroker.broker.requests.context import RefusalReason, log_refusal_reason
from minibroker.broker.requests.routes import SIZE, SIZE_AND_CORRELATION_ID, encode_answer, encode_response_start
from minibroker.broker.security import audit
from minibroker.broker.security.operations import WRITE_TOPIC
from minibroker.broker.turn import find_failure_of_pending_batches
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.headers import get_response_header_version
from minibroker.protocol.messages.produce import ProduceResponse
from minibroker.protocol.records.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOW_ATTRIBUTES_POSITION,
    TRANSACTIONAL_BIT,
    read_header,
)
from minibroker.storage.log_settings import MAX_LONG
from minibroker.storage.validation import is_plain_batch, validate_plain_batch

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.broker.requests.context import RequestContext
    from minibroker.storage.pending import PendingBatches

log = logging.getLogger("minibroker.produce")

TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = TopicAnswer.PartitionProduceResponse

START_BYTES: Final = 8  # key, version and correlation id
FIRST_FLEXIBLE: Final = 9
FIRST_WITH_TIME: Final = 2
FIRST_WITH_START: Final = 5
TAIL: Final = bytes(3)  # no tags of the partition, the topic and the request
LENGTH: Final = Struct(">i")
LENGTH_BYTES: Final = LENGTH.size
ALL_VALUES: Final = 3
MAX_TEMPLATES: Final = 64  # partitions of a connection; each takes about 1 KB


class Template(ABC):
    """A Produce with one batch for one partition, and what the next one will have in common with it.

    It is valid for one state of the cluster's metadata, configs and rights: `commits` counts their changes. `others`
    has those of all partitions of the connection by their heads, itself included.
    """

    __slots__ = ("_cluster", "_commits", "_head", "_tail", "client_id", "others", "version")

    key: ClassVar[ApiKey] = ApiKey.PRODUCE

    def __init__(self, context: RequestContext, head: bytes, others: dict[bytes, Template]) -> None:
        self.version = version = context.version
        self.client_id = context.client_id
        self.others = others
        self._cluster = context.cluster
        self._commits = context.cluster.commits
        self._tail = TAIL if version >= FIRST_FLEXIBLE else b""
        self._head = head

    def run_request_of_frame(self, cluster: Broker, correlation_id: int, frame: memoryview) -> Any:
        """Do what the Produce in `frame` asks for, and return the answer. Return None if `produce` must handle it."""
        head = self._head
        head_end = START_BYTES + len(head)
        start = bytes(frame[START_BYTES : head_end + LENGTH_BYTES])  # comparing and reading bytes is faster
        if not start.startswith(head):
            other = self.others.get(start[: len(head)])
            if other is None or other.version != self.version:
                return None
            return other.run_request_of_frame(cluster, correlation_id, frame)
        if len(frame) < head_end + HEADER_BYTES or cluster.commits != self._commits or cluster is not self._cluster:
            return None
        records = self._find_records(frame, start)
        if records is None or not is_plain_batch(records):
            return None
        return self._answer_plain_batch(cluster, correlation_id, records)

    @abstractmethod
    def _answer_plain_batch(self, cluster: Broker, correlation_id: int, records: memoryview) -> Any:
        """Return the answer to a Produce of this small, uncompressed batch, or None if `produce` must handle it."""

    def differs_only_in_records(self, frame: memoryview) -> bool:
        """Return whether a frame differs from the last one only in its records."""
        start = bytes(frame[START_BYTES : START_BYTES + len(self._head) + LENGTH_BYTES])
        return start.startswith(self._head) and self._find_records(frame, start) is not None

    def _find_records(self, frame: memoryview, frame_start: bytes) -> memoryview | None:
        """Return the records in the frame, or None unless their length says that they fill the rest of it.

        `frame_start` is the head of the frame and some bytes more, in which the records' length is.
        """
        position = len(self._head)
        if not self._tail:
            (length,) = LENGTH.unpack_from(frame_start, position)
            records = frame[START_BYTES + position + LENGTH_BYTES :]
            return records if length == len(records) else None
        length = shift = 0
        for at in range(position, position + 3):
            byte = frame_start[at]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                begin, end = START_BYTES + at + 1, START_BYTES + at + length  # the length is counted from 1
                return frame[begin:end] if end + len(TAIL) == len(frame) and frame[end:] == TAIL else None
        return None

    def _encode_answer(self, correlation_id: int, topic: TopicAnswer) -> Any:
        """Return the frame of an answer."""
        start = encode_response_start(get_response_header_version(self.key, self.version))
        return encode_answer(ProduceResponse(responses=[topic]), self.version, start, correlation_id)[0]


class ProduceTemplate(Template):
    """A Produce to a partition that the client may write to."""

    __slots__ = ("_around", "_pack", "_partition", "_size", "_topic", "_transactional_id", "_values")

    def __init__(
        self,
        context: RequestContext,
        head: bytes,
        others: dict[bytes, Template],
        partition: Partition,
        transactional_id: str | None,
        topic: TopicAnswer,
    ) -> None:
        """Remember a request. `topic` has the topic's name or id, as in the request."""
        super().__init__(context, head, others)
        version = self.version
        self._partition = partition
        self._transactional_id = transactional_id
        self._topic = topic
        self._values = 1 + (version >= FIRST_WITH_TIME) + (version >= FIRST_WITH_START)
        before, after = self._around = self._split_answer_around_offset()
        self._size = SIZE.size + len(before) + 8 * self._values + len(after)
        self._pack = Struct(f">ii{len(before)}s{'q' * self._values}{len(after)}s").pack

    def _split_answer_around_offset(self) -> tuple[bytes, bytes]:
        """Return the constant bytes of an answer: before its base offset, and behind the values that follow that."""
        marks = bytes(range(1, 8 * 3 + 1))
        first, time, start = Struct(">qqq").unpack(marks)
        answer = PartitionAnswer(
            index=self._partition.index, base_offset=first, log_append_time_ms=time, log_start_offset=start
        )
        frame = bytes(self._encode_answer(0, self._make_topic_answer(answer)))
        before, after = frame[SIZE_AND_CORRELATION_ID.size :].split(marks[: 8 * self._values])
        return before, after

    def _make_topic_answer(self, answer: PartitionAnswer) -> TopicAnswer:
        return TopicAnswer(name=self._topic.name, topic_id=self._topic.topic_id, partition_responses=[answer])

    def make_answer_frame(
        self, correlation_id: int, first_offset: int, append_time_ms: int, log_start_offset: int
    ) -> bytes:
        """Return the frame of an answer, with those of these values that its version has."""
        before, after = self._around
        if self._values == ALL_VALUES:
            return self._pack(self._size, correlation_id, before, first_offset, append_time_ms, log_start_offset, after)
        values = (first_offset, append_time_ms)[: self._values]
        return self._pack(self._size, correlation_id, before, *values, after)

    def make_refusal_frame(self, correlation_id: int, failure: KafkaError) -> Any:
        """Return the frame of the answer to a batch that could not be written."""
        answer = PartitionAnswer(index=self._partition.index)
        set_write_error(answer, failure)
        return self._encode_answer(correlation_id, self._make_topic_answer(answer))

    def _answer_plain_batch(self, cluster: Broker, correlation_id: int, records: memoryview) -> Any:
        """Append the batch; return the answer, or None if `produce` must validate it or wait for a sync."""
        partition = self._partition
        log = partition.log
        settings = log.settings
        if log.offline or settings.flush_messages != MAX_LONG:
            return None
        now_ms = cluster.clock.wall_ms()
        try:
            if records[LOW_ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT and not self._is_already_in_transaction(
                cluster, records
            ):
                return None
            validated = validate_plain_batch(log, records, now_ms)
            if validated is None:
                return None
            records, headers = validated
            if headers[0].producer_id >= 0 and log.producers.check_epoch_and_sequence(headers[0]) is not None:
                return None
        except KafkaError:
            return None
        try:
            first_offset = partition.append_batches(cluster.turn, records, headers)
        except KafkaError as error:
            return ErrorAnswerItems([self.make_refusal_frame(correlation_id, error)])
        append_time_ms = now_ms if settings.message_timestamp_type == LOG_APPEND_TIME else -1
        if first_offset < log.log_end_offset:
            return [self.make_answer_frame(correlation_id, first_offset, append_time_ms, log.log_start_offset)]
        return DueProduceAnswer(self, correlation_id, log.pending, first_offset, append_time_ms, log.log_start_offset)

    def _is_already_in_transaction(self, cluster: Broker, records: memoryview) -> bool:
        """Return whether the partition is in the batch's transaction already, without a wait. Raises KafkaError."""
        # Most producers have no transactions.
        from minibroker.broker.transactions.verification import verify_produced_batch

        header, transactional_id = read_header(records), self._transactional_id
        if transactional_id is None or header.producer_id < 0:
            return False
        joined = verify_produced_batch(cluster.transactions, self._partition, header, transactional_id, self.version)
        if joined is not None:
            self._partition.log.producers.check_first_sequence(header)
        return joined is None or joined.is_over


class RefusalTemplate(Template):
    """A Produce to a topic that the client may not write to. Each one is logged, as by `produce`."""

    __slots__ = ("_answer", "_denied", "_reason")

    def __init__(
        self,
        context: RequestContext,
        head: bytes,
        others: dict[bytes, Template],
        topic: TopicAnswer,
        reason: RefusalReason,
    ) -> None:
        """Remember a request whose whole answer is `topic`."""
        super().__init__(context, head, others)
        self._answer = bytes(self._encode_answer(0, topic))[SIZE_AND_CORRELATION_ID.size :]
        self._denied = context.principal, context.connection.host, WRITE_TOPIC, reason.topic
        self._reason = reason
        reason.error.__traceback__ = None  # its frames have the request

    def _answer_plain_batch(self, cluster: Broker, correlation_id: int, records: memoryview) -> Any:
        """Return the answer that refuses the batch; None for a transactional one, whose id `produce` checks first."""
        if records[LOW_ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT:
            return None
        audit.log_verdict(*self._denied, is_allowed=False)
        log_refusal_reason(self.client_id, log, self.key, self._reason)
        return ErrorAnswerItems(
            [SIZE_AND_CORRELATION_ID.pack(SIZE.size + len(self._answer), correlation_id) + self._answer]
        )


def remember_produce_template(
    context: RequestContext,
    partition: Partition,
    records_bytes: int,
    topic: TopicAnswer,
    transactional_id: str | None,
) -> None:
    """Make a template for the next Produce to this partition, if this is the connection's second one.

    `records_bytes` is the size of the records in the present request.
    """
    _remember_template(context, records_bytes, ProduceTemplate, partition, transactional_id, topic)


def remember_refusal_template(
    context: RequestContext, records_bytes: int, topic: TopicAnswer, reason: RefusalReason
) -> None:
    """Make a template that answers the next Produce to this topic with the same refusal, `topic`."""
    _remember_template(context, records_bytes, RefusalTemplate, topic, reason)


def _remember_template(
    context: RequestContext, records_bytes: int, template_class: Callable[..., Template], *arguments: Any
) -> None:
    """Make a template of a Produce if the connection has sent one with the same bytes before its records already."""
    connection, frame = context.connection, context.frame
    if frame is None or context.usage is not None:
        return
    head = _get_frame_start_before_records(frame, context.version, records_bytes)
    seen = connection.last_plain
    if seen.__class__ is not set or len(seen) >= MAX_TEMPLATES:
        connection.last_plain = seen = set()
    if head not in seen:
        seen.add(head)
        return
    last = connection.template
    others = last.others if isinstance(last, Template) and len(last.others) < MAX_TEMPLATES else {}
    template = template_class(context, head, others, *arguments)
    if template.differs_only_in_records(frame):
        connection.template = others[head] = template


def _get_frame_start_before_records(frame: memoryview, version: int, records_bytes: int) -> bytes:
    """Return the bytes of a frame between the correlation id and the length of the records."""
    behind_bytes = records_bytes + LENGTH_BYTES
    if version >= FIRST_FLEXIBLE:
        behind_bytes = records_bytes + 1 + ((records_bytes + 1).bit_length() - 1) // 7 + len(TAIL)
    return bytes(frame[START_BYTES : len(frame) - behind_bytes])


class DueProduceAnswer:
    """The answer to a Produce whose batch is written when the turn ends."""

    __slots__ = ("_append_time_ms", "_correlation_id", "_first_offset", "_log_start_offset", "_pending", "_template")

    def __init__(
        self,
        template: ProduceTemplate,
        correlation_id: int,
        pending: PendingBatches,
        first_offset: int,
        append_time_ms: int,
        log_start_offset: int,
    ) -> None:
        self._template = template
        self._correlation_id = correlation_id
        self._pending = pending
        self._first_offset = first_offset
        self._append_time_ms = append_time_ms
        self._log_start_offset = log_start_offset

    def list_answer_parts(self) -> list[Any]:
        """Return the items to send, once the turn has ended."""
        failure = find_failure_of_pending_batches(self._pending)
        if failure is None:
            return [
                self._template.make_answer_frame(
                    self._correlation_id, self._first_offset, self._append_time_ms, self._log_start_offset
                )
            ]
        return ErrorAnswerItems([self._template.make_refusal_frame(self._correlation_id, failure)])


def set_write_error(answer: PartitionAnswer, failure: KafkaError) -> None:
    """Put an error into an answer whose batch was not written, or not synced as the topic's settings ask."""
    answer.error_code = failure.code
    answer.error_message = failure.message
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
