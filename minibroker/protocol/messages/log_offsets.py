"""The offsets of a log: by timestamp, by leader epoch, and deleting records below one."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int8, int16, int32, int64


class ListOffsetsRequest(
    Message,
    api_key=2,
    versions="0-11",
    flexible="6+",
    kips={1: 79, 2: 98, 3: 219, 4: 320, 5: 207, 6: 482, 7: 734, 8: 405, 9: 1005, 10: 1075, 11: 1023},
):
    """Asks for the offset of a timestamp. Negative timestamps stand for the earliest, the latest and other offsets."""

    replica_id: int32 = field(
        about="-1 for a client, which is shown offsets up to the high watermark; brokers send their own id."
    )
    isolation_level: int8 = field(
        "2+", about="With 1 (read_committed) the latest offset is the last stable one, else it is the high watermark."
    )
    topics: list[ListOffsetsTopic] = field(about="The partitions to look into, by topic.")
    timeout_ms: int32 = field("10+", about="How long the broker may search in remote storage, if the topic is tiered.")

    class ListOffsetsTopic(Struct):
        name: str = field(about="The topic these partitions belong to.")
        partitions: list[ListOffsetsPartition] = field(
            about="The partitions of the topic that this broker leads, each with the time to look for."
        )

        class ListOffsetsPartition(Struct):
            partition_index: int32 = field()
            current_leader_epoch: int32 = field(
                "4+",
                default=-1,
                about="The leader epoch the client knows: a broker with another one refuses; -1 for any.",
            )
            timestamp: int64 = field(
                about="Asks for the first record of this time or later; -1 is the log's end, -2 its start."
            )
            max_num_offsets: int32 = field("0", default=1, about="How many segment starts version 0 may answer with.")


class ListOffsetsResponse(
    Message,
    api_key=2,
    versions="0-11",
    flexible="6+",
    kips={1: 79, 2: 124, 3: 219, 4: 320, 5: 207, 6: 482, 7: 734, 8: 405, 9: 1005, 10: 1075, 11: 1023},
):
    """Answers with the first offset at or after each timestamp. Version 0 answered with a list."""

    throttle_time_ms: int32 = field("2+")
    topics: list[ListOffsetsTopicResponse] = field(about="The offsets that were found, by topic.")

    class ListOffsetsTopicResponse(Struct):
        name: str = field(about="The topic these partitions belong to.")
        partitions: list[ListOffsetsPartitionResponse] = field(about="What was found in each partition of the topic.")

        class ListOffsetsPartitionResponse(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            old_style_offsets: list[int64] = field(
                "0", about="Version 0: the starts of segments older than the time, and the log's end, newest first."
            )
            timestamp: int64 = field(
                "1+",
                default=-1,
                about="The time of the record that was found; -1 for the log's start or end, or if none was found.",
            )
            offset: int64 = field(
                "1+", default=-1, about="The offset that was asked for; -1 if no record is as new as the time."
            )
            leader_epoch: int32 = field(
                "4+",
                default=-1,
                about="The leader epoch of the record at the offset, to check the log when fetching from there.",
            )


class OffsetForLeaderEpochRequest(
    Message, api_key=23, versions="0-4", flexible="4+", kips={0: 101, 1: 279, 2: 320, 4: 482}
):
    """Asks for the end offset of a leader epoch, to find where two logs diverge (KIP-101)."""

    replica_id: int32 = field(
        "3+",
        default=-2,
        about="The follower that asks; -1 is a consumer, which sees up to the high watermark, and -2 sees all.",
    )
    topics: list[OffsetForLeaderTopic] = field(about="The partitions whose history is asked for, by topic.")

    class OffsetForLeaderTopic(Struct):
        topic: str = field()
        partitions: list[OffsetForLeaderPartition] = field(
            about="The partitions of the topic, each with an epoch that the asker has in its log."
        )

        class OffsetForLeaderPartition(Struct):
            partition: int32 = field()
            current_leader_epoch: int32 = field(
                "2+",
                default=-1,
                about="The leader epoch the client knows: a broker with another one refuses; -1 for any.",
            )
            leader_epoch: int32 = field(
                about="The epoch of the asker's last record, whose end in the leader's log it wants to know."
            )


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="0-4", flexible="4+", kips={0: 101, 1: 279, 4: 482}):
    """Answers with the largest epoch up to the requested one, and the offset after its last record."""

    throttle_time_ms: int32 = field("2+", kip=0)
    topics: list[OffsetForLeaderTopicResult] = field(about="The ends of the epochs, by topic.")

    class OffsetForLeaderTopicResult(Struct):
        topic: str = field()
        partitions: list[EpochEndOffset] = field(about="The answer for each partition of the topic.")

        class EpochEndOffset(Struct):
            error_code: int16 = field()
            partition: int32 = field()
            leader_epoch: int32 = field(
                "1+",
                default=-1,
                about="The epoch asked for, or the closest earlier one in the leader's log; -1 if there is none.",
            )
            end_offset: int64 = field(
                default=-1,
                about="Where that epoch ends here: whatever the asker has beyond it was lost, and is cut off.",
            )


class DeleteRecordsRequest(Message, api_key=21, versions="0-2", flexible="2+", kips={0: 107, 1: 219, 2: 482}):
    """Asks to delete all records below an offset; -1 is the high watermark."""

    topics: list[DeleteRecordsTopic] = field(
        about="The partitions to delete from, by topic; each must be led by the broker that is asked."
    )
    timeout_ms: int32 = field(about="How long the leader waits until all replicas have deleted the records, too.")

    class DeleteRecordsTopic(Struct):
        name: str = field(about="The topic these partitions belong to.")
        partitions: list[DeleteRecordsPartition] = field(
            about="The partitions of the topic, each with the offset up to which it is emptied."
        )

        class DeleteRecordsPartition(Struct):
            partition_index: int32 = field()
            offset: int64 = field(
                about="The first offset to keep; -1 is the high watermark, which empties the partition."
            )


class DeleteRecordsResponse(Message, api_key=21, versions="0-2", flexible="2+", kips={0: 107, 1: 219, 2: 482}):
    """Answers with the new log start offsets."""

    throttle_time_ms: int32 = field()
    topics: list[DeleteRecordsTopicResult] = field(about="What was deleted, by topic.")

    class DeleteRecordsTopicResult(Struct):
        name: str = field(about="The topic these partitions belong to.")
        partitions: list[DeleteRecordsPartitionResult] = field(about="The result for each partition of the topic.")

        class DeleteRecordsPartitionResult(Struct):
            partition_index: int32 = field()
            low_watermark: int64 = field(about="The first offset that is left; -1 if it failed.")
            error_code: int16 = field()
