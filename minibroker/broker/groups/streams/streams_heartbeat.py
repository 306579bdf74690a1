"""StreamsGroupHeartbeat: a member joins, reports the tasks that it runs, learns which it is to run, or leaves.

What a request must say is in `streams_validation`, how the group changes in `streams_updating`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from minibroker.broker.configs.group_settings import RACK_TAGS
from minibroker.broker.groups.classic.classic_group import ClassicGroup
from minibroker.broker.groups.group import Caller, Group
from minibroker.broker.groups.heartbeats import (
    JOINING_EPOCH,
    LEAVING_FOR_A_WHILE_EPOCH,
    UNKNOWN_TIMEOUT_MS,
    choose_reported_or_known,
    make_unreleased_instance_error,
)
from minibroker.broker.groups.offsets_of_group import CommittedOffsets
from minibroker.broker.groups.streams.streams_group import StreamsGroup
from minibroker.broker.groups.streams.streams_member import Endpoint, StreamsMember
from minibroker.broker.groups.streams.streams_updating import (
    StreamsGroupUpdate,
    keep_assignment_of_leaving_static_member,
    make_target_assignments_soon,
)
from minibroker.broker.groups.streams.streams_validation import check_member_epoch, parse_owned_tasks
from minibroker.broker.groups.streams.tasks import AnyTasks, Tasks
from minibroker.broker.groups.streams.topology import HeartbeatStatus, NewTopic, TopologyProblem
from minibroker.broker.groups.streams.warm_ups import FIRST_WITH_WARM_UPS
from minibroker.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

if TYPE_CHECKING:
    from minibroker.broker.groups.group_coordinator import GroupCoordinator

TaskIds = StreamsGroupHeartbeatResponse.TaskIds
EndpointToPartitions = StreamsGroupHeartbeatResponse.EndpointToPartitions
TopicPartition = StreamsGroupHeartbeatResponse.TopicPartition


class HeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat, and the internal topics that are missing."""

    response: StreamsGroupHeartbeatResponse
    missing: Mapping[str, NewTopic]


def handle_streams_heartbeat(
    coordinator: GroupCoordinator, request: StreamsGroupHeartbeatRequest, caller: Caller, version: int
) -> HeartbeatAnswer:
    """Return the answer to a heartbeat that has passed `check_heartbeat_request`, after appending what it changed.

    Raises KafkaError with the answer's code, and nothing has changed.
    """
    if request.member_epoch < JOINING_EPOCH:
        _remove_leaving_member(coordinator.get_streams_group(request.group_id), request)
        left = StreamsGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch, status=[])
        return HeartbeatAnswer(left, {})
    owned = parse_owned_tasks(request)
    group, replaced = _find_group_and_replaced_group(coordinator, request)
    is_new, was_empty = coordinator.groups.get(group.group_id) is not group, group.is_empty
    update = StreamsGroupUpdate(group, replaced)
    if request.member_epoch == JOINING_EPOCH:
        group.check_room_for_member(request.member_id, request.instance_id)
    before = _find_or_make_member(update, request, owned)
    after = _apply_heartbeat(before, request, caller)
    update.record_member_if_changed(before, after)
    update.check_or_set_topology(request.topology, after)
    update.refresh_topology_topics(owned)
    update.remember_reported_task_offsets(request, version)
    update.begin_group_epoch_if_changed(after.member_id)
    if was_empty:
        group.begin_initial_rebalance_delay(lambda: make_target_assignments_soon(group))
    in_place = version >= FIRST_WITH_WARM_UPS
    after = update.reconcile_member(after, update.find_or_make_current_target(after), owned, in_place=in_place)
    update.append_changes()
    group.restart_session_timeout(after.member_id)
    if (after.epoch, after.state) != (before.epoch, before.state):
        group.schedule_rebalance_timeout(after)
    if request.shutdown_application:
        group.shutdown_member_id = after.member_id
    response = _make_heartbeat_response(update, request, before, after, is_new=is_new)
    response.task_offset_interval_ms = update.get_group_config("streams.task.offset.interval.ms")
    if version >= FIRST_WITH_WARM_UPS:
        _add_warm_up_status(update, after, response)
    return HeartbeatAnswer(
        response,
        {} if update.configured is None else update.configured.missing,
    )


def _find_group_and_replaced_group(
    coordinator: GroupCoordinator, request: StreamsGroupHeartbeatRequest
) -> tuple[StreamsGroup, Group | None]:
    """Return the group, made for a joining member, and the empty classic group that it replaces, if there is one.

    Raises KafkaError(GROUP_ID_NOT_FOUND).
    """
    present = coordinator.groups.get(request.group_id)
    if request.member_epoch == JOINING_EPOCH:
        if present is None:
            return StreamsGroup(coordinator, request.group_id, CommittedOffsets()), None
        if isinstance(present, ClassicGroup) and present.is_empty:
            return StreamsGroup(coordinator, request.group_id, present.offsets), present
    coordinator.check_group_exists(request.group_id, "Streams")
    return coordinator.get_streams_group(request.group_id), None


# --- leaving ------------------------------------------------------------------------------------


def _remove_leaving_member(group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> None:
    """Remove the member that asks for it.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, or as `append_changes`.
    """
    if request.shutdown_application:
        group.shutdown_member_id = request.member_id
    if request.instance_id is None:
        group.remove_members([group.get_member(request.member_id)])
        return
    member = group.get_member(request.member_id, request.instance_id)
    if request.member_epoch == LEAVING_FOR_A_WHILE_EPOCH:
        keep_assignment_of_leaving_static_member(group, member, LEAVING_FOR_A_WHILE_EPOCH)
    else:
        group.remove_members([member])


# --- who it is ----------------------------------------------------------------------------------


def _find_or_make_member(
    update: StreamsGroupUpdate, request: StreamsGroupHeartbeatRequest, owned_tasks: Tasks | None
) -> StreamsMember:
    """Return the member as it was before this request. Raises KafkaError if it is unknown or fenced."""
    group, member_id, instance_id = update.group, request.member_id, request.instance_id
    if request.member_epoch == JOINING_EPOCH:
        if instance_id is not None:
            return _find_or_make_static_member(update, member_id, instance_id)
        return group.members.get(member_id) or StreamsMember(member_id)
    member = group.get_member(member_id, instance_id)
    check_member_epoch(member, request.member_epoch, owned_tasks)
    return member


def _find_or_make_static_member(update: StreamsGroupUpdate, member_id: str, instance_id: str) -> StreamsMember:
    """Return a new static member, or one that was away for a while, with its new id."""
    static = update.group.find_static_member(instance_id)
    if static is None:
        return update.group.members.get(member_id) or StreamsMember(member_id)
    if static.epoch != LEAVING_FOR_A_WHILE_EPOCH:
        raise make_unreleased_instance_error(member_id, instance_id, static.member_id)
    return update.replace_static_member(static, member_id)


# --- what it says -------------------------------------------------------------------------------


def _apply_heartbeat(member: StreamsMember, request: StreamsGroupHeartbeatRequest, caller: Caller) -> StreamsMember:
    """Return the member, updated with those fields that the heartbeat has."""
    timeout_ms, endpoint, tags = request.rebalance_timeout_ms, request.user_endpoint, request.client_tags
    return member._replace(
        instance_id=choose_reported_or_known(request.instance_id, member.instance_id),
        rack_id=choose_reported_or_known(request.rack_id, member.rack_id),
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == UNKNOWN_TIMEOUT_MS else timeout_ms,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=choose_reported_or_known(request.process_id, member.process_id) or "",
        user_endpoint=member.user_endpoint if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=member.client_tags
        if tags is None
        else tuple(sorted({each.key: each.value for each in tags}.items())),
    )


# --- the answer ---------------------------------------------------------------------------------


def _make_heartbeat_response(
    update: StreamsGroupUpdate,
    request: StreamsGroupHeartbeatRequest,
    before: StreamsMember,
    member: StreamsMember,
    *,
    is_new: bool,
) -> StreamsGroupHeartbeatResponse:
    """Return the answer, with the tasks if they have changed, or the member joins."""
    group = update.group
    response = StreamsGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=update.get_group_config("streams.heartbeat.interval.ms"),
        status=[
            StreamsGroupHeartbeatResponse.Status(status_code=each.status, status_detail=each.detail)
            for each in _iterate_status_problems(update)
        ],
    )
    if request.member_epoch == JOINING_EPOCH or before.assigned != member.assigned:
        response.active_tasks = _encode_task_ids(member.assigned.active)
        response.standby_tasks = _encode_task_ids(member.assigned.standby)
        response.warmup_tasks = _encode_task_ids(member.assigned.warmup)
        group.endpoint_epoch += member.user_endpoint is not None
    if group.endpoint_epoch != request.endpoint_information_epoch:
        response.partitions_by_user_endpoint = _list_partitions_of_endpoints(group)
    if is_new:
        group.endpoint_epoch = 0
    response.endpoint_information_epoch = group.endpoint_epoch
    return response


def _add_warm_up_status(
    update: StreamsGroupUpdate, member: StreamsMember, response: StreamsGroupHeartbeatResponse
) -> None:
    """Add the acceptable recovery lag to the answer, and a status if required client tags are missing."""
    response.acceptable_recovery_lag = update.get_group_config("streams.acceptable.recovery.lag")
    missing = [tag for tag in update.get_group_config(RACK_TAGS) if tag not in dict(member.client_tags)]
    if missing:
        detail = f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. "
        detail += "Configure them via 'client.tag.<tagKey>' in your Streams config."
        status = StreamsGroupHeartbeatResponse.Status(
            status_code=HeartbeatStatus.MISSING_CLIENT_TAGS, status_detail=detail
        )
        response.status = [*(response.status or ()), status]


def _iterate_status_problems(update: StreamsGroupUpdate) -> Iterable[TopologyProblem]:
    """Yield the problems of topology, assignment and group that the answer reports as its status."""
    yield from update.status
    if update.configured is not None and update.configured.problem is not None:
        yield update.configured.problem
    if update.group.shutdown_member_id is not None:
        detail = f"Streams group member {update.group.shutdown_member_id} encountered a fatal error and requested a "
        yield TopologyProblem(HeartbeatStatus.SHUTDOWN_APPLICATION, f"{detail}shutdown for the entire application.")


def _encode_task_ids(tasks: AnyTasks) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=subtopology_id, partitions=sorted(partitions))
        for subtopology_id, partitions in sorted(tasks.items())
    ]


def _list_partitions_of_endpoints(group: StreamsGroup) -> list[EndpointToPartitions]:
    """Return, for each application endpoint, the partitions whose state it can be queried for."""
    return [
        EndpointToPartitions(
            user_endpoint=StreamsGroupHeartbeatResponse.Endpoint(
                host=member.user_endpoint.host, port=member.user_endpoint.port
            ),
            active_partitions=_list_partitions_of_tasks(group, member.assigned.active),
            standby_partitions=_list_partitions_of_tasks(group, member.assigned.standby),
        )
        for member in group.members.values()
        if member.user_endpoint is not None
    ]


def _list_partitions_of_tasks(group: StreamsGroup, tasks: AnyTasks) -> list[TopicPartition]:
    found = {} if group.configured is None else group.configured.subtopologies or {}
    topics = group.context.cluster.image.topics
    return [
        TopicPartition(topic=name, partitions=[each for each in sorted(partitions) if each < len(topic.partitions)])
        for subtopology_id, partitions in sorted(tasks.items())
        for name in (found[subtopology_id].topic_names if subtopology_id in found else ())
        if (topic := topics.get(name)) is not None
    ]
