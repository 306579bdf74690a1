"""Fetch: reading record batches, and the sessions that make repeated requests short (KIP-227)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, RecordsOrRegion, Struct, Uuid, field, int8, int16, int32, int64


class FetchRequest(
    Message,
    api_key=1,
    versions="0-18",
    flexible="12+",
    kips={
        2: 32,
        3: 74,
        4: 98,
        5: 107,
        6: 112,
        7: 227,
        8: 219,
        9: 320,
        10: 110,
        11: 392,
        12: 595,
        13: 516,
        14: 405,
        15: 903,
        16: 951,
        17: 853,
        18: 1166,
    },
):
    """Asks for batches of partitions from given offsets on. In a session, it contains only changed partitions.

    `records_without_attributes` is not in Kafka, whose brokers ignore it: the client understands bit 7 of batches.
    """

    cluster_id: str | None = field(
        "12+",
        tag=0,
        default=None,
        about="The cluster that the sender believes to talk to; controllers refuse replicas of any other.",
    )
    replica_id: int32 = field(
        "0-14",
        default=-1,
        about="The broker that copies the partitions; -1 for a consumer, which reads only below the high watermark.",
    )
    replica_state: ReplicaState | None = field(
        "15+", nullable="none", tag=1, about="Who copies the partitions; consumers leave it out."
    )
    max_wait_ms: int32 = field(
        about="How long the broker holds the answer back while there are fewer than min_bytes to send."
    )
    min_bytes: int32 = field(
        about="How many bytes must be there before the broker answers early; with 1 it waits for anything at all."
    )
    max_bytes: int32 = field(
        "3+",
        default=0x7FFFFFFF,
        about="How large all records of the answer may be; the first batch is sent even if it is larger.",
    )
    isolation_level: int8 = field(
        "4+",
        about="1 (read_committed) hides what lies after the first open transaction; 0 shows all that is replicated.",
    )
    session_id: int32 = field(
        "7+",
        about="The fetch session that this request continues, so that only changed partitions are listed; 0 for none.",
    )
    session_epoch: int32 = field(
        "7+",
        default=-1,
        about="Counts the requests of the session; 0 asks for a new session, and -1 ends it or wants none.",
    )
    topics: list[FetchTopic] = field(
        about="What to read; in a session only partitions that are new in it, or whose positions have moved."
    )
    forgotten_topics_data: list[ForgottenTopic] = field(
        "7+", about="The partitions that leave the session, because the client does not read them any more."
    )
    rack_id: str = field(
        "11+", about="The consumer's rack, for which the leader may name a closer replica to read from."
    )
    records_without_attributes: bool = field(
        "12+",
        tag=10000,
        default=False,
        about="Not in Kafka: says that the client understands batches whose records have no attributes byte.",
        kip=0,
    )

    class ReplicaState(Struct):
        replica_id: int32 = field(default=-1, about="The broker that copies; -1 is a consumer.")
        replica_epoch: int64 = field(
            default=-1,
            about="The broker's registration, so that one that was restarted is not taken for its older self.",
        )

    class FetchTopic(Struct):
        topic: str = field("0-12", about="The topic's name; version 13 sends the id instead.")
        topic_id: Uuid = field("13+")
        partitions: list[FetchPartition] = field(
            about="The partitions to read; their order decides which ones max_bytes leaves empty."
        )

        class FetchPartition(Struct):
            partition: int32 = field(about="The partition to read, counted from 0.")
            current_leader_epoch: int32 = field(
                "9+",
                default=-1,
                about="The leader epoch the client knows: a broker with another one refuses; -1 for any.",
            )
            fetch_offset: int64 = field(
                about="The first offset that is wanted; the batch that contains it is sent whole."
            )
            last_fetched_epoch: int32 = field(
                "12+",
                default=-1,
                about="The leader epoch of the replica's last record, to find where the two logs part.",
            )
            log_start_offset: int64 = field(
                "5+",
                default=-1,
                about="The first offset that the follower has, which tells the leader what all have deleted.",
            )
            partition_max_bytes: int32 = field(
                about="How much of this partition may be sent; only the first batch of the answer may be larger."
            )
            replica_directory_id: Uuid = field(
                "17+",
                tag=0,
                about="The log directory of the controller that copies, which is part of a voter's identity.",
            )
            high_watermark: int64 = field(
                "18+",
                tag=1,
                default=0x7FFFFFFFFFFFFFFF,
                about="The high watermark that the replica knows, so that the leader answers at once if it has moved.",
            )

    class ForgottenTopic(Struct):
        topic: str = field("7-12", about="The topic's name; version 13 sends the id instead.")
        topic_id: Uuid = field("13+")
        partitions: list[int32] = field(about="The partitions of the topic that leave the session.")


class FetchResponse(
    Message,
    api_key=1,
    versions="0-18",
    flexible="12+",
    kips={4: 98, 5: 107, 6: 112, 7: 227, 8: 219, 10: 110, 11: 392, 12: 595, 13: 516, 14: 405, 16: 951},
):
    """Answers with whole batches. In a session, it contains only partitions with changes."""

    throttle_time_ms: int32 = field("1+", kip=13)
    error_code: int16 = field(
        "7+", about="An error of the whole request, such as a session that the broker does not know any more."
    )
    session_id: int32 = field("7+", about="The session to continue with the next request; 0 if the broker keeps none.")
    responses: list[FetchableTopicResponse] = field(
        about="The records, by topic; in a session only partitions with records, an error or a moved watermark."
    )
    node_endpoints: list[NodeEndpoint] = field(
        "16+", tag=0, about="Where the new leaders are reached, if any partition was asked of the wrong broker."
    )

    class FetchableTopicResponse(Struct):
        topic: str = field("0-12", about="The topic's name; version 13 answers with the id instead.")
        topic_id: Uuid = field("13+")
        partitions: list[PartitionData] = field(about="What was read of each partition of the topic.")

        class PartitionData(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            high_watermark: int64 = field(
                about="The offset up to which all replicas in sync have the log; consumers see nothing from it on."
            )
            last_stable_offset: int64 = field(
                "4+",
                default=-1,
                about="Where the oldest open transaction begins, else the high watermark: read_committed ends here.",
            )
            log_start_offset: int64 = field(
                "5+",
                default=-1,
                about="The first offset that is still in the log; who asks for an older one gets OFFSET_OUT_OF_RANGE.",
            )
            diverging_epoch: EpochEndOffset | None = field(
                "12+",
                nullable="none",
                tag=0,
                about="Tells a follower where its log parts from the leader's: it cuts off the rest, and asks again.",
            )
            current_leader: LeaderIdAndEpoch | None = field(
                "12+",
                nullable="none",
                tag=1,
                about="The leader, if this broker is not it, which saves the client a Metadata request.",
            )
            snapshot_id: SnapshotId | None = field(
                "12+",
                nullable="none",
                tag=2,
                about="The snapshot that a replica of the metadata log must load, as the log begins after its offset.",
                kip=630,
            )
            aborted_transactions: list[AbortedTransaction] | None = field(
                "4+",
                about="The aborted transactions among these records, which a read_committed consumer drops itself.",
            )
            preferred_read_replica: int32 = field(
                "11+",
                default=-1,
                about="A broker closer to the consumer, which it should read this partition from; -1 for none.",
            )
            records: RecordsOrRegion | None = field(
                about="Whole batches as they lie in the log; the first may begin before the offset that was asked for."
            )

            class EpochEndOffset(Struct):
                epoch: int32 = field(default=-1, about="The last leader epoch that both logs may have in common.")
                end_offset: int64 = field(default=-1, about="Where that epoch ends in the leader's log.")

            class LeaderIdAndEpoch(Struct):
                leader_id: int32 = field(
                    default=-1, about="The broker that leads the partition now; -1 if it is not known."
                )
                leader_epoch: int32 = field(default=-1)

            class SnapshotId(Struct):
                end_offset: int64 = field(default=-1, about="The offset up to which the snapshot contains the log.")
                epoch: int32 = field(default=-1, about="The leader epoch of the last record in the snapshot.")

            class AbortedTransaction(Struct):
                producer_id: int64 = field(
                    about="The producer whose records are dropped, from first_offset up to its next abort marker."
                )
                first_offset: int64 = field(about="Where the transaction's first record is.")

    class NodeEndpoint(Struct):
        node_id: int32 = field()
        host: str = field()
        port: int32 = field()
        rack: str | None = field(default=None)
