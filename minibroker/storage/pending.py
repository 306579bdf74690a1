"""Small batches that have their offsets already, and wait to be written together.

So fifty clients that write in one turn of the event loop cost one write, not fifty. A log gives the batches their
offsets in `Log.append_soon`, and writes them in `Log.write_pending`; no reader sees them before that.
"""

from __future__ import annotations

from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import BatchHeader, assign

MAX_PENDING_BYTES = 1 << 20  # then they are written, although the turn goes on


class Pending:
    """Batches of one log that are written, or lost, together: `data` as it will be written, a header for each batch.

    `next_offset` follows the last batch. Once they are written or lost, there are no `headers` any more, and `failure`
    says why they were lost; whoever waits for one of the batches keeps this object to ask it.
    """

    __slots__ = ("data", "failure", "has_producers", "headers", "next_offset")

    def __init__(self) -> None:
        self.data = bytearray()
        self.headers: list[BatchHeader] = []
        self.next_offset = 0
        self.has_producers = False
        self.failure: KafkaError | None = None

    def add(self, records: memoryview | bytearray, header: BatchHeader, first_offset: int, leader_epoch: int) -> None:
        """Copy a batch, and give it its offset."""
        data = self.data
        position = len(data)
        data += records
        assign(data, position, first_offset, leader_epoch)
        self.headers.append(header)
        self.next_offset = first_offset + header.last_offset_delta + 1

    def end(self, failure: KafkaError | None) -> None:
        """Note that the batches are written or, with a `failure`, lost; give their memory back."""
        self.failure = failure
        self.data = bytearray()  # not emptied: whoever writes it may still look at it
        self.headers = []
