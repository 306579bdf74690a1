"""Share groups: heartbeats, descriptions, and where they begin to read (KIP-932).

Behaviour: a heartbeat joins, stays in and leaves a group, and is answered with the partitions that the member reads
now, if they have changed. Start offsets may be altered and deleted while the group has no members. All of it needs the
feature share.version.

Versions: the first ones of the heartbeat and the description were a preview; 1 of DescribeShareGroupOffsets brought the
lag (KIP-1226).
"""

from __future__ import annotations

from collections.abc import Iterable

from minibroker.broker.delayed_operations import pause, run_in_slices
from minibroker.broker.groups.hash_order import iterate_in_hash_order
from minibroker.broker.groups.share.share_group import ASSIGNOR, ShareGroup
from minibroker.broker.groups.share.share_heartbeat import (
    check_heartbeat_request,
    handle_share_heartbeat,
    initialize_share_states,
)
from minibroker.broker.handlers.consumer_groups import authorize_described_topics
from minibroker.broker.handlers.group_membership import make_caller
from minibroker.broker.metadata.features import SHARE_VERSION
from minibroker.broker.metadata.partitions import Partition, Topic
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import (
    DELETE_GROUP,
    DENIAL_MESSAGES,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    READ_GROUP,
    READ_TOPIC,
    ResourceType,
)
from minibroker.broker.share.share_partitions import check_member_id
from minibroker.broker.share.states import UNSET, ShareKey, ShareState
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from minibroker.protocol.steps import (
    Steps,
    apply_to_distinct_items_in_steps,
    apply_to_items_in_steps,
    run_steps_of_each_item,
)

DescribedGroup = ShareGroupDescribeResponse.DescribedGroup
GroupOffsets = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
TopicOffsets = GroupOffsets.DescribeShareGroupOffsetsResponseTopic
PartitionOffset = TopicOffsets.DescribeShareGroupOffsetsResponsePartition
AlteredTopic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
AlteredPartition = AlteredTopic.AlterShareGroupOffsetsResponsePartition
DeletedTopic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


# Only the APIs of share groups tell these codes in words.
WORDS = {
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
}


def _check_share_groups_enabled(context: RequestContext) -> None:
    """Check that the cluster has share groups. Raises KafkaError(UNSUPPORTED_VERSION)."""
    if not context.cluster.image.features.get(SHARE_VERSION, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _check_share_group_coordinator(context: RequestContext, group_id: str, *, may_be_empty: bool) -> None:
    """Check that this node coordinates the group, and that its id is not empty or `may_be_empty`. Raises KafkaError."""
    groups = context.cluster.groups
    check = groups.check_is_coordinator if may_be_empty else groups.check_is_coordinator_and_group_id
    try:
        check(context.node, group_id)
    except KafkaError as error:
        raise KafkaError(error.code, WORDS[error.code]) from None


# --- ShareGroupHeartbeat --------------------------------------------------------------------------------------------


@handles(ApiKey.SHARE_GROUP_HEARTBEAT)
async def share_group_heartbeat(
    context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    _check_share_groups_enabled(context)
    context.authorize(READ_GROUP, request.group_id)
    check_member_id(request.member_id)
    for name in request.subscribed_topic_names or ():
        context.authorize(DESCRIBE_TOPIC, name)
        await pause()
    check_heartbeat_request(request)
    groups, states = context.cluster.groups, context.cluster.share_states
    groups.check_is_coordinator(context.node, request.group_id)
    await run_in_slices(states.log.create_topic_in_steps())
    begun = await run_in_slices(initialize_share_states(groups, states, request))
    response = await run_in_slices(handle_share_heartbeat(groups, request, make_caller(context), begun))
    context.delay_answer_until_wait_is_over(
        groups.make_durability_wait(request.group_id), lambda error: _set_heartbeat_error(response, error)
    )
    return response


def _set_heartbeat_error(response: ShareGroupHeartbeatResponse, error: KafkaError) -> None:
    response.error_code, response.error_message = error.code, error.message
    response.member_id, response.member_epoch, response.assignment = None, 0, None


# --- ShareGroupDescribe ---------------------------------------------------------------------------------------------


@handles(ApiKey.SHARE_GROUP_DESCRIBE)
async def share_group_describe(
    context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    def describe_group(group_id: str) -> DescribedGroup:
        try:
            _check_share_groups_enabled(context)
            context.authorize(DESCRIBE_GROUP, group_id)
            context.cluster.groups.check_group_id(group_id)
            _check_share_group_coordinator(context, group_id, may_be_empty=True)
            described = _describe_share_group(context, context.cluster.groups.get_share_group(group_id))
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        if request.include_authorized_operations:
            described.authorized_operations = context.get_allowed_operations(ResourceType.GROUP, group_id)
        return described

    return ShareGroupDescribeResponse(
        groups=(await run_in_slices(apply_to_distinct_items_in_steps(describe_group, request.group_ids)))
    )


def _describe_share_group(context: RequestContext, group: ShareGroup) -> DescribedGroup:
    """Return the group. Raises KafkaError(TOPIC_AUTHORIZATION_FAILED) for a member's topic that may not be seen."""
    members = []
    for member in iterate_in_hash_order(group.members):
        parts = [
            ShareGroupDescribeResponse.TopicPartitions(
                topic_id=topic_id, topic_name=topic.name, partitions=sorted(indexes)
            )
            for topic_id, indexes in sorted(member.assigned.items())
            if (topic := context.find_topic(topic_id)) is not None
        ]
        authorize_described_topics(context, [part.topic_name for part in parts])
        members.append(
            DescribedGroup.Member(
                member_id=member.member_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topic_names),
                assignment=ShareGroupDescribeResponse.Assignment(topic_partitions=parts),
            )
        )
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=members,
    )


# --- DescribeShareGroupOffsets --------------------------------------------------------------------------------------


@handles(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
async def describe_share_group_offsets(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    def describe_group_offsets(
        requested: DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup,
    ) -> Steps[GroupOffsets]:
        try:
            _check_share_groups_enabled(context)
            context.authorize(DESCRIBE_GROUP, requested.group_id)
            _check_share_group_coordinator(context, requested.group_id, may_be_empty=True)
            if requested.topics is not None:  # of a group that need not exist, as in Kafka
                yield from context.cluster.share_states.log.create_topic_in_steps()
                wanted = [(topic.topic_name, topic.partitions) for topic in requested.topics]
            else:
                group = context.cluster.groups.groups.get(requested.group_id)
                known = group.initialized if isinstance(group, ShareGroup) else {}
                wanted = [
                    (name, sorted(indexes)) for name, indexes in known.values() if context.allows(DESCRIBE_TOPIC, name)
                ]
        except KafkaError as error:
            return GroupOffsets(group_id=requested.group_id, error_code=error.code, error_message=error.message)
        topics = yield from apply_to_items_in_steps(
            lambda one: _describe_start_offsets_of_topic(context, requested.group_id, *one), wanted
        )
        return GroupOffsets(group_id=requested.group_id, topics=topics)

    return DescribeShareGroupOffsetsResponse(
        groups=(await run_in_slices(run_steps_of_each_item(describe_group_offsets, request.groups)))
    )


def _describe_start_offsets_of_topic(
    context: RequestContext, group_id: str, name: str, indexes: Iterable[int]
) -> TopicOffsets:
    try:
        context.authorize(DESCRIBE_TOPIC, name, message=DENIAL_MESSAGES[ResourceType.TOPIC])
    except KafkaError as error:
        refused = [
            PartitionOffset(
                partition_index=index, start_offset=UNSET, error_code=error.code, error_message=error.message
            )
            for index in indexes
        ]
        return TopicOffsets(topic_name=name, partitions=refused)
    topic = context.find_topic(name)
    if topic is None:
        unknown = [PartitionOffset(partition_index=index, start_offset=UNSET) for index in indexes]
        return TopicOffsets(topic_name=name, partitions=unknown)
    partitions = [_describe_start_offset_of_partition(context, group_id, topic, index) for index in indexes]
    return TopicOffsets(topic_name=name, topic_id=topic.topic_id, partitions=partitions)


def _describe_start_offset_of_partition(
    context: RequestContext, group_id: str, topic: Topic, index: int
) -> PartitionOffset:
    key = ShareKey(group_id, topic.topic_id, index)
    try:
        state = context.cluster.share_states.find_share_state(key)
    except KafkaError as error:
        return PartitionOffset(partition_index=index, error_code=error.code, error_message=error.message)
    if state is None:
        return PartitionOffset(partition_index=index, start_offset=UNSET, leader_epoch=0)
    return PartitionOffset(
        partition_index=index,
        start_offset=state.start_offset,
        leader_epoch=state.leader_epoch,
        lag=_compute_lag(topic.find_partition(index), state),
    )


def _compute_lag(partition: Partition | None, state: ShareState) -> int:
    """Return how many records the group has still to process, -1 if that is not known."""
    if partition is None or not partition.has_local_log or UNSET in (state.start_offset, state.complete_count):
        return UNSET
    return partition.log.high_watermark - state.start_offset - state.complete_count


# --- AlterShareGroupOffsets and DeleteShareGroupOffsets -------------------------------------------------------------


@handles(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
async def alter_share_group_offsets(
    context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    _check_share_groups_enabled(context)
    context.authorize(READ_GROUP, request.group_id, message=DENIAL_MESSAGES[ResourceType.GROUP])
    _check_share_group_coordinator(context, request.group_id, may_be_empty=False)
    await run_in_slices(context.cluster.share_states.log.create_topic_in_steps())
    groups = context.cluster.groups
    group = (
        groups.get_share_group(request.group_id)
        if request.group_id in groups.groups
        else ShareGroup(groups, request.group_id)
    )
    group.check_may_be_deleted()
    responses = await run_in_slices(
        apply_to_items_in_steps(lambda asked: _alter_start_offsets_of_topic(context, group, asked), request.topics)
    )
    return AlterShareGroupOffsetsResponse(responses=responses)


def _alter_start_offsets_of_topic(
    context: RequestContext,
    group: ShareGroup,
    requested: AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic,
) -> AlteredTopic:
    answer = AlteredTopic(topic_name=requested.topic_name)
    try:
        context.authorize(READ_TOPIC, requested.topic_name, message=DENIAL_MESSAGES[ResourceType.TOPIC])
        topic = context.get_topic(requested.topic_name)
    except KafkaError as error:
        answer.partitions = [
            AlteredPartition(partition_index=each.partition_index, error_code=error.code, error_message=error.message)
            for each in requested.partitions
        ]
        return answer
    answer.topic_id = topic.topic_id
    kept = set()
    for partition in requested.partitions:
        result = AlteredPartition(partition_index=partition.partition_index)
        answer.partitions.append(result)
        try:
            _set_share_start_offset(context, group, topic, partition.partition_index, partition.start_offset)
            kept.add(partition.partition_index)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    group.record_topic_state(topic.topic_id, topic.name, frozenset(kept))
    return answer


def _set_share_start_offset(
    context: RequestContext, group: ShareGroup, topic: Topic, index: int, start_offset: int
) -> None:
    """Set the offset from which the group reads a partition. Raises KafkaError."""
    if topic.find_partition(index) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    key, states = ShareKey(group.group_id, topic.topic_id, index), context.cluster.share_states
    present = states.find_share_state(key)
    states.initialize_share_state(key, 0 if present is None else present.state_epoch + 1, start_offset)
    context.cluster.shares.forget_changed_state(key)
    context.delay_answer_until_wait_is_over(states.make_durability_wait(key.coordinator_key), _raise_write_error)


def _raise_write_error(error: KafkaError) -> None:
    """Refuse the whole request, as its change could not be written."""
    raise error


@handles(ApiKey.DELETE_SHARE_GROUP_OFFSETS)
async def delete_share_group_offsets(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    _check_share_groups_enabled(context)
    context.authorize(DELETE_GROUP, request.group_id, message=DENIAL_MESSAGES[ResourceType.GROUP])
    _check_share_group_coordinator(context, request.group_id, may_be_empty=False)
    group = context.cluster.groups.get_share_group(request.group_id)
    group.check_may_be_deleted()
    responses = await run_in_slices(
        apply_to_items_in_steps(
            lambda asked: _delete_start_offsets_of_topic(context, group, asked.topic_name), request.topics
        )
    )
    return DeleteShareGroupOffsetsResponse(responses=responses)


def _delete_start_offsets_of_topic(context: RequestContext, group: ShareGroup, name: str) -> DeletedTopic:
    answer = DeletedTopic(topic_name=name)
    try:
        context.authorize(READ_TOPIC, name, message=DENIAL_MESSAGES[ResourceType.TOPIC])
        topic_id = context.get_topic(name).topic_id
        if topic_id not in group.initialized:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete.")
        answer.topic_id = topic_id
        context.cluster.shares.delete_group_states(group.group_id, {topic_id: group.initialized[topic_id][1]})
        group.remove_topic(topic_id)
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer
