"""Measured batches: what the broker's own codec finds in them, the same whoever reads, and none that is damaged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.decode.decoder import BatchesDecoder
from minibroker.pipeline.log_source import ReadRequest
from minibroker.pipeline.schemas import MEASURED
from minibroker.protocol.records.batch import HEADER_BYTES, BatchHeader
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression, decompress
from minibroker.protocol.records.formats import iterate_batches_in, iterate_records_in
from minibroker.protocol.records.message import read_message
from minibroker.protocol.records.record import Record
from tests.pipeline.decode.reference import EVERYTHING, PARTITION
from tests.pipeline.decode.samples import logs, with_header

COLUMNS = ("baseOffset", "recordCount", *MEASURED)


def measured(data: bytes, one_in: int = 1, chunk_bytes: int = 4 << 20) -> list[dict[str, Any]]:
    request = ReadRequest("batches", COLUMNS, measure_one_in=one_in)
    decoder = BatchesDecoder(PARTITION, request, EVERYTHING, chunk_bytes=chunk_bytes)
    return [row for batch in decoder.feed(data, "a.log", 0) for row in batch.to_pylist()]


def expected(header: BatchHeader, batch: bytes) -> tuple[int | None, ...]:
    """Of a row: the count of records and what is measured."""
    if header.is_control:
        return (header.record_count, None, None, None, None)
    found = list(iterate_records_in(batch))
    return (
        len(found),
        uncompressed_bytes(header, batch),
        sum(len(record.key or b"") for record in found),
        sum(len(record.value or b"") for record in found),
        sum(record.value is None for record in found),
    )


def uncompressed_bytes(header: BatchHeader, batch: bytes) -> int:
    if header.magic == 2:
        return HEADER_BYTES + len(decompress(header.compression, memoryview(batch)[HEADER_BYTES:], 1 << 30))
    if not header.compression:
        return len(batch)
    value = read_message(batch)[0].value or b""
    if header.compression == Compression.LZ4 and header.magic == 0:
        return sum(len(record.key or b"") + len(record.value or b"") + 26 for record in iterate_records_in(batch))
    return len(decompress(header.compression, memoryview(value), 1 << 30))


@given(data=logs(), chunk_bytes=st.sampled_from((100, 4 << 20)))
def test_measured_sizes_equal_those_of_the_brokers_codec(data: bytes, chunk_bytes: int) -> None:
    found = [tuple(row[name] for name in COLUMNS[1:]) for row in measured(data, chunk_bytes=chunk_bytes)]
    wanted = [expected(header, data[at : at + header.size_bytes]) for at, header in iterate_batches_in(data)]
    assert found == wanted


def some_batches(count: int, codec: Compression = Compression.ZSTD) -> list[bytes]:
    return [
        bytes(build_batch([Record(offset, 0, b"k", b"v" * 100)], base_offset=offset, compression=codec))
        for offset in range(count)
    ]


def test_a_sample_has_about_the_requested_size_and_is_deterministic() -> None:
    batches = some_batches(2000)
    found = [row["baseOffset"] for row in measured(b"".join(batches), 10) if row["keyBytes"] is not None]
    assert 150 < len(found) < 250
    alone = [row["baseOffset"] for batch in batches for row in measured(batch, 10) if row["keyBytes"] is not None]
    assert alone == found


@pytest.mark.parametrize("codec", [Compression.ZSTD, Compression.GZIP, Compression.LZ4, Compression.SNAPPY])
def test_a_corrupt_batch_is_not_measured(codec: Compression) -> None:
    good, bad, last = some_batches(3, codec)
    torn = bytearray(bad)
    torn[HEADER_BYTES : HEADER_BYTES + 4] = b"\xff\xff\xff\xff"
    miscounted = with_header(last, record_count=7)
    rows = measured(good + bytes(torn) + miscounted)
    assert [row["valueBytes"] for row in rows] == [100, None, None]
    assert [row["recordCount"] for row in rows] == [1, 1, 7]
