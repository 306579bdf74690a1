"""Produce: appending record batches to logs."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Records, Struct, Uuid, field, int16, int32, int64


class ProduceRequest(Message, api_key=0, versions="0-13", flexible="9+"):
    """Asks partition leaders to append batches. With `acks` 0 there is no response."""

    transactional_id: str | None = field("3+", default=None)
    acks: int16 = field()
    timeout_ms: int32 = field()
    topic_data: list[TopicProduceData] = field()

    class TopicProduceData(Struct):
        name: str = field("0-12")
        topic_id: Uuid = field("13+")
        partition_data: list[PartitionProduceData] = field()

        class PartitionProduceData(Struct):
            index: int32 = field()
            records: Records | None = field()


class ProduceResponse(Message, api_key=0, versions="0-13", flexible="9+"):
    """Answers with the base offset of each partition's batch, or why it was refused."""

    responses: list[TopicProduceResponse] = field()
    throttle_time_ms: int32 = field("1+")
    node_endpoints: list[NodeEndpoint] = field("10+", tag=0)

    class TopicProduceResponse(Struct):
        name: str = field("0-12")
        topic_id: Uuid = field("13+")
        partition_responses: list[PartitionProduceResponse] = field()

        class PartitionProduceResponse(Struct):
            index: int32 = field()
            error_code: int16 = field()
            base_offset: int64 = field()
            log_append_time_ms: int64 = field("2+", default=-1)
            log_start_offset: int64 = field("5+", default=-1)
            record_errors: list[BatchIndexAndErrorMessage] = field("8+")
            error_message: str | None = field("8+", default=None)
            current_leader: LeaderIdAndEpoch | None = field("10+", nullable="none", tag=0)

            class BatchIndexAndErrorMessage(Struct):
                batch_index: int32 = field()
                batch_index_error_message: str | None = field(default=None)

            class LeaderIdAndEpoch(Struct):
                leader_id: int32 = field(default=-1)
                leader_epoch: int32 = field(default=-1)

    class NodeEndpoint(Struct):
        node_id: int32 = field()
        host: str = field()
        port: int32 = field()
        rack: str | None = field(default=None)
