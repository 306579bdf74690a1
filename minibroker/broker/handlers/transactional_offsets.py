"""TxnOffsetCommit: offsets of a group that count once the producer's transaction commits (KIP-98, KIP-447).

Behaviour: the offsets are one transactional batch in `__consumer_offsets`. They are pending until the marker is
written; until then an OffsetFetch with `require_stable` is answered with UNSTABLE_OFFSET_COMMIT. Members, generations
and metadata are checked as in OffsetCommit. Unknown partitions are refused one by one. The group's partition must be
part of the transaction.

Versions: 2 brought leader epochs, 3 the member and its generation (KIP-447) and flexible fields, 4
TRANSACTION_ABORTABLE for a group that was not added (before, INVALID_TXN_STATE). From 5 on this request adds the
group's partition to the transaction (KIP-890). 6 brought topic ids, and GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH
instead of ILLEGAL_GENERATION (KIP-1319).
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.groups.offsets_of_group import CommittedOffset
from minibroker.broker.handlers.committed_offsets import (
    check_topics_not_deleted,
    count_utf16_units,
    delay_until_offsets_durable,
    put_unknown_partitions_first,
)
from minibroker.broker.metadata.partitions import Topic
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import READ_GROUP, READ_TOPIC, WRITE_TRANSACTIONAL_ID
from minibroker.broker.transactions.verification import add_or_verify_partition
from minibroker.broker.turn import AppendWait
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.steps import Steps, fits_in_one_step, run_all_steps

RequestedPartition = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition
TopicAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
PartitionAnswer = TopicAnswer.TxnOffsetCommitResponsePartition
RequestedOffset = tuple[Topic, RequestedPartition, PartitionAnswer]

FIRST_WITH_ABORTABLE = 4
FIRST_THAT_JOINS = 5
FIRST_WITH_TOPIC_IDS = 6
SINCE_TOPIC_IDS = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH)
NO_GENERATION = -1


@handles(ApiKey.TXN_OFFSET_COMMIT)
def txn_offset_commit(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Coroutine[Any, Any, TxnOffsetCommitResponse]:
    steps = _commit_txn_offsets_in_steps(context, request)
    return (
        run_all_steps(steps) if fits_in_one_step(topic.partitions for topic in request.topics) else run_in_slices(steps)
    )


def _commit_txn_offsets_in_steps(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> Steps[TxnOffsetCommitResponse]:
    response = TxnOffsetCommitResponse()
    partitions = yield from _collect_existing_partitions(context, request, response)
    if not partitions:
        return response  # as in Kafka, the transaction does not change then
    try:
        taken, joined = yield from _record_pending_offsets(context, request, partitions)
        if taken:
            delay_until_offsets_durable(context, request.group_id, lambda error: _set_error_of_partitions(taken, error))
        if joined is not None:
            context.delay_answer_until_wait_is_over(joined, lambda error: _set_error_of_partitions(taken, error))
    except KafkaError as error:
        _set_error_of_partitions(partitions, _translate_error_for_version(context, error))
    return response


def _translate_error_for_version(context: RequestContext, error: KafkaError) -> KafkaError:
    """Return the error, or in its place INVALID_TXN_STATE for a client that is older than TRANSACTION_ABORTABLE."""
    if error.code == ErrorCode.TRANSACTION_ABORTABLE and context.version < FIRST_WITH_ABORTABLE:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, error.message)
    return error


def _collect_existing_partitions(
    context: RequestContext, request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse
) -> Steps[list[RequestedOffset]]:
    """Return the partitions that exist. Put all partitions into the response, unknown ones with an error."""
    existing: list[RequestedOffset] = []
    for topic in request.topics:
        key = topic.topic_id if context.version >= FIRST_WITH_TOPIC_IDS else topic.name
        known, unknown = context.find_topic(key), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            context.authorize(WRITE_TRANSACTIONAL_ID, request.transactional_id)
            context.authorize(READ_GROUP, request.group_id)
            context.authorize_topic(READ_TOPIC, key)
        except KafkaError as error:
            known, unknown = None, error.code
        answers = TopicAnswer(name=topic.name, topic_id=topic.topic_id)
        if topic.partitions or known is None:  # as Kafka, which says nothing of a topic of which nothing is asked
            response.topics.append(answers)
        yield
        for partition in topic.partitions:
            yield
            answer = PartitionAnswer(partition_index=partition.partition_index)
            answers.partitions.append(answer)
            if known is None or known.find_partition(partition.partition_index) is None:
                answer.error_code = unknown
            else:
                existing.append((known, partition, answer))
        put_unknown_partitions_first(answers.partitions)
    return existing


def _set_error_of_partitions(requested: Iterable[RequestedOffset], error: KafkaError) -> None:
    for _, _, answer in requested:
        answer.error_code = error.code


def _record_pending_offsets(
    context: RequestContext, request: TxnOffsetCommitRequest, requested: Sequence[RequestedOffset]
) -> Steps[tuple[list[RequestedOffset], AppendWait | None]]:
    """Record the offsets as pending. Return the accepted ones, and the wait for the transaction's record.

    Raises KafkaError if all are refused.
    """
    from minibroker.broker.groups.commits import commit_offsets

    groups = context.cluster.groups
    groups.check_is_coordinator_and_group_id(context.node, request.group_id)
    producer = request.producer_id, request.producer_epoch
    limit = context.cluster.settings["offset.metadata.max.bytes"]
    now_ms = context.cluster.clock.wall_ms()
    taken, offsets = [], []
    for topic, partition, answer in requested:
        yield
        if count_utf16_units(partition.committed_metadata or "") > limit:
            answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        taken.append((topic, partition, answer))
        offsets.append((topic.name, partition.partition_index, _make_committed_offset(partition, now_ms)))
    joined: AppendWait | None = None

    def check_commit_allowed() -> None:
        nonlocal joined
        check_topics_not_deleted(context, (topic for topic, _, _ in taken))
        joined = _add_offsets_to_transaction(context, request, producer)
        try:
            _check_committing_member(context, request, taken)
        except KafkaError as error:
            if context.version < FIRST_WITH_TOPIC_IDS and error.code in SINCE_TOPIC_IDS:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
            raise

    yield from commit_offsets(groups, request.group_id, offsets, check_commit_allowed, producer)
    return taken, joined


def _add_offsets_to_transaction(
    context: RequestContext, request: TxnOffsetCommitRequest, producer: tuple[int, int]
) -> AppendWait | None:
    """Add the group's partition to the transaction, and return the wait for its record. Raises KafkaError."""
    groups = context.cluster.groups
    groups.check_is_coordinator_and_group_id(context.node, request.group_id)
    partition = groups.log.get_partition(groups.log.get_partition_index(request.group_id))
    joins = context.version >= FIRST_THAT_JOINS
    return add_or_verify_partition(
        context.cluster.transactions, request.transactional_id, producer, partition, may_add=joins
    )


def _check_committing_member(
    context: RequestContext, request: TxnOffsetCommitRequest, partitions: Sequence[RequestedOffset]
) -> None:
    """Check that the client may commit offsets of these partitions. Raises KafkaError."""
    group, epoch = context.cluster.groups.groups.get(request.group_id), request.generation_id_or_member_epoch
    if group is None:
        if epoch > NO_GENERATION:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        return
    member = request.member_id, request.group_instance_id, epoch
    check_partition = group.check_offset_commit(*member, transactional=True, version=context.version)
    if check_partition is not None:
        for topic, partition, _ in partitions:
            topic_id = topic.topic_id if context.version >= FIRST_WITH_TOPIC_IDS else ZERO_UUID
            check_partition(topic.name, topic_id, partition.partition_index)


def _make_committed_offset(partition: RequestedPartition, now_ms: int) -> CommittedOffset:
    return CommittedOffset(
        partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata or "", now_ms
    )
