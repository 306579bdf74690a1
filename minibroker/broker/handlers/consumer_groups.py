"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: consumer groups that the broker assigns (KIP-848).

Behaviour: members join, stay and leave by heartbeats. The answer has the member's partitions if they have changed.
Changes are recorded in `__consumer_offsets` before the answer, so members keep their epochs when the broker restarts.
Topic patterns are matched before the answer, when a member sends one and after topics were created or deleted; Kafka
matches them in the background and informs the member later. Both APIs need the feature group.version, and `consumer`
in `group.coordinator.rebalance.protocols`.

Versions: ConsumerGroupHeartbeat 1 brought patterns in RE2's syntax and member ids made by the client (KIP-1082);
ConsumerGroupDescribe 1 brought the type of a member.

Not implemented: racks, which Kafka's own assignors do not use either.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any

from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.handlers.group_membership import make_caller
from minibroker.broker.metadata.features import GROUP_VERSION
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_GROUP, ResourceType
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from minibroker.protocol.steps import apply_to_distinct_items_in_steps, apply_to_items_in_steps

DescribedGroup = ConsumerGroupDescribeResponse.DescribedGroup

FEW = 100  # topics whose rights are checked in one step
FIRST_WITH_CONSUMER_GROUPS = 1  # level of group.version


def _check_consumer_groups_enabled(context: RequestContext) -> None:
    """Raise KafkaError(UNSUPPORTED_VERSION) if consumer groups are disabled in this cluster."""
    cluster = context.cluster
    level = cluster.image.features.get(GROUP_VERSION, 0)
    if (
        level < FIRST_WITH_CONSUMER_GROUPS
        or "consumer" not in cluster.settings["group.coordinator.rebalance.protocols"]
    ):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


# --- ConsumerGroupHeartbeat -------------------------------------------------------------------------


@handles(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def consumer_group_heartbeat(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Coroutine[Any, Any, ConsumerGroupHeartbeatResponse]:
    _check_consumer_groups_enabled(context)
    context.authorize(READ_GROUP, request.group_id)
    names = request.subscribed_topic_names or []
    if len(names) > FEW:
        return _heartbeat_with_many_topics(context, request, names)
    for name in names:
        context.authorize(DESCRIBE_TOPIC, name)
    return _check_and_apply_heartbeat(context, request)


async def _heartbeat_with_many_topics(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest, names: list[str]
) -> ConsumerGroupHeartbeatResponse:
    """Check the right to each topic in slices, then handle the heartbeat."""
    await run_in_slices(apply_to_items_in_steps(partial(context.authorize, DESCRIBE_TOPIC), names))
    return _check_and_apply_heartbeat(context, request)


def _check_and_apply_heartbeat(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    # Imported here, so that the broker starts faster: many brokers never have a group.
    from minibroker.broker.groups.consumer.heartbeat import check_heartbeat_request, handle_consumer_heartbeat

    check_heartbeat_request(request, context.version, context.cluster.settings["group.consumer.assignors"])
    groups = context.cluster.groups
    groups.check_is_coordinator(context.node, request.group_id)
    response = handle_consumer_heartbeat(groups, request, make_caller(context))
    context.delay_answer_until_wait_is_over(
        groups.make_durability_wait(request.group_id), lambda error: _set_heartbeat_error(response, error)
    )
    return response


def _set_heartbeat_error(response: ConsumerGroupHeartbeatResponse, error: KafkaError) -> None:
    response.error_code, response.error_message = error.code, error.message
    response.member_id, response.member_epoch, response.assignment = None, 0, None


# --- ConsumerGroupDescribe --------------------------------------------------------------------------


@handles(ApiKey.CONSUMER_GROUP_DESCRIBE)
async def consumer_group_describe(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    def describe_group(group_id: str) -> DescribedGroup:
        group = _describe_consumer_group(context, group_id)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.get_allowed_operations(ResourceType.GROUP, group_id)
        return group

    return ConsumerGroupDescribeResponse(
        groups=(await run_in_slices(apply_to_distinct_items_in_steps(describe_group, request.group_ids)))
    )


def _describe_consumer_group(context: RequestContext, group_id: str) -> DescribedGroup:
    from minibroker.broker.groups.consumer.consumer_descriptions import describe_consumer_group

    try:
        _check_consumer_groups_enabled(context)
        context.authorize(DESCRIBE_GROUP, group_id)
        context.cluster.groups.check_is_coordinator_and_group_id(context.node, group_id)
        found = describe_consumer_group(context.cluster.groups.get_consumer_group(group_id))
        authorize_described_topics(context, _collect_topic_names(found))
        return found
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)


def authorize_described_topics(context: RequestContext, names: Iterable[str]) -> None:
    """Check that the client may see the topics of a group's members. Raises KafkaError(TOPIC_AUTHORIZATION_FAILED)."""
    if not all(context.allows(DESCRIBE_TOPIC, name, is_needed=True) for name in names):
        message = "The group has described topic(s) that the client is not authorized to describe."
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)


def _collect_topic_names(group: DescribedGroup) -> dict[str, None]:
    """Return the topics of the members' assignments, each once."""
    return {
        part.topic_name: None
        for member in group.members
        for part in (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
    }
