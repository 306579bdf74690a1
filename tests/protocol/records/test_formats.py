"""Batches of all formats one after another, told apart by their magic byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import check_batch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.formats import (
    check_batch_or_message,
    is_old_format,
    iterate_batches_in_any_format,
    iterate_records_in_any_format,
    read_header_at,
)
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from tests.cases import for_each
from tests.protocol.records.samples import T

RECORDS = [Record(offset, T, b"k", b"v%d" % offset) for offset in range(9)]


def mixed() -> bytes:
    return bytes(
        build_message_set(RECORDS[:2], 0)
        + build_batch(RECORDS[2:4], base_offset=2)
        + build_message_set(RECORDS[4:6], 1, compression=Compression.GZIP)
        + build_message_set(RECORDS[6:7], 1)
        + build_batch(RECORDS[7:], base_offset=7, compression=Compression.ZSTD)
    )


def test_batches_of_all_formats_are_iterated() -> None:
    found = list(iterate_batches_in_any_format(mixed()))
    assert [(header.magic, header.last_offset) for _, header in found] == [
        (0, 0),
        (0, 1),
        (2, 3),
        (1, 5),
        (1, 6),
        (2, 8),
    ]
    for position, header in found:
        assert read_header_at(mixed(), position) == check_batch_or_message(mixed(), position) == header
        assert is_old_format(mixed(), position) == (header.magic < 2)


def test_records_of_all_formats_are_decoded_alike() -> None:
    found = [
        record
        for position, _ in iterate_batches_in_any_format(mixed())
        for record in iterate_records_in_any_format(mixed(), position)
    ]
    assert [record.offset for record in found] == list(range(9))
    assert [record.value for record in found] == [record.value for record in RECORDS]


@for_each("cut", range(1, 61))
def test_a_truncated_last_batch_is_not_returned(cut: int) -> None:
    whole = list(iterate_batches_in_any_format(mixed()))
    assert list(iterate_batches_in_any_format(mixed()[:-cut])) == whole[:-1]


@pytest.mark.parametrize("magic", [3, 77, 255])
def test_an_unknown_magic_is_corrupt(magic: int) -> None:
    data = bytearray(mixed())
    data[16] = magic
    with pytest.raises(CorruptBatch, match="magic"):
        list(iterate_batches_in_any_format(data))
    with pytest.raises(CorruptBatch):
        check_batch_or_message(data)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_an_invalid_length_is_corrupt(magic: int) -> None:
    data = bytearray(build_batch(RECORDS) if magic == 2 else build_message_set(RECORDS, magic))
    data[8:12] = (13).to_bytes(4, "big")
    with pytest.raises(CorruptBatch):
        list(iterate_batches_in_any_format(data))


def test_a_batch_of_format_2_is_verified() -> None:
    data = build_batch(RECORDS)
    assert check_batch_or_message(data) == check_batch(data)
    data[-1] ^= 1
    with pytest.raises(CorruptBatch):
        check_batch_or_message(data)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_iterated_or_rejected(data: bytes) -> None:
    try:
        for position, header in iterate_batches_in_any_format(data):
            assert position + header.size_bytes <= len(data)
    except CorruptBatch:
        pass
