"""Fetching and acknowledging records as a member of a share group (KIP-932)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, RecordsOrRegion, Struct, Uuid, field, int8, int16, int32, int64


class ShareFetchRequest(Message, api_key=78, versions="0-2", flexible="0+"):
    """Acquires records of share partitions, and may acknowledge earlier ones."""

    group_id: str | None = field(default=None)
    member_id: str | None = field()
    share_session_epoch: int32 = field()
    max_wait_ms: int32 = field()
    min_bytes: int32 = field()
    max_bytes: int32 = field(default=0x7FFFFFFF)
    max_records: int32 = field("1+")
    batch_size: int32 = field("1+")
    share_acquire_mode: int8 = field("2+")
    is_renew_ack: bool = field("2+")
    topics: list[FetchTopic] = field()
    forgotten_topics_data: list[ForgottenTopic] = field()

    class FetchTopic(Struct):
        topic_id: Uuid = field()
        partitions: list[FetchPartition] = field()

        class FetchPartition(Struct):
            partition_index: int32 = field()
            partition_max_bytes: int32 = field("0")
            acknowledgement_batches: list[AcknowledgementBatch] = field()

            class AcknowledgementBatch(Struct):
                first_offset: int64 = field()
                last_offset: int64 = field()
                acknowledge_types: list[int8] = field()

    class ForgottenTopic(Struct):
        topic_id: Uuid = field()
        partitions: list[int32] = field()


class ShareFetchResponse(Message, api_key=78, versions="0-2", flexible="0+"):
    """Answers with batches, and with the ranges of offsets that were acquired."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    acquisition_lock_timeout_ms: int32 = field("1+")
    responses: list[ShareFetchableTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field()

    class ShareFetchableTopicResponse(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionData] = field()

        class PartitionData(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)
            acknowledge_error_code: int16 = field()
            acknowledge_error_message: str | None = field(default=None)
            current_leader: LeaderIdAndEpoch = field()
            records: RecordsOrRegion | None = field(nullable="0")
            acquired_records: list[AcquiredRecords] = field()

            class LeaderIdAndEpoch(Struct):
                leader_id: int32 = field()
                leader_epoch: int32 = field()

            class AcquiredRecords(Struct):
                first_offset: int64 = field()
                last_offset: int64 = field()
                delivery_count: int16 = field()

    class NodeEndpoint(Struct):
        node_id: int32 = field()
        host: str = field()
        port: int32 = field()
        rack: str | None = field(default=None)


class ShareAcknowledgeRequest(Message, api_key=79, versions="0-2", flexible="0+"):
    """Acknowledges acquired records: accepted, released, rejected, or still being processed."""

    group_id: str | None = field(default=None)
    member_id: str | None = field()
    share_session_epoch: int32 = field()
    is_renew_ack: bool = field("2+")
    topics: list[AcknowledgeTopic] = field()

    class AcknowledgeTopic(Struct):
        topic_id: Uuid = field()
        partitions: list[AcknowledgePartition] = field()

        class AcknowledgePartition(Struct):
            partition_index: int32 = field()
            acknowledgement_batches: list[AcknowledgementBatch] = field()

            class AcknowledgementBatch(Struct):
                first_offset: int64 = field()
                last_offset: int64 = field()
                acknowledge_types: list[int8] = field()


class ShareAcknowledgeResponse(Message, api_key=79, versions="0-2", flexible="0+"):
    """Says for each partition whether the acknowledgement was accepted."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    acquisition_lock_timeout_ms: int32 = field("2+")
    responses: list[ShareAcknowledgeTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field()

    class ShareAcknowledgeTopicResponse(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionData] = field()

        class PartitionData(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)
            current_leader: LeaderIdAndEpoch = field()

            class LeaderIdAndEpoch(Struct):
                leader_id: int32 = field()
                leader_epoch: int32 = field()

    class NodeEndpoint(Struct):
        node_id: int32 = field()
        host: str = field()
        port: int32 = field()
        rack: str | None = field(default=None)
