"""Producer ids and transactions: requests of producers, of coordinators to brokers, and of tools."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int8, int16, int32, int64


class InitProducerIdRequest(
    Message, api_key=22, versions="0-6", flexible="2+", kips={0: 98, 1: 219, 2: 482, 3: 360, 4: 588, 5: 890, 6: 939}
):
    """Asks for a producer id and epoch, and aborts the transaction of an older producer with the transactional id."""

    transactional_id: str | None = field(
        about="The name to take over: what an older producer left open is aborted; null to be idempotent only."
    )
    transaction_timeout_ms: int32 = field(
        about="How long a transaction may stay open before the coordinator aborts it by itself."
    )
    producer_id: int64 = field(
        "3+",
        default=-1,
        about="The id the producer has, to go on with it after an error; -1 asks for whatever the coordinator gives.",
    )
    producer_epoch: int16 = field(
        "3+",
        default=-1,
        about="The epoch the producer has: if it is not the current one, another producer took over; -1 if it is new.",
    )
    enable2_pc: bool = field(
        "6+", about="Lets an outside coordinator end the transactions (two-phase commit), so that they never time out."
    )
    keep_prepared_txn: bool = field(
        "6+", about="Leaves an open transaction alone, so that its outside coordinator can still decide about it."
    )


class InitProducerIdResponse(
    Message, api_key=22, versions="0-6", flexible="2+", kips={0: 98, 1: 219, 2: 482, 3: 360, 4: 588, 5: 890, 6: 939}
):
    """Answers with the producer id and epoch."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    producer_id: int64 = field(
        default=-1,
        about="The id to put into every batch, for which brokers then count sequence numbers; -1 after an error.",
    )
    producer_epoch: int16 = field(
        about="The epoch to put into every batch; those of earlier producers with this name are refused from now on."
    )
    ongoing_txn_producer_id: int64 = field(
        "6+", default=-1, about="The producer id of the transaction that was kept open; -1 if there was none."
    )
    ongoing_txn_producer_epoch: int16 = field(
        "6+", default=-1, about="The epoch of the transaction that was kept open; -1 if there was none."
    )


class AddPartitionsToTxnRequest(
    Message, api_key=24, versions="0-5", flexible="3+", kips={0: 98, 1: 219, 2: 588, 3: 482, 4: 890, 5: 890}
):
    """Adds partitions to a transaction. From version 4 on, brokers send it for several transactions."""

    transactions: list[AddPartitionsToTxnTransaction] = field(
        "4+", about="Several transactions at once, for brokers, who verify or add for producers; clients use version 3."
    )
    v3_and_below_transactional_id: str = field(
        "0-3", about="The producer's transactional id, which the coordinator keeps the transaction by."
    )
    v3_and_below_producer_id: int64 = field(
        "0-3", about="The producer id that the coordinator gave to it, so that a stranger is refused."
    )
    v3_and_below_producer_epoch: int16 = field("0-3", about="The producer's epoch: an older one is fenced.")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(
        "0-3", about="The partitions that the producer is about to write to, so that they get a marker at the end."
    )

    class AddPartitionsToTxnTopic(Struct):
        name: str = field(about="The topic these partitions belong to.")
        partitions: list[int32] = field(
            about="The partitions of the topic to add; those that are in it already do no harm."
        )

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: str = field()
        producer_id: int64 = field()
        producer_epoch: int16 = field()
        verify_only: bool = field(
            about="Only asks whether the partitions are in the transaction, which stops late writes from hanging."
        )
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = field(
            about="The partitions to add or to verify, by topic."
        )


class AddPartitionsToTxnResponse(
    Message, api_key=24, versions="0-5", flexible="3+", kips={0: 98, 1: 219, 2: 588, 3: 482, 4: 890, 5: 890}
):
    """Says for each partition whether it was added."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field(
        "4+", about="An error of the whole request, such as missing rights of the broker that asked; else 0."
    )
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        "4+", about="A result for each transaction of the request."
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        "0-3", about="The results of the one transaction, by topic."
    )

    class AddPartitionsToTxnTopicResult(Struct):
        name: str = field(about="The topic these partitions belong to.")
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = field(
            about="A result for each partition: if one fails, the others are not added either."
        )

    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: int32 = field()
        partition_error_code: int16 = field(
            about="Why it was not added; OPERATION_NOT_ATTEMPTED if another one failed."
        )

    class AddPartitionsToTxnResult(Struct):
        transactional_id: str = field()
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = field(
            about="The results of this transaction, by topic."
        )


class AddOffsetsToTxnRequest(
    Message, api_key=25, versions="0-4", flexible="3+", kips={0: 98, 1: 219, 2: 588, 3: 482, 4: 890}
):
    """Adds the offsets of a group to a transaction."""

    transactional_id: str = field()
    producer_id: int64 = field()
    producer_epoch: int16 = field()
    group_id: str = field(
        about="The group whose offsets will be committed, so that its partition of __consumer_offsets gets a marker."
    )


class AddOffsetsToTxnResponse(
    Message, api_key=25, versions="0-4", flexible="3+", kips={0: 98, 1: 219, 2: 588, 3: 482, 4: 890}
):
    """Says whether the offsets were added."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()


class TxnOffsetCommitRequest(
    Message, api_key=28, versions="0-6", flexible="3+", kips={0: 98, 1: 219, 2: 320, 3: 447, 4: 890, 5: 890, 6: 1319}
):
    """Asks to commit offsets of a group together with the transaction."""

    transactional_id: str = field(
        about="The transaction that the offsets belong to: they count only once it is committed."
    )
    group_id: str = field(
        about="The group whose progress it is; the request goes to its coordinator, not to the transaction's."
    )
    producer_id: int64 = field()
    producer_epoch: int16 = field()
    generation_id_or_member_epoch: int32 = field(
        "3+",
        default=-1,
        about="The generation or epoch in which the member read, so that an expelled one is refused; -1 for none.",
    )
    member_id: str = field(
        "3+", about="The consumer that read the records, so that one that has been expelled is refused; empty for none."
    )
    group_instance_id: str | None = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(about="The offsets to commit, by topic.")

    class TxnOffsetCommitRequestTopic(Struct):
        name: str = field("0-5", about="The topic's name; version 6 sends the id instead.")
        topic_id: Uuid = field("6+")
        partitions: list[TxnOffsetCommitRequestPartition] = field(
            about="The partitions of the topic, each with the position that its reader has reached."
        )

        class TxnOffsetCommitRequestPartition(Struct):
            partition_index: int32 = field()
            committed_offset: int64 = field(
                about="The offset of the next record to read, so one more than the last one that was processed."
            )
            committed_leader_epoch: int32 = field(
                "2+",
                default=-1,
                about="The leader epoch of the last record read, by which readers notice a log that was cut off.",
            )
            committed_metadata: str | None = field(
                about="Anything the client wants to find beside the offset; the broker keeps it unread."
            )


class TxnOffsetCommitResponse(
    Message, api_key=28, versions="0-6", flexible="3+", kips={0: 98, 1: 219, 2: 320, 3: 447, 4: 890, 5: 890, 6: 1319}
):
    """Says for each partition whether its offset was accepted."""

    throttle_time_ms: int32 = field()
    topics: list[TxnOffsetCommitResponseTopic] = field(about="The results, by topic.")

    class TxnOffsetCommitResponseTopic(Struct):
        name: str = field("0-5", about="The topic's name; version 6 answers with the id instead.")
        topic_id: Uuid = field("6+")
        partitions: list[TxnOffsetCommitResponsePartition] = field(about="A result for each partition of the topic.")

        class TxnOffsetCommitResponsePartition(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()


class EndTxnRequest(
    Message, api_key=26, versions="0-5", flexible="3+", kips={0: 98, 1: 219, 2: 588, 3: 482, 4: 890, 5: 890}
):
    """Asks to commit or abort a transaction."""

    transactional_id: str = field()
    producer_id: int64 = field()
    producer_epoch: int16 = field()
    committed: bool = field(
        about="True commits what was written, false aborts it; the coordinator then has markers written everywhere."
    )


class EndTxnResponse(
    Message, api_key=26, versions="0-5", flexible="3+", kips={0: 98, 1: 219, 2: 588, 3: 482, 4: 890, 5: 890}
):
    """Says whether the transaction was ended; from version 5 on with the producer's next epoch (KIP-890)."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    producer_id: int64 = field(
        "5+", default=-1, about="The id for the next transaction; a new one when the epochs of the old one are used up."
    )
    producer_epoch: int16 = field(
        "5+",
        default=-1,
        about="The epoch for the next transaction: since each has its own, a late write cannot slip in.",
    )


class WriteTxnMarkersRequest(Message, api_key=27, versions="0-2", flexible="1+", kips={0: 98, 1: 482, 2: 1228}):
    """Asks leaders to write the markers that end transactions. The transaction coordinator sends it."""

    markers: list[WritableTxnMarker] = field(
        about="The transactions that end, each with its partitions here; only coordinators may send this."
    )

    class WritableTxnMarker(Struct):
        producer_id: int64 = field(about="The producer whose transaction ends, and that the marker names.")
        producer_epoch: int16 = field(
            about="The epoch to write into the marker; leaders refuse the producer's older ones from then on."
        )
        transaction_result: bool = field(about="True for a COMMIT marker, false for an ABORT marker.")
        topics: list[WritableTxnMarkerTopic] = field(about="The partitions that get a marker, by topic.")
        coordinator_epoch: int32 = field(
            about="The leader epoch of the coordinator's own partition: a marker from an older coordinator is refused."
        )
        transaction_version: int8 = field(
            "2+", about="The transaction protocol in use: with 2 the epoch must be newer than that of the last write."
        )

        class WritableTxnMarkerTopic(Struct):
            name: str = field(about="The topic these partitions belong to.")
            partition_indexes: list[int32] = field(about="The partitions of the topic that get a marker.")


class WriteTxnMarkersResponse(Message, api_key=27, versions="0-2", flexible="1+", kips={0: 98, 1: 482}):
    """Says for each partition whether its marker was written."""

    markers: list[WritableTxnMarkerResult] = field(about="The results, by producer.")

    class WritableTxnMarkerResult(Struct):
        producer_id: int64 = field()
        topics: list[WritableTxnMarkerTopicResult] = field(about="The results of this producer's markers, by topic.")

        class WritableTxnMarkerTopicResult(Struct):
            name: str = field(about="The topic these partitions belong to.")
            partitions: list[WritableTxnMarkerPartitionResult] = field(
                about="A result for each partition: the coordinator tries again until all have their marker."
            )

            class WritableTxnMarkerPartitionResult(Struct):
                partition_index: int32 = field()
                error_code: int16 = field()


class DescribeProducersRequest(Message, api_key=61, versions="0", flexible="0+", kips={0: 664}):
    """Asks a partition's leader for its active producers."""

    topics: list[TopicRequest] = field(
        about="The partitions to look into, by topic; each must be led by the broker that is asked."
    )

    class TopicRequest(Struct):
        name: str = field(about="The topic these partitions belong to.")
        partition_indexes: list[int32] = field(about="The partitions of the topic to look into.")


class DescribeProducersResponse(Message, api_key=61, versions="0", flexible="0+", kips={0: 664}):
    """Lists their epochs, sequences and open transactions."""

    throttle_time_ms: int32 = field()
    topics: list[TopicResponse] = field(about="What the partitions know of their producers, by topic.")

    class TopicResponse(Struct):
        name: str = field(about="The topic these partitions belong to.")
        partitions: list[PartitionResponse] = field(about="The producers of each partition, or its error.")

        class PartitionResponse(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)
            active_producers: list[ProducerState] = field(
                about="The producers the partition still remembers; those that wrote nothing for long are forgotten."
            )

            class ProducerState(Struct):
                producer_id: int64 = field()
                producer_epoch: int32 = field()
                last_sequence: int32 = field(
                    default=-1,
                    about="The sequence number of its last record here, which the next must follow; -1 if none.",
                )
                last_timestamp: int64 = field(
                    default=-1, about="The time of its last batch here, from which the expiry of its state counts."
                )
                coordinator_epoch: int32 = field(
                    about="The coordinator's epoch in its last marker here; -1 if there is none."
                )
                current_txn_start_offset: int64 = field(
                    default=-1,
                    about="Where its open transaction begins, past which read_committed sees nothing; -1 if none.",
                )


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+", kips={0: 664}):
    """Asks for the state of transactional ids."""

    transactional_ids: list[str] = field(
        about="The transactional ids to describe; the broker that is asked must coordinate them."
    )


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+", kips={0: 664}):
    """Answers with the state, and with the partitions in the transaction."""

    throttle_time_ms: int32 = field()
    transaction_states: list[TransactionState] = field(about="A description of each transactional id, or its error.")

    class TransactionState(Struct):
        error_code: int16 = field()
        transactional_id: str = field()
        transaction_state: str = field(
            about="Where it is: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort and others."
        )
        transaction_timeout_ms: int32 = field(
            about="How long a transaction may stay open before the coordinator aborts it."
        )
        transaction_start_time_ms: int64 = field(
            about="When the open transaction began, for finding one that hangs; -1 if none is open."
        )
        producer_id: int64 = field()
        producer_epoch: int16 = field()
        topics: list[TopicData] = field(about="The partitions in the open transaction, by topic.")

        class TopicData(Struct):
            topic: str = field()
            partitions: list[int32] = field(about="The partitions of the topic that will get a marker.")


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+", kips={0: 664, 1: 994, 2: 1152}):
    """Asks a coordinator for its transactions, by state, producer, age or pattern."""

    state_filters: list[str] = field(about='Only transactions in these states, such as "Ongoing"; empty for all.')
    producer_id_filters: list[int64] = field(about="Only those of these producer ids; empty for all.")
    duration_filter: int64 = field(
        "1+", default=-1, about="Only those that have been open for longer than this many milliseconds; -1 for all."
    )
    transactional_id_pattern: str | None = field(
        "2+", default=None, about="Only those whose transactional id matches this regular expression; null for all."
    )


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+", kips={0: 664, 1: 994, 2: 1152}):
    """Lists the transactions."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    unknown_state_filters: list[str] = field(
        about="The states of the request that the broker does not know, so that a typo is noticed."
    )
    transaction_states: list[TransactionState] = field(
        about="The transactions this broker coordinates; a tool asks every broker, and puts the lists together."
    )

    class TransactionState(Struct):
        transactional_id: str = field()
        producer_id: int64 = field()
        transaction_state: str = field(
            about="Where it is: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort and others."
        )
