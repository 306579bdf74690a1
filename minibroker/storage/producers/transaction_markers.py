"""The control batches that end transactions: making and reading them."""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import Final

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import HEADER_BYTES, set_checksum
from minibroker.protocol.records.building import build_batch
from minibroker.storage.files import Bytes

_PRODUCER: Final = Struct(">qqqh")  # in the header: base and largest timestamp, producer id and epoch
_PRODUCER_POSITION: Final = 27
_EPOCH: Final = Struct(">i")  # the coordinator's, in the value of the record, before the count of headers
_EPOCH_POSITION: Final = 73


class TransactionMarker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that ended it (KIP-98)."""

    committed: bool
    coordinator_epoch: int


def make_marker_batch(producer_id: int, producer_epoch: int, marker: TransactionMarker, timestamp: int) -> bytearray:
    """Return the control batch that ends a producer's transaction. `timestamp` is in ms since 1970."""
    batch = bytearray(_make_marker_template(marker.committed))
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, timestamp, timestamp, producer_id, producer_epoch)
    _EPOCH.pack_into(batch, _EPOCH_POSITION, marker.coordinator_epoch)
    set_checksum(batch, 0, len(batch))
    return batch


@cache
def _make_marker_template(committed: bool) -> bytes:
    """Return a marker without producer, time and coordinator epoch."""
    from minibroker.protocol.records.control import make_transaction_marker

    record = make_transaction_marker(committed=committed, coordinator_epoch=0, timestamp=0)
    return bytes(build_batch([record], transactional=True, control=True))


def read_marker(batch: Bytes) -> TransactionMarker | None:
    """Return the marker in a control batch; None for another control record, a malformed or an emptied batch."""
    for committed in (True, False):
        template = _make_marker_template(committed)
        end = _EPOCH_POSITION + _EPOCH.size
        if (
            len(batch) == len(template)
            and batch[HEADER_BYTES:_EPOCH_POSITION] == template[HEADER_BYTES:_EPOCH_POSITION]
            and batch[end:] == template[end:]
        ):
            return TransactionMarker(committed, *_EPOCH.unpack_from(batch, _EPOCH_POSITION))
    return _decode_marker(batch)


def _decode_marker(batch: Bytes) -> TransactionMarker | None:
    """Read a marker that is encoded differently from ours, or return None."""
    from minibroker.protocol.messages.control_records import EndTxnMarker  # here, as it is rarely needed
    from minibroker.protocol.records.control import ControlType, decode_control_message, decode_control_type
    from minibroker.protocol.records.payload import iterate_records_of_batch

    try:
        record = next(iterate_records_of_batch(batch))
        message = decode_control_message(record)
    except (StopIteration, KafkaError):
        return None
    if not isinstance(message, EndTxnMarker):
        return None
    return TransactionMarker(decode_control_type(record.key) is ControlType.COMMIT, message.coordinator_epoch)
