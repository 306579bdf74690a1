"""Reads from `__transaction_state` what the coordinators know of transactions: only they end one, or will never do.

The state is in the same directory, if this node is the coordinator of the transactional id.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from minibroker.pipeline.directory.cluster_metadata import ClusterMetadata, iterate_readable_records
from minibroker.pipeline.directory.finding import find_logs
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from minibroker.protocol.primitives import MalformedMessage
from minibroker.protocol.records.internal import TRANSACTIONS_TOPIC, UnknownRecord, decode_internal_record
from minibroker.storage.names import LOG_SUFFIX

# The coordinator has a timer, or markers to write, in the first of these states.
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
WITH_A_TRANSACTION = ("Ongoing", "PrepareCommit", "PrepareAbort")

Stamp = tuple[str, int, int]


class Coordinated(NamedTuple):
    """What a coordinator knows of a producer id: its transactional id, and its transaction if there is one."""

    transactional_id: str
    state: str
    timeout_ms: int
    partitions: frozenset[tuple[str, int]]

    def will_end(self, topic: str, partition: int) -> bool:
        """Return whether it has a transaction with this partition, which it will end."""
        return self.state in WITH_A_TRANSACTION and (topic, partition) in self.partitions


def read_coordinator_states(root: str) -> dict[int, Coordinated]:
    """Return what the coordinators of a log directory know, by producer id. Raises `OSError`."""
    logs = (log.path for log in find_logs([root]).values() if log.partition.topic == TRANSACTIONS_TOPIC)
    files = sorted(f"{log}/{name}" for log in logs for name in DISK.list_names(log) if name.endswith(LOG_SUFFIX))
    return _read_state(tuple((file, *DISK.stamp(file)) for file in files))


@lru_cache(maxsize=1)  # each partition with an open transaction asks
def _read_state(files: tuple[Stamp, ...]) -> dict[int, Coordinated]:
    """Read these files, the oldest segment of a partition first, as far as they can be read."""
    values: dict[str, TransactionLogValue] = {}
    for file, _, _ in files:
        for record, is_control in iterate_readable_records(DISK.read_whole(file), ClusterMetadata()):
            if is_control:
                continue
            try:
                key, value = decode_internal_record(TRANSACTIONS_TOPIC, record.key, record.value)
            except (UnknownRecord, MalformedMessage):
                continue
            assert isinstance(key.message, TransactionLogKey)
            values.pop(key.message.transactional_id, None)
            if value is not None and isinstance(value.message, TransactionLogValue):
                values[key.message.transactional_id] = value.message
    found: dict[int, Coordinated] = {}
    for transactional_id, state in values.items():
        known = _read_transaction(transactional_id, state)
        found |= {state.previous_producer_id: known, state.next_producer_id: known, state.producer_id: known}
    return found


def _read_transaction(transactional_id: str, value: TransactionLogValue) -> Coordinated:
    in_transaction = (
        (each.topic, index) for each in value.transaction_partitions or () for index in each.partition_ids
    )
    status = value.transaction_status
    state = STATES[status] if 0 <= status < len(STATES) else str(status)
    return Coordinated(transactional_id, state, value.transaction_timeout_ms, frozenset(in_transaction))
