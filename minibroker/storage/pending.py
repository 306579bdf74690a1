"""Small batches that have their offsets, and wait to be written together.

Fifty clients that produce in one turn of the event loop then cost one write, not fifty. `Log.append_to_pending_batches`
sets the offsets, `Log.write_pending_batches` writes the batches; readers do not see them before that.
"""

from __future__ import annotations

from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import BatchHeader, set_offset_and_epoch

MAX_PENDING_BYTES = 1 << 20  # more are written before the end of the turn


class PendingBatches:
    """Batches of one log that are written, or lost, together: their `data` and a header for each.

    `next_offset` follows the last batch. Once they are written or lost, `headers` is empty, and `failure` says why they
    were lost. Whoever waits for a batch keeps this object.
    """

    __slots__ = ("data", "failure", "has_producers", "headers", "next_offset")

    def __init__(self) -> None:
        self.data = bytearray()
        self.headers: list[BatchHeader] = []
        self.next_offset = 0
        self.has_producers = False
        self.failure: KafkaError | None = None

    def add_batch(
        self, records: memoryview | bytearray, header: BatchHeader, first_offset: int, leader_epoch: int
    ) -> None:
        """Copy a batch, and set its offset in the copy."""
        data = self.data
        position = len(data)
        data += records
        set_offset_and_epoch(data, position, first_offset, leader_epoch)
        self.headers.append(header)
        self.next_offset = first_offset + header.last_offset_delta + 1

    def mark_written_or_failed(self, failure: KafkaError | None) -> None:
        """Mark the batches as written or, with a `failure`, as lost, and free their memory."""
        self.failure = failure
        self.data = bytearray()  # a new one, as the write may still use the old one
        self.headers = []
