"""Consumer groups, whose assignment the broker computes (KIP-848)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int8, int16, int32


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions="0-1", flexible="0+"):
    """Joins, stays in or leaves a group, and says what has changed since the last heartbeat."""

    group_id: str = field()
    member_id: str = field()
    member_epoch: int32 = field()
    instance_id: str | None = field(default=None)
    rack_id: str | None = field(default=None)
    rebalance_timeout_ms: int32 = field(default=-1)
    subscribed_topic_names: list[str] | None = field(default=None)
    subscribed_topic_regex: str | None = field("1+", default=None)
    server_assignor: str | None = field(default=None)
    topic_partitions: list[TopicPartitions] | None = field(default=None)

    class TopicPartitions(Struct):
        topic_id: Uuid = field()
        partitions: list[int32] = field()


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions="0-1", flexible="0+"):
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
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = field()


class ConsumerGroupDescribeRequest(Message, api_key=69, versions="0-1", flexible="0+"):
    """Asks for state and members of consumer groups."""

    group_ids: list[str] = field()
    include_authorized_operations: bool = field()


class ConsumerGroupDescribeResponse(Message, api_key=69, versions="0-1", flexible="0+"):
    """Describes the groups, with the current and the target assignment."""

    throttle_time_ms: int32 = field()
    groups: list[DescribedGroup] = field()

    class TopicPartitions(Struct):
        topic_id: Uuid = field()
        topic_name: str = field()
        partitions: list[int32] = field()

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = field()

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
            instance_id: str | None = field(default=None)
            rack_id: str | None = field(default=None)
            member_epoch: int32 = field()
            client_id: str = field()
            client_host: str = field()
            subscribed_topic_names: list[str] = field()
            subscribed_topic_regex: str | None = field(default=None)
            assignment: ConsumerGroupDescribeResponse.Assignment = field()
            target_assignment: ConsumerGroupDescribeResponse.Assignment = field()
            member_type: int8 = field("1+", default=-1)
