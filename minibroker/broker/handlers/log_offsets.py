"""ListOffsets and OffsetForLeaderEpoch: find offsets by timestamp and by leader epoch.

Behaviour: ListOffsets finds the first record with the requested timestamp or a later one, or one of the special
timestamps below. With read_committed, "latest" is the last stable offset, and records at or beyond it are not found.
A partition that is listed twice is refused. An epoch ends where the next one begins (KIP-101). An epoch without a
leader so far is answered with -1 and -1, without an error.

    timestamp  since  the offset
        -1         0  latest: high watermark, or last stable offset
        -2         0  earliest: log start offset
        -3         7  the first record of those with the largest timestamp (KIP-734)
        -4         8  earliest on the local disk: earliest, as there is no second tier (KIP-405)
        -5         9  latest in the second tier: none
        -6        11  earliest not yet in the second tier (KIP-1023): none, as in Kafka for a topic without one

Versions: ListOffsets 0 is older than timestamps in records. It answers up to max_num_offsets offsets for a partition,
the largest first: the end of the log, and the base offsets of segments whose files were last written at the requested
time or before. 1 brought one offset for a partition, by the records' timestamps (UNSUPPORTED_FOR_MESSAGE_FORMAT for
message format 0, which has none), 2 isolation levels, 4 leader epochs (KIP-320), 6 flexible fields, 10 a timeout for
the second tier. OffsetForLeaderEpoch 1 brought the epoch in the answer, 2 the client's current epoch, 3 a replica id.

A follower answers only a debugging client (replica id -2); it compares leader epochs for all clients. Other replica
ids, which followers send, are ignored.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from minibroker.broker.delayed_operations import pause, run_in_slices
from minibroker.broker.metadata.leaders import get_hosted_partition, get_led_partition
from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import CLUSTER_ACTION, DESCRIBE_TOPIC
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.log_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from minibroker.protocol.steps import Steps, apply_to_items_in_steps, count_items_in_steps, run_steps_of_each_item

TopicAnswer = ListOffsetsResponse.ListOffsetsTopicResponse
PartitionAnswer = TopicAnswer.ListOffsetsPartitionResponse
RequestedPartition = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
EpochTopicAnswer = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
EpochAnswer = EpochTopicAnswer.EpochEndOffset
RequestedEpochTopic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
RequestedEpoch = RequestedEpochTopic.OffsetForLeaderPartition

READ_COMMITTED = 1
NO_EPOCH = -1
DEBUGGING_REPLICA_ID = -2  # a client that asks a follower

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSIONS = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


class FoundOffset(NamedTuple):
    """An offset with its timestamp (ms) and leader epoch; each is -1 if there is none."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = NO_EPOCH


@handles(ApiKey.LIST_OFFSETS)
async def list_offsets(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    partitions = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    counts = await run_in_slices(
        count_items_in_steps((name, partition.partition_index) for name, partition in partitions)
    )
    answers: dict[tuple[str, int], PartitionAnswer] = {}
    for name, partition in partitions:
        key = name, partition.partition_index
        if key not in answers:
            answers[key] = await run_in_slices(_make_offset_answer(context, request, name, partition, counts[key] > 1))
            await pause()
    topics: dict[str, TopicAnswer] = {}
    for (name, _), answer in answers.items():
        topics.setdefault(name, TopicAnswer(name=name)).partitions.append(answer)
        await pause()
    return ListOffsetsResponse(topics=list(topics.values()))


def _make_offset_answer(
    context: RequestContext, request: ListOffsetsRequest, name: str, requested: RequestedPartition, is_named_twice: bool
) -> Steps[PartitionAnswer]:
    try:
        context.authorize(DESCRIBE_TOPIC, name)
        if is_named_twice:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{name}-{requested.partition_index} is asked for more than once."
            )
        if requested.timestamp < 0 and 0 < context.version < FIRST_VERSIONS.get(
            requested.timestamp, context.version + 1
        ):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"There is no timestamp {requested.timestamp}.")
        partition = _get_led_partition(
            context,
            name,
            requested.partition_index,
            requested.current_leader_epoch,
            may_be_follower=request.replica_id == DEBUGGING_REPLICA_ID,
        )
        if context.version == 0:
            offsets = _list_offsets_before(
                partition, requested.timestamp, requested.max_num_offsets, context.cluster.clock.wall_ms()
            )
            return PartitionAnswer(partition_index=requested.partition_index, old_style_offsets=offsets)
        offset = yield from _find_offset(partition, requested.timestamp, request.isolation_level == READ_COMMITTED)
    except KafkaError as error:
        return PartitionAnswer(partition_index=requested.partition_index, error_code=error.code)
    return PartitionAnswer(
        partition_index=requested.partition_index,
        timestamp=offset.timestamp,
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
    )


def _get_led_partition(
    context: RequestContext, topic: str, index: int, current_leader_epoch: int, *, may_be_follower: bool = False
) -> Partition:
    """Return the partition. Raises KafkaError unless this node leads it, or follows if that is enough.

    A replica, follower or not, first compares the client's epoch.
    """
    node_id, found = context.node.node_id, context.find_topic(topic)
    partition = get_hosted_partition(node_id, found, index)
    partition.check_leader_epoch(current_leader_epoch)
    return partition if may_be_follower else get_led_partition(node_id, found, index)


def _list_offsets_before(partition: Partition, timestamp: int, max_count: int, now_ms: int) -> list[int]:
    """Return the end of the log and the starts of segments last written by `timestamp` (ms), the largest first."""
    log = partition.log
    try:
        places = [
            (max(segment.base_offset, log.log_start_offset), segment.get_modified_ms()) for segment in log.segments
        ]
    except OSError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    if log.segments[-1].size_bytes:
        places.append((log.log_end_offset, now_ms))
    if timestamp == EARLIEST:
        del places[1:]
    elif timestamp != LATEST:
        while places and places[-1][1] > timestamp:
            places.pop()
    newest = [min(offset, log.high_watermark) for offset, _ in reversed(places)]
    return newest[: max(max_count, 0)]


def _find_offset(partition: Partition, timestamp: int, committed: bool) -> Steps[FoundOffset]:
    """Return the offset for a timestamp (ms) or a value such as LATEST; with `committed`, of stable records only."""
    log = partition.log
    limit_offset = log.last_stable_offset if committed else log.high_watermark
    if timestamp == LATEST:
        return FoundOffset(limit_offset, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return FoundOffset(log.log_start_offset, leader_epoch=_find_first_leader_epoch(partition))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return FoundOffset()
    if log.settings.message_format_version == 0:
        raise KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"{partition} has message format 0.")
    if timestamp == MAX_TIMESTAMP:
        record = yield from log.find_offset_of_max_timestamp_in_steps()
    else:
        record = yield from log.find_offset_for_timestamp_in_steps(timestamp)
    return FoundOffset() if record is None or record.offset >= limit_offset else FoundOffset(*record)


def _find_first_leader_epoch(partition: Partition) -> int:
    """Return the epoch of the first record, or the current epoch if the log is empty."""
    epoch = partition.log.epochs.find_epoch_at(partition.log.log_start_offset)
    return partition.leader_epoch if epoch == NO_EPOCH else epoch


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH)
async def offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    def find_epoch_ends_of_topic(topic: RequestedEpochTopic) -> Steps[EpochTopicAnswer]:
        partitions = yield from apply_to_items_in_steps(
            partial(_make_epoch_end_answer, context, topic.topic), topic.partitions
        )
        return EpochTopicAnswer(topic=topic.topic, partitions=partitions)

    return OffsetForLeaderEpochResponse(
        topics=(await run_in_slices(run_steps_of_each_item(find_epoch_ends_of_topic, request.topics)))
    )


def _make_epoch_end_answer(context: RequestContext, topic: str, requested: RequestedEpoch) -> EpochAnswer:
    try:
        if not context.allows(CLUSTER_ACTION):
            context.authorize(DESCRIBE_TOPIC, topic)
        partition = _get_led_partition(context, topic, requested.partition, requested.current_leader_epoch)
        epoch, end_offset = partition.find_end_offset_of_epoch(requested.leader_epoch)
    except KafkaError as error:
        return EpochAnswer(partition=requested.partition, error_code=error.code)
    return EpochAnswer(partition=requested.partition, leader_epoch=epoch, end_offset=end_offset)
