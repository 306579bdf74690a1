"""The checks of a StreamsGroupHeartbeat by itself, and of its epoch and tasks, in Kafka's order and words."""

from __future__ import annotations

from minibroker.broker.groups.heartbeats import (
    JOINING_EPOCH,
    LEAVING_FOR_A_WHILE_EPOCH,
    UNKNOWN_TIMEOUT_MS,
    check_not_empty,
    make_fenced_epoch_error,
    make_invalid_request_error,
)
from minibroker.broker.groups.streams.streams_member import StreamsMember
from minibroker.broker.groups.streams.tasks import Tasks, parse_task_set
from minibroker.broker.groups.streams.topology import (
    MAXIMUM_NAMES,
    MAXIMUM_TASKS,
    ConfiguredSubtopology,
    ConfiguredTopology,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest

MAXIMUM_TAGS = 100


def check_heartbeat_request(request: StreamsGroupHeartbeatRequest) -> None:
    """Check a request's fields, whatever its group. Raises KafkaError: INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY."""
    topology = request.topology
    if topology is not None and any(each.source_topic_regex for each in topology.subtopologies):
        raise make_invalid_request_error("Regular expressions for source topics are not supported yet.")
    check_not_empty(request.member_id, "MemberId")
    check_not_empty(request.group_id, "GroupId")
    check_not_empty(request.instance_id, "InstanceId")
    check_not_empty(request.rack_id, "RackId")
    if request.member_epoch == JOINING_EPOCH:
        _check_joining_heartbeat(request)
    elif request.member_epoch == LEAVING_FOR_A_WHILE_EPOCH and request.instance_id is None:
        raise make_invalid_request_error("InstanceId can't be null.")
    elif request.member_epoch < LEAVING_FOR_A_WHILE_EPOCH:
        raise make_invalid_request_error(
            f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2."
        )
    task_lists = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if any(tasks is not None for tasks in task_lists) and any(tasks is None for tasks in task_lists):
        raise make_invalid_request_error("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOINING_EPOCH and topology is not None:
        raise make_invalid_request_error("Topology can only be provided when (re-)joining.")
    if len(request.client_tags or ()) > MAXIMUM_TAGS:
        raise make_invalid_request_error(f"A member may have {MAXIMUM_TAGS} tags at most.")


def _check_joining_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == UNKNOWN_TIMEOUT_MS:
        raise make_invalid_request_error("RebalanceTimeoutMs must be provided in first request.")
    task_lists = ("Active", request.active_tasks), ("Standby", request.standby_tasks), ("Warmup", request.warmup_tasks)
    for name, tasks in task_lists:
        if tasks is None or tasks:
            raise make_invalid_request_error(f"{name}Tasks must be empty when (re-)joining.")
    if request.topology is None:
        raise make_invalid_request_error("Topology must be non-null when (re-)joining.")
    for subtopology in request.topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                message = f"Changelog topic {topic.name} must have an undefined partition count, "
                message += f"but it is set to {topic.partitions}."
                raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    if request.topology.epoch < 0:  # with which Kafka fails only later
        raise make_invalid_request_error("Topology epoch must be non-negative.")


def parse_owned_tasks(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """Return the tasks that a member reports to run, None if it reports nothing. Raises KafkaError(INVALID_REQUEST)."""
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    if len(active) + len(standby) + len(warmup) > MAXIMUM_NAMES:
        raise make_invalid_request_error(f"A member may have tasks of {MAXIMUM_NAMES} subtopologies at most.")
    if sum(len(each.partitions) for tasks in (active, standby, warmup) for each in tasks) > MAXIMUM_TASKS:
        raise make_invalid_request_error(f"A member may have {MAXIMUM_TASKS} tasks at most.")
    return Tasks(parse_task_set(active), parse_task_set(standby), parse_task_set(warmup))


def check_owned_tasks(owned_tasks: Tasks | None, configured: ConfiguredTopology) -> None:
    """Check that the topology has the tasks that a member reports. Raises KafkaError(INVALID_REQUEST)."""
    if owned_tasks is not None and configured.subtopologies is not None:
        for tasks in owned_tasks:
            for subtopology_id, partitions in tasks.items():
                _check_owned_task(subtopology_id, partitions, configured.subtopologies.get(subtopology_id))


def _check_owned_task(
    subtopology_id: str, partitions: frozenset[int], subtopology: ConfiguredSubtopology | None
) -> None:
    """Raise KafkaError(INVALID_REQUEST) unless the subtopology has a task for each of these partitions."""
    if subtopology is None:
        raise make_invalid_request_error(f"Subtopology {subtopology_id} does not exist in the topology.")
    for partition in (min(partitions), max(partitions)):
        if not 0 <= partition < subtopology.task_count:
            message = f"Task {partition} for subtopology {subtopology_id} is invalid. "
            raise make_invalid_request_error(f"{message}Number of tasks for this subtopology: {subtopology.task_count}")


def check_member_epoch(member: StreamsMember, epoch: int, owned_tasks: Tasks | None) -> None:
    """Check that the epoch is the member's. Raises KafkaError(FENCED_MEMBER_EPOCH).

    The previous epoch is valid while the member has nothing that it must give up: it may have missed an answer.
    """
    if epoch in (JOINING_EPOCH, member.epoch):
        return
    if (
        epoch < member.epoch
        and epoch == member.previous_epoch
        and owned_tasks
        and owned_tasks.is_subset_of(member.assigned)
    ):
        return
    raise make_fenced_epoch_error("streams", epoch, member.epoch)
