"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: consumer groups whose assignment the broker makes (KIP-848).

Behaviour: a heartbeat joins, stays in and leaves a group, and is answered with the partitions that the member has now,
if they are others than before. What it has changed is recorded in `__consumer_offsets` before it is answered: after a
restart of the broker members go on in their epochs. A pattern of topics is matched when it comes and whenever topics
have come or gone, before the answer, while Kafka does so in the background and tells the member later. Both APIs need
the feature group.version, and `consumer` in `group.coordinator.rebalance.protocols`.

Versions: 1 of the heartbeat brought patterns in RE2's syntax, and member ids that the client makes (KIP-1082); 1 of the
description the protocol that a member speaks.

Not implemented: racks, which Kafka's own assignors do not look at either.
"""

from __future__ import annotations

from minibroker.broker.groups.callers import caller_of
from minibroker.broker.metadata.features import GROUP_VERSION
from minibroker.broker.requests.dispatch import Context, handles
from minibroker.broker.security.operations import GROUP_OPERATIONS
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from minibroker.protocol.steps import Steps, each_once

Described = ConsumerGroupDescribeResponse.DescribedGroup

FIRST_WITH_CONSUMER_GROUPS = 1  # level of group.version


def _check_served(context: Context) -> None:
    """Raises KafkaError(UNSUPPORTED_VERSION) if the cluster is not to have consumer groups."""
    cluster = context.cluster
    level = cluster.image.features.get(GROUP_VERSION, 0)
    if (
        level < FIRST_WITH_CONSUMER_GROUPS
        or "consumer" not in cluster.settings["group.coordinator.rebalance.protocols"]
    ):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


# --- ConsumerGroupHeartbeat -------------------------------------------------------------------------


@handles(ApiKey.CONSUMER_GROUP_HEARTBEAT, "0-1")
def consumer_group_heartbeat(
    context: Context, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    # Imported by the first one that comes: many a broker never has a group, and is not to pay for them when it starts.
    from minibroker.broker.groups.consumer.heartbeat import heartbeat
    from minibroker.broker.groups.consumer.validation import check_request

    try:
        _check_served(context)
        check_request(request, context.version, context.cluster.settings["group.consumer.assignors"])
        groups = context.cluster.groups
        groups.check_node(context.node, request.group_id)
        response = heartbeat(groups, request, caller_of(context))
        context.wait_for(groups.wait(request.group_id), lambda error: _refuse(response, error))
    except KafkaError as error:
        return _failed(error)
    return response


def _refuse(response: ConsumerGroupHeartbeatResponse, error: KafkaError) -> None:
    response.error_code, response.error_message = error.code, error.message
    response.member_id, response.member_epoch, response.assignment = None, 0, None


def _failed(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


# --- ConsumerGroupDescribe --------------------------------------------------------------------------


@handles(ApiKey.CONSUMER_GROUP_DESCRIBE, "0-1")
def consumer_group_describe(
    context: Context, request: ConsumerGroupDescribeRequest
) -> Steps[ConsumerGroupDescribeResponse]:
    def answer(group_id: str) -> Described:
        group = _described(context, group_id)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = GROUP_OPERATIONS
        return group

    return ConsumerGroupDescribeResponse(groups=(yield from each_once(answer, request.group_ids)))


def _described(context: Context, group_id: str) -> Described:
    from minibroker.broker.groups.consumer.describing import described

    try:
        _check_served(context)
        context.cluster.groups.check(context.node, group_id)
        return described(context.cluster.groups.consumer_group(group_id))
    except KafkaError as error:
        return Described(group_id=group_id, error_code=error.code, error_message=error.message)
