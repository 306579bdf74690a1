"""The two checksums of an lz4 frame's header: the right one is what the lz4 library writes, and the old one is not."""

from __future__ import annotations

import pytest
from lz4 import frame

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.lz4_frames import compute_xxhash32, set_format_0_checksum, set_standard_checksum
from tests.cases import for_each


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0x02CC5D05), (b"abc", 0x32D153FF), (b"abcdefghijklmnopqrstuvwxyz", 0x63A14D5F)],
)
def test_the_lz4_header_hash_is_xxhash32(data: bytes, expected: int) -> None:
    assert compute_xxhash32(data) == expected


@pytest.mark.parametrize("store_size", [False, True])
def test_the_standard_lz4_header_checksum_equals_that_of_the_library(store_size: bool) -> None:
    compressed = frame.compress(b"minibroker" * 100, store_size=store_size)
    assert set_standard_checksum(compressed) == compressed
    old = set_format_0_checksum(compressed)
    assert len(old) == len(compressed)
    assert old != compressed
    with pytest.raises(RuntimeError):
        frame.decompress(bytes(old))
    assert set_standard_checksum(old) == compressed


@for_each("size", range(7))
def test_an_lz4_frame_truncated_in_its_header_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch):
        set_standard_checksum(frame.compress(b"x", store_size=False)[:size])


def test_an_lz4_header_that_announces_too_much_is_corrupt() -> None:
    data = bytearray(frame.compress(b"x", store_size=False)[:7])
    data[4] |= 0x09
    with pytest.raises(CorruptBatch):
        set_standard_checksum(data)
