"""Keys and values of streams groups in the topic `__consumer_offsets`, encoded as in `group_records.py`."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int8, int16, int32, int64, uint16


class StreamsGroupMetadataKey(Message, api_key=17, versions="0"):
    """A streams group."""

    group_id: str = field()


class StreamsGroupMetadataValue(Message, api_key=17, versions="0", flexible="0+"):
    """Its epoch, and a hash of the metadata that the epoch is based on."""

    epoch: int32 = field()
    metadata_hash: int64 = field()
    validated_topology_epoch: int32 = field(tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(tag=1)
    stored_description_topology_epoch: int32 = field(tag=2, default=-1)
    failed_description_topology_epoch: int32 = field(tag=3, default=-1)

    class LastAssignmentConfig(Struct):
        key: str = field()
        value: str = field()


class StreamsGroupMemberMetadataKey(Message, api_key=19, versions="0"):
    """A member of a streams group."""

    group_id: str = field()
    member_id: str = field()


class StreamsGroupMemberMetadataValue(Message, api_key=19, versions="0", flexible="0+"):
    """Its process, its tags and the endpoint of its state stores."""

    instance_id: str | None = field()
    rack_id: str | None = field()
    client_id: str = field()
    client_host: str = field()
    rebalance_timeout_ms: int32 = field(default=-1)
    topology_epoch: int32 = field()
    process_id: str = field()
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: list[KeyValue] = field()

    class Endpoint(Struct):
        host: str = field()
        port: uint16 = field()

    class KeyValue(Struct):
        key: str = field()
        value: str = field()


class StreamsGroupTargetAssignmentMetadataKey(Message, api_key=20, versions="0"):
    """A streams group's target assignment."""

    group_id: str = field()


class StreamsGroupTargetAssignmentMetadataValue(Message, api_key=20, versions="0", flexible="0+"):
    """The epoch in which it was computed."""

    assignment_epoch: int32 = field()
    assignment_timestamp: int64 = field(tag=0)


class StreamsGroupTargetAssignmentMemberKey(Message, api_key=21, versions="0"):
    """A member in the target assignment."""

    group_id: str = field()
    member_id: str = field()


class StreamsGroupTargetAssignmentMemberValue(Message, api_key=21, versions="0", flexible="0+"):
    """The tasks it is to have."""

    active_tasks: list[TaskIds] = field()
    standby_tasks: list[TaskIds] = field()
    warmup_tasks: list[TaskIds] = field()

    class TaskIds(Struct):
        subtopology_id: str = field()
        partitions: list[int32] = field()


class StreamsGroupCurrentMemberAssignmentKey(Message, api_key=22, versions="0"):
    """A member in the current assignment."""

    group_id: str = field()
    member_id: str = field()


class StreamsGroupCurrentMemberAssignmentValue(Message, api_key=22, versions="0", flexible="0+"):
    """The tasks it has, and those it must revoke first."""

    member_epoch: int32 = field()
    previous_member_epoch: int32 = field()
    state: int8 = field()
    active_tasks: list[TaskIds] = field()
    standby_tasks: list[TaskIds] = field()
    warmup_tasks: list[TaskIds] = field()
    active_tasks_pending_revocation: list[TaskIds] = field()
    standby_tasks_pending_revocation: list[TaskIds] = field()
    warmup_tasks_pending_revocation: list[TaskIds] = field()

    class TaskIds(Struct):
        subtopology_id: str = field()
        partitions: list[int32] = field()
        assignment_epochs: list[int32] | None = field(tag=0)


class StreamsGroupTopologyKey(Message, api_key=23, versions="0"):
    """A streams group's topology."""

    group_id: str = field()


class StreamsGroupTopologyValue(Message, api_key=23, versions="0", flexible="0+"):
    """Its subtopologies, with the topics they read, repartition and log to."""

    epoch: int32 = field()
    subtopologies: list[Subtopology] = field()

    class TopicConfig(Struct):
        key: str = field()
        value: str = field()

    class TopicInfo(Struct):
        name: str = field()
        partitions: int32 = field()
        replication_factor: int16 = field()
        topic_configs: list[StreamsGroupTopologyValue.TopicConfig] = field()

    class Subtopology(Struct):
        subtopology_id: str = field()
        source_topics: list[str] = field()
        source_topic_regex: list[str] = field()
        state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo] = field()
        repartition_sink_topics: list[str] = field()
        repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo] = field()
        copartition_groups: list[CopartitionGroup] = field()

        class CopartitionGroup(Struct):
            source_topics: list[int16] = field()
            source_topic_regex: list[int16] = field()
            repartition_source_topics: list[int16] = field()
