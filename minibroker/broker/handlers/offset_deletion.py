"""OffsetDelete: deletes a group's offsets of partitions that it no longer reads.

Behaviour: unknown partitions are refused one by one, and so are topics to which the group is subscribed
(GROUP_SUBSCRIBED_TO_TOPIC). A partition without an offset is no error. If the group has members that are no consumers,
the whole request is refused (NON_EMPTY_GROUP), as the broker cannot know which topics they read.

Versions: there is only 0.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from minibroker.broker.delayed_operations import pause, run_in_slices
from minibroker.broker.handlers.committed_offsets import delay_until_offsets_durable, put_unknown_partitions_first
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import DELETE_GROUP, READ_TOPIC
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.offsets import OffsetDeleteRequest, OffsetDeleteResponse
from minibroker.protocol.steps import Steps, apply_to_items_in_steps, run_steps_of_each_item, split_into_portions

if TYPE_CHECKING:
    from minibroker.broker.groups.group import Group

RequestedTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic
RequestedPartition = RequestedTopic.OffsetDeleteRequestPartition
TopicAnswer = OffsetDeleteResponse.OffsetDeleteResponseTopic
PartitionAnswer = TopicAnswer.OffsetDeleteResponsePartition


@handles(ApiKey.OFFSET_DELETE)
async def offset_delete(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    from minibroker.broker.groups.group_coordinator import delete_offsets_of_group  # imported late, for a fast start

    group = _find_group(context, request.group_id)
    # As in Kafka, an existing topic without partitions in the request is left out of the answer.
    to_answer = [topic for topic in request.topics if topic.partitions or context.find_topic(topic.name) is None]
    topics = await run_in_slices(run_steps_of_each_item(partial(_make_topic_answer, context, group), to_answer))
    for portion in split_into_portions(_list_deletable_partitions(topics)):
        group = _find_group(context, request.group_id)  # it may have been deleted and created again
        committed = group.offsets
        delete_offsets_of_group(
            context.cluster.groups, group, [found for found in portion if committed.has_offset(*found)]
        )
        await pause()
    response = OffsetDeleteResponse(topics=topics)
    delay_until_offsets_durable(context, request.group_id, lambda error: _set_error_of_all(response, error))
    return response


def _set_error_of_all(response: OffsetDeleteResponse, error: KafkaError) -> None:
    response.error_code, response.topics = error.code, []


def _find_group(context: RequestContext, group_id: str) -> Group:
    """Return the group. Raises KafkaError if its offsets may not be deleted."""
    context.authorize(DELETE_GROUP, group_id)
    groups = context.cluster.groups
    groups.check_is_coordinator_and_group_id(context.node, group_id)
    group = groups.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group_id}.")
    group.check_offsets_may_be_deleted()
    return group


def _make_topic_answer(context: RequestContext, group: Group, requested: RequestedTopic) -> Steps[TopicAnswer]:
    topic, is_allowed = context.find_topic(requested.name), context.allows(READ_TOPIC, requested.name, is_needed=True)
    subscribed = group.is_subscribed_to(requested.name)

    def make_partition_answer(partition: RequestedPartition) -> PartitionAnswer:
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        if not is_allowed:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or topic.find_partition(partition.partition_index) is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionAnswer(partition_index=partition.partition_index, error_code=code)

    partitions = yield from apply_to_items_in_steps(make_partition_answer, requested.partitions)
    put_unknown_partitions_first(partitions)
    return TopicAnswer(name=requested.name, partitions=partitions)


def _list_deletable_partitions(topics: list[TopicAnswer]) -> list[tuple[str, int]]:
    """Return each (topic name, partition index) without an error, once."""
    found = (
        (topic.name, partition.partition_index)
        for topic in topics
        for partition in topic.partitions
        if partition.error_code == ErrorCode.NONE
    )
    return list(dict.fromkeys(found))
