"""ConsumerGroupHeartbeat: a member joins, reports what it owns, learns its assignment, or leaves.

How the group changes is in `updating`. What a request says is checked by itself first, in Kafka's order and words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minibroker.broker.configs.group_settings import get_group_config
from minibroker.broker.groups.classic.classic_group import ClassicGroup
from minibroker.broker.groups.consumer import consumer_records, migration
from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.groups.consumer.consumer_group import ConsumerGroup
from minibroker.broker.groups.consumer.member import ConsumerMember, PartitionEpochs
from minibroker.broker.groups.consumer.updating import ConsumerGroupUpdate
from minibroker.broker.groups.group import Caller
from minibroker.broker.groups.heartbeats import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_FOR_A_WHILE_EPOCH,
    UNKNOWN_TIMEOUT_MS,
    check_not_empty,
    choose_reported_or_known,
    make_fenced_epoch_error,
    make_invalid_request_error,
    make_unreleased_instance_error,
)
from minibroker.broker.groups.offsets_of_group import CommittedOffsets
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from minibroker.protocol.primitives import format_uuid

if TYPE_CHECKING:
    from minibroker.broker.groups.group_coordinator import GroupCoordinator


FIRST_WITH_CLIENTS_MEMBER_ID = 1  # KIP-1082
TopicPartitions = ConsumerGroupHeartbeatResponse.TopicPartitions


def check_heartbeat_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Check a request's fields, whatever its group. Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
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
    """Return whether a member reports what it owns, and all of that is assigned to it."""
    return owned_partitions is not None and all(
        partitions <= assigned_partitions.get(topic_id, {}).keys() for topic_id, partitions in owned_partitions.items()
    )


def handle_consumer_heartbeat(
    coordinator: GroupCoordinator, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerGroupHeartbeatResponse:
    """Return the answer to a heartbeat that has passed `check_heartbeat_request`, after appending what it changed.

    Raises KafkaError with the answer's code, and nothing has changed.
    """
    if request.member_epoch < JOINING_EPOCH:
        _remove_leaving_member(coordinator.get_consumer_group(request.group_id), request)
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    group, update = _find_group_to_update(coordinator, request)
    group.check_room_for_member(request.member_id, request.instance_id)
    member_id = request.member_id or format_uuid(coordinator.cluster.make_uuid())
    owned = _read_owned_partitions(request.topic_partitions)
    before = _find_or_make_member(update, request, member_id, owned)
    after = _apply_heartbeat(before, request, caller)
    subscription_changed = update.record_member_and_compare_subscription(before, after)
    update.begin_epoch_if_changed(
        members_changed=update.has_subscription_changed(before, after)
        or update.has_preferred_assignor_changed(before, after)
    )
    update.make_target_assignment_if_due()
    after = update.reconcile_member(after, owned, subscription_changed=subscription_changed)
    group.last_caller = caller
    update.append_changes()
    if update.replaced is not None:
        group.restart_timers_after_load()
    group.restart_session_timeout(after.member_id)
    group.schedule_rebalance_timeout(before, after)
    return _make_heartbeat_response(group, request, before.assigned, after)


def _find_group_to_update(
    coordinator: GroupCoordinator, request: ConsumerGroupHeartbeatRequest
) -> tuple[ConsumerGroup, ConsumerGroupUpdate]:
    """Return the group, made for a new member, and an empty update of it. Raises KafkaError(GROUP_ID_NOT_FOUND)."""
    group_id = request.group_id
    present = coordinator.groups.get(group_id)
    if isinstance(present, ConsumerGroup):
        return present, ConsumerGroupUpdate(present)
    if request.member_epoch != JOINING_EPOCH or not isinstance(present, ClassicGroup | None):
        coordinator.check_group_exists(group_id, "Consumer")
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    group = ConsumerGroup(coordinator, group_id, CommittedOffsets() if present is None else present.offsets)
    if not isinstance(present, ClassicGroup):
        return group, ConsumerGroupUpdate(group)
    return group, ConsumerGroupUpdate(group, migration.upgrade_group(present, group), replaced=present)


# --- leaving ------------------------------------------------------------------------------------


def _remove_leaving_member(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> None:
    """Remove the member that asks for it.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, or as `append_changes`.
    """
    member = group.get_member(request.member_id, request.instance_id)
    if request.instance_id is None or request.member_epoch != LEAVING_FOR_A_WHILE_EPOCH:
        group.remove_members([member])
        return
    # A static member keeps its partitions until its session ends, or it is back under its instance id.
    away = member._replace(
        epoch=LEAVING_FOR_A_WHILE_EPOCH,
        assigned={topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()},
        pending_revocation={},
    )
    group.append_changes([consumer_records.make_current_assignment_record(group.group_id, away)])


# --- who it is ----------------------------------------------------------------------------------


def _find_or_make_member(
    update: ConsumerGroupUpdate,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    owned_partitions: Partitions | None,
) -> ConsumerMember:
    """Return the member as it was before this request. Raises KafkaError if it is unknown or fenced."""
    joins, instance_id = request.member_epoch == JOINING_EPOCH, request.instance_id
    if joins and instance_id is not None:
        return _find_or_make_static_member(update, member_id, instance_id)
    if joins and member_id not in update.members:
        return ConsumerMember(member_id)
    member = update.group.get_member(member_id, instance_id)
    check_member_epoch(member, request.member_epoch, owned_partitions)
    return member


def _find_or_make_static_member(update: ConsumerGroupUpdate, member_id: str, instance_id: str) -> ConsumerMember:
    """Return a new static member, or one that is back: it was away for a while, or spoke the classic protocol."""
    static = update.group.find_static_member(instance_id)
    if static is None:
        return update.members.get(member_id) or ConsumerMember(member_id)
    if static.classic is None and static.epoch != LEAVING_FOR_A_WHILE_EPOCH:
        raise make_unreleased_instance_error(member_id, instance_id, static.member_id)
    return update.replace_static_member(static, member_id)


# --- what it says -------------------------------------------------------------------------------


def _apply_heartbeat(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> ConsumerMember:
    """Return the member, updated with those fields that the heartbeat has."""
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    return member._replace(
        instance_id=choose_reported_or_known(request.instance_id, member.instance_id),
        rack_id=choose_reported_or_known(request.rack_id, member.rack_id),
        client_id=caller.client_id,
        client_host=caller.client_host,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=choose_reported_or_known(request.subscribed_topic_regex, member.topic_regex) or "",
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == UNKNOWN_TIMEOUT_MS else timeout_ms,
        server_assignor=choose_reported_or_known(request.server_assignor, member.server_assignor),
        classic=None,
    )


def _read_owned_partitions(
    reported: Sequence[ConsumerGroupHeartbeatRequest.TopicPartitions] | None,
) -> Partitions | None:
    """Return the partitions that a heartbeat reports as owned, by topic id; None if it leaves them out."""
    if reported is None:
        return None
    owned: dict[bytes, frozenset[int]] = {}
    for each in reported:
        owned[each.topic_id] = owned.get(each.topic_id, frozenset()).union(each.partitions)
    return owned


# --- the answer ---------------------------------------------------------------------------------


def _make_heartbeat_response(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    previously_assigned: PartitionEpochs,
    member: ConsumerMember,
) -> ConsumerGroupHeartbeatResponse:
    """Return the answer, with the assignment if it has changed, or the member joins, or the request is a full one."""
    full = (
        request.rebalance_timeout_ms != UNKNOWN_TIMEOUT_MS
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=get_group_config(group.context.cluster, group.group_id, "consumer.heartbeat.interval.ms"),
    )
    if (
        full
        or request.member_epoch == JOINING_EPOCH
        or _group_partitions_by_topic(previously_assigned) != _group_partitions_by_topic(member.assigned)
    ):
        response.assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
                for topic_id, epochs in sorted(member.assigned.items())
            ]
        )
    return response


def _group_partitions_by_topic(epochs: PartitionEpochs) -> dict[bytes, set[int]]:
    return {topic_id: set(partitions) for topic_id, partitions in epochs.items()}
