"""Small batches that have their offsets already, and wait to be written together.

Fifty clients that write in one turn of the event loop cost one write so, not fifty. A log gives them their offsets in
`Log.append_soon`, and writes them in `Log.write_pending`; until then no reader sees them.
"""

from __future__ import annotations

from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import BatchHeader, assign

MAX_PENDING_BYTES = 1 << 20  # then they are written, although the turn goes on


class Pending:
    """The pending batches of one log: `data` has them as they will be written, `headers` one for each.

    `next_offset` follows the last one. `failure` says why the last write failed, until somebody clears it: nothing is
    appended as long, so that the log's end tells which batches were lost.
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

    def clear(self) -> None:
        """Forget the batches, as they are written or lost."""
        self.data = bytearray()  # not emptied: whoever writes it may still look at it
        self.headers = []
        self.has_producers = False
