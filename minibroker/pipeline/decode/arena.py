"""The memory for the decompressed records of a chunk of batches, one batch after the other.

It is reused for the next chunk. Decoders copy what they keep.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from minibroker.pipeline.array_types import UInt8s
from minibroker.protocol.records.compression import Compression, decompress

Buffer = bytes | bytearray | memoryview

MAX_BATCH_BYTES: Final = 512 << 20
"""Limit on the decompressed size of one batch."""

_PADDING: Final = 16  # readable bytes behind the last one
_LZ4_MAX_RATIO: Final = 255
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_FLAGS: Final = 0x28  # the byte after the magic: independent blocks, and the size of the content
_LZ4_INDEPENDENT: Final = 0x20
_MIN_ROOM: Final = 1 << 16
_ROOM_RATIO: Final = 8


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

    def append(self, view: Buffer) -> int:
        """Append a copy, and return the position of its start."""
        start, size = self.used, len(view)
        self._reserve_bytes(size)
        self.data[start : start + size] = np.frombuffer(view, np.uint8)
        self.used += size
        return start

    def decompress(self, codec: int, compressed: memoryview) -> int:
        """Append decompressed data, and return where it starts. Raises what the protocol's `decompress` raises."""
        is_harmless = codec != Compression.LZ4 or _is_harmless_lz4(compressed, self._max_batch_bytes)
        if codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD) and is_harmless:
            start = self._decompress_into_buffer(codec, compressed)
            if start >= 0:
                return start
        return self.append(decompress(codec, compressed, self._max_batch_bytes))

    def _decompress_into_buffer(self, codec: int, compressed: memoryview) -> int:
        """Decompress directly into the buffer. Return -1 for damaged data, and for data that expands too much."""
        import cramjam

        room = min(max(_ROOM_RATIO * len(compressed), _MIN_ROOM), self._max_batch_bytes)
        self._reserve_bytes(room)
        into = self.data[self.used : len(self.data) - _PADDING][: self._max_batch_bytes]
        variant = getattr(cramjam, Compression(codec).name.lower())
        try:
            size: int = variant.decompress_into(compressed, into)
        except cramjam.DecompressionError:
            return -1
        start = self.used
        self.used += size
        return start

    def _reserve_bytes(self, size: int) -> None:
        needed = self.used + size + _PADDING
        if needed > len(self.data):
            grown: UInt8s = np.empty(needed + size // 2, np.uint8)
            grown[: self.used] = self.data[: self.used]
            self.data = grown


def _is_harmless_lz4(compressed: memoryview, limit_bytes: int) -> bool:
    """Return whether a frame may be decompressed at once: it has no content size and cannot exceed the limit."""
    return (
        len(compressed) * _LZ4_MAX_RATIO <= limit_bytes
        and bytes(compressed[:4]) == _LZ4_MAGIC
        and len(compressed) > 4
        and compressed[4] & _LZ4_FLAGS == _LZ4_INDEPENDENT
    )
