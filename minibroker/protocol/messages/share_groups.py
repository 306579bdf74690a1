"""Share groups: members, descriptions and offsets (KIP-932)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int16, int32, int64


class ShareGroupHeartbeatRequest(Message, api_key=76, versions="0-1", flexible="0+"):
    """Joins, stays in or leaves a share group."""

    group_id: str = field()
    member_id: str = field()
    member_epoch: int32 = field()
    rack_id: str | None = field(default=None)
    subscribed_topic_names: list[str] | None = field(default=None)


class ShareGroupHeartbeatResponse(Message, api_key=76, versions="0-1", flexible="0+"):
    """Answers with the member's epoch and, if it has changed, its assignment."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    member_id: str | None = field(default=None)
    member_epoch: int32 = field()
    heartbeat_interval_ms: int32 = field()
    assignment: Assignment | None = field(default=None)

    class TopicPartitions(Struct):
        topic_id: Uuid = field()
        partitions: list[int32] = field()

    class Assignment(Struct):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions] = field()


class ShareGroupDescribeRequest(Message, api_key=77, versions="0-1", flexible="0+"):
    """Asks for state and members of share groups."""

    group_ids: list[str] = field()
    include_authorized_operations: bool = field()


class ShareGroupDescribeResponse(Message, api_key=77, versions="0-1", flexible="0+"):
    """Describes the groups."""

    throttle_time_ms: int32 = field()
    groups: list[DescribedGroup] = field()

    class TopicPartitions(Struct):
        topic_id: Uuid = field()
        topic_name: str = field()
        partitions: list[int32] = field()

    class Assignment(Struct):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = field()

    class DescribedGroup(Struct):
        error_code: int16 = field()
        error_message: str | None = field(default=None)
        group_id: str = field()
        group_state: str = field()
        group_epoch: int32 = field()
        assignment_epoch: int32 = field()
        assignor_name: str = field()
        members: list[Member] = field()
        authorized_operations: int32 = field(default=-2147483648)

        class Member(Struct):
            member_id: str = field()
            rack_id: str | None = field(default=None)
            member_epoch: int32 = field()
            client_id: str = field()
            client_host: str = field()
            subscribed_topic_names: list[str] = field()
            assignment: ShareGroupDescribeResponse.Assignment = field()


class DescribeShareGroupOffsetsRequest(Message, api_key=90, versions="0-1", flexible="0+"):
    """Asks for the start offsets of share groups. Null topics stand for all topics."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = field()

    class DescribeShareGroupOffsetsRequestGroup(Struct):
        group_id: str = field()
        topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field()

        class DescribeShareGroupOffsetsRequestTopic(Struct):
            topic_name: str = field()
            partitions: list[int32] = field()


class DescribeShareGroupOffsetsResponse(Message, api_key=90, versions="0-1", flexible="0+"):
    """Answers with the start offset of each partition."""

    throttle_time_ms: int32 = field()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field()

    class DescribeShareGroupOffsetsResponseGroup(Struct):
        group_id: str = field()
        topics: list[DescribeShareGroupOffsetsResponseTopic] = field()
        error_code: int16 = field()
        error_message: str | None = field(default=None)

        class DescribeShareGroupOffsetsResponseTopic(Struct):
            topic_name: str = field()
            topic_id: Uuid = field()
            partitions: list[DescribeShareGroupOffsetsResponsePartition] = field()

            class DescribeShareGroupOffsetsResponsePartition(Struct):
                partition_index: int32 = field()
                start_offset: int64 = field()
                leader_epoch: int32 = field()
                lag: int64 = field("1+", default=-1)
                error_code: int16 = field()
                error_message: str | None = field(default=None)


class AlterShareGroupOffsetsRequest(Message, api_key=91, versions="0", flexible="0+"):
    """Asks to change the start offsets of a share group."""

    group_id: str = field()
    topics: list[AlterShareGroupOffsetsRequestTopic] = field()

    class AlterShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = field()
        partitions: list[AlterShareGroupOffsetsRequestPartition] = field()

        class AlterShareGroupOffsetsRequestPartition(Struct):
            partition_index: int32 = field()
            start_offset: int64 = field()


class AlterShareGroupOffsetsResponse(Message, api_key=91, versions="0", flexible="0+"):
    """Says for each partition whether its offset was changed."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = field()

    class AlterShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = field()
        topic_id: Uuid = field()
        partitions: list[AlterShareGroupOffsetsResponsePartition] = field()

        class AlterShareGroupOffsetsResponsePartition(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)


class DeleteShareGroupOffsetsRequest(Message, api_key=92, versions="0", flexible="0+"):
    """Asks to delete a share group's offsets in some topics."""

    group_id: str = field()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field()

    class DeleteShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = field()


class DeleteShareGroupOffsetsResponse(Message, api_key=92, versions="0", flexible="0+"):
    """Says for each topic whether its offsets were deleted."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field()

    class DeleteShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = field()
        topic_id: Uuid = field()
        error_code: int16 = field()
        error_message: str | None = field(default=None)
