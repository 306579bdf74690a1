"""The sizes that a batch announces take no memory before its bytes bear them out."""

from __future__ import annotations

import tracemalloc

import pytest

from minibroker.pipeline.log_source import CorruptData
from tests.pipeline.decode.reference import decoded
from tests.pipeline.decode.test_damage import batch_of


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (batch_of(b"\x0e\0\0\0\1\1\0\0", (1 << 31) - 1), "2147483647 records, more than"),
        (batch_of(b"\x0e\0\0\0\1\1\0\0", 1 << 23), "malformed"),
        (batch_of(b"\x14\0\0\0\1\1\xfe\xff\xff\xff\x0f", 1), "headers"),
        (batch_of(b"\xfe\xff\xff\xff\x0f\0\0\0\1\1\0", 1), "a length of 2147483647 bytes"),
    ],
    ids=["records", "many records", "headers", "length"],
)
def test_sizes_announced_by_a_corrupt_batch_allocate_no_memory(batch: bytes, reason: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match=reason):
            decoded(batch, chunk_bytes=1 << 16)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 << 20
