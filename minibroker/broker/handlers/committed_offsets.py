"""OffsetFetch: how far a group has come, which as long as groups are not served is nowhere.

Behaviour: nothing can be committed yet, so every partition is answered as Kafka answers one for which a group has
committed nothing, known or not, and the consumer then goes by its `auto.offset.reset`. This is here before the other
APIs of groups because consumers by assign ask for it: librdkafka 2.16 does so without looking whether it is announced,
and crashes where it is not.

Versions: 1 brought the broker's own store, 2 an error of the whole answer and "all topics", 5 leader epochs, 8 several
groups in one request, 9 members, 10 topic ids.

Not implemented: groups, and with them OffsetCommit; members, whose ids and epochs say nothing yet.
"""

from __future__ import annotations

from minibroker.broker.dispatch import Context, handles
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchResponse

Topic = OffsetFetchResponse.OffsetFetchResponseTopic
Group = OffsetFetchResponse.OffsetFetchResponseGroup
GroupTopic = Group.OffsetFetchResponseTopics
AskedGroup = OffsetFetchRequest.OffsetFetchRequestGroup

FIRST_WITH_ERROR = 2
FIRST_WITH_SEVERAL_GROUPS = 8
FIRST_WITH_TOPIC_IDS = 10
NO_OFFSET = -1


@handles(ApiKey.OFFSET_FETCH, "0-10")
def offset_fetch(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.version >= FIRST_WITH_SEVERAL_GROUPS:
        return OffsetFetchResponse(groups=[_group(context, group) for group in request.groups])
    code = _coordination_error(context, request.group_id)
    told_apart = context.version < FIRST_WITH_ERROR  # an error has no place but at each partition
    topics = [
        Topic(name=topic.name, partitions=[_partition(index, code) for index in topic.partition_indexes])
        for topic in request.topics or ()
        if code == ErrorCode.NONE or told_apart
    ]
    return OffsetFetchResponse(error_code=code, topics=topics)


def _coordination_error(context: Context, group_id: str) -> ErrorCode:
    try:
        context.cluster.groups.check_node(context.node, group_id)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _partition(index: int, code: ErrorCode) -> Topic.OffsetFetchResponsePartition:
    return Topic.OffsetFetchResponsePartition(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
    )


def _group(context: Context, group: AskedGroup) -> Group:
    code = _coordination_error(context, group.group_id)
    topics = (group.topics or ()) if code == ErrorCode.NONE else ()
    return Group(group_id=group.group_id, error_code=code, topics=[_group_topic(context, topic) for topic in topics])


def _group_topic(context: Context, topic: AskedGroup.OffsetFetchRequestTopics) -> GroupTopic:
    by_id = context.version >= FIRST_WITH_TOPIC_IDS
    unknown = by_id and topic.topic_id not in context.cluster.image.topics_by_id
    code = ErrorCode.UNKNOWN_TOPIC_ID if unknown else ErrorCode.NONE
    return GroupTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            GroupTopic.OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )
