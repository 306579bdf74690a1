"""DeleteRecords: moves the log start offset of partitions. Records before it can no longer be read.

Behaviour: -1 means the high watermark. An offset at or below the log start offset changes nothing and is no error. The
answer has the low watermark: the smallest log start offset of all replicas. All replicas share one log here, so there
is no need to wait for the timeout. A fetch that waits below the new start is answered with OFFSET_OUT_OF_RANGE. The
files of segments that end before the start are deleted. If the start lies within a segment, fetches begin at the batch
that contains it, and consumers skip the records before. Refused are offsets beyond the high watermark
(OFFSET_OUT_OF_RANGE), topics that are only compacted (POLICY_VIOLATION) and internal topics (INVALID_TOPIC_EXCEPTION).

Versions: 1 and 2 are like 0; 2 has flexible fields.
"""

from __future__ import annotations

import logging

from minibroker.broker.delayed_operations import pause
from minibroker.broker.metadata.partitions import INTERNAL_TOPICS
from minibroker.broker.requests.context import RequestContext, count_refusal, log_refusals
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import DELETE_TOPIC
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.log_offsets import DeleteRecordsRequest, DeleteRecordsResponse

log = logging.getLogger("minibroker.requests")

TopicAnswer = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionAnswer = TopicAnswer.DeleteRecordsPartitionResult

HIGH_WATERMARK = -1
NO_WATERMARK = -1


@handles(ApiKey.DELETE_RECORDS)
async def delete_records(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    offsets_of: dict[str, dict[int, int]] = {}  # if a partition is listed twice, the last offset counts, as in Kafka
    for topic in request.topics:
        offsets_of.setdefault(topic.name, {}).update({each.partition_index: each.offset for each in topic.partitions})
        await pause()
    response = DeleteRecordsResponse()
    for name, offsets in offsets_of.items():
        answer = TopicAnswer(name=name)
        response.topics.append(answer)
        for index, offset in offsets.items():
            answer.partitions.append(_delete_records_of_partition(context, name, index, offset))
            await pause()
        await pause()
    log_refusals(context, log, ApiKey.DELETE_RECORDS)
    return response


def _delete_records_of_partition(context: RequestContext, name: str, index: int, offset: int) -> PartitionAnswer:
    try:
        low_watermark = _delete_records_before(context, name, index, offset)
    except KafkaError as error:
        count_refusal(context, error, name, index)
        return PartitionAnswer(partition_index=index, low_watermark=NO_WATERMARK, error_code=error.code)
    return PartitionAnswer(partition_index=index, low_watermark=low_watermark)


def _delete_records_before(context: RequestContext, name: str, index: int, offset: int) -> int:
    """Delete the records before `offset`, and return the new log start offset. Raises KafkaError."""
    context.authorize(DELETE_TOPIC, name)
    if name in INTERNAL_TOPICS and context.find_partition(name, index) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {name}")
    partition = context.get_led_partition(name, index)
    kept = partition.log
    policy = kept.settings.cleanup_policy
    if "compact" in policy and "delete" not in policy:
        message = f"Records of partition {partition} can not be deleted due to the configured policy"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    new_start = kept.high_watermark if offset == HIGH_WATERMARK else offset
    if new_start < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"The offset {offset} for partition {partition} is not valid")
    if new_start > kept.log_start_offset:
        kept.delete_records_before(new_start)
        partition.wake_all_waiters()
    return kept.log_start_offset
