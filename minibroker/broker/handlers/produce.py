"""Produce: appends batches to partitions. Each partition succeeds or fails by itself.

Behaviour: the whole batch is checked (`storage.validation`), then its sequence numbers; then it is appended. acks 1 and
acks all are both answered after the append, as there is only one copy of the log. acks 0 is not answered; an error
closes the connection, which is all that such a client can notice. acks all is refused with NOT_ENOUGH_REPLICAS below
min.insync.replicas. When flush.messages is reached, the answer waits until the records are synced, whatever the acks,
as Kafka syncs within the append; they can be read before that. The answer also waits if the partition is added to a
transaction and `__transaction_state` has flush.messages.

Versions: 0 and 1 have message format 0, 2 format 1 (each of these versions accepts both formats), 3 and newer format 2.
Batches are converted if the topic's `message.format.version` is another one. 1 brought the throttle time, 2 the append
time, 3 transactional ids, 7 zstd, 8 record errors (KIP-467), 10 the current leader in the answer (KIP-951), 13 topic
ids.

A transactional batch must belong to the producer's open transaction; this is checked before its records. From version
12 on this request adds the partition to the transaction (KIP-890). Before, the client adds it; if it has not, version
11 answers TRANSACTION_ABORTABLE. Without a transactional id, or with batches of several producers, no batch of the
request is appended. A transactional batch without a producer id belongs to no transaction, and is treated as any other.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any

from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.handlers.produce_template import (
    remember_produce_template,
    remember_refusal_template,
    set_write_error,
)
from minibroker.broker.metadata.leaders import list_leader_endpoints, make_current_leader_answer
from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.requests.context import RequestContext, count_refusal, log_refusals
from minibroker.broker.requests.routes import UnanswerableRequest
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from minibroker.broker.turn import AppendWait
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, InvalidRecords, KafkaError, UnverifiedBatch
from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from minibroker.protocol.records.batch import LOG_APPEND_TIME, is_transactional, read_header
from minibroker.protocol.records.validation import SMALL_BYTES
from minibroker.protocol.records.varints import Bytes
from minibroker.protocol.steps import CHUNK_ITEMS, Steps, run_all_steps
from minibroker.storage.format_validation import ValidatedBatches
from minibroker.storage.log_settings import MAX_LONG
from minibroker.storage.validation import (
    is_plain_batch,
    stores_uncompressed_batches_unchanged,
    validate_plain_batch,
    validate_records_in_steps,
)

log = logging.getLogger("minibroker.produce")

TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = TopicAnswer.PartitionProduceResponse
RecordError = PartitionAnswer.BatchIndexAndErrorMessage
Outcome = ProduceResponse | Coroutine[Any, Any, ProduceResponse | None] | None
PartitionData = ProduceRequest.TopicProduceData.PartitionProduceData

FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_LEADERS = 10
ADMIN_CLIENT = "__admin_client"
ACKS = (-1, 0, 1)
DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

# As in Kafka, an error has the log start offset only if the log has checked the batch.
WITH_LOG_START = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)


@handles(ApiKey.PRODUCE)
def produce(context: RequestContext, request: ProduceRequest) -> Outcome:
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return _produce_now_or_in_steps(context, request)
    data = request.topic_data[0]
    partition_data = data.partition_data[0]
    if partition_data.records is None or not is_plain_batch(partition_data.records):
        return _produce_now_or_in_steps(context, request)
    failed: list[PartitionAnswer] = []
    key = _get_topic_name_or_id(context, data)
    try:
        _check_transactional_id(context, request, partition_data.records)
        partition, records, joined = _find_partition_and_records_to_append(context, request, key, partition_data)
        now_ms = context.cluster.clock.wall_ms()
        validated = validate_plain_batch(partition.log, records, now_ms)
        if validated is None:
            return _produce_now_or_in_steps(context, request)
        appended = _append_batch(context, partition, request, partition_data.index, validated, joined, now_ms)
    except KafkaError as error:
        appended = _make_error_answer(context, key, partition_data.index, error)
        failed.append(appended)
    answer = TopicAnswer(name=data.name, topic_id=data.topic_id, partition_responses=[appended])
    if not failed and request.acks:
        remember_produce_template(context, partition, len(partition_data.records), answer, request.transactional_id)
        return ProduceResponse(responses=[answer])
    denied = (context.refusals or {}).get(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if denied is not None and request.acks:
        remember_refusal_template(context, len(partition_data.records), answer, denied)
    log_refusals(context, log, ApiKey.PRODUCE)
    return _make_produce_response(context, request, [answer], failed)


def _produce_now_or_in_steps(context: RequestContext, request: ProduceRequest) -> Outcome:
    """Handle a Produce at once if it is quick to validate, else in steps, for which its records are kept."""
    if _is_quick_to_validate(context, request):
        return run_all_steps(_produce_in_steps(context, request))
    if not context.keep_frame_for_later_steps():
        for data in request.topic_data:
            for asked in data.partition_data:
                if asked.records is not None:
                    asked.records = memoryview(bytearray(asked.records))
    return run_in_slices(_produce_in_steps(context, request))


def _is_quick_to_validate(context: RequestContext, request: ProduceRequest) -> bool:
    """Return whether all batches can be appended within a millisecond or two: few, small and uncompressed."""
    count, size_bytes = len(request.topic_data), 0
    for data in request.topic_data:
        count += len(data.partition_data)
        if count > CHUNK_ITEMS:
            return False
        topic = context.find_topic(_get_topic_name_or_id(context, data))
        if topic is not None and not stores_uncompressed_batches_unchanged(topic.settings):
            return False
        for partition_data in data.partition_data:
            if partition_data.records is None or not is_plain_batch(partition_data.records):
                return False
            size_bytes += len(partition_data.records)
    return size_bytes <= SMALL_BYTES


def _produce_in_steps(context: RequestContext, request: ProduceRequest) -> Steps[ProduceResponse | None]:
    """Append to one partition in each step. Other requests may append to the same partitions in between."""
    answers = []
    failed: list[PartitionAnswer] = []
    refusal = yield from _find_request_error(context, request)
    for data in request.topic_data:
        key = _get_topic_name_or_id(context, data)
        answer = TopicAnswer(name=data.name, topic_id=data.topic_id)
        for partition_data in data.partition_data:
            try:
                if refusal is not None:
                    raise refusal
                appended = yield from _validate_and_append(context, request, key, partition_data)
            except KafkaError as error:
                error.__traceback__ = None  # `refusal` would else keep this frame alive
                appended = _make_error_answer(context, key, partition_data.index, error)
                failed.append(appended)
            answer.partition_responses.append(appended)
            yield
        answers.append(answer)
        yield
    if failed:
        log_refusals(context, log, ApiKey.PRODUCE)
    return _make_produce_response(context, request, answers, failed)


def _validate_and_append(
    context: RequestContext, request: ProduceRequest, name_or_id: str | bytes, requested: PartitionData
) -> Steps[PartitionAnswer]:
    partition, records, joined = _find_partition_and_records_to_append(context, request, name_or_id, requested)
    now_ms = context.cluster.clock.wall_ms()
    validated = validate_plain_batch(partition.log, records, now_ms) if is_plain_batch(records) else None
    if validated is None:
        validated_for = partition.log
        validated = yield from validate_records_in_steps(
            validated_for, records, api_version=context.version, now_ms=now_ms
        )
        # Other requests have run: the partition may be deleted or have a new leader, or the transaction may have ended.
        partition, _, joined = _find_partition_and_records_to_append(context, request, name_or_id, requested)
        if partition.log is not validated_for:  # the log was moved, or the topic was deleted and created again
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} has another log now.")
    return _append_batch(context, partition, request, requested.index, validated, joined, now_ms)


def _make_produce_response(
    context: RequestContext, request: ProduceRequest, answers: list[TopicAnswer], failed: list[PartitionAnswer]
) -> ProduceResponse | None:
    """Return the response, or None with acks=0. Raises UnanswerableRequest for an error with acks=0."""
    if request.acks == 0:
        if failed:
            raise UnanswerableRequest(f"a Produce with acks=0 failed: {ErrorCode(failed[0].error_code).name}")
        return None
    response = ProduceResponse(responses=answers)
    if failed and context.version >= FIRST_WITH_LEADERS:
        leaders = [partition.current_leader for answer in answers for partition in answer.partition_responses]
        response.node_endpoints = list_leader_endpoints(
            context.cluster.nodes, context.connection.listener, leaders, ProduceResponse.NodeEndpoint
        )
    return response


def _find_request_error(context: RequestContext, request: ProduceRequest) -> Steps[KafkaError | None]:
    """Return the error of the whole request, if any: none of its batches is checked or appended then."""
    producers: set[tuple[int, int]] = set()
    for data in request.topic_data:
        for partition in data.partition_data:
            if partition.records and is_transactional(partition.records):
                try:
                    _check_transactional_id(context, request, partition.records)
                except KafkaError as error:
                    return error
                header = read_header(memoryview(partition.records))
                if header.producer_id >= 0:
                    producers.add((header.producer_id, header.producer_epoch))
        yield
    if len(producers) > 1:
        return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "The request has batches of more than one producer.")
    return None


def _check_transactional_id(context: RequestContext, request: ProduceRequest, records: Bytes) -> None:
    """Raise KafkaError if the records are transactional, and the transactional id is missing or not allowed."""
    if is_transactional(records):
        if request.transactional_id is None:
            raise KafkaError(DENIED, "The request has no transactional id.")
        if not context.allows(WRITE_TRANSACTIONAL_ID, request.transactional_id, is_needed=True):
            raise KafkaError(DENIED)


def _get_topic_name_or_id(context: RequestContext, data: ProduceRequest.TopicProduceData) -> str | bytes:
    return data.topic_id if context.version >= FIRST_WITH_TOPIC_IDS else data.name


def _find_led_partition(context: RequestContext, name_or_id: str | bytes, index: int) -> Partition:
    context.authorize_topic(WRITE_TOPIC, name_or_id)
    return context.get_led_partition(name_or_id, index)


def _check_may_write(context: RequestContext, request: ProduceRequest, partition: Partition) -> None:
    """Raise KafkaError unless this request may write to the partition."""
    if request.acks not in ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if partition.topic.internal and context.client_id != ADMIN_CLIENT:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.topic.name}")
    if request.acks == -1:
        partition.check_min_isr()


def _find_partition_and_records_to_append(
    context: RequestContext, request: ProduceRequest, name_or_id: str | bytes, requested: PartitionData
) -> tuple[Partition, memoryview, AppendWait | None]:
    """Return the partition, the records to append, and the wait for its transaction's record, if any.

    Raises KafkaError.
    """
    joined = None
    partition = _find_led_partition(context, name_or_id, requested.index)
    if request.transactional_id is not None and requested.records is not None and is_transactional(requested.records):
        joined = _add_or_verify_partition_in_transaction(
            context, partition, requested.records, request.transactional_id
        )
    _check_may_write(context, request, partition)
    if requested.records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "There are no records.")
    return partition, memoryview(requested.records), joined


def _append_batch(
    context: RequestContext,
    partition: Partition,
    request: ProduceRequest,
    index: int,
    validated: ValidatedBatches,
    transaction_wait: AppendWait | None,
    now_ms: int,
) -> PartitionAnswer:
    """Append a validated batch unless it is a duplicate. The answer waits until it is written, or also synced."""
    log = partition.log
    records, headers = validated
    header = headers[0]
    if transaction_wait is not None:
        log.producers.check_first_sequence(header)
    original = log.producers.check_epoch_and_sequence(header) if header.producer_id >= 0 else None
    if original is not None:
        # As in Kafka, a repetition gets the append time of the original, whatever the timestamp type of the topic.
        first_offset, append_time_ms = original
        end_offset = first_offset + header.last_offset_delta + 1
        must_sync = end_offset > log.recovery_point and log.settings.flush_messages != MAX_LONG
    else:
        first_offset = partition.append_batches(context.cluster.turn, records, headers)
        append_time_ms = now_ms if log.settings.message_timestamp_type == LOG_APPEND_TIME else -1
        end_offset = log.next_offset
        must_sync = end_offset >= log.flush_at
    pending = log.pending if end_offset > log.log_end_offset else None
    answer = PartitionAnswer(
        index=index,
        base_offset=first_offset,
        log_append_time_ms=append_time_ms,
        log_start_offset=log.log_start_offset,
    )
    if must_sync or pending is not None:
        _delay_answer_until_appended(context, request, AppendWait(log, pending, must_sync), answer)
    if transaction_wait is not None:
        _delay_answer_until_appended(context, request, transaction_wait, answer)
    return answer


def _delay_answer_until_appended(
    context: RequestContext, request: ProduceRequest, wait: AppendWait, answer: PartitionAnswer
) -> None:
    if request.acks:
        context.delay_answer_until_wait_is_over(wait, partial(set_write_error, answer))
    else:
        context.cluster.turn.call_when_wait_is_over(wait, partial(_close_connection_if_failed, context))


def _close_connection_if_failed(context: RequestContext, failure: KafkaError | None) -> None:
    """Close the connection if a Produce with acks=0 has failed: its client can notice nothing else."""
    if failure is not None:
        log.warning("closing %s: a Produce with acks=0 failed: %s", context.connection.peer, failure)
        context.connection.close_after_failure()


def _add_or_verify_partition_in_transaction(
    context: RequestContext, partition: Partition, records: Bytes, transactional_id: str
) -> AppendWait | None:
    """Add the partition to the records' transaction or check that it is in it; return the wait for that, if any."""
    from minibroker.broker.transactions.verification import verify_produced_batch  # most producers have no transactions

    header = read_header(records)
    if header.producer_id < 0:
        return None
    return verify_produced_batch(context.cluster.transactions, partition, header, transactional_id, context.version)


def _make_error_answer(
    context: RequestContext, name_or_id: str | bytes, index: int, error: KafkaError
) -> PartitionAnswer:
    """Count the refusal, and return the answer of the partition."""
    topic = context.find_topic(name_or_id)
    count_refusal(
        context, error, topic.name if topic is not None else name_or_id if isinstance(name_or_id, str) else "?", index
    )
    answer = PartitionAnswer(index=index, error_code=error.code, base_offset=-1, error_message=error.message)
    if isinstance(error, InvalidRecords):
        answer.record_errors = [
            RecordError(batch_index=record, batch_index_error_message=message)
            for record, message in error.record_errors
        ]
    has_checked = isinstance(error, InvalidRecords) or error.code in WITH_LOG_START
    if topic is not None and has_checked and not isinstance(error, UnverifiedBatch):
        answer.log_start_offset = topic.partitions[index].log.log_start_offset
    if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and topic is not None:
        answer.current_leader = make_current_leader_answer(topic.partitions[index], PartitionAnswer.LeaderIdAndEpoch)
    return answer
