"""Reads large files with little memory."""

from __future__ import annotations

from collections.abc import Iterable

from minibroker.protocol.records.walking import BLOCK_BYTES, NO_LIMIT, BatchWalker
from minibroker.storage.files import File


class BlockReader:
    """The first `size_bytes` of a file, of which `BLOCK_BYTES` are in memory."""

    def __init__(self, file: File, size_bytes: int) -> None:
        self._file = file
        self._size = size_bytes
        self._block = memoryview(b"")
        self._start = 0

    def read_at(self, position: int, size: int) -> memoryview:
        """Return `size` bytes (`BLOCK_BYTES` at most) from `position` on, fewer only at the end. Raises `OSError`."""
        size = min(size, BLOCK_BYTES, self._size - position)
        if size <= 0:
            return memoryview(b"")
        at = position - self._start
        if at < 0 or at + size > len(self._block):
            data = self._file.read(position, min(BLOCK_BYTES, self._size - position))
            self._block, self._start, at = memoryview(data), position, 0
        return self._block[at : at + size]


def make_batch_walker(
    file: File,
    size_bytes: int,
    *,
    next_offset: int = 0,
    limit: int = NO_LIMIT,
    indexed_batches: Iterable[tuple[int, int]] = (),
) -> BatchWalker:
    """Return a walker over the first `size_bytes` of a file. Its methods raise `OSError`."""
    return BatchWalker(
        lambda: BlockReader(file, size_bytes).read_at,
        size_bytes,
        next_offset=next_offset,
        limit=limit,
        known=indexed_batches,
    )
