"""Consumer groups, whose assignment the broker computes (KIP-848)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int8, int16, int32


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions="0-1", flexible="0+", kips={0: 848, 1: 848}):
    """Joins, stays in or leaves a group, and says what has changed since the last heartbeat."""

    group_id: str = field()
    member_id: str = field(
        about="The member: consumers make up a UUID themselves since version 1, and keep it as long as they run."
    )
    member_epoch: int32 = field(
        about="The epoch the member has reached: 0 joins, -1 leaves, -2 leaves for a moment as a static member."
    )
    instance_id: str | None = field(
        default=None, about="The name of a static member; null if it is none, or has said so before."
    )
    rack_id: str | None = field(
        default=None,
        about="The consumer's rack, so that it may get partitions close to it; null if it has not changed.",
    )
    rebalance_timeout_ms: int32 = field(
        default=-1,
        about="How long the coordinator waits for the member to give partitions up; -1 if it has not changed.",
    )
    subscribed_topic_names: list[str] | None = field(
        default=None, about="The topics the member wants to read; null if they have not changed."
    )
    subscribed_topic_regex: str | None = field(
        "1+",
        default=None,
        about="A pattern of topics to read, which the broker matches, by the rules of RE2; null if it has not changed.",
    )
    server_assignor: str | None = field(
        default=None,
        about='The broker\'s assignor the member would like, "uniform" or "range"; null for any, or no change.',
    )
    topic_partitions: list[TopicPartitions] | None = field(
        default=None, about="What the member holds now, which shows what it has let go; null if that has not changed."
    )

    class TopicPartitions(Struct):
        topic_id: Uuid = field()
        partitions: list[int32] = field(about="The partitions of the topic that the member holds.")


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions="0-1", flexible="0+", kips={0: 848, 1: 1082}):
    """Answers with the member's epoch and, if it has changed, its assignment."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    member_id: str | None = field(
        default=None,
        about="The member's id; in version 0 the coordinator makes it up for a member that comes without one.",
    )
    member_epoch: int32 = field(
        about="The epoch to send with the next heartbeat; it grows as the member follows the group's changes."
    )
    heartbeat_interval_ms: int32 = field(
        about="How long to wait before the next heartbeat: the broker's configs decide it, not the client's."
    )
    assignment: Assignment | None = field(
        default=None, about="The partitions the member may read now; null if they are still the same."
    )

    class TopicPartitions(Struct):
        topic_id: Uuid = field()
        partitions: list[int32] = field(about="The partitions of the topic that the member may read.")

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = field(
            about="All partitions the member should hold: it lets others go, and says so with the next heartbeat."
        )


class ConsumerGroupDescribeRequest(Message, api_key=69, versions="0-1", flexible="0+", kips={0: 848, 1: 1099}):
    """Asks for state and members of consumer groups."""

    group_ids: list[str] = field(about="The groups to describe; the broker that is asked must coordinate them.")
    include_authorized_operations: bool = field(
        about="Also asks which operations on each group the client has rights for."
    )


class ConsumerGroupDescribeResponse(Message, api_key=69, versions="0-1", flexible="0+", kips={0: 848, 1: 1099}):
    """Describes the groups, with the current and the target assignment."""

    throttle_time_ms: int32 = field()
    groups: list[DescribedGroup] = field(about="A description of each group, or its error.")

    class TopicPartitions(Struct):
        topic_id: Uuid = field()
        topic_name: str = field(about="What the topic is called, so that tools need not look the id up.")
        partitions: list[int32] = field(about="The partitions of the topic that belong to the member.")

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = field(about="The partitions, by topic.")

    class DescribedGroup(Struct):
        error_code: int16 = field()
        error_message: str | None = field(default=None)
        group_id: str = field()
        group_state: str = field(
            about="Where the group is: Empty, Assigning, Reconciling while members still move, Stable or Dead."
        )
        group_epoch: int32 = field(
            about="Grows when members, subscriptions or topics change, so that a new assignment is due."
        )
        assignment_epoch: int32 = field(about="The group epoch the current target assignment was computed for.")
        assignor_name: str = field(about='The broker\'s assignor that computes the target, "uniform" or "range".')
        members: list[Member] = field(about="The members, with what they hold and what they should get.")
        authorized_operations: int32 = field(default=-2147483648)

        class Member(Struct):
            member_id: str = field()
            instance_id: str | None = field(default=None)
            rack_id: str | None = field(default=None)
            member_epoch: int32 = field()
            client_id: str = field()
            client_host: str = field()
            subscribed_topic_names: list[str] = field(about="The topics the member asked for by name.")
            subscribed_topic_regex: str | None = field(
                default=None, about="The pattern of topics the member asked for; null if it named them."
            )
            assignment: ConsumerGroupDescribeResponse.Assignment = field(about="What the member holds now.")
            target_assignment: ConsumerGroupDescribeResponse.Assignment = field(
                about="What the member should hold once the others have let it go."
            )
            member_type: int8 = field(
                "1+",
                default=-1,
                about="The protocol it speaks: 1 is the new one, 0 the classic one while a group migrates.",
            )
