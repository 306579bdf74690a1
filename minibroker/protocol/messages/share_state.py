"""Requests for the persisted delivery state of share partitions (KIP-932). Brokers send them, clients never do."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int8, int16, int32, int64


class InitializeShareGroupStateRequest(Message, api_key=83, versions="0", flexible="0+", kips={0: 932}):
    """Asks to initialize the state of share partitions with a start offset."""

    group_id: str = field()
    topics: list[InitializeStateData] = field(about="The share partitions to make state for, by topic.")

    class InitializeStateData(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionData] = field(about="The partitions of the topic, each with where it begins.")

        class PartitionData(Struct):
            partition: int32 = field()
            state_epoch: int32 = field()
            start_offset: int64 = field(
                about="The first offset to deliver; -1 leaves it to the group's config when the first member comes."
            )


class InitializeShareGroupStateResponse(Message, api_key=83, versions="0", flexible="0+", kips={0: 932}):
    """Says for each partition whether its state was initialized."""

    results: list[InitializeStateResult] = field(about="The results, by topic.")

    class InitializeStateResult(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionResult] = field(about="A result for each partition of the topic.")

        class PartitionResult(Struct):
            partition: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)


class ReadShareGroupStateRequest(Message, api_key=84, versions="0", flexible="0+", kips={0: 932}):
    """Asks for the state of share partitions."""

    group_id: str = field()
    topics: list[ReadStateData] = field(about="The share partitions to read the state of, by topic.")

    class ReadStateData(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionData] = field(about="The partitions of the topic, each with its leader's epoch.")

        class PartitionData(Struct):
            partition: int32 = field()
            leader_epoch: int32 = field()


class ReadShareGroupStateResponse(Message, api_key=84, versions="0", flexible="0+", kips={0: 932}):
    """Answers with the state, in batches of offsets with the same delivery state."""

    results: list[ReadStateResult] = field(about="The states, by topic.")

    class ReadStateResult(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionResult] = field(about="The state of each partition of the topic.")

        class PartitionResult(Struct):
            partition: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)
            state_epoch: int32 = field()
            start_offset: int64 = field(
                about="The first offset the group may still deliver; -1 if it has not been decided yet."
            )
            state_batches: list[StateBatch] = field()

            class StateBatch(Struct):
                first_offset: int64 = field()
                last_offset: int64 = field()
                delivery_state: int8 = field()
                delivery_count: int16 = field()


class WriteShareGroupStateRequest(Message, api_key=85, versions="0-1", flexible="0+", kips={0: 932, 1: 1226}):
    """Asks to write new state of share partitions."""

    group_id: str = field()
    topics: list[WriteStateData] = field(about="The share partitions whose state has changed, by topic.")

    class WriteStateData(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionData] = field(about="What has changed in each partition of the topic.")

        class PartitionData(Struct):
            partition: int32 = field()
            state_epoch: int32 = field()
            leader_epoch: int32 = field()
            start_offset: int64 = field(about="The first offset the group may still deliver; -1 if it stays.")
            delivery_complete_count: int32 = field("1+", default=-1)
            state_batches: list[StateBatch] = field(about="The ranges of offsets that have changed.")

            class StateBatch(Struct):
                first_offset: int64 = field()
                last_offset: int64 = field()
                delivery_state: int8 = field()
                delivery_count: int16 = field()


class WriteShareGroupStateResponse(Message, api_key=85, versions="0-1", flexible="0+", kips={0: 932}):
    """Says for each partition whether it was written."""

    results: list[WriteStateResult] = field(about="The results, by topic.")

    class WriteStateResult(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionResult] = field(about="A result for each partition of the topic.")

        class PartitionResult(Struct):
            partition: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)


class DeleteShareGroupStateRequest(Message, api_key=86, versions="0", flexible="0+", kips={0: 932}):
    """Asks to delete the state of share partitions."""

    group_id: str = field()
    topics: list[DeleteStateData] = field(about="The share partitions to forget, by topic.")

    class DeleteStateData(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionData] = field(about="The partitions of the topic to forget.")

        class PartitionData(Struct):
            partition: int32 = field()


class DeleteShareGroupStateResponse(Message, api_key=86, versions="0", flexible="0+", kips={0: 932}):
    """Says for each partition whether its state was deleted."""

    results: list[DeleteStateResult] = field(about="The results, by topic.")

    class DeleteStateResult(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionResult] = field(about="A result for each partition of the topic.")

        class PartitionResult(Struct):
            partition: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)


class ReadShareGroupStateSummaryRequest(Message, api_key=87, versions="0-1", flexible="0+", kips={0: 932, 1: 1226}):
    """Asks only for the start offsets of share partitions."""

    group_id: str = field()
    topics: list[ReadStateSummaryData] = field(about="The share partitions to read the start of, by topic.")

    class ReadStateSummaryData(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionData] = field(about="The partitions of the topic, each with its leader's epoch.")

        class PartitionData(Struct):
            partition: int32 = field()
            leader_epoch: int32 = field()


class ReadShareGroupStateSummaryResponse(Message, api_key=87, versions="0-1", flexible="0+", kips={0: 932, 1: 1226}):
    """Answers with epochs and start offsets."""

    results: list[ReadStateSummaryResult] = field(about="What was read, by topic.")

    class ReadStateSummaryResult(Struct):
        topic_id: Uuid = field()
        partitions: list[PartitionResult] = field(
            about="What was read of each partition of the topic, without its ranges."
        )

        class PartitionResult(Struct):
            partition: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field(default=None)
            state_epoch: int32 = field()
            leader_epoch: int32 = field()
            start_offset: int64 = field(
                about="The first offset the group may still deliver; -1 if it has not been decided yet."
            )
            delivery_complete_count: int32 = field("1+", default=-1)
