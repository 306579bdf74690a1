"""Streams groups as StreamsGroupDescribe shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minibroker.broker.groups.hash_order import iterate_in_hash_order
from minibroker.broker.groups.streams.streams_assignor import NAME
from minibroker.broker.groups.streams.streams_group import StreamsGroup
from minibroker.broker.groups.streams.streams_member import StreamsMember
from minibroker.broker.groups.streams.task_offsets import NO_OFFSETS
from minibroker.broker.groups.streams.tasks import AnyTasks, AssignedTasks, TaskId, Tasks
from minibroker.broker.groups.streams.topology import TopicInfo, Topology
from minibroker.protocol.messages.streams_groups import StreamsGroupDescribeResponse

DescribedGroup = StreamsGroupDescribeResponse.DescribedGroup
DescribedTopic = StreamsGroupDescribeResponse.TopicInfo
TaskIds = StreamsGroupDescribeResponse.TaskIds
KeyValue = StreamsGroupDescribeResponse.KeyValue


def describe_streams_group(group: StreamsGroup) -> DescribedGroup:
    """Return the group with its topology, and its members with their tasks and their targets."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=None if group.topology is None else _describe_topology(group, group.topology),
        members=[_describe_member(group, member) for member in iterate_in_hash_order(group.members)],
        assignor_name=NAME,
    )


def _describe_topology(group: StreamsGroup, topology: Topology) -> DescribedGroup.Topology:
    """Return the topology, with the numbers of partitions of its internal topics if they are known."""
    configured = group.configured
    ready = configured.subtopologies if configured is not None and configured.is_ready else None
    return DescribedGroup.Topology(
        epoch=topology.epoch,
        subtopologies=[
            DescribedGroup.Topology.Subtopology(
                subtopology_id=subtopology_id,
                source_topics=sorted(each.source_topics),
                repartition_sink_topics=sorted(each.repartition_sink_topics),
                state_changelog_topics=_describe_topology_topics(
                    each.state_changelog_topics, {} if ready is None else ready[subtopology_id].partition_counts
                ),
                repartition_source_topics=_describe_topology_topics(
                    each.repartition_source_topics, {} if ready is None else ready[subtopology_id].partition_counts
                ),
            )
            for subtopology_id, each in topology.subtopologies.items()
        ],
    )


def _describe_topology_topics(topics: Iterable[TopicInfo], counts: Mapping[str, int]) -> list[DescribedTopic]:
    return [
        DescribedTopic(
            name=topic.name,
            partitions=counts.get(topic.name, topic.partitions),
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=each.key, value=each.value) for each in topic.topic_configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _describe_member(group: StreamsGroup, member: StreamsMember) -> DescribedGroup.Member:
    endpoint, offsets = member.user_endpoint, group.task_offsets.get(member.member_id, NO_OFFSETS)
    return DescribedGroup.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None
        if endpoint is None
        else StreamsGroupDescribeResponse.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.client_tags],
        task_offsets=_describe_task_offsets(offsets.restored),
        task_end_offsets=_describe_task_offsets(offsets.ends),
        assignment=_describe_assignment(member.assigned),
        target_assignment=_describe_assignment(group.get_target_of_member(member.member_id)),
    )


def _describe_task_offsets(offsets: Mapping[TaskId, int]) -> list[StreamsGroupDescribeResponse.TaskOffset]:
    return [
        StreamsGroupDescribeResponse.TaskOffset(
            subtopology_id=task.subtopology_id, partition=task.partition, offset=each
        )
        for task, each in sorted(offsets.items())
    ]


def _describe_assignment(tasks: Tasks | AssignedTasks) -> StreamsGroupDescribeResponse.Assignment:
    return StreamsGroupDescribeResponse.Assignment(
        active_tasks=_describe_tasks(tasks.active),
        standby_tasks=_describe_tasks(tasks.standby),
        warmup_tasks=_describe_tasks(tasks.warmup),
    )


def _describe_tasks(tasks: AnyTasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=each, partitions=sorted(partitions)) for each, partitions in sorted(tasks.items())]
