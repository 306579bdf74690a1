"""DescribeTopicPartitions: topics and their partitions, sorted by name, a page at a time (KIP-966).

Behaviour: an empty list of topics means all. A page has at least one partition, and at most as many as the client and
`max.request.partition.size.limit` allow. A request with the answer's cursor gets the next page. Requested topics that
the client may not describe are at the end of each page, if they are not before its cursor. If the cursor has a topic
that is not in the request, or a negative partition, every topic is answered with INVALID_REQUEST. Eligible leader
replicas are those of the metadata: only Kafka's log directory can have some, as every replica here is in sync.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection

from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.metadata.leaders import list_advertised_nodes, make_partition_answer
from minibroker.broker.metadata.partitions import INTERNAL_TOPICS, Partition, check_topic_name
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import DESCRIBE_TOPIC, ResourceType
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from minibroker.protocol.steps import Steps

TopicAnswer = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
PartitionAnswer = TopicAnswer.DescribeTopicPartitionsResponsePartition
Cursor = DescribeTopicPartitionsResponse.Cursor
RequestCursor = DescribeTopicPartitionsRequest.Cursor


@handles(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
async def describe_topic_partitions(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    asked = {topic.name for topic in request.topics}
    cursor = request.cursor
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        refused = [TopicAnswer(error_code=ErrorCode.INVALID_REQUEST, name=topic.name) for topic in request.topics]
        return DescribeTopicPartitionsResponse(topics=refused)
    names = sorted(asked or context.cluster.image.topics)
    if cursor is not None:
        names = names[bisect_left(names, cursor.topic_name) :]
    limit = min(request.response_partition_limit, context.cluster.settings["max.request.partition.size.limit"])
    return await run_in_slices(_describe_page_of_topics(context, names, not asked, cursor, max(limit, 1)))


def _describe_page_of_topics(
    context: RequestContext, names: list[str], all_topics: bool, cursor: RequestCursor | None, partitions_left: int
) -> Steps[DescribeTopicPartitionsResponse]:
    """Return the page of the topics `names` from the cursor on, with up to `partitions_left` partitions.

    With `all_topics`, leave out topics that the client may not describe.
    """
    response = DescribeTopicPartitionsResponse()
    denied: list[TopicAnswer] = []
    for name in names:
        yield
        if not context.allows(DESCRIBE_TOPIC, name, is_needed=not all_topics):
            if not all_topics:
                denied.append(TopicAnswer(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
        elif response.next_cursor is not None:
            if all_topics:
                break
        elif partitions_left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
        else:
            start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
            answer, end = _describe_topic(context, name, start, partitions_left)
            response.topics.append(answer)
            if end is not None:
                response.next_cursor = Cursor(topic_name=name, partition_index=end)
            partitions_left -= len(answer.partitions)
    response.topics += denied
    return response


def _describe_topic(context: RequestContext, name: str, start: int, limit: int) -> tuple[TopicAnswer, int | None]:
    """Return the answer for a topic, and the partition where the next page begins if it has more than `limit`."""
    answer = TopicAnswer(name=name, is_internal=name in INTERNAL_TOPICS)
    answer.topic_authorized_operations = context.get_allowed_operations(ResourceType.TOPIC, name)
    try:
        check_topic_name(name)
        topic = context.get_topic(name)
    except KafkaError as error:
        answer.error_code = error.code
        return answer, None
    end = start + limit
    answer.topic_id = topic.topic_id
    nodes = list_advertised_nodes(context.cluster.nodes, context.connection.listener)
    answer.partitions = [_describe_partition(partition, nodes) for partition in topic.partitions[start:end]]
    return answer, end if end < len(topic.partitions) else None


def _describe_partition(partition: Partition, nodes: Collection[int]) -> PartitionAnswer:
    answer: PartitionAnswer = make_partition_answer(partition, nodes, PartitionAnswer)
    answer.eligible_leader_replicas = partition.eligible_leader_replicas
    answer.last_known_elr = partition.last_known_elr
    return answer
