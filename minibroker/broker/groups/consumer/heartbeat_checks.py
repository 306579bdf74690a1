"""The checks of a ConsumerGroupHeartbeat by itself, and of its epoch, in Kafka's order and words.

Whether the request fits the group and the member is checked in `heartbeat`.
"""

from __future__ import annotations

from collections.abc import Sequence

from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.groups.consumer.member import ConsumerMember, PartitionEpochs
from minibroker.broker.groups.heartbeats import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_FOR_A_WHILE_EPOCH,
    UNKNOWN_TIMEOUT_MS,
    check_not_empty,
    make_fenced_epoch_error,
    make_invalid_request_error,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest

FIRST_WITH_CLIENTS_MEMBER_ID = 1  # KIP-1082


def check_heartbeat_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Check a request by itself. Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if version >= FIRST_WITH_CLIENTS_MEMBER_ID or epoch > JOINING_EPOCH or epoch == LEAVING_EPOCH:
        check_not_empty(request.member_id, "MemberId")
    check_not_empty(request.group_id, "GroupId")
    check_not_empty(request.instance_id, "InstanceId")
    check_not_empty(request.rack_id, "RackId")
    if epoch == JOINING_EPOCH:
        _check_joining_heartbeat(request)
    elif epoch == LEAVING_FOR_A_WHILE_EPOCH and request.instance_id is None:
        raise make_invalid_request_error("InstanceId can't be null.")
    elif epoch < LEAVING_FOR_A_WHILE_EPOCH:
        raise make_invalid_request_error("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        supported = f"Supported assignors: {', '.join(assignors)}."
        message = f"ServerAssignor {request.server_assignor} is not supported. {supported}"
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, message)


def _check_joining_heartbeat(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == UNKNOWN_TIMEOUT_MS:
        raise make_invalid_request_error("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise make_invalid_request_error("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise make_invalid_request_error(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def check_member_epoch(member: ConsumerMember, epoch: int, owned_partitions: Partitions | None) -> None:
    """Check that the epoch is the member's. Raises KafkaError(FENCED_MEMBER_EPOCH).

    The previous epoch is valid while the member owns nothing that it must revoke: it may have missed an answer.
    """
    if epoch in (JOINING_EPOCH, member.epoch):
        return
    if (
        epoch < member.epoch
        and epoch == member.previous_epoch
        and _owns_only_assigned_partitions(owned_partitions, member.assigned)
    ):
        return
    raise make_fenced_epoch_error("consumer", epoch, member.epoch)


def _owns_only_assigned_partitions(owned_partitions: Partitions | None, assigned_partitions: PartitionEpochs) -> bool:
    return owned_partitions is not None and all(
        partitions <= assigned_partitions.get(topic_id, {}).keys() for topic_id, partitions in owned_partitions.items()
    )
