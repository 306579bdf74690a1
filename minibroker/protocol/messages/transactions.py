"""Producer ids and transactions: requests of producers, of coordinators to brokers, and of tools."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int8, int16, int32, int64


class InitProducerIdRequest(Message, api_key=22, versions="0-6", flexible="2+"):
    """Asks for a producer id and epoch, and aborts the transaction of an older producer with the transactional id."""

    transactional_id: str | None = field()
    transaction_timeout_ms: int32 = field()
    producer_id: int64 = field("3+", default=-1)
    producer_epoch: int16 = field("3+", default=-1)
    enable2_pc: bool = field("6+")
    keep_prepared_txn: bool = field("6+")


class InitProducerIdResponse(Message, api_key=22, versions="0-6", flexible="2+"):
    """Answers with the producer id and epoch."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    producer_id: int64 = field(default=-1)
    producer_epoch: int16 = field()
    ongoing_txn_producer_id: int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: int16 = field("6+", default=-1)


class AddPartitionsToTxnRequest(Message, api_key=24, versions="0-5", flexible="3+"):
    """Adds partitions to a transaction. From version 4 on, brokers send it for several transactions."""

    transactions: list[AddPartitionsToTxnTransaction] = field("4+")
    v3_and_below_transactional_id: str = field("0-3")
    v3_and_below_producer_id: int64 = field("0-3")
    v3_and_below_producer_epoch: int16 = field("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3")

    class AddPartitionsToTxnTopic(Struct):
        name: str = field()
        partitions: list[int32] = field()

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: str = field()
        producer_id: int64 = field()
        producer_epoch: int16 = field()
        verify_only: bool = field()
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = field()


class AddPartitionsToTxnResponse(Message, api_key=24, versions="0-5", flexible="3+"):
    """Says for each partition whether it was added."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field("4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3")

    class AddPartitionsToTxnTopicResult(Struct):
        name: str = field()
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = field()

    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: int32 = field()
        partition_error_code: int16 = field()

    class AddPartitionsToTxnResult(Struct):
        transactional_id: str = field()
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = field()


class AddOffsetsToTxnRequest(Message, api_key=25, versions="0-4", flexible="3+"):
    """Adds the offsets of a group to a transaction."""

    transactional_id: str = field()
    producer_id: int64 = field()
    producer_epoch: int16 = field()
    group_id: str = field()


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    """Says whether the offsets were added."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-6", flexible="3+"):
    """Asks to commit offsets of a group together with the transaction."""

    transactional_id: str = field()
    group_id: str = field()
    producer_id: int64 = field()
    producer_epoch: int16 = field()
    generation_id_or_member_epoch: int32 = field("3+", default=-1)
    member_id: str = field("3+")
    group_instance_id: str | None = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field()

    class TxnOffsetCommitRequestTopic(Struct):
        name: str = field("0-5")
        topic_id: Uuid = field("6+")
        partitions: list[TxnOffsetCommitRequestPartition] = field()

        class TxnOffsetCommitRequestPartition(Struct):
            partition_index: int32 = field()
            committed_offset: int64 = field()
            committed_leader_epoch: int32 = field("2+", default=-1)
            committed_metadata: str | None = field()


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-6", flexible="3+"):
    """Says for each partition whether its offset was accepted."""

    throttle_time_ms: int32 = field()
    topics: list[TxnOffsetCommitResponseTopic] = field()

    class TxnOffsetCommitResponseTopic(Struct):
        name: str = field("0-5")
        topic_id: Uuid = field("6+")
        partitions: list[TxnOffsetCommitResponsePartition] = field()

        class TxnOffsetCommitResponsePartition(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()


class EndTxnRequest(Message, api_key=26, versions="0-5", flexible="3+"):
    """Asks to commit or abort a transaction."""

    transactional_id: str = field()
    producer_id: int64 = field()
    producer_epoch: int16 = field()
    committed: bool = field()


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    """Says whether the transaction was ended; from version 5 on with the producer's next epoch (KIP-890)."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    producer_id: int64 = field("5+", default=-1)
    producer_epoch: int16 = field("5+", default=-1)


class WriteTxnMarkersRequest(Message, api_key=27, versions="0-2", flexible="1+"):
    """Asks leaders to write the markers that end transactions. The transaction coordinator sends it."""

    markers: list[WritableTxnMarker] = field()

    class WritableTxnMarker(Struct):
        producer_id: int64 = field()
        producer_epoch: int16 = field()
        transaction_result: bool = field()
        topics: list[WritableTxnMarkerTopic] = field()
        coordinator_epoch: int32 = field()
        transaction_version: int8 = field("2+")

        class WritableTxnMarkerTopic(Struct):
            name: str = field()
            partition_indexes: list[int32] = field()


class WriteTxnMarkersResponse(Message, api_key=27, versions="0-2", flexible="1+"):
    """Says for each partition whether its marker was written."""

    markers: list[WritableTxnMarkerResult] = field()

    class WritableTxnMarkerResult(Struct):
        producer_id: int64 = field()
        topics: list[WritableTxnMarkerTopicResult] = field()

        class WritableTxnMarkerTopicResult(Struct):
            name: str = field()
            partitions: list[WritableTxnMarkerPartitionResult] = field()

            class WritableTxnMarkerPartitionResult(Struct):
                partition_index: int32 = field()
                error_code: int16 = field()


class DescribeProducersRequest(Message, api_key=61, versions="0", flexible="0+"):
    """Asks a partition's leader for its active producers."""

    topics: list[TopicRequest] = field()

    class TopicRequest(Struct):
        name: str = field()
        partition_indexes: list[int32] = field()


class DescribeProducersResponse(Message, api_key=61, versions="0", flexible="0+"):
    """Lists their epochs, sequences and open transactions."""

    throttle_time_ms: int32 = field()
    topics: list[TopicResponse] = field()

    class TopicResponse(Struct):
        name: str = field()
        partitions: list[PartitionResponse] = field()

        class PartitionResponse(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)
            active_producers: list[ProducerState] = field()

            class ProducerState(Struct):
                producer_id: int64 = field()
                producer_epoch: int32 = field()
                last_sequence: int32 = field(default=-1)
                last_timestamp: int64 = field(default=-1)
                coordinator_epoch: int32 = field()
                current_txn_start_offset: int64 = field(default=-1)


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+"):
    """Asks for the state of transactional ids."""

    transactional_ids: list[str] = field()


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    """Answers with the state, and with the partitions in the transaction."""

    throttle_time_ms: int32 = field()
    transaction_states: list[TransactionState] = field()

    class TransactionState(Struct):
        error_code: int16 = field()
        transactional_id: str = field()
        transaction_state: str = field()
        transaction_timeout_ms: int32 = field()
        transaction_start_time_ms: int64 = field()
        producer_id: int64 = field()
        producer_epoch: int16 = field()
        topics: list[TopicData] = field()

        class TopicData(Struct):
            topic: str = field()
            partitions: list[int32] = field()


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    """Asks a coordinator for its transactions, by state, producer, age or pattern."""

    state_filters: list[str] = field()
    producer_id_filters: list[int64] = field()
    duration_filter: int64 = field("1+", default=-1)
    transactional_id_pattern: str | None = field("2+", default=None)


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    """Lists the transactions."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    unknown_state_filters: list[str] = field()
    transaction_states: list[TransactionState] = field()

    class TransactionState(Struct):
        transactional_id: str = field()
        producer_id: int64 = field()
        transaction_state: str = field()
