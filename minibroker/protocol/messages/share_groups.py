"""Share groups: members, descriptions and offsets (KIP-932)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int16, int32, int64


class ShareGroupHeartbeatRequest(Message, api_key=76, versions="0-1", flexible="0+", kips={0: 932, 1: 932}):
    """Joins, stays in or leaves a share group."""

    group_id: str = field()
    member_id: str = field(about="The member: it makes up a UUID itself, and keeps it as long as it runs.")
    member_epoch: int32 = field(about="The epoch the member has reached: 0 joins, -1 leaves.")
    rack_id: str | None = field(default=None, about="The member's rack; null if it has not changed.")
    subscribed_topic_names: list[str] | None = field(
        default=None, about="The topics the member wants to read; null if they have not changed."
    )


class ShareGroupHeartbeatResponse(Message, api_key=76, versions="0-1", flexible="0+", kips={0: 932, 1: 932}):
    """Answers with the member's epoch and, if it has changed, its assignment."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    member_id: str | None = field(default=None)
    member_epoch: int32 = field(about="The epoch to send with the next heartbeat.")
    heartbeat_interval_ms: int32 = field(
        about="How long to wait before the next heartbeat: the broker's configs decide it, not the client's."
    )
    assignment: Assignment | None = field(
        default=None, about="The partitions the member should fetch from; null if they are still the same."
    )

    class TopicPartitions(Struct):
        topic_id: Uuid = field()
        partitions: list[int32] = field(about="The partitions of the topic that the member should fetch from.")

    class Assignment(Struct):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions] = field(
            about="The partitions, by topic; several members may have the same ones."
        )


class ShareGroupDescribeRequest(Message, api_key=77, versions="0-1", flexible="0+", kips={0: 932, 1: 932}):
    """Asks for state and members of share groups."""

    group_ids: list[str] = field(about="The groups to describe; the broker that is asked must coordinate them.")
    include_authorized_operations: bool = field(
        about="Also asks which operations on each group the client has rights for."
    )


class ShareGroupDescribeResponse(Message, api_key=77, versions="0-1", flexible="0+", kips={0: 932, 1: 932}):
    """Describes the groups."""

    throttle_time_ms: int32 = field()
    groups: list[DescribedGroup] = field(about="A description of each group, or its error.")

    class TopicPartitions(Struct):
        topic_id: Uuid = field()
        topic_name: str = field(about="What the topic is called, so that tools need not look the id up.")
        partitions: list[int32] = field(about="The partitions of the topic that the member fetches from.")

    class Assignment(Struct):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = field(about="The partitions, by topic.")

    class DescribedGroup(Struct):
        error_code: int16 = field()
        error_message: str | None = field(default=None)
        group_id: str = field()
        group_state: str = field(about="Where the group is in its life: Empty, Stable or Dead.")
        group_epoch: int32 = field(
            about="Grows when members, subscriptions or topics change, so that a new assignment is due."
        )
        assignment_epoch: int32 = field(about="The group epoch the current target assignment was computed for.")
        assignor_name: str = field(about="The broker's assignor, which spreads partitions over members.")
        members: list[Member] = field(about="The members, with what they fetch from.")
        authorized_operations: int32 = field(default=-2147483648)

        class Member(Struct):
            member_id: str = field()
            rack_id: str | None = field(default=None)
            member_epoch: int32 = field()
            client_id: str = field()
            client_host: str = field()
            subscribed_topic_names: list[str] = field(about="The topics the member asked for.")
            assignment: ShareGroupDescribeResponse.Assignment = field(about="What the member fetches from.")


class DescribeShareGroupOffsetsRequest(Message, api_key=90, versions="0-1", flexible="0+", kips={0: 932, 1: 1226}):
    """Asks for the start offsets of share groups. Null topics stand for all topics."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(
        about="The groups to describe, and which of their partitions."
    )

    class DescribeShareGroupOffsetsRequestGroup(Struct):
        group_id: str = field()
        topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(
            about="The partitions to describe, by topic; null for all of the group."
        )

        class DescribeShareGroupOffsetsRequestTopic(Struct):
            topic_name: str = field(about="The topic these partitions belong to.")
            partitions: list[int32] = field(about="The partitions of the topic to describe.")


class DescribeShareGroupOffsetsResponse(Message, api_key=90, versions="0-1", flexible="0+", kips={0: 932, 1: 1226}):
    """Answers with the start offset of each partition."""

    throttle_time_ms: int32 = field()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(about="The answer for each group.")

    class DescribeShareGroupOffsetsResponseGroup(Struct):
        group_id: str = field()
        topics: list[DescribeShareGroupOffsetsResponseTopic] = field(about="The group's offsets, by topic.")
        error_code: int16 = field()
        error_message: str | None = field(default=None)

        class DescribeShareGroupOffsetsResponseTopic(Struct):
            topic_name: str = field(about="The topic these partitions belong to.")
            topic_id: Uuid = field()
            partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(
                about="The offset of each partition of the topic."
            )

            class DescribeShareGroupOffsetsResponsePartition(Struct):
                partition_index: int32 = field()
                start_offset: int64 = field(
                    about="The first offset the group may still deliver: all before it are settled; -1 if unknown."
                )
                leader_epoch: int32 = field()
                lag: int64 = field("1+", default=-1, about="How many records are not settled yet; -1 if unknown.")
                error_code: int16 = field()
                error_message: str | None = field(default=None)


class AlterShareGroupOffsetsRequest(Message, api_key=91, versions="0", flexible="0+", kips={0: 932}):
    """Asks to change the start offsets of a share group."""

    group_id: str = field()
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(
        about="The offsets to set, by topic; the group must have no members."
    )

    class AlterShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = field(about="The topic these partitions belong to.")
        partitions: list[AlterShareGroupOffsetsRequestPartition] = field(
            about="The partitions of the topic, each with its new offset."
        )

        class AlterShareGroupOffsetsRequestPartition(Struct):
            partition_index: int32 = field()
            start_offset: int64 = field(
                about="The offset to deliver from; what was known of single records is forgotten."
            )


class AlterShareGroupOffsetsResponse(Message, api_key=91, versions="0", flexible="0+", kips={0: 932}):
    """Says for each partition whether its offset was changed."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(about="The results, by topic.")

    class AlterShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = field(about="The topic these partitions belong to.")
        topic_id: Uuid = field()
        partitions: list[AlterShareGroupOffsetsResponsePartition] = field(
            about="A result for each partition of the topic."
        )

        class AlterShareGroupOffsetsResponsePartition(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)


class DeleteShareGroupOffsetsRequest(Message, api_key=92, versions="0", flexible="0+", kips={0: 932}):
    """Asks to delete a share group's offsets in some topics."""

    group_id: str = field()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(
        about="The topics whose share state to delete; the group must have no members."
    )

    class DeleteShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = field()


class DeleteShareGroupOffsetsResponse(Message, api_key=92, versions="0", flexible="0+", kips={0: 932}):
    """Says for each topic whether its offsets were deleted."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(about="A result for each topic of the request.")

    class DeleteShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = field(about="The topic this is the result of.")
        topic_id: Uuid = field()
        error_code: int16 = field()
        error_message: str | None = field(default=None)
