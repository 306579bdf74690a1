"""ShareGroupHeartbeat: a member joins, keeps its session, learns its assignment, or leaves (KIP-932)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from minibroker.broker.configs.group_settings import get_group_config
from minibroker.broker.groups.group import Caller
from minibroker.broker.groups.heartbeats import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    check_not_empty,
    make_invalid_request_error,
)
from minibroker.broker.groups.share.share_group import ShareGroup, ShareMember, TopicsWithState
from minibroker.broker.share.states import UNSET, ShareKey
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.share_groups import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from minibroker.protocol.steps import WAITING, Steps

if TYPE_CHECKING:
    from minibroker.broker.groups.group_coordinator import GroupCoordinator
    from minibroker.broker.share.share_coordinator import ShareCoordinator

log = logging.getLogger("minibroker.groups")

TopicPartitions = ShareGroupHeartbeatResponse.TopicPartitions


def check_heartbeat_request(request: ShareGroupHeartbeatRequest) -> None:
    """Check a request's fields, whatever its group. Raises KafkaError(INVALID_REQUEST)."""
    check_not_empty(request.member_id, "MemberId")
    check_not_empty(request.group_id, "GroupId")
    check_not_empty(request.rack_id, "RackId")
    if request.member_epoch == JOINING_EPOCH and not request.subscribed_topic_names:
        raise make_invalid_request_error("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVING_EPOCH:
        raise make_invalid_request_error("MemberEpoch is invalid.")


def initialize_share_states(
    coordinator: GroupCoordinator, states: ShareCoordinator, request: ShareGroupHeartbeatRequest
) -> Steps[TopicsWithState]:
    """Initialize the delivery states of partitions that are new to a heartbeat's group; return these partitions.

    What cannot be begun now is tried again with the next heartbeat. Raises KafkaError as `handle_share_heartbeat`.
    """
    begun: dict[bytes, tuple[str, frozenset[int]]] = {}
    if request.member_epoch == LEAVING_EPOCH:
        return begun
    group = _find_or_make_group(coordinator, request)
    _find_or_make_member(group, request)
    topics_by_id = coordinator.cluster.image.topics_by_id
    for topic, missing in list(group.iterate_partitions_without_state(request.subscribed_topic_names or ())):
        try:
            for index in missing:
                key = ShareKey(group.group_id, topic.topic_id, index)
                if topic.topic_id in topics_by_id and states.find_share_state(key) is None:
                    states.initialize_share_state(key, group.epoch + 1, UNSET)
                yield
        except KafkaError as error:
            log.info("share group %s: the state of %s cannot be begun yet: %s", group.group_id, topic.name, error)
            continue
        begun[topic.topic_id] = topic.name, frozenset(missing)
    return begun


def handle_share_heartbeat(
    coordinator: GroupCoordinator,
    request: ShareGroupHeartbeatRequest,
    caller: Caller,
    initialized_topics: TopicsWithState,
) -> Steps[ShareGroupHeartbeatResponse]:
    """Return the answer to a heartbeat that has passed `check_heartbeat_request`, after appending what it changed.

    `initialized_topics` is of `initialize_share_states`. Raises KafkaError with the answer's code, and nothing has
    changed.
    """
    if request.member_epoch == LEAVING_EPOCH:
        group = coordinator.get_share_group(request.group_id)
        member = group.members.get(request.member_id) or group.get_member_of_epoch(request.member_id, LEAVING_EPOCH)
        group.remove_members([member])
        return ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVING_EPOCH)
    while (group := _find_or_make_group(coordinator, request)).is_assigning:
        yield WAITING
    before = _find_or_make_member(group, request)
    names = request.subscribed_topic_names
    said = before._replace(
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topic_names=before.topic_names if names is None else frozenset(names),
    )
    after = yield from group.record_member_and_target(said, initialized_topics)
    interval_ms = get_group_config(coordinator.cluster, group.group_id, "share.heartbeat.interval.ms")
    response = ShareGroupHeartbeatResponse(
        member_id=after.member_id, member_epoch=after.epoch, heartbeat_interval_ms=interval_ms
    )
    if names is not None or request.member_epoch == JOINING_EPOCH or before.assigned != after.assigned:
        response.assignment = ShareGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in sorted(after.assigned.items())
            ]
        )
    return response


def _find_or_make_group(coordinator: GroupCoordinator, request: ShareGroupHeartbeatRequest) -> ShareGroup:
    """Return the group; a member that joins makes it. Raises KafkaError(GROUP_ID_NOT_FOUND)."""
    if request.group_id not in coordinator.groups and request.member_epoch == JOINING_EPOCH:
        return ShareGroup(coordinator, request.group_id)
    coordinator.check_group_exists(request.group_id, "Share")
    return coordinator.get_share_group(request.group_id)


def _find_or_make_member(group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
    """Return the member as it was before this request. Raises KafkaError."""
    if request.member_epoch == JOINING_EPOCH and request.member_id not in group.members:
        group.check_room_for_member(request.member_id)
        return ShareMember(request.member_id)
    return group.get_member_of_epoch(request.member_id, request.member_epoch)
