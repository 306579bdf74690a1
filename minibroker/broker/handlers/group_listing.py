"""DescribeGroups, ListGroups, DeleteGroups: groups as administrators see and delete them.

Behaviour: DescribeGroups describes classic groups. It shows the metadata of members only while the group is stable,
their assignments also afterwards. ListGroups lists the groups of every kind that the node coordinates; its filters for
state and type ignore case. DeleteGroups deletes groups without members, with their offsets. Each group succeeds or
fails by itself.

Versions: DescribeGroups 3 brought authorized operations, 4 instance ids, 6 GROUP_ID_NOT_FOUND (KIP-1043; before, an
unknown group is described as Dead). ListGroups 4 brought states (KIP-518), 5 types (KIP-848). DeleteGroups 2 has
flexible fields.
"""

from __future__ import annotations

from functools import partial

from minibroker.broker.delayed_operations import pause, run_in_slices
from minibroker.broker.groups.hash_order import HashOrder
from minibroker.broker.groups.share.share_group import ShareGroup
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import DELETE_GROUP, DESCRIBE_CLUSTER, DESCRIBE_GROUP, ResourceType
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from minibroker.protocol.steps import apply_to_distinct_items_in_steps, apply_to_items_in_steps

DescribedGroup = DescribeGroupsResponse.DescribedGroup
DeletedGroup = DeleteGroupsResponse.DeletableGroupResult

FIRST_WITH_NOT_FOUND = 6
DEAD = "Dead"


@handles(ApiKey.DESCRIBE_GROUPS)
async def describe_groups(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    def describe_group(group_id: str) -> DescribedGroup:
        group = _describe_classic_group(context, group_id)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.get_allowed_operations(ResourceType.GROUP, group_id)
        return group

    return DescribeGroupsResponse(
        groups=(await run_in_slices(apply_to_distinct_items_in_steps(describe_group, request.groups)))
    )


def _describe_classic_group(context: RequestContext, group_id: str) -> DescribedGroup:
    groups = context.cluster.groups
    try:
        context.authorize(DESCRIBE_GROUP, group_id)
        groups.check_is_coordinator(context.node, group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    try:
        return groups.get_classic_group(group_id).describe_group()
    except KafkaError as error:
        described = DescribedGroup(group_id=group_id, group_state=DEAD)
        if context.version >= FIRST_WITH_NOT_FOUND:
            described.error_code, described.error_message = error.code, error.message
        return described


@handles(ApiKey.LIST_GROUPS)
async def list_groups(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {type.lower() for type in request.types_filter}
    groups = context.cluster.groups
    order: HashOrder[ListGroupsResponse.ListedGroup] = HashOrder(len(groups.groups))
    may_see_all = context.allows(DESCRIBE_CLUSTER)
    for group in groups.groups.iterate_present_values():
        await pause()
        if (
            groups.find_coordinator_node(group.group_id) is not context.node
            or groups.groups.get(group.group_id) is not group
        ):
            continue
        if not may_see_all and not context.allows(DESCRIBE_GROUP, group.group_id):
            continue
        if (not states or group.state_name.lower() in states) and (not types or group.type.value in types):
            listed = ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.type.value,
            )
            order.add_item(group.group_id, listed)
    response = ListGroupsResponse()
    for listed in order:
        response.groups.append(listed)
        await pause()
    return response


@handles(ApiKey.DELETE_GROUPS)
async def delete_groups(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    group_ids = dict.fromkeys(request.groups_names)  # each once, as in Kafka
    results = await run_in_slices(
        apply_to_items_in_steps(
            lambda group_id: DeletedGroup(group_id=group_id, error_code=_delete_group(context, group_id)), group_ids
        )
    )
    deleted = [result for result in results if result.error_code == ErrorCode.NONE]
    response = DeleteGroupsResponse(results=results)
    for result in deleted:
        try:
            context.delay_answer_until_wait_is_over(
                context.cluster.groups.make_durability_wait(result.group_id), partial(_set_deletion_error, result)
            )
        except KafkaError as error:
            _set_deletion_error(result, error)
    return response


def _set_deletion_error(result: DeletedGroup, error: KafkaError) -> None:
    result.error_code = error.code


def _delete_group(context: RequestContext, group_id: str) -> ErrorCode:
    groups = context.cluster.groups
    try:
        context.authorize(DELETE_GROUP, group_id)
        groups.check_is_coordinator(context.node, group_id)
        group = groups.get_group(group_id)
        group.check_may_be_deleted()
        if isinstance(group, ShareGroup):
            states = {topic_id: indexes for topic_id, (_, indexes) in group.initialized.items()}
            context.cluster.shares.delete_group_states(group_id, states)
        groups.delete_group(group)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
