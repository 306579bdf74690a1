"""Streams groups: Kafka Streams applications whose tasks the broker assigns (KIP-1071)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int8, int16, int32, int64, uint16


class StreamsGroupHeartbeatRequest(Message, api_key=88, versions="0-1", flexible="0+", kips={0: 1071, 1: 1331}):
    """Joins, stays in or leaves a group. A joining member sends the topology."""

    group_id: str = field()
    member_id: str = field(about="The member: it makes up a UUID itself, and keeps it as long as it runs.")
    member_epoch: int32 = field(
        about="The epoch the member has reached: 0 joins, -1 leaves, -2 leaves for a moment as a static member."
    )
    endpoint_information_epoch: int32 = field(
        about="How new the endpoints are that the member knows: it gets them again if there are newer ones."
    )
    instance_id: str | None = field(
        default=None, about="The name of a static member; null if it is none, or has said so before."
    )
    rack_id: str | None = field(default=None, about="The member's rack; null if it has not changed.")
    rebalance_timeout_ms: int32 = field(
        default=-1, about="How long the coordinator waits for the member to give tasks up; -1 if it has not changed."
    )
    topology: Topology | None = field(
        default=None, about="The application's topology, which a member sends when it joins; else null."
    )
    active_tasks: list[TaskIds] | None = field(
        default=None, about="The tasks the member processes now; null if they have not changed."
    )
    standby_tasks: list[TaskIds] | None = field(
        default=None,
        about="The tasks whose state the member copies, to take over quickly; null if they have not changed.",
    )
    warmup_tasks: list[TaskIds] | None = field(
        default=None, about="The tasks the member warms up for; null if they have not changed."
    )
    process_id: str | None = field(
        default=None,
        about="The instance of the application, which may have several members; null if it has not changed.",
    )
    user_endpoint: Endpoint | None = field(
        default=None,
        about="Where other instances may ask this one for its state; null if they may not, or for no change.",
    )
    client_tags: list[KeyValue] | None = field(
        default=None, about="What the application says of its place, such as a zone; null if it has not changed."
    )
    task_offsets: list[TaskOffset] | None = field(default=None)
    task_end_offsets: list[TaskOffset] | None = field(default=None)
    shutdown_application: bool = field(
        about="Whether all members should stop, as one has found an error that all would run into."
    )

    class KeyValue(Struct):
        key: str = field(about="The name of the config, or of the tag.")
        value: str = field(about="What is set, or said, as text.")

    class TopicInfo(Struct):
        name: str = field(about="What the topic is called.")
        partitions: int32 = field(
            about="How many partitions it must have; 0 leaves it to the broker, or to the topics it belongs to."
        )
        replication_factor: int16 = field(about="How many copies of each partition; 0 takes the broker's default.")
        topic_configs: list[StreamsGroupHeartbeatRequest.KeyValue] = field()

    class Endpoint(Struct):
        host: str = field()
        port: uint16 = field()

    class TaskOffset(Struct):
        subtopology_id: str = field()
        partition: int32 = field(about="Which of the subtopology's tasks, by the number of the partition it reads.")
        offset: int64 = field(about="An offset in the task's changelogs, all of them added up.")

    class TaskIds(Struct):
        subtopology_id: str = field()
        partitions: list[int32] = field(about="The partitions of the subtopology, each of which is a task.")

    class Topology(Struct):
        epoch: int32 = field(about="The version of the topology, by which the broker notices members of another one.")
        subtopologies: list[Subtopology] = field(
            about="The parts of the topology that are connected to each other by topics only."
        )

        class Subtopology(Struct):
            subtopology_id: str = field()
            source_topics: list[str] = field()
            source_topic_regex: list[str] = field()
            state_changelog_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = field()
            repartition_sink_topics: list[str] = field()
            repartition_source_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = field()
            copartition_groups: list[CopartitionGroup] = field(
                about="Topics that are joined, so that they must have the same number of partitions."
            )

            class CopartitionGroup(Struct):
                source_topics: list[int16] = field(about="Which of source_topics belong to the group, by their places.")
                source_topic_regex: list[int16] = field(
                    about="Which of source_topic_regex belong to the group, by their places."
                )
                repartition_source_topics: list[int16] = field(
                    about="Which of repartition_source_topics belong to the group, by their places."
                )


class StreamsGroupHeartbeatResponse(Message, api_key=88, versions="0-1", flexible="0+", kips={0: 1071, 1: 1331}):
    """Answers with the member's epoch and, if they have changed, its tasks."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    member_id: str = field()
    member_epoch: int32 = field(
        about="The epoch to send with the next heartbeat; it grows as the member follows the group's changes."
    )
    heartbeat_interval_ms: int32 = field(
        about="How long to wait before the next heartbeat: the broker's configs decide it, not the client's."
    )
    acceptable_recovery_lag_legacy: int32 = field(
        "0", about="How far a task may be behind to count as caught up; version 1 has a wider field for it."
    )
    task_offset_interval_ms: int32 = field(about="How often the member should say how far its tasks are.")
    acceptable_recovery_lag: int64 = field(
        "1+", default=-1, about="How far a task may be behind to count as caught up.", kip=0
    )
    status: list[Status] | None = field(
        about="What hinders the group, such as missing topics, so that people find it in the client's log."
    )
    active_tasks: list[TaskIds] | None = field(
        default=None, about="The tasks the member should process; null if they are still the same."
    )
    standby_tasks: list[TaskIds] | None = field(
        default=None, about="The tasks whose state the member should copy; null if they are still the same."
    )
    warmup_tasks: list[TaskIds] | None = field(
        default=None, about="The tasks the member should warm up for; null if they are still the same."
    )
    topology_description_required: bool = field(
        "1+", about="Whether the broker would like StreamsGroupTopologyDescriptionUpdate, to show it to people."
    )
    endpoint_information_epoch: int32 = field(about="How new the endpoints below are.")
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(
        default=None, about="Which instance has the state of which partition; null if that has not changed."
    )

    class Status(Struct):
        status_code: int8 = field(about="What it is, as a number.")
        status_detail: str = field(about="What it is, in words.")

    class TopicPartition(Struct):
        topic: str = field()
        partitions: list[int32] = field(about="The partitions of the topic.")

    class TaskIds(Struct):
        subtopology_id: str = field()
        partitions: list[int32] = field(about="The partitions of the subtopology, each of which is a task.")

    class Endpoint(Struct):
        host: str = field()
        port: uint16 = field()

    class EndpointToPartitions(Struct):
        user_endpoint: StreamsGroupHeartbeatResponse.Endpoint = field(
            about="Where the instance may be asked for its state."
        )
        active_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = field(
            about="The partitions whose state it keeps as the active one."
        )
        standby_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = field(
            about="The partitions of which it has a copy of the state."
        )


class StreamsGroupDescribeRequest(Message, api_key=89, versions="0-1", flexible="0+", kips={0: 1071, 1: 1331}):
    """Asks for state, topology and members of streams groups."""

    group_ids: list[str] = field(about="The groups to describe; the broker that is asked must coordinate them.")
    include_authorized_operations: bool = field(
        about="Also asks which operations on each group the client has rights for."
    )
    include_topology_description: bool = field(
        "1+", about="Also asks for the nodes of the topology, which may be many."
    )


class StreamsGroupDescribeResponse(Message, api_key=89, versions="0-1", flexible="0+", kips={0: 1071, 1: 1331}):
    """Describes the groups."""

    throttle_time_ms: int32 = field()
    groups: list[DescribedGroup] = field(about="A description of each group, or its error.")

    class Endpoint(Struct):
        host: str = field()
        port: uint16 = field()

    class TaskOffset(Struct):
        subtopology_id: str = field()
        partition: int32 = field(about="Which of the subtopology's tasks, by the number of the partition it reads.")
        offset: int64 = field(about="An offset in the task's changelogs, all of them added up.")

    class Assignment(Struct):
        active_tasks: list[StreamsGroupDescribeResponse.TaskIds] = field()
        standby_tasks: list[StreamsGroupDescribeResponse.TaskIds] = field()
        warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds] = field()

    class TaskIds(Struct):
        subtopology_id: str = field()
        partitions: list[int32] = field(about="The partitions of the subtopology, each of which is a task.")

    class KeyValue(Struct):
        key: str = field(about="The name of the config, or of the tag.")
        value: str = field(about="What is set, or said, as text.")

    class TopicInfo(Struct):
        name: str = field(about="What the topic is called.")
        partitions: int32 = field(about="How many partitions it has.")
        replication_factor: int16 = field(about="How many copies of each partition; 0 takes the broker's default.")
        topic_configs: list[StreamsGroupDescribeResponse.KeyValue] = field()

    class TopologyDescription(Struct):
        subtopologies: list[StreamsGroupDescribeResponse.TopologyDescriptionSubtopology] = field(
            about="The parts of the topology, with their nodes."
        )
        global_stores: list[StreamsGroupDescribeResponse.TopologyDescriptionGlobalStore] = field(
            about="The stores of which each instance has all partitions."
        )

    class TopologyDescriptionSubtopology(Struct):
        subtopology_id: str = field()
        nodes: list[StreamsGroupDescribeResponse.TopologyDescriptionNode] = field(about="The steps records go through.")

    class TopologyDescriptionNode(Struct):
        name: str = field(about="What the node is called.")
        node_type: int8 = field(about="Whether it reads a topic, processes records or writes a topic.")
        source_topics: list[str] = field(about="The topics it reads from, if it does.")
        sink_topic: str | None = field(
            default=None, about="The topic it writes to; null if it does not, or chooses by the record."
        )
        stores: list[str] = field(about="The stores it keeps state in.")
        successors: list[str] = field(about="The nodes that get its records.")

    class TopologyDescriptionGlobalStore(Struct):
        source: StreamsGroupDescribeResponse.TopologyDescriptionNode = field(
            about="The node that reads the store's topic."
        )
        processor: StreamsGroupDescribeResponse.TopologyDescriptionNode = field(about="The node that fills the store.")

    class DescribedGroup(Struct):
        error_code: int16 = field()
        error_message: str | None = field(default=None)
        group_id: str = field()
        group_state: str = field(about="Where the group is: Empty, NotReady, Assigning, Reconciling, Stable or Dead.")
        group_epoch: int32 = field(
            about="Grows when members, the topology or topics change, so that a new assignment is due."
        )
        assignment_epoch: int32 = field(about="The group epoch the current target assignment was computed for.")
        topology: Topology | None = field(default=None, about="The application's topology; null if it is not known.")
        members: list[Member] = field(about="The members, with their tasks.")
        authorized_operations: int32 = field(default=-2147483648)
        topology_description: StreamsGroupDescribeResponse.TopologyDescription | None = field(
            "1+", default=None, about="The nodes of the topology; null if they were not asked for, or are not known."
        )
        topology_description_status: int8 = field(
            "1+", about="0 not asked for, 1 none stored, 2 it could not be read, 3 it is here."
        )
        assignor_name: str | None = field(
            "1+", default=None, about="The broker's assignor that spreads the tasks; null if unknown.", kip=1357
        )

        class Topology(Struct):
            epoch: int32 = field(about="The version of the topology.")
            subtopologies: list[Subtopology] | None = field(default=None, about="Its parts, with all topics by name.")

            class Subtopology(Struct):
                subtopology_id: str = field()
                source_topics: list[str] = field()
                repartition_sink_topics: list[str] = field()
                state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo] = field()
                repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo] = field()

        class Member(Struct):
            member_id: str = field()
            member_epoch: int32 = field()
            instance_id: str | None = field(default=None)
            rack_id: str | None = field(default=None)
            client_id: str = field()
            client_host: str = field()
            topology_epoch: int32 = field()
            process_id: str = field()
            user_endpoint: StreamsGroupDescribeResponse.Endpoint | None = field(default=None)
            client_tags: list[StreamsGroupDescribeResponse.KeyValue] = field()
            task_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = field()
            task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = field()
            assignment: StreamsGroupDescribeResponse.Assignment = field(about="The tasks the member has now.")
            target_assignment: StreamsGroupDescribeResponse.Assignment = field(
                about="The tasks the member should have once the others have let them go."
            )
            is_classic: bool = field(about="Whether it still speaks the classic protocol, while the group migrates.")


class StreamsGroupTopologyDescriptionUpdateRequest(Message, api_key=93, versions="0", flexible="0+", kips={0: 1331}):
    """Describes an application's topology, for people (KIP-1331)."""

    group_id: str = field()
    member_id: str = field()
    topology_epoch: int32 = field()
    topology_description: TopologyDescription = field(about="The nodes of the topology, as the application built it.")

    class TopologyDescription(Struct):
        subtopologies: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionSubtopology] = field(
            about="The parts of the topology, with their nodes."
        )
        global_stores: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionGlobalStore] = field(
            about="The stores of which each instance has all partitions."
        )

    class TopologyDescriptionSubtopology(Struct):
        subtopology_id: str = field()
        nodes: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode] = field(
            about="The steps records go through."
        )

    class TopologyDescriptionNode(Struct):
        name: str = field(about="What the node is called.")
        node_type: int8 = field(about="Whether it reads a topic, processes records or writes a topic.")
        source_topics: list[str] = field(about="The topics it reads from, if it does.")
        sink_topic: str | None = field(
            default=None, about="The topic it writes to; null if it does not, or chooses by the record."
        )
        stores: list[str] = field(about="The stores it keeps state in.")
        successors: list[str] = field(about="The nodes that get its records.")

    class TopologyDescriptionGlobalStore(Struct):
        source: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode = field(
            about="The node that reads the store's topic."
        )
        processor: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode = field(
            about="The node that fills the store."
        )


class StreamsGroupTopologyDescriptionUpdateResponse(Message, api_key=93, versions="0", flexible="0+", kips={0: 1331}):
    """Says whether the topology was accepted."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
