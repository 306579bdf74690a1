"""Fetching and acknowledging records as a member of a share group (KIP-932)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, RecordsOrRegion, Struct, Uuid, field, int8, int16, int32, int64


class ShareFetchRequest(Message, api_key=78, versions="0-2", flexible="0+", kips={0: 932, 1: 932, 2: 1206}):
    """Acquires records of share partitions, and may acknowledge earlier ones."""

    group_id: str | None = field(default=None, about="The share group; null would be none, which is an error.")
    member_id: str | None = field(about="The member that fetches: what it acquires is locked for it.")
    share_session_epoch: int32 = field(
        about="Counts the requests of the session: 0 opens one, -1 closes it, so that its locks end at once."
    )
    max_wait_ms: int32 = field(
        about="How long the broker holds the answer back while there are fewer than min_bytes to send."
    )
    min_bytes: int32 = field(about="How many bytes must be there before the broker answers early.")
    max_bytes: int32 = field(
        default=0x7FFFFFFF, about="How large all records of the answer may be; one batch is sent even if it is larger."
    )
    max_records: int32 = field(
        "1+", about="How many records to acquire at most, though with mode 0 batches are acquired whole."
    )
    batch_size: int32 = field("1+", about="How many records the client likes to have in one range of acquired records.")
    share_acquire_mode: int8 = field(
        "2+", about="0 may go beyond max_records to give whole batches, 1 keeps strictly to it."
    )
    is_renew_ack: bool = field(
        "2+", about="Whether some acknowledgements only renew a lock; no records are fetched then.", kip=1222
    )
    topics: list[FetchTopic] = field(about="What to fetch and to acknowledge, by topic; in a session only what is new.")
    forgotten_topics_data: list[ForgottenTopic] = field(about="The partitions that leave the session.")

    class FetchTopic(Struct):
        topic_id: Uuid = field()
        partitions: list[FetchPartition] = field(
            about="The partitions of the topic to fetch from, or to acknowledge in."
        )

        class FetchPartition(Struct):
            partition_index: int32 = field()
            partition_max_bytes: int32 = field(
                "0", about="How much to fetch from the partition at most, which only version 0 limits."
            )
            acknowledgement_batches: list[AcknowledgementBatch] = field(
                about="How records were processed that the member had acquired before."
            )

            class AcknowledgementBatch(Struct):
                first_offset: int64 = field(about="The first offset of a range that is acknowledged.")
                last_offset: int64 = field()
                acknowledge_types: list[int8] = field(
                    about="One for all, or one each: 0 a gap, 1 done, 2 give it to another, 3 reject, 4 renew the lock."
                )

    class ForgottenTopic(Struct):
        topic_id: Uuid = field()
        partitions: list[int32] = field(about="The partitions of the topic that leave the session.")


class ShareFetchResponse(Message, api_key=78, versions="0-2", flexible="0+", kips={0: 932, 1: 932, 2: 1206}):
    """Answers with batches, and with the ranges of offsets that were acquired."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    acquisition_lock_timeout_ms: int32 = field(
        "1+", about="How long the acquired records are locked for the member, before another may get them."
    )
    responses: list[ShareFetchableTopicResponse] = field(about="What was acquired, by topic.")
    node_endpoints: list[NodeEndpoint] = field(
        about="Where the new leaders are reached, if any partition was asked of the wrong broker."
    )

    class ShareFetchableTopicResponse(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionData] = field(about="What was acquired in each partition of the topic.")

        class PartitionData(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)
            acknowledge_error_code: int16 = field(
                about="Whether the acknowledgements were accepted, while error_code is about the fetch."
            )
            acknowledge_error_message: str | None = field(
                default=None, about="Why they were not, in words, for people."
            )
            current_leader: LeaderIdAndEpoch = field(
                about="The leader, if this broker is not it, which saves the client a Metadata request."
            )
            records: RecordsOrRegion | None = field(
                nullable="0",
                about="Whole batches, which may have records that were not acquired: the client skips these.",
            )
            acquired_records: list[AcquiredRecords] = field(about="The ranges of offsets that the member has acquired.")

            class LeaderIdAndEpoch(Struct):
                leader_id: int32 = field()
                leader_epoch: int32 = field()

            class AcquiredRecords(Struct):
                first_offset: int64 = field()
                last_offset: int64 = field()
                delivery_count: int16 = field(
                    about="How often these were delivered, with this time: the broker gives them up after a limit."
                )

    class NodeEndpoint(Struct):
        node_id: int32 = field()
        host: str = field()
        port: int32 = field()
        rack: str | None = field(default=None)


class ShareAcknowledgeRequest(Message, api_key=79, versions="0-2", flexible="0+", kips={0: 932, 1: 932, 2: 1222}):
    """Acknowledges acquired records: accepted, released, rejected, or still being processed."""

    group_id: str | None = field(default=None, about="The share group; null would be none, which is an error.")
    member_id: str | None = field(about="The member that had acquired the records.")
    share_session_epoch: int32 = field(
        about="Counts the requests of the session; -1 closes it, so that its locks end at once."
    )
    is_renew_ack: bool = field("2+", about="Whether some acknowledgements only renew a lock.")
    topics: list[AcknowledgeTopic] = field(about="How acquired records were processed, by topic.")

    class AcknowledgeTopic(Struct):
        topic_id: Uuid = field()
        partitions: list[AcknowledgePartition] = field(about="The partitions of the topic to acknowledge in.")

        class AcknowledgePartition(Struct):
            partition_index: int32 = field()
            acknowledgement_batches: list[AcknowledgementBatch] = field(
                about="How the acquired records were processed."
            )

            class AcknowledgementBatch(Struct):
                first_offset: int64 = field(about="The first offset of a range that is acknowledged.")
                last_offset: int64 = field()
                acknowledge_types: list[int8] = field(
                    about="One for all, or one each: 0 a gap, 1 done, 2 give it to another, 3 reject, 4 renew the lock."
                )


class ShareAcknowledgeResponse(Message, api_key=79, versions="0-2", flexible="0+", kips={0: 932, 1: 932, 2: 1222}):
    """Says for each partition whether the acknowledgement was accepted."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    acquisition_lock_timeout_ms: int32 = field("2+", about="How long renewed locks hold.")
    responses: list[ShareAcknowledgeTopicResponse] = field(about="The results, by topic.")
    node_endpoints: list[NodeEndpoint] = field(
        about="Where the new leaders are reached, if any partition was sent to the wrong broker."
    )

    class ShareAcknowledgeTopicResponse(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionData] = field(about="A result for each partition of the topic.")

        class PartitionData(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)
            current_leader: LeaderIdAndEpoch = field(
                about="The leader, if this broker is not it, which saves the client a Metadata request."
            )

            class LeaderIdAndEpoch(Struct):
                leader_id: int32 = field()
                leader_epoch: int32 = field()

    class NodeEndpoint(Struct):
        node_id: int32 = field()
        host: str = field()
        port: int32 = field()
        rack: str | None = field(default=None)
