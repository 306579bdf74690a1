"""Keys and values of share groups in the topic `__consumer_offsets`, encoded as in `group_records.py`."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int8, int32, int64


class ShareGroupMetadataKey(Message, api_key=11, versions="0"):
    """A share group."""

    group_id: str = field()


class ShareGroupMetadataValue(Message, api_key=11, versions="0", flexible="0+"):
    """Its epoch."""

    epoch: int32 = field(about="Grows when members, subscriptions or topics change, so that a new assignment is due.")
    metadata_hash: int64 = field(
        about="A hash of the topics' partitions and racks, by which the coordinator notices that they have changed."
    )


class ShareGroupMemberMetadataKey(Message, api_key=10, versions="0"):
    """A member of a share group."""

    group_id: str = field()
    member_id: str = field()


class ShareGroupMemberMetadataValue(Message, api_key=10, versions="0", flexible="0+"):
    """Its subscription, its client and its rack."""

    rack_id: str | None = field()
    client_id: str = field()
    client_host: str = field()
    subscribed_topic_names: list[str] = field(about="The topics the member wants to read.")


class ShareGroupTargetAssignmentMetadataKey(Message, api_key=12, versions="0"):
    """A share group's target assignment."""

    group_id: str = field()


class ShareGroupTargetAssignmentMetadataValue(Message, api_key=12, versions="0", flexible="0+"):
    """The epoch in which it was computed."""

    assignment_epoch: int32 = field(about="The group epoch that the target assignment was computed for.")
    assignment_timestamp: int64 = field(tag=0, about="When the target assignment was computed.")


class ShareGroupTargetAssignmentMemberKey(Message, api_key=13, versions="0"):
    """A member in the target assignment."""

    group_id: str = field()
    member_id: str = field()


class ShareGroupTargetAssignmentMemberValue(Message, api_key=13, versions="0", flexible="0+"):
    """The partitions it is to have."""

    topic_partitions: list[TopicPartition] = field(about="What the member should read, by topic.")

    class TopicPartition(Struct):
        topic_id: Uuid = field()
        partitions: list[int32] = field(about="The partitions of the topic that it should read.")


class ShareGroupCurrentMemberAssignmentKey(Message, api_key=14, versions="0"):
    """A member in the current assignment."""

    group_id: str = field()
    member_id: str = field()


class ShareGroupCurrentMemberAssignmentValue(Message, api_key=14, versions="0", flexible="0+"):
    """The partitions it has."""

    member_epoch: int32 = field(about="The epoch that the member is to send with its next heartbeat.")
    previous_member_epoch: int32 = field(about="The epoch before: a member that missed the answer may still send it.")
    state: int8 = field(about="Whether the member has what it should have; in share groups it always does at once.")
    assigned_partitions: list[TopicPartitions] = field(about="What the member may read now, by topic.")

    class TopicPartitions(Struct):
        topic_id: Uuid = field()
        partitions: list[int32] = field(about="The partitions of the topic.")


class ShareGroupStatePartitionMetadataKey(Message, api_key=15, versions="0"):
    """A share group's partitions."""

    group_id: str = field()


class ShareGroupStatePartitionMetadataValue(Message, api_key=15, versions="0", flexible="0+"):
    """The partitions whose state is being initialized, is initialized, or is being deleted."""

    initializing_topics: list[TopicPartitionsInfo] = field(about="The partitions whose share state is being made.")
    initialized_topics: list[TopicPartitionsInfo] = field(about="The partitions that have share state.")
    deleting_topics: list[TopicInfo] = field(about="The topics whose share state is being deleted.")

    class TopicPartitionsInfo(Struct):
        topic_id: Uuid = field()
        topic_name: str = field()
        partitions: list[int32] = field(about="The partitions of the topic.")

    class TopicInfo(Struct):
        topic_id: Uuid = field()
        topic_name: str = field()
