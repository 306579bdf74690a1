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
    previous_producer_id: int64 = field(
        "1+",
        kip=890,
        tag=0,
        default=-1,
        about="The producer id that the last ended transaction had used; -1 if none is kept.",
    )
    next_producer_id: int64 = field(
        "1+", kip=890, tag=1, default=-1, about="The producer id that the producer should use next; -1 if none is kept."
    )
    producer_epoch: int16 = field()
    next_producer_epoch: int16 = field(
        "1+", kip=890, tag=3, default=-1, about="The epoch that belongs to next_producer_id."
    )
    transaction_timeout_ms: int32 = field(
        about="How long a transaction may stay open before the coordinator aborts it."
    )
    transaction_status: int8 = field(
        about="0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort, 6 Dead."
    )
    transaction_partitions: list[PartitionsSchema] | None = field(
        about="The partitions in the transaction, which need a marker; null if it has none."
    )
    transaction_last_update_timestamp_ms: int64 = field(
        about="When the state last changed, from which the expiry of the transactional id counts."
    )
    transaction_start_timestamp_ms: int64 = field(
        about="When the transaction began, from which its timeout counts; -1 if it has not."
    )
    client_transaction_version: int16 = field(
        "1+",
        kip=890,
        tag=2,
        about="The transaction protocol of the client: with 2 each transaction has an epoch of its own.",
    )

    class PartitionsSchema(Struct):
        topic: str = field()
        partition_ids: list[int32] = field(about="The partitions of the topic that are in the transaction.")
