"""The control batches that end transactions in a log: what one says, and making one.

What it does to the producer's state and to the log is in `producer_state.py` and `log.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.building import build_batch
from minibroker.storage.files import Bytes


class Marker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that has said so (KIP-98)."""

    committed: bool
    coordinator_epoch: int


def marker_batch(producer_id: int, producer_epoch: int, marker: Marker, timestamp: int) -> bytearray:
    """The control batch that ends the producer's transaction; `timestamp` in ms since 1970."""
    from minibroker.protocol.records.control import end_transaction_marker

    record = end_transaction_marker(
        committed=marker.committed, coordinator_epoch=marker.coordinator_epoch, timestamp=timestamp
    )
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def read_marker(batch: Bytes) -> Marker | None:
    """Return a control batch's marker; None if it is no transaction's, malformed, or emptied by compaction."""
    from minibroker.protocol.messages.control_records import EndTxnMarker  # most brokers never see one
    from minibroker.protocol.records.control import ControlType, control_message, control_type
    from minibroker.protocol.records.payload import records_of

    try:
        record = next(records_of(batch))
        message = control_message(record)
    except (StopIteration, KafkaError):
        return None
    if not isinstance(message, EndTxnMarker):
        return None
    return Marker(control_type(record.key) is ControlType.COMMIT, message.coordinator_epoch)
