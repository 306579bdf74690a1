"""The view of transactions: states, partitions with their producers' last batches, and those that timed out.

What a request changed is in the history of the groups' view. No request ends a transaction that times out, so this is
read from the coordinator's log.
"""

from __future__ import annotations

from typing import Any, Final

from minibroker.broker.transactions.transaction import TransactionState
from minibroker.broker.transactions.transaction_codec import encode_transaction_tombstone
from minibroker.explorer.groups_view import find_local_partition
from minibroker.explorer.log_pages import RecordQuery, find_records
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.internal import TRANSACTIONS_TOPIC, decode_internal_record
from minibroker.testing.broker import Broker
from minibroker.web.routes import Routes

MOST_LISTED: Final = 2_000
LOOKED_AT: Final = 500  # of the newest records of the coordinator's partition
FACTS: Final = ("transactional_id", "producer_id", "producer_epoch", "timeout_ms", "start_ms", "last_update_ms")
BATCH: Final = ("first_sequence", "last_sequence", "last_offset", "offset_delta", "timestamp_ms")


def make_transaction_routes(broker: Broker) -> Routes:
    """Return the routes of the transactions view."""
    routes = Routes()

    @routes.get("/transactions")
    async def list_transactions() -> list[dict[str, Any]]:
        """Return all transactional ids."""
        found = broker.running.cluster.transactions.transactions.values()
        return [
            {"id": each.transactional_id, "state": each.state.api_name, "partitions": len(each.partitions)}
            for each in sorted(found, key=lambda each: each.transactional_id)[:MOST_LISTED]
        ]

    @routes.get("/transactions/{transactional_id}")
    async def get_transaction(transactional_id: str) -> dict[str, Any]:
        """Return a transaction with its partitions, and what its producer has written there."""
        found = broker.running.cluster.transactions.get_transaction(transactional_id)
        return {
            **{name: getattr(found, name) for name in FACTS},
            "state": found.state.api_name,
            "coordinator": broker.coordinator(transactional_id=transactional_id),
            "partitions": [_describe_producer(broker, *each, found.producer_id) for each in sorted(found.partitions)],
            "timeouts": await _list_timeouts(broker, transactional_id),
        }

    @routes.get("/topics/{name}/{index}/producers")
    async def list_producers(name: str, index: int) -> list[dict[str, Any]]:
        """Return the producers that a partition knows, with their last five batches."""
        partition = find_local_partition(broker, name, index)
        producer_ids = list(partition.log.producers.list_producer_ids())[-MOST_LISTED:] if partition is not None else []
        return [_describe_producer(broker, name, index, producer_id) for producer_id in producer_ids]

    return routes


def _describe_producer(broker: Broker, topic: str, index: int, producer_id: int) -> dict[str, Any]:
    partition = find_local_partition(broker, topic, index)
    said: dict[str, Any] = {"topic": topic, "partition": index, "producer_id": producer_id, "batches": []}
    entry = None if partition is None else partition.log.producers.find_producer_entry(producer_id)
    if entry is not None:
        said["epoch"], said["first_offset"] = entry.epoch, entry.transaction_first_offset
        said["batches"] = [dict(zip(BATCH, batch, strict=True)) for batch in entry.batches]
    return said


async def _list_timeouts(broker: Broker, transactional_id: str) -> list[dict[str, int]]:
    """Return when transactions of an id were aborted after their timeout, by the newest records of the log."""
    try:
        partition = broker.running.cluster.transactions.log.get_writable_partition(transactional_id)
    except KafkaError:
        return []
    key, _ = encode_transaction_tombstone(transactional_id)
    first = max(partition.log.log_end_offset - LOOKED_AT, 0)
    found = await find_records(partition, RecordQuery(first, LOOKED_AT, lambda record: record.key == key))
    timeouts = []
    for record in found.records:
        _, decoded = decode_internal_record(TRANSACTIONS_TOPIC, record.key, record.value)
        value: Any = decoded and decoded.message
        if (
            value is not None
            and value.transaction_status == TransactionState.PREPARE_ABORT
            and _count_ms_beyond_timeout(value) > 0
        ):
            timeouts.append({"at_ms": record.timestamp_ms, "timeout_ms": value.transaction_timeout_ms})
    return timeouts


def _count_ms_beyond_timeout(value: Any) -> int:
    """Return how many ms a transaction was open beyond its timeout; below 0 if it was not."""
    open_ms: int = value.transaction_last_update_timestamp_ms - value.transaction_start_timestamp_ms
    return open_ms - int(value.transaction_timeout_ms)
