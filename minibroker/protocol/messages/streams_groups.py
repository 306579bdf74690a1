"""Streams groups: Kafka Streams applications whose tasks the broker assigns (KIP-1071)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int8, int16, int32, int64, uint16


class StreamsGroupHeartbeatRequest(Message, api_key=88, versions="0-1", flexible="0+"):
    """Joins, stays in or leaves a group. A joining member sends the topology."""

    group_id: str = field()
    member_id: str = field()
    member_epoch: int32 = field()
    endpoint_information_epoch: int32 = field()
    instance_id: str | None = field(default=None)
    rack_id: str | None = field(default=None)
    rebalance_timeout_ms: int32 = field(default=-1)
    topology: Topology | None = field(default=None)
    active_tasks: list[TaskIds] | None = field(default=None)
    standby_tasks: list[TaskIds] | None = field(default=None)
    warmup_tasks: list[TaskIds] | None = field(default=None)
    process_id: str | None = field(default=None)
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: list[KeyValue] | None = field(default=None)
    task_offsets: list[TaskOffset] | None = field(default=None)
    task_end_offsets: list[TaskOffset] | None = field(default=None)
    shutdown_application: bool = field()

    class KeyValue(Struct):
        key: str = field()
        value: str = field()

    class TopicInfo(Struct):
        name: str = field()
        partitions: int32 = field()
        replication_factor: int16 = field()
        topic_configs: list[StreamsGroupHeartbeatRequest.KeyValue] = field()

    class Endpoint(Struct):
        host: str = field()
        port: uint16 = field()

    class TaskOffset(Struct):
        subtopology_id: str = field()
        partition: int32 = field()
        offset: int64 = field()

    class TaskIds(Struct):
        subtopology_id: str = field()
        partitions: list[int32] = field()

    class Topology(Struct):
        epoch: int32 = field()
        subtopologies: list[Subtopology] = field()

        class Subtopology(Struct):
            subtopology_id: str = field()
            source_topics: list[str] = field()
            source_topic_regex: list[str] = field()
            state_changelog_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = field()
            repartition_sink_topics: list[str] = field()
            repartition_source_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = field()
            copartition_groups: list[CopartitionGroup] = field()

            class CopartitionGroup(Struct):
                source_topics: list[int16] = field()
                source_topic_regex: list[int16] = field()
                repartition_source_topics: list[int16] = field()


class StreamsGroupHeartbeatResponse(Message, api_key=88, versions="0-1", flexible="0+"):
    """Answers with the member's epoch and, if they have changed, its tasks."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    member_id: str = field()
    member_epoch: int32 = field()
    heartbeat_interval_ms: int32 = field()
    acceptable_recovery_lag_legacy: int32 = field("0")
    task_offset_interval_ms: int32 = field()
    acceptable_recovery_lag: int64 = field("1+", default=-1)
    status: list[Status] | None = field()
    active_tasks: list[TaskIds] | None = field(default=None)
    standby_tasks: list[TaskIds] | None = field(default=None)
    warmup_tasks: list[TaskIds] | None = field(default=None)
    topology_description_required: bool = field("1+")
    endpoint_information_epoch: int32 = field()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(default=None)

    class Status(Struct):
        status_code: int8 = field()
        status_detail: str = field()

    class TopicPartition(Struct):
        topic: str = field()
        partitions: list[int32] = field()

    class TaskIds(Struct):
        subtopology_id: str = field()
        partitions: list[int32] = field()

    class Endpoint(Struct):
        host: str = field()
        port: uint16 = field()

    class EndpointToPartitions(Struct):
        user_endpoint: StreamsGroupHeartbeatResponse.Endpoint = field()
        active_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = field()
        standby_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = field()


class StreamsGroupDescribeRequest(Message, api_key=89, versions="0-1", flexible="0+"):
    """Asks for state, topology and members of streams groups."""

    group_ids: list[str] = field()
    include_authorized_operations: bool = field()
    include_topology_description: bool = field("1+")


class StreamsGroupDescribeResponse(Message, api_key=89, versions="0-1", flexible="0+"):
    """Describes the groups."""

    throttle_time_ms: int32 = field()
    groups: list[DescribedGroup] = field()

    class Endpoint(Struct):
        host: str = field()
        port: uint16 = field()

    class TaskOffset(Struct):
        subtopology_id: str = field()
        partition: int32 = field()
        offset: int64 = field()

    class Assignment(Struct):
        active_tasks: list[StreamsGroupDescribeResponse.TaskIds] = field()
        standby_tasks: list[StreamsGroupDescribeResponse.TaskIds] = field()
        warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds] = field()

    class TaskIds(Struct):
        subtopology_id: str = field()
        partitions: list[int32] = field()

    class KeyValue(Struct):
        key: str = field()
        value: str = field()

    class TopicInfo(Struct):
        name: str = field()
        partitions: int32 = field()
        replication_factor: int16 = field()
        topic_configs: list[StreamsGroupDescribeResponse.KeyValue] = field()

    class TopologyDescription(Struct):
        subtopologies: list[StreamsGroupDescribeResponse.TopologyDescriptionSubtopology] = field()
        global_stores: list[StreamsGroupDescribeResponse.TopologyDescriptionGlobalStore] = field()

    class TopologyDescriptionSubtopology(Struct):
        subtopology_id: str = field()
        nodes: list[StreamsGroupDescribeResponse.TopologyDescriptionNode] = field()

    class TopologyDescriptionNode(Struct):
        name: str = field()
        node_type: int8 = field()
        source_topics: list[str] = field()
        sink_topic: str | None = field(default=None)
        stores: list[str] = field()
        successors: list[str] = field()

    class TopologyDescriptionGlobalStore(Struct):
        source: StreamsGroupDescribeResponse.TopologyDescriptionNode = field()
        processor: StreamsGroupDescribeResponse.TopologyDescriptionNode = field()

    class DescribedGroup(Struct):
        error_code: int16 = field()
        error_message: str | None = field(default=None)
        group_id: str = field()
        group_state: str = field()
        group_epoch: int32 = field()
        assignment_epoch: int32 = field()
        topology: Topology | None = field(default=None)
        members: list[Member] = field()
        authorized_operations: int32 = field(default=-2147483648)
        topology_description: StreamsGroupDescribeResponse.TopologyDescription | None = field("1+", default=None)
        topology_description_status: int8 = field("1+")
        assignor_name: str | None = field("1+", default=None)

        class Topology(Struct):
            epoch: int32 = field()
            subtopologies: list[Subtopology] | None = field(default=None)

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
            assignment: StreamsGroupDescribeResponse.Assignment = field()
            target_assignment: StreamsGroupDescribeResponse.Assignment = field()
            is_classic: bool = field()


class StreamsGroupTopologyDescriptionUpdateRequest(Message, api_key=93, versions="0", flexible="0+"):
    """Describes an application's topology, for people (KIP-1331)."""

    group_id: str = field()
    member_id: str = field()
    topology_epoch: int32 = field()
    topology_description: TopologyDescription = field()

    class TopologyDescription(Struct):
        subtopologies: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionSubtopology] = field()
        global_stores: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionGlobalStore] = field()

    class TopologyDescriptionSubtopology(Struct):
        subtopology_id: str = field()
        nodes: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode] = field()

    class TopologyDescriptionNode(Struct):
        name: str = field()
        node_type: int8 = field()
        source_topics: list[str] = field()
        sink_topic: str | None = field(default=None)
        stores: list[str] = field()
        successors: list[str] = field()

    class TopologyDescriptionGlobalStore(Struct):
        source: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode = field()
        processor: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode = field()


class StreamsGroupTopologyDescriptionUpdateResponse(Message, api_key=93, versions="0", flexible="0+"):
    """Says whether the topology was accepted."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
