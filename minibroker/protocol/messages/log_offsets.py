"""The offsets of a log: by timestamp, by leader epoch, and deleting records below one."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int8, int16, int32, int64


class ListOffsetsRequest(Message, api_key=2, versions="0-11", flexible="6+"):
    """Asks for the offset of a timestamp. Negative timestamps stand for the earliest, the latest and other offsets."""

    replica_id: int32 = field()
    isolation_level: int8 = field("2+")
    topics: list[ListOffsetsTopic] = field()
    timeout_ms: int32 = field("10+")

    class ListOffsetsTopic(Struct):
        name: str = field()
        partitions: list[ListOffsetsPartition] = field()

        class ListOffsetsPartition(Struct):
            partition_index: int32 = field()
            current_leader_epoch: int32 = field("4+", default=-1)
            timestamp: int64 = field()
            max_num_offsets: int32 = field("0", default=1)


class ListOffsetsResponse(Message, api_key=2, versions="0-11", flexible="6+"):
    """Answers with the first offset at or after each timestamp. Version 0 answered with a list."""

    throttle_time_ms: int32 = field("2+")
    topics: list[ListOffsetsTopicResponse] = field()

    class ListOffsetsTopicResponse(Struct):
        name: str = field()
        partitions: list[ListOffsetsPartitionResponse] = field()

        class ListOffsetsPartitionResponse(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            old_style_offsets: list[int64] = field("0")
            timestamp: int64 = field("1+", default=-1)
            offset: int64 = field("1+", default=-1)
            leader_epoch: int32 = field("4+", default=-1)


class OffsetForLeaderEpochRequest(Message, api_key=23, versions="0-4", flexible="4+"):
    """Asks for the end offset of a leader epoch, to find where two logs diverge (KIP-101)."""

    replica_id: int32 = field("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = field()

    class OffsetForLeaderTopic(Struct):
        topic: str = field()
        partitions: list[OffsetForLeaderPartition] = field()

        class OffsetForLeaderPartition(Struct):
            partition: int32 = field()
            current_leader_epoch: int32 = field("2+", default=-1)
            leader_epoch: int32 = field()


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="0-4", flexible="4+"):
    """Answers with the largest epoch up to the requested one, and the offset after its last record."""

    throttle_time_ms: int32 = field("2+")
    topics: list[OffsetForLeaderTopicResult] = field()

    class OffsetForLeaderTopicResult(Struct):
        topic: str = field()
        partitions: list[EpochEndOffset] = field()

        class EpochEndOffset(Struct):
            error_code: int16 = field()
            partition: int32 = field()
            leader_epoch: int32 = field("1+", default=-1)
            end_offset: int64 = field(default=-1)


class DeleteRecordsRequest(Message, api_key=21, versions="0-2", flexible="2+"):
    """Asks to delete all records below an offset; -1 is the high watermark."""

    topics: list[DeleteRecordsTopic] = field()
    timeout_ms: int32 = field()

    class DeleteRecordsTopic(Struct):
        name: str = field()
        partitions: list[DeleteRecordsPartition] = field()

        class DeleteRecordsPartition(Struct):
            partition_index: int32 = field()
            offset: int64 = field()


class DeleteRecordsResponse(Message, api_key=21, versions="0-2", flexible="2+"):
    """Answers with the new log start offsets."""

    throttle_time_ms: int32 = field()
    topics: list[DeleteRecordsTopicResult] = field()

    class DeleteRecordsTopicResult(Struct):
        name: str = field()
        partitions: list[DeleteRecordsPartitionResult] = field()

        class DeleteRecordsPartitionResult(Struct):
            partition_index: int32 = field()
            low_watermark: int64 = field()
            error_code: int16 = field()
