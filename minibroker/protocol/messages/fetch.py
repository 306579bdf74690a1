"""Fetch: reading record batches, and the sessions that make repeated requests short (KIP-227)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, RecordsOrRegion, Struct, Uuid, field, int8, int16, int32, int64


class FetchRequest(Message, api_key=1, versions="0-18", flexible="12+"):
    """Asks for batches of partitions from given offsets on. In a session, it contains only changed partitions.

    `records_without_attributes` is not in Kafka, whose brokers ignore it: the client understands bit 7 of batches.
    """

    cluster_id: str | None = field("12+", tag=0, default=None)
    replica_id: int32 = field("0-14", default=-1)
    replica_state: ReplicaState | None = field("15+", nullable="none", tag=1)
    max_wait_ms: int32 = field()
    min_bytes: int32 = field()
    max_bytes: int32 = field("3+", default=0x7FFFFFFF)
    isolation_level: int8 = field("4+")
    session_id: int32 = field("7+")
    session_epoch: int32 = field("7+", default=-1)
    topics: list[FetchTopic] = field()
    forgotten_topics_data: list[ForgottenTopic] = field("7+")
    rack_id: str = field("11+")
    records_without_attributes: bool = field("12+", tag=10000, default=False)

    class ReplicaState(Struct):
        replica_id: int32 = field(default=-1)
        replica_epoch: int64 = field(default=-1)

    class FetchTopic(Struct):
        topic: str = field("0-12")
        topic_id: Uuid = field("13+")
        partitions: list[FetchPartition] = field()

        class FetchPartition(Struct):
            partition: int32 = field()
            current_leader_epoch: int32 = field("9+", default=-1)
            fetch_offset: int64 = field()
            last_fetched_epoch: int32 = field("12+", default=-1)
            log_start_offset: int64 = field("5+", default=-1)
            partition_max_bytes: int32 = field()
            replica_directory_id: Uuid = field("17+", tag=0)
            high_watermark: int64 = field("18+", tag=1, default=0x7FFFFFFFFFFFFFFF)

    class ForgottenTopic(Struct):
        topic: str = field("7-12")
        topic_id: Uuid = field("13+")
        partitions: list[int32] = field()


class FetchResponse(Message, api_key=1, versions="0-18", flexible="12+"):
    """Answers with whole batches. In a session, it contains only partitions with changes."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field("7+")
    session_id: int32 = field("7+")
    responses: list[FetchableTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field("16+", tag=0)

    class FetchableTopicResponse(Struct):
        topic: str = field("0-12")
        topic_id: Uuid = field("13+")
        partitions: list[PartitionData] = field()

        class PartitionData(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            high_watermark: int64 = field()
            last_stable_offset: int64 = field("4+", default=-1)
            log_start_offset: int64 = field("5+", default=-1)
            diverging_epoch: EpochEndOffset | None = field("12+", nullable="none", tag=0)
            current_leader: LeaderIdAndEpoch | None = field("12+", nullable="none", tag=1)
            snapshot_id: SnapshotId | None = field("12+", nullable="none", tag=2)
            aborted_transactions: list[AbortedTransaction] | None = field("4+")
            preferred_read_replica: int32 = field("11+", default=-1)
            records: RecordsOrRegion | None = field()

            class EpochEndOffset(Struct):
                epoch: int32 = field(default=-1)
                end_offset: int64 = field(default=-1)

            class LeaderIdAndEpoch(Struct):
                leader_id: int32 = field(default=-1)
                leader_epoch: int32 = field(default=-1)

            class SnapshotId(Struct):
                end_offset: int64 = field(default=-1)
                epoch: int32 = field(default=-1)

            class AbortedTransaction(Struct):
                producer_id: int64 = field()
                first_offset: int64 = field()

    class NodeEndpoint(Struct):
        node_id: int32 = field()
        host: str = field()
        port: int32 = field()
        rack: str | None = field(default=None)
