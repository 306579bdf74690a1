"""Rows on their way to batches: kept by partition until there are enough of them, or they have waited for long enough.

What enough is, and that all partitions' rows go at once, is here; how they are sent is the sender's.
"""

from __future__ import annotations

import time

import pyarrow as pa

from minibroker.pipeline.log_source import TopicPartition


class Buffer:
    """Rows by partition, up to about `size_bytes`; with `linger_ms` none of them for longer than that."""

    def __init__(self, size_bytes: int, linger_ms: int | None) -> None:
        self._size_bytes = size_bytes
        self._linger_s = None if linger_ms is None else linger_ms / 1000
        self._rows: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        self._oldest = 0.0

    def add(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Keep rows of a partition after those that are there."""
        if not self._rows:
            self._oldest = time.monotonic()
        self._rows.setdefault(partition, []).append(rows)
        self._held_bytes += rows.nbytes

    def is_due(self) -> bool:
        """Whether what is kept should go now."""
        if self._held_bytes >= self._size_bytes:
            return True
        return bool(self._rows) and self._linger_s is not None and time.monotonic() - self._oldest >= self._linger_s

    def take(self) -> dict[TopicPartition, pa.RecordBatch]:
        """All rows, one record batch a partition; nothing is kept."""
        taken = {partition: _joined(rows) for partition, rows in self._rows.items()}
        self._rows, self._held_bytes = {}, 0
        return taken


def _joined(rows: list[pa.RecordBatch]) -> pa.RecordBatch:
    return rows[0] if len(rows) == 1 else pa.concat_batches(rows)
