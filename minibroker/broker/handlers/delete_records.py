"""DeleteRecords: the log of a partition begins at a later offset, and what lies before is gone for every reader.

Behaviour: -1 stands for the high watermark. An offset at or below the log's start changes nothing and is well. The
answer has the low watermark, the smallest log start offset of all replicas, which here share one log: so the timeout
has nothing to wait for. A fetch that waits below the new start is answered with OFFSET_OUT_OF_RANGE. Whole segments
before the start go with their files; where the start lies within one, fetches begin at the batch that contains it, and
consumers pass over what is before. Refused: an offset beyond the high watermark (OFFSET_OUT_OF_RANGE), a topic that is
only compacted (POLICY_VIOLATION), an internal one (INVALID_TOPIC_EXCEPTION).

Versions: 1 says the same as 0, 2 with flexible fields.

Not implemented: nothing.
"""

from __future__ import annotations

import logging

from minibroker.broker.metadata.partitions import INTERNAL_TOPICS
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.refusals import refused, tell_refusals
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import DELETE_TOPIC
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.log_offsets import DeleteRecordsRequest, DeleteRecordsResponse
from minibroker.protocol.steps import Steps

log = logging.getLogger("minibroker.requests")

TopicAnswer = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionAnswer = TopicAnswer.DeleteRecordsPartitionResult

HIGH_WATERMARK = -1
NO_WATERMARK = -1


@handles(ApiKey.DELETE_RECORDS)
def delete_records(context: RequestContext, request: DeleteRecordsRequest) -> Steps[DeleteRecordsResponse]:
    asked: dict[str, dict[int, int]] = {}  # as in Kafka, of a partition that stands twice the last offset counts
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update({each.partition_index: each.offset for each in topic.partitions})
        yield
    response = DeleteRecordsResponse()
    for name, offsets in asked.items():
        answer = TopicAnswer(name=name)
        response.topics.append(answer)
        for index, offset in offsets.items():
            answer.partitions.append(_deleted(context, name, index, offset))
            yield
        yield
    tell_refusals(context, log, ApiKey.DELETE_RECORDS)
    return response


def _deleted(context: RequestContext, name: str, index: int, offset: int) -> PartitionAnswer:
    try:
        low_watermark = _delete(context, name, index, offset)
    except KafkaError as error:
        refused(context, error, name, index)
        return PartitionAnswer(partition_index=index, low_watermark=NO_WATERMARK, error_code=error.code)
    return PartitionAnswer(partition_index=index, low_watermark=low_watermark)


def _delete(context: RequestContext, name: str, index: int, offset: int) -> int:
    """The log start offset then. Raises KafkaError."""
    context.authorize(DELETE_TOPIC, name)
    if name in INTERNAL_TOPICS and context.find_partition(name, index) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {name}")
    partition = context.partition(name, index)
    kept = partition.log
    policy = kept.settings.cleanup_policy
    if "compact" in policy and "delete" not in policy:
        message = f"Records of partition {partition} can not be deleted due to the configured policy"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    wanted = kept.high_watermark if offset == HIGH_WATERMARK else offset
    if wanted < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"The offset {offset} for partition {partition} is not valid")
    if wanted > kept.log_start_offset:
        kept.delete_before(wanted)
        partition.wake()
    return kept.log_start_offset
