"""The opaque bytes that consumers put into JoinGroup and SyncGroup requests.

A broker does not read them; tools that describe a group do. An int16 with the version precedes each message.
"""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int32


class ConsumerProtocolSubscription(Message, versions="0-3", kips={1: 429, 2: 792, 3: 881}):
    """A member's information for the leader of its group: its topics, its partitions, its rack."""

    topics: list[str] = field(about="The topics that the member wants to read.")
    user_data: bytes | None = field(
        default=None, about="Whatever the assignor wants to know, such as what the sticky one had assigned before."
    )
    owned_partitions: list[TopicPartition] = field(
        "1+", about="What the member holds now, so that a cooperative assignor lets it keep as much as possible."
    )
    generation_id: int32 = field(
        "2+",
        default=-1,
        about="The generation the member got its partitions in, so that an outdated claim does not count.",
    )
    rack_id: str | None = field(
        "3+", default=None, about="The member's rack, so that it may get partitions with a replica close by."
    )

    class TopicPartition(Struct):
        topic: str = field()
        partitions: list[int32] = field(about="The partitions of the topic that the member holds.")


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """The partitions that the leader assigns to a member."""

    assigned_partitions: list[TopicPartition] = field(about="What the member should read from now on, by topic.")
    user_data: bytes | None = field(default=None, about="Whatever the assignor wants to tell the member.")

    class TopicPartition(Struct):
        topic: str = field()
        partitions: list[int32] = field(about="The partitions of the topic that the member should read.")
