"""ConsumerGroupHeartbeat: a member joins, says that it lives and what it has, and learns what it shall have.

What a request must say is in `validation`, how a member leaves in `leaving`, how the group changes in `updating`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minibroker.broker.configs.group_settings import group_value
from minibroker.broker.groups.classic.group import ClassicGroup
from minibroker.broker.groups.consumer import expiring, leaving, migration, validation
from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.groups.consumer.group import ConsumerGroup
from minibroker.broker.groups.consumer.member import (
    JOINING_EPOCH,
    LEAVING_FOR_A_WHILE_EPOCH,
    UNKNOWN_TIMEOUT_MS,
    ConsumerMember,
    PartitionEpochs,
)
from minibroker.broker.groups.consumer.updating import Update
from minibroker.broker.groups.group import Group
from minibroker.broker.groups.offsets import CommittedOffsets
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from minibroker.protocol.primitives import uuid_text

if TYPE_CHECKING:
    from minibroker.broker.groups.coordinator import GroupCoordinator
    from minibroker.broker.groups.group import Caller

TopicPartitions = ConsumerGroupHeartbeatResponse.TopicPartitions


def heartbeat(
    coordinator: GroupCoordinator, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerGroupHeartbeatResponse:
    """The answer to a heartbeat that has passed `validation.check_request`, with what it changed written.

    Raises KafkaError with the answer's code, and nothing has changed.
    """
    if request.member_epoch < JOINING_EPOCH:
        leaving.leave(coordinator, request)
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    update, member_id = _update(coordinator, request)
    owned = _owned(request.topic_partitions)
    before = _present(update, request, member_id, owned)
    after = _as_it_says(before, request, caller)
    subscription_changed = update.set_member(before, after)
    update.look_at_topics(changed=update.wants_other_topics(before, after))
    update.assign()
    after = update.reconcile(after, owned, subscription_changed=subscription_changed)
    group = update.commit()
    if update.replaced is not None:
        expiring.begin_sessions(group)
    expiring.begin_session(group, after.member_id)
    expiring.watch_revocation(group, before, after)
    return _response(group, request, before.assigned, after)


def _update(coordinator: GroupCoordinator, request: ConsumerGroupHeartbeatRequest) -> tuple[Update, str]:
    """The change of the group, and the member's id. Raises KafkaError: GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED."""
    joins = request.member_epoch == JOINING_EPOCH
    group = coordinator.groups.get(request.group_id)
    if group is None and not joins:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
    if isinstance(group, ConsumerGroup):
        update = Update(group)
    elif joins:
        update = _new_group(coordinator, request.group_id, group)
    else:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
    update.check_room(request.member_id)
    return update, request.member_id or uuid_text(coordinator.cluster.new_uuid())


def _new_group(coordinator: GroupCoordinator, group_id: str, present: Group | None) -> Update:
    """A group that takes the place of a classic one, if there is one, with all that it has."""
    group = ConsumerGroup(coordinator, group_id, CommittedOffsets() if present is None else present.offsets)
    if not isinstance(present, ClassicGroup):
        return Update(group)
    return Update(group, migration.taking_over(present, group), replaced=present)


# --- who it is ----------------------------------------------------------------------------------


def _present(
    update: Update, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Partitions | None
) -> ConsumerMember:
    """The member as it was before this request. Raises KafkaError if it is none, or another one by now."""
    epoch, instance_id = request.member_epoch, request.instance_id
    if instance_id is None:
        if epoch == JOINING_EPOCH and member_id not in update.members:
            return ConsumerMember(member_id)
        member = update.group.known_member(member_id)
        validation.check_epoch(member, epoch, owned)
        return member
    static = update.group.static_member(instance_id)
    if epoch == JOINING_EPOCH:
        return _joining_static(update, static, member_id, instance_id)
    if static is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    validation.check_instance(static, member_id, instance_id)
    validation.check_epoch(static, epoch, owned)
    return static


def _joining_static(update: Update, static: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """A static member that is new, or takes the place that it has left for a while, or that a classic one had."""
    if static is None:
        return update.members.get(member_id) or ConsumerMember(member_id)
    if static.classic is None and static.epoch != LEAVING_FOR_A_WHILE_EPOCH:
        message = (
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {static.member_id} member."
        )
        raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, message)
    replacement = static._replace(member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
    update.replace(static, replacement)
    return replacement


# --- what it says -------------------------------------------------------------------------------


def _as_it_says(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> ConsumerMember:
    """The member with what the request says; what it does not say stays."""
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    return member._replace(
        instance_id=_or(request.instance_id, member.instance_id),
        rack_id=_or(request.rack_id, member.rack_id),
        client_id=caller.client_id,
        client_host=caller.client_host,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=_or(request.subscribed_topic_regex, member.topic_regex) or "",
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == UNKNOWN_TIMEOUT_MS else timeout_ms,
        server_assignor=_or(request.server_assignor, member.server_assignor),
        classic=None,
    )


def _or(text: str | None, otherwise: str | None) -> str | None:
    return otherwise if text is None else text


def _owned(said: Sequence[ConsumerGroupHeartbeatRequest.TopicPartitions] | None) -> Partitions | None:
    if said is None:
        return None
    owned: dict[bytes, frozenset[int]] = {}
    for each in said:
        owned[each.topic_id] = owned.get(each.topic_id, frozenset()).union(each.partitions)
    return owned


# --- the answer ---------------------------------------------------------------------------------


def _response(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, had: PartitionEpochs, member: ConsumerMember
) -> ConsumerGroupHeartbeatResponse:
    """The partitions are told when they are others, and to whoever joins or has told everything of itself."""
    full = (
        request.rebalance_timeout_ms != UNKNOWN_TIMEOUT_MS
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=group_value(group.context.cluster, group.group_id, "consumer.heartbeat.interval.ms"),
    )
    if full or request.member_epoch == JOINING_EPOCH or _partitions(had) != _partitions(member.assigned):
        response.assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
                for topic_id, epochs in sorted(member.assigned.items())
            ]
        )
    return response


def _partitions(epochs: PartitionEpochs) -> dict[bytes, set[int]]:
    return {topic_id: set(partitions) for topic_id, partitions in epochs.items()}
