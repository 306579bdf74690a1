"""The offsets that groups commit outside of transactions."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int16, int32, int64


class OffsetCommitRequest(Message, api_key=8, versions="0-10", flexible="8+"):
    """Asks to commit offsets of a group."""

    group_id: str = field()
    generation_id_or_member_epoch: int32 = field("1+", default=-1)
    member_id: str = field("1+")
    group_instance_id: str | None = field("7+", default=None)
    retention_time_ms: int64 = field("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = field()

    class OffsetCommitRequestTopic(Struct):
        name: str = field("0-9")
        topic_id: Uuid = field("10+")
        partitions: list[OffsetCommitRequestPartition] = field()

        class OffsetCommitRequestPartition(Struct):
            partition_index: int32 = field()
            committed_offset: int64 = field()
            committed_leader_epoch: int32 = field("6+", default=-1)
            commit_timestamp: int64 = field("1", default=-1)
            committed_metadata: str | None = field()


class OffsetCommitResponse(Message, api_key=8, versions="0-10", flexible="8+"):
    """Says for each partition whether its offset was committed."""

    throttle_time_ms: int32 = field("3+")
    topics: list[OffsetCommitResponseTopic] = field()

    class OffsetCommitResponseTopic(Struct):
        name: str = field("0-9")
        topic_id: Uuid = field("10+")
        partitions: list[OffsetCommitResponsePartition] = field()

        class OffsetCommitResponsePartition(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()


class OffsetFetchRequest(Message, api_key=9, versions="0-10", flexible="6+"):
    """Asks for the committed offsets of a group; from version 8 on, of several. Null topics stand for all topics."""

    group_id: str = field("0-7")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field("8+")
    require_stable: bool = field("7+")

    class OffsetFetchRequestTopic(Struct):
        name: str = field()
        partition_indexes: list[int32] = field()

    class OffsetFetchRequestGroup(Struct):
        group_id: str = field()
        member_id: str | None = field("9+", default=None)
        member_epoch: int32 = field("9+", default=-1)
        topics: list[OffsetFetchRequestTopics] | None = field()

        class OffsetFetchRequestTopics(Struct):
            name: str = field("8-9")
            topic_id: Uuid = field("10+")
            partition_indexes: list[int32] = field()


class OffsetFetchResponse(Message, api_key=9, versions="0-10", flexible="6+"):
    """Answers with the committed offsets, -1 for none."""

    throttle_time_ms: int32 = field("3+")
    topics: list[OffsetFetchResponseTopic] = field("0-7")
    error_code: int16 = field("2-7")
    groups: list[OffsetFetchResponseGroup] = field("8+")

    class OffsetFetchResponseTopic(Struct):
        name: str = field()
        partitions: list[OffsetFetchResponsePartition] = field()

        class OffsetFetchResponsePartition(Struct):
            partition_index: int32 = field()
            committed_offset: int64 = field()
            committed_leader_epoch: int32 = field("5-7", default=-1)
            metadata: str | None = field()
            error_code: int16 = field()

    class OffsetFetchResponseGroup(Struct):
        group_id: str = field()
        topics: list[OffsetFetchResponseTopics] = field()
        error_code: int16 = field()

        class OffsetFetchResponseTopics(Struct):
            name: str = field("8-9")
            topic_id: Uuid = field("10+")
            partitions: list[OffsetFetchResponsePartitions] = field()

            class OffsetFetchResponsePartitions(Struct):
                partition_index: int32 = field()
                committed_offset: int64 = field()
                committed_leader_epoch: int32 = field(default=-1)
                metadata: str | None = field()
                error_code: int16 = field()


class OffsetDeleteRequest(Message, api_key=47, versions="0"):
    """Asks to delete a group's offsets of partitions that it no longer reads."""

    group_id: str = field()
    topics: list[OffsetDeleteRequestTopic] = field()

    class OffsetDeleteRequestTopic(Struct):
        name: str = field()
        partitions: list[OffsetDeleteRequestPartition] = field()

        class OffsetDeleteRequestPartition(Struct):
            partition_index: int32 = field()


class OffsetDeleteResponse(Message, api_key=47, versions="0"):
    """Says for each partition whether its offset was deleted."""

    error_code: int16 = field()
    throttle_time_ms: int32 = field()
    topics: list[OffsetDeleteResponseTopic] = field()

    class OffsetDeleteResponseTopic(Struct):
        name: str = field()
        partitions: list[OffsetDeleteResponsePartition] = field()

        class OffsetDeleteResponsePartition(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
