"""The memory for the decompressed records of a chunk of batches, one batch after the other.

It is reused for the next chunk. Decoders copy what they keep.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from minibroker.pipeline.array_types import UInt8s
from minibroker.protocol.records.compression import decompress

Buffer = bytes | bytearray | memoryview

MAX_BATCH_BYTES: Final = 512 << 20
"""Limit on the decompressed size of one batch."""

_PADDING: Final = 16  # readable bytes behind the last one


class Arena:
    """A reusable buffer. It takes at most the memory of a chunk and of one batch."""

    def __init__(self, capacity: int, max_batch_bytes: int = MAX_BATCH_BYTES) -> None:
        self.used = 0
        self._kept_bytes = 4 * capacity
        self._max_batch_bytes = max_batch_bytes
        self.data: UInt8s = np.empty(2 * capacity + _PADDING, np.uint8)

    def clear(self) -> None:
        """Forget the content, and free memory that only a very large batch needed."""
        self.used = 0
        if len(self.data) > self._kept_bytes:
            self.data = np.empty(self._kept_bytes // 2 + _PADDING, np.uint8)

    def append_bytes(self, view: Buffer) -> int:
        """Append a copy, and return the position of its start."""
        start, size = self.used, len(view)
        self._make_room_for(size)
        self.data[start : start + size] = np.frombuffer(view, np.uint8)
        self.used += size
        return start

    def decompress(self, codec: int, compressed: memoryview) -> int:
        """Append decompressed data, and return where it starts. Raises what the protocol's `decompress` raises."""
        return self.append_bytes(decompress(codec, compressed, self._max_batch_bytes))

    def _make_room_for(self, size: int) -> None:
        needed = self.used + size + _PADDING
        if needed > len(self.data):
            grown: UInt8s = np.empty(needed + size // 2, np.uint8)
            grown[: self.used] = self.data[: self.used]
            self.data = grown
