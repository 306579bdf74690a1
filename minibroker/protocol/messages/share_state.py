"""Requests for the persisted delivery state of share partitions (KIP-932). Brokers send them, clients never do."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int8, int16, int32, int64


class InitializeShareGroupStateRequest(Message, api_key=83, versions="0", flexible="0+"):
    """Asks to initialize the state of share partitions with a start offset."""

    group_id: str = field()
    topics: list[InitializeStateData] = field()

    class InitializeStateData(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionData] = field()

        class PartitionData(Struct):
            partition: int32 = field()
            state_epoch: int32 = field()
            start_offset: int64 = field()


class InitializeShareGroupStateResponse(Message, api_key=83, versions="0", flexible="0+"):
    """Says for each partition whether its state was initialized."""

    results: list[InitializeStateResult] = field()

    class InitializeStateResult(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionResult] = field()

        class PartitionResult(Struct):
            partition: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)


class ReadShareGroupStateRequest(Message, api_key=84, versions="0", flexible="0+"):
    """Asks for the state of share partitions."""

    group_id: str = field()
    topics: list[ReadStateData] = field()

    class ReadStateData(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionData] = field()

        class PartitionData(Struct):
            partition: int32 = field()
            leader_epoch: int32 = field()


class ReadShareGroupStateResponse(Message, api_key=84, versions="0", flexible="0+"):
    """Answers with the state, in batches of offsets with the same delivery state."""

    results: list[ReadStateResult] = field()

    class ReadStateResult(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionResult] = field()

        class PartitionResult(Struct):
            partition: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)
            state_epoch: int32 = field()
            start_offset: int64 = field()
            state_batches: list[StateBatch] = field()

            class StateBatch(Struct):
                first_offset: int64 = field()
                last_offset: int64 = field()
                delivery_state: int8 = field()
                delivery_count: int16 = field()


class WriteShareGroupStateRequest(Message, api_key=85, versions="0-1", flexible="0+"):
    """Asks to write new state of share partitions."""

    group_id: str = field()
    topics: list[WriteStateData] = field()

    class WriteStateData(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionData] = field()

        class PartitionData(Struct):
            partition: int32 = field()
            state_epoch: int32 = field()
            leader_epoch: int32 = field()
            start_offset: int64 = field()
            delivery_complete_count: int32 = field("1+", default=-1)
            state_batches: list[StateBatch] = field()

            class StateBatch(Struct):
                first_offset: int64 = field()
                last_offset: int64 = field()
                delivery_state: int8 = field()
                delivery_count: int16 = field()


class WriteShareGroupStateResponse(Message, api_key=85, versions="0-1", flexible="0+"):
    """Says for each partition whether it was written."""

    results: list[WriteStateResult] = field()

    class WriteStateResult(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionResult] = field()

        class PartitionResult(Struct):
            partition: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)


class DeleteShareGroupStateRequest(Message, api_key=86, versions="0", flexible="0+"):
    """Asks to delete the state of share partitions."""

    group_id: str = field()
    topics: list[DeleteStateData] = field()

    class DeleteStateData(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionData] = field()

        class PartitionData(Struct):
            partition: int32 = field()


class DeleteShareGroupStateResponse(Message, api_key=86, versions="0", flexible="0+"):
    """Says for each partition whether its state was deleted."""

    results: list[DeleteStateResult] = field()

    class DeleteStateResult(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionResult] = field()

        class PartitionResult(Struct):
            partition: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)


class ReadShareGroupStateSummaryRequest(Message, api_key=87, versions="0-1", flexible="0+"):
    """Asks only for the start offsets of share partitions."""

    group_id: str = field()
    topics: list[ReadStateSummaryData] = field()

    class ReadStateSummaryData(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionData] = field()

        class PartitionData(Struct):
            partition: int32 = field()
            leader_epoch: int32 = field()


class ReadShareGroupStateSummaryResponse(Message, api_key=87, versions="0-1", flexible="0+"):
    """Answers with epochs and start offsets."""

    results: list[ReadStateSummaryResult] = field()

    class ReadStateSummaryResult(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionResult] = field()

        class PartitionResult(Struct):
            partition: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)
            state_epoch: int32 = field()
            leader_epoch: int32 = field()
            start_offset: int64 = field()
            delivery_complete_count: int32 = field("1+", default=-1)
