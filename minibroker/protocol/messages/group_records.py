"""Keys and values of the topic `__consumer_offsets`: committed offsets, classic groups and consumer groups.

An int16 precedes each: the type before a key, which is `api_key` here, and the version before a value.
"""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int8, int32, int64


class OffsetCommitKey(Message, api_key=1, versions="0"):
    """A group and a partition."""

    group: str = field(about="The group that has committed; the hash of its name chose this partition.")
    topic: str = field(about="The topic that the group reads.")
    partition: int32 = field()


class OffsetCommitValue(Message, api_key=1, versions="0-4", flexible="4+", kips={2: 211, 3: 320}):
    """The offset committed for it."""

    offset: int64 = field(about="The offset of the next record to read.")
    leader_epoch: int32 = field(
        "3+",
        default=-1,
        about="The leader epoch of the last record read, to notice a log that was cut off since then; -1 if unknown.",
    )
    metadata: str = field(about="What the client wanted to find beside the offset.")
    commit_timestamp: int64 = field(
        about="When it was committed: offsets of a group without members end some days after it."
    )
    expire_timestamp: int64 = field(
        "1", default=-1, about="When the offset ends, as the client wanted in old versions; -1 leaves it to the broker."
    )
    topic_id: Uuid = field(
        "4+", tag=0, about="The topic's UUID, so that a new topic of the same name does not get the offset."
    )


class GroupMetadataKey(Message, api_key=2, versions="0"):
    """A classic group."""

    group: str = field(about="The group whose state the value is; the hash of its name chose this partition.")


class GroupMetadataValue(Message, api_key=2, versions="0-4", flexible="4+", kips={2: 211, 3: 345}):
    """Its generation, leader and members."""

    protocol_type: str = field(about='The kind of group: "consumer", "connect", or empty if it only keeps offsets.')
    generation: int32 = field(about="How many rebalances the group has had.")
    protocol: str | None = field(about="The assignor that is in use; null if the group is empty.")
    leader: str | None = field(about="The member that assigned the partitions; null if the group is empty.")
    current_state_timestamp: int64 = field(
        "2+",
        default=-1,
        about="When the group came into its state, from which the offsets of an empty group are counted.",
    )
    members: list[MemberMetadata] = field(
        about="The members, so that a new coordinator knows them without a rebalance."
    )

    class MemberMetadata(Struct):
        member_id: str = field()
        group_instance_id: str | None = field("3+", default=None)
        client_id: str = field()
        client_host: str = field()
        rebalance_timeout: int32 = field(
            "1+", kip=62, default=-1, about="How many milliseconds a rebalance waits for the member."
        )
        session_timeout: int32 = field(about="How many milliseconds the member may go without a heartbeat.")
        subscription: bytes = field(about="What the member wants to read, in the language of the assignor.")
        assignment: bytes = field(about="What the member got, in the language of the assignor.")


class ConsumerGroupMetadataKey(Message, api_key=3, versions="0"):
    """A consumer group."""

    group_id: str = field()


class ConsumerGroupMetadataValue(Message, api_key=3, versions="0", flexible="0+"):
    """Its epoch."""

    epoch: int32 = field(about="Grows when members, subscriptions or topics change, so that a new assignment is due.")
    metadata_hash: int64 = field(
        tag=0,
        about="A hash of the topics' partitions and racks, by which the coordinator notices that they have changed.",
        kip=1101,
    )


class ConsumerGroupPartitionMetadataKey(Message, api_key=4, versions="0"):
    """A consumer group, as brokers before Kafka 4.1 wrote it."""

    group_id: str = field()


class ConsumerGroupPartitionMetadataValue(Message, api_key=4, versions="0", flexible="0+"):
    """The topics it is subscribed to and their partition counts."""

    topics: list[TopicMetadata] = field(about="What the group knew of its topics when the assignment was made.")

    class TopicMetadata(Struct):
        topic_id: Uuid = field()
        topic_name: str = field(about="What the topic was called.")
        num_partitions: int32 = field(about="How many partitions it had.")
        partition_metadata: list[PartitionMetadata] = field(about="The racks of each partition, if there were any.")

        class PartitionMetadata(Struct):
            partition: int32 = field()
            racks: list[str] = field(about="The racks in which the partition had replicas.")


class ConsumerGroupMemberMetadataKey(Message, api_key=5, versions="0"):
    """A member of a consumer group."""

    group_id: str = field()
    member_id: str = field()


class ConsumerGroupMemberMetadataValue(Message, api_key=5, versions="0", flexible="0+"):
    """Its subscription, its client and host, and its classic protocols."""

    instance_id: str | None = field()
    rack_id: str | None = field(about="The member's rack; null if it named none.")
    client_id: str = field()
    client_host: str = field()
    subscribed_topic_names: list[str] = field(about="The topics the member wants to read.")
    subscribed_topic_regex: str | None = field(
        about="The pattern of topics the member wants to read; null if it named them."
    )
    rebalance_timeout_ms: int32 = field(
        default=-1, about="How long the coordinator waits for the member to give partitions up."
    )
    server_assignor: str | None = field(about="The broker's assignor the member would like; null for any.")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        tag=0, about="Set for a member that still speaks the classic protocol, while the group migrates."
    )

    class ClassicMemberMetadata(Struct):
        session_timeout_ms: int32 = field(about="How long the member may go without a heartbeat.")
        supported_protocols: list[ClassicProtocol] = field(about="The assignors it had named.")

        class ClassicProtocol(Struct):
            name: str = field(about="What the assignor is called.")
            metadata: bytes = field(about="The member's subscription, in the language of the assignor.")


class ConsumerGroupTargetAssignmentMetadataKey(Message, api_key=6, versions="0"):
    """A consumer group's target assignment."""

    group_id: str = field()


class ConsumerGroupTargetAssignmentMetadataValue(Message, api_key=6, versions="0", flexible="0+"):
    """The epoch in which it was computed."""

    assignment_epoch: int32 = field(about="The group epoch that the target assignment was computed for.")
    assignment_timestamp: int64 = field(tag=0, about="When the target assignment was computed.", kip=1263)


class ConsumerGroupTargetAssignmentMemberKey(Message, api_key=7, versions="0"):
    """A member in the target assignment."""

    group_id: str = field()
    member_id: str = field()


class ConsumerGroupTargetAssignmentMemberValue(Message, api_key=7, versions="0", flexible="0+"):
    """The partitions it is to have."""

    topic_partitions: list[TopicPartition] = field(about="What the member should hold in the end, by topic.")

    class TopicPartition(Struct):
        topic_id: Uuid = field()
        partitions: list[int32] = field(about="The partitions of the topic that it should hold.")


class ConsumerGroupCurrentMemberAssignmentKey(Message, api_key=8, versions="0"):
    """A member in the current assignment."""

    group_id: str = field()
    member_id: str = field()


class ConsumerGroupCurrentMemberAssignmentValue(Message, api_key=8, versions="0", flexible="0+"):
    """The partitions it has, and those it must revoke first."""

    member_epoch: int32 = field(about="The epoch that the member is to send with its next heartbeat.")
    previous_member_epoch: int32 = field(about="The epoch before: a member that missed the answer may still send it.")
    state: int8 = field(
        about="0 if it holds what it should, 1 while it must let go, 2 while others must, and 127 if it is unknown."
    )
    assigned_partitions: list[TopicPartitions] = field(about="What the member may read now, by topic.")
    partitions_pending_revocation: list[TopicPartitions] = field(about="What the member must let go before it goes on.")

    class TopicPartitions(Struct):
        topic_id: Uuid = field()
        partitions: list[int32] = field(about="The partitions of the topic.")
        assignment_epochs: list[int32] | None = field(
            tag=0, about="The epoch in which the member got each partition, so that commits from before are refused."
        )


class ConsumerGroupRegularExpressionKey(Message, api_key=16, versions="0"):
    """A pattern that members of a group subscribe to."""

    group_id: str = field()
    regular_expression: str = field(about="The pattern that members are subscribed to, by the rules of RE2.")


class ConsumerGroupRegularExpressionValue(Message, api_key=16, versions="0", flexible="0+"):
    """The topics it matched, and when."""

    topics: list[str] = field(about="The topics whose names it matched.")
    version: int64 = field(about="The version of the cluster's metadata in which they were looked up.")
    timestamp: int64 = field(about="When they were looked up.")


class LegacyOffsetCommitKey(Message, api_key=0, versions="0"):
    """A group and a partition, as before Kafka 0.9."""

    group: str = field(about="The group that has committed.")
    topic: str = field(about="The topic that the group reads.")
    partition: int32 = field()


class LegacyOffsetCommitValue(Message, api_key=0, versions="0"):
    """The offset committed for it, as before Kafka 0.9."""

    offset: int64 = field(about="The offset of the next record to read.")
    metadata: str = field(about="What the client wanted to find beside the offset.")
    commit_timestamp: int64 = field(about="When it was committed.")
