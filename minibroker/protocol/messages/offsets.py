"""The offsets that groups commit outside of transactions."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int16, int32, int64


class OffsetCommitRequest(
    Message, api_key=8, versions="0-10", flexible="8+", kips={4: 219, 5: 211, 6: 320, 7: 345, 8: 482, 9: 848, 10: 848}
):
    """Asks to commit offsets of a group."""

    group_id: str = field()
    generation_id_or_member_epoch: int32 = field(
        "1+",
        default=-1,
        about="The generation or epoch in which the member read, so that an expelled one is refused; -1 for none.",
    )
    member_id: str = field(
        "1+", about="The member that commits; empty for a tool, or a consumer that assigns partitions to itself."
    )
    group_instance_id: str | None = field("7+", default=None)
    retention_time_ms: int64 = field(
        "2-4",
        default=-1,
        about="How long the broker keeps the offsets; since version 5 only its own configs decide that.",
    )
    topics: list[OffsetCommitRequestTopic] = field(about="The offsets to commit, by topic.")

    class OffsetCommitRequestTopic(Struct):
        name: str = field("0-9", about="The topic's name; version 10 sends the id instead.")
        topic_id: Uuid = field("10+")
        partitions: list[OffsetCommitRequestPartition] = field(
            about="The partitions of the topic, each with the position that its reader has reached."
        )

        class OffsetCommitRequestPartition(Struct):
            partition_index: int32 = field()
            committed_offset: int64 = field(
                about="The offset of the next record to read, so one more than the last one that was processed."
            )
            committed_leader_epoch: int32 = field(
                "6+",
                default=-1,
                about="The leader epoch of the last record read, by which readers notice a log that was cut off.",
            )
            commit_timestamp: int64 = field(
                "1",
                default=-1,
                about="The time of the commit, from which the retention counts; -1 for the broker's own time.",
            )
            committed_metadata: str | None = field(
                about="Anything the client wants to find beside the offset; the broker keeps it unread."
            )


class OffsetCommitResponse(
    Message, api_key=8, versions="0-10", flexible="8+", kips={3: 124, 4: 219, 7: 345, 8: 482, 9: 848, 10: 848}
):
    """Says for each partition whether its offset was committed."""

    throttle_time_ms: int32 = field("3+")
    topics: list[OffsetCommitResponseTopic] = field(about="The results, by topic.")

    class OffsetCommitResponseTopic(Struct):
        name: str = field("0-9", about="The topic's name; version 10 answers with the id instead.")
        topic_id: Uuid = field("10+")
        partitions: list[OffsetCommitResponsePartition] = field(about="A result for each partition of the topic.")

        class OffsetCommitResponsePartition(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()


class OffsetFetchRequest(
    Message,
    api_key=9,
    versions="0-10",
    flexible="6+",
    kips={2: 88, 4: 219, 5: 320, 6: 482, 7: 447, 8: 709, 9: 848, 10: 848},
):
    """Asks for the committed offsets of a group; from version 8 on, of several. Null topics stand for all topics."""

    group_id: str = field("0-7")
    topics: list[OffsetFetchRequestTopic] | None = field(
        "0-7",
        nullable="2-7",
        about="The partitions whose offsets are wanted; null, since version 2, asks for all of the group.",
    )
    groups: list[OffsetFetchRequestGroup] = field(
        "8+", about="The groups to ask for, as version 8 can ask a coordinator for many in one request."
    )
    require_stable: bool = field(
        "7+", about="Whether offsets that an open transaction is about to change are an error, to be asked for again."
    )

    class OffsetFetchRequestTopic(Struct):
        name: str = field(about="The topic these partitions belong to.")
        partition_indexes: list[int32] = field(about="The partitions of the topic whose offsets are wanted.")

    class OffsetFetchRequestGroup(Struct):
        group_id: str = field()
        member_id: str | None = field(
            "9+",
            default=None,
            about="The member that asks, if the group assigns on the broker; null for tools and for classic groups.",
        )
        member_epoch: int32 = field(
            "9+",
            default=-1,
            about="The member's epoch: an expelled member is refused; -1 for tools and for classic groups.",
        )
        topics: list[OffsetFetchRequestTopics] | None = field(
            about="The partitions whose offsets are wanted; null asks for all that the group has committed."
        )

        class OffsetFetchRequestTopics(Struct):
            name: str = field("8-9", about="The topic's name; version 10 sends the id instead.")
            topic_id: Uuid = field("10+")
            partition_indexes: list[int32] = field(about="The partitions of the topic whose offsets are wanted.")


class OffsetFetchResponse(
    Message,
    api_key=9,
    versions="0-10",
    flexible="6+",
    kips={2: 88, 3: 124, 4: 219, 5: 320, 6: 482, 7: 447, 8: 709, 9: 848, 10: 848},
):
    """Answers with the committed offsets, -1 for none."""

    throttle_time_ms: int32 = field("3+")
    topics: list[OffsetFetchResponseTopic] = field("0-7", about="The group's offsets, by topic.")
    error_code: int16 = field("2-7", about="An error of the whole group, such as NOT_COORDINATOR; else 0.")
    groups: list[OffsetFetchResponseGroup] = field(
        "8+", about="The answer for each group, with an error code of its own."
    )

    class OffsetFetchResponseTopic(Struct):
        name: str = field(about="The topic these partitions belong to.")
        partitions: list[OffsetFetchResponsePartition] = field(about="The offset of each partition that was asked for.")

        class OffsetFetchResponsePartition(Struct):
            partition_index: int32 = field()
            committed_offset: int64 = field(
                about="Where the group goes on reading; -1 if nothing is committed, so that the client decides."
            )
            committed_leader_epoch: int32 = field(
                "5-7",
                default=-1,
                about="The leader epoch of the last record read, to notice a log that was cut off since then.",
            )
            metadata: str | None = field(about="What the client had committed beside the offset.")
            error_code: int16 = field()

    class OffsetFetchResponseGroup(Struct):
        group_id: str = field()
        topics: list[OffsetFetchResponseTopics] = field(about="The group's offsets, by topic.")
        error_code: int16 = field(about="An error of the whole group, such as NOT_COORDINATOR; else 0.")

        class OffsetFetchResponseTopics(Struct):
            name: str = field("8-9", about="The topic's name; version 10 answers with the id instead.")
            topic_id: Uuid = field("10+")
            partitions: list[OffsetFetchResponsePartitions] = field(
                about="The offset of each partition that was asked for."
            )

            class OffsetFetchResponsePartitions(Struct):
                partition_index: int32 = field()
                committed_offset: int64 = field(
                    about="Where the group goes on reading; -1 if nothing is committed, so that the client decides."
                )
                committed_leader_epoch: int32 = field(
                    default=-1,
                    about="The leader epoch of the last record read, to notice a log that was cut off since then.",
                )
                metadata: str | None = field(about="What the client had committed beside the offset.")
                error_code: int16 = field()


class OffsetDeleteRequest(Message, api_key=47, versions="0", kips={0: 496}):
    """Asks to delete a group's offsets of partitions that it no longer reads."""

    group_id: str = field()
    topics: list[OffsetDeleteRequestTopic] = field(
        about="The partitions whose offsets to delete, by topic; no live member may be subscribed to the topic."
    )

    class OffsetDeleteRequestTopic(Struct):
        name: str = field(about="The topic these partitions belong to.")
        partitions: list[OffsetDeleteRequestPartition] = field(about="The partitions of the topic whose offsets go.")

        class OffsetDeleteRequestPartition(Struct):
            partition_index: int32 = field()


class OffsetDeleteResponse(Message, api_key=47, versions="0", kips={0: 496}):
    """Says for each partition whether its offset was deleted."""

    error_code: int16 = field(about="An error of the whole group, such as GROUP_ID_NOT_FOUND; else 0.")
    throttle_time_ms: int32 = field()
    topics: list[OffsetDeleteResponseTopic] = field(about="The results, by topic.")

    class OffsetDeleteResponseTopic(Struct):
        name: str = field(about="The topic these partitions belong to.")
        partitions: list[OffsetDeleteResponsePartition] = field(about="A result for each partition of the topic.")

        class OffsetDeleteResponsePartition(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
