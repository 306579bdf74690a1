"""Produce: appending record batches to logs."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Records, Struct, Uuid, field, int16, int32, int64


class ProduceRequest(
    Message,
    api_key=0,
    versions="0-13",
    flexible="9+",
    kips={2: 32, 3: 98, 6: 219, 7: 110, 8: 467, 9: 482, 10: 951, 11: 890, 12: 890, 13: 516},
):
    """Asks partition leaders to append batches. With `acks` 0 there is no response."""

    transactional_id: str | None = field(
        "3+",
        default=None,
        about="The producer's transactional id, for which the broker checks its rights; null outside transactions.",
    )
    acks: int16 = field(
        about="Who must have the batches before the answer: 0 nobody (there is none), 1 the leader, -1 all in sync."
    )
    timeout_ms: int32 = field(
        about="How long the leader waits for the other replicas, if acks is -1, before it answers with an error."
    )
    topic_data: list[TopicProduceData] = field(
        about="The batches, grouped by topic, as a producer sends one request for all partitions that a broker leads."
    )

    class TopicProduceData(Struct):
        name: str = field(
            "0-12", about="The topic's name; version 13 sends the id instead, which no other topic ever has."
        )
        topic_id: Uuid = field("13+")
        partition_data: list[PartitionProduceData] = field(
            about="The partitions of the topic to append to; each is answered with an error code of its own."
        )

        class PartitionProduceData(Struct):
            index: int32 = field(
                about="The partition to append to; the producer has chosen it, most often by the hash of the key."
            )
            records: Records | None = field(
                about="The records; from version 3 on exactly one batch, which the broker most often appends as it is."
            )


class ProduceResponse(
    Message,
    api_key=0,
    versions="0-13",
    flexible="9+",
    kips={2: 32, 6: 219, 8: 467, 9: 482, 10: 951, 11: 890, 12: 890, 13: 516},
):
    """Answers with the base offset of each partition's batch, or why it was refused."""

    responses: list[TopicProduceResponse] = field(about="The results, grouped by topic as in the request.")
    throttle_time_ms: int32 = field("1+", kip=13)
    node_endpoints: list[NodeEndpoint] = field(
        "10+", tag=0, about="Where the new leaders are reached, if any partition was sent to the wrong broker."
    )

    class TopicProduceResponse(Struct):
        name: str = field("0-12", about="The topic's name; version 13 answers with the id instead.")
        topic_id: Uuid = field("13+")
        partition_responses: list[PartitionProduceResponse] = field(
            about="A result for each partition, as one may be refused while the others are appended."
        )

        class PartitionProduceResponse(Struct):
            index: int32 = field(about="The partition that this is the result of.")
            error_code: int16 = field()
            base_offset: int64 = field(
                about="The offset that the first record got, which the others follow; -1 after an error."
            )
            log_append_time_ms: int64 = field(
                "2+",
                default=-1,
                about="The time that the broker put into the batch; -1 if the topic keeps the producer's own times.",
            )
            log_start_offset: int64 = field(
                "5+",
                default=-1,
                about="The first offset still in the log: it tells a producer whether its state went with old records.",
            )
            record_errors: list[BatchIndexAndErrorMessage] = field(
                "8+",
                about="The records for which the whole batch was refused, so that the producer can leave them out.",
            )
            error_message: str | None = field(
                "8+",
                default=None,
                about="Why the batch was refused, in words, for people; null if the error code says it all.",
            )
            current_leader: LeaderIdAndEpoch | None = field(
                "10+",
                nullable="none",
                tag=0,
                about="The new leader, if this broker is not it any more, which saves a Metadata request.",
            )

            class BatchIndexAndErrorMessage(Struct):
                batch_index: int32 = field(about="The position of the record within its batch, counted from 0.")
                batch_index_error_message: str | None = field(
                    default=None,
                    about="Why this record was refused, in words, if there is more to say than the batch's error does.",
                )

            class LeaderIdAndEpoch(Struct):
                leader_id: int32 = field(
                    default=-1, about="The broker that leads the partition now; -1 if it is not known."
                )
                leader_epoch: int32 = field(default=-1)

    class NodeEndpoint(Struct):
        node_id: int32 = field()
        host: str = field()
        port: int32 = field()
        rack: str | None = field(default=None)
