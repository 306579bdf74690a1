"""Keys and values of the topic `__transaction_state`: the last state of every transactional id.

An int16 precedes each: the type before a key, which is `api_key` here, and the version before a value.
"""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int8, int16, int32, int64


class TransactionLogKey(Message, api_key=0, versions="0"):
    """A transactional id."""

    transactional_id: str = field()


class TransactionLogValue(Message, api_key=0, versions="0-1", flexible="1+"):
    """The state of its transaction, and the producer id and epoch it has."""

    producer_id: int64 = field()
    previous_producer_id: int64 = field("1+", tag=0, default=-1)
    next_producer_id: int64 = field("1+", tag=1, default=-1)
    producer_epoch: int16 = field()
    next_producer_epoch: int16 = field("1+", tag=3, default=-1)
    transaction_timeout_ms: int32 = field()
    transaction_status: int8 = field()
    transaction_partitions: list[PartitionsSchema] | None = field()
    transaction_last_update_timestamp_ms: int64 = field()
    transaction_start_timestamp_ms: int64 = field()
    client_transaction_version: int16 = field("1+", tag=2)

    class PartitionsSchema(Struct):
        topic: str = field()
        partition_ids: list[int32] = field()
