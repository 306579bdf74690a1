"""Keys and values of streams groups in the topic `__consumer_offsets`, encoded as in `group_records.py`."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int8, int16, int32, int64, uint16


class StreamsGroupMetadataKey(Message, api_key=17, versions="0"):
    """A streams group."""

    group_id: str = field()


class StreamsGroupMetadataValue(Message, api_key=17, versions="0", flexible="0+"):
    """Its epoch, and a hash of the metadata that the epoch is based on."""

    epoch: int32 = field(about="Grows when members, the topology or topics change, so that a new assignment is due.")
    metadata_hash: int64 = field(
        about="A hash of the topics' partitions and racks, by which the coordinator notices that they have changed."
    )
    validated_topology_epoch: int32 = field(
        tag=0,
        default=-1,
        about="The topology whose topics were found to be in order, so that they are not checked each time.",
    )
    last_assignment_configs: list[LastAssignmentConfig] | None = field(
        tag=1, about="The group's configs by which the last assignment was computed: other ones ask for a new one."
    )
    stored_description_topology_epoch: int32 = field(
        tag=2, default=-1, about="The topology whose description is stored; -1 if none is."
    )
    failed_description_topology_epoch: int32 = field(
        tag=3,
        default=-1,
        about="The topology whose description was refused for good, to be asked for no more; -1 if none.",
    )

    class LastAssignmentConfig(Struct):
        key: str = field(about="The config, such as num.standby.replicas.")
        value: str = field(about="Its value as text.")


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
    rebalance_timeout_ms: int32 = field(
        default=-1, about="How long the coordinator waits for the member to give tasks up."
    )
    topology_epoch: int32 = field()
    process_id: str = field()
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: list[KeyValue] = field()

    class Endpoint(Struct):
        host: str = field()
        port: uint16 = field()

    class KeyValue(Struct):
        key: str = field(about="What the tag says something about, such as zone.")
        value: str = field(about="What it says.")


class StreamsGroupTargetAssignmentMetadataKey(Message, api_key=20, versions="0"):
    """A streams group's target assignment."""

    group_id: str = field()


class StreamsGroupTargetAssignmentMetadataValue(Message, api_key=20, versions="0", flexible="0+"):
    """The epoch in which it was computed."""

    assignment_epoch: int32 = field(about="The group epoch that the target assignment was computed for.")
    assignment_timestamp: int64 = field(tag=0, about="When the target assignment was computed.")


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
        partitions: list[int32] = field(about="The partitions of the subtopology, each of which is a task.")


class StreamsGroupCurrentMemberAssignmentKey(Message, api_key=22, versions="0"):
    """A member in the current assignment."""

    group_id: str = field()
    member_id: str = field()


class StreamsGroupCurrentMemberAssignmentValue(Message, api_key=22, versions="0", flexible="0+"):
    """The tasks it has, and those it must revoke first."""

    member_epoch: int32 = field(about="The epoch that the member is to send with its next heartbeat.")
    previous_member_epoch: int32 = field(about="The epoch before: a member that missed the answer may still send it.")
    state: int8 = field(
        about="0 if it has what it should have, 1 while it must let go, 2 while others must, and 127 if it is unknown."
    )
    active_tasks: list[TaskIds] = field()
    standby_tasks: list[TaskIds] = field()
    warmup_tasks: list[TaskIds] = field()
    active_tasks_pending_revocation: list[TaskIds] = field(
        about="The active tasks that the member must let go before it goes on."
    )
    standby_tasks_pending_revocation: list[TaskIds] = field(
        about="The standby tasks that the member must let go before it goes on."
    )
    warmup_tasks_pending_revocation: list[TaskIds] = field(
        about="The warm-up tasks that the member must let go before it goes on."
    )

    class TaskIds(Struct):
        subtopology_id: str = field()
        partitions: list[int32] = field(about="The partitions of the subtopology, each of which is a task.")
        assignment_epochs: list[int32] | None = field(
            tag=0, about="The epoch in which the member got each task, so that commits from before are refused."
        )


class StreamsGroupTopologyKey(Message, api_key=23, versions="0"):
    """A streams group's topology."""

    group_id: str = field()


class StreamsGroupTopologyValue(Message, api_key=23, versions="0", flexible="0+"):
    """Its subtopologies, with the topics they read, repartition and log to."""

    epoch: int32 = field(about="The version of the application's topology.")
    subtopologies: list[Subtopology] = field(
        about="The parts of the topology that are connected to each other by topics only."
    )

    class TopicConfig(Struct):
        key: str = field(about="The config, such as cleanup.policy.")
        value: str = field(about="Its value as text.")

    class TopicInfo(Struct):
        name: str = field(about="What the topic is called.")
        partitions: int32 = field(
            about="How many partitions it must have; 0 leaves it to the broker, or to the topics it belongs to."
        )
        replication_factor: int16 = field(about="How many copies of each partition; 0 takes the broker's default.")
        topic_configs: list[StreamsGroupTopologyValue.TopicConfig] = field()

    class Subtopology(Struct):
        subtopology_id: str = field()
        source_topics: list[str] = field()
        source_topic_regex: list[str] = field()
        state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo] = field()
        repartition_sink_topics: list[str] = field()
        repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo] = field()
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
