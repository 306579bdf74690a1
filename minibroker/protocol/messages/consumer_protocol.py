"""The opaque bytes that consumers put into JoinGroup and SyncGroup requests.

A broker does not read them; tools that describe a group do. An int16 with the version precedes each message.
"""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int32


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """A member's information for the leader of its group: its topics, its partitions, its rack."""

    topics: list[str] = field()
    user_data: bytes | None = field(default=None)
    owned_partitions: list[TopicPartition] = field("1+")
    generation_id: int32 = field("2+", default=-1)
    rack_id: str | None = field("3+", default=None)

    class TopicPartition(Struct):
        topic: str = field()
        partitions: list[int32] = field()


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """The partitions that the leader assigns to a member."""

    assigned_partitions: list[TopicPartition] = field()
    user_data: bytes | None = field(default=None)

    class TopicPartition(Struct):
        topic: str = field()
        partitions: list[int32] = field()
