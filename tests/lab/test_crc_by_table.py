"""The checksum that a browser computes is that of the package."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.records import crc
from minibroker.protocol.records.crc_by_table import compute_crc32c


@given(st.binary(max_size=300), st.integers(0, 0xFFFFFFFF))
def test_the_crc_by_table_equals_that_of_the_library(data: bytes, seed: int) -> None:
    assert compute_crc32c(data, seed) == crc.crc32c(data, seed)
    assert compute_crc32c(memoryview(data)[1:]) == crc.crc32c(data[1:])


def test_the_crc_library_is_used_if_it_is_installed() -> None:
    assert crc.crc32c.__module__ != compute_crc32c.__module__
