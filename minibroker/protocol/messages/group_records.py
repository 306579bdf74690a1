"""Keys and values of the topic `__consumer_offsets`: committed offsets, classic groups and consumer groups.

An int16 precedes each: the type before a key, which is `api_key` here, and the version before a value.
"""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int8, int32, int64


class OffsetCommitKey(Message, api_key=1, versions="0"):
    """A group and a partition."""

    group: str = field()
    topic: str = field()
    partition: int32 = field()


class OffsetCommitValue(Message, api_key=1, versions="0-4", flexible="4+"):
    """The offset committed for it."""

    offset: int64 = field()
    leader_epoch: int32 = field("3+", default=-1)
    metadata: str = field()
    commit_timestamp: int64 = field()
    expire_timestamp: int64 = field("1", default=-1)
    topic_id: Uuid = field("4+", tag=0)


class GroupMetadataKey(Message, api_key=2, versions="0"):
    """A classic group."""

    group: str = field()


class GroupMetadataValue(Message, api_key=2, versions="0-4", flexible="4+"):
    """Its generation, leader and members."""

    protocol_type: str = field()
    generation: int32 = field()
    protocol: str | None = field()
    leader: str | None = field()
    current_state_timestamp: int64 = field("2+", default=-1)
    members: list[MemberMetadata] = field()

    class MemberMetadata(Struct):
        member_id: str = field()
        group_instance_id: str | None = field("3+", default=None)
        client_id: str = field()
        client_host: str = field()
        rebalance_timeout: int32 = field("1+", default=-1)
        session_timeout: int32 = field()
        subscription: bytes = field()
        assignment: bytes = field()


class ConsumerGroupMetadataKey(Message, api_key=3, versions="0"):
    """A consumer group."""

    group_id: str = field()


class ConsumerGroupMetadataValue(Message, api_key=3, versions="0", flexible="0+"):
    """Its epoch."""

    epoch: int32 = field()
    metadata_hash: int64 = field(tag=0)


class ConsumerGroupPartitionMetadataKey(Message, api_key=4, versions="0"):
    """A consumer group, as brokers before Kafka 4.1 wrote it."""

    group_id: str = field()


class ConsumerGroupPartitionMetadataValue(Message, api_key=4, versions="0", flexible="0+"):
    """The topics it is subscribed to and their partition counts."""

    topics: list[TopicMetadata] = field()

    class TopicMetadata(Struct):
        topic_id: Uuid = field()
        topic_name: str = field()
        num_partitions: int32 = field()
        partition_metadata: list[PartitionMetadata] = field()

        class PartitionMetadata(Struct):
            partition: int32 = field()
            racks: list[str] = field()


class ConsumerGroupMemberMetadataKey(Message, api_key=5, versions="0"):
    """A member of a consumer group."""

    group_id: str = field()
    member_id: str = field()


class ConsumerGroupMemberMetadataValue(Message, api_key=5, versions="0", flexible="0+"):
    """Its subscription, its client and host, and its classic protocols."""

    instance_id: str | None = field()
    rack_id: str | None = field()
    client_id: str = field()
    client_host: str = field()
    subscribed_topic_names: list[str] = field()
    subscribed_topic_regex: str | None = field()
    rebalance_timeout_ms: int32 = field(default=-1)
    server_assignor: str | None = field()
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0)

    class ClassicMemberMetadata(Struct):
        session_timeout_ms: int32 = field()
        supported_protocols: list[ClassicProtocol] = field()

        class ClassicProtocol(Struct):
            name: str = field()
            metadata: bytes = field()


class ConsumerGroupTargetAssignmentMetadataKey(Message, api_key=6, versions="0"):
    """A consumer group's target assignment."""

    group_id: str = field()


class ConsumerGroupTargetAssignmentMetadataValue(Message, api_key=6, versions="0", flexible="0+"):
    """The epoch in which it was computed."""

    assignment_epoch: int32 = field()
    assignment_timestamp: int64 = field(tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, api_key=7, versions="0"):
    """A member in the target assignment."""

    group_id: str = field()
    member_id: str = field()


class ConsumerGroupTargetAssignmentMemberValue(Message, api_key=7, versions="0", flexible="0+"):
    """The partitions it is to have."""

    topic_partitions: list[TopicPartition] = field()

    class TopicPartition(Struct):
        topic_id: Uuid = field()
        partitions: list[int32] = field()


class ConsumerGroupCurrentMemberAssignmentKey(Message, api_key=8, versions="0"):
    """A member in the current assignment."""

    group_id: str = field()
    member_id: str = field()


class ConsumerGroupCurrentMemberAssignmentValue(Message, api_key=8, versions="0", flexible="0+"):
    """The partitions it has, and those it must revoke first."""

    member_epoch: int32 = field()
    previous_member_epoch: int32 = field()
    state: int8 = field()
    assigned_partitions: list[TopicPartitions] = field()
    partitions_pending_revocation: list[TopicPartitions] = field()

    class TopicPartitions(Struct):
        topic_id: Uuid = field()
        partitions: list[int32] = field()
        assignment_epochs: list[int32] | None = field(tag=0)


class ConsumerGroupRegularExpressionKey(Message, api_key=16, versions="0"):
    """A pattern that members of a group subscribe to."""

    group_id: str = field()
    regular_expression: str = field()


class ConsumerGroupRegularExpressionValue(Message, api_key=16, versions="0", flexible="0+"):
    """The topics it matched, and when."""

    topics: list[str] = field()
    version: int64 = field()
    timestamp: int64 = field()


class LegacyOffsetCommitKey(Message, api_key=0, versions="0"):
    """A group and a partition, as before Kafka 0.9."""

    group: str = field()
    topic: str = field()
    partition: int32 = field()


class LegacyOffsetCommitValue(Message, api_key=0, versions="0"):
    """The offset committed for it, as before Kafka 0.9."""

    offset: int64 = field()
    metadata: str = field()
    commit_timestamp: int64 = field()
