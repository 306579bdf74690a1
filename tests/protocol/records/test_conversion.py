"""Records through the formats and back: offsets, keys and values stay, and timestamps where the format has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import LOG_APPEND_TIME, BatchHeader, check_batch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.conversion import build_records_in_format, down_convert_batch_in_steps
from minibroker.protocol.records.formats import (
    check_batch_or_message,
    iterate_batches_in_any_format,
    iterate_records_in_any_format,
)
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.varints import Bytes
from minibroker.protocol.steps import run_all_steps
from tests.cases import for_each
from tests.protocol.records.samples import SMALL, T
from tests.protocol.records.test_message_set import CODECS, record_lists, without_times

MAGICS = (0, 1, 2)


def down_converted(batch: Bytes, header: BatchHeader, magic: int, first_offset: int = 0) -> bytearray:
    return run_all_steps(down_convert_batch_in_steps(batch, header, magic, first_offset))


def records_of_data(data: bytes | bytearray) -> list[Record]:
    """All records of some batches, each of which must be sound."""
    found = []
    for position, header in iterate_batches_in_any_format(data):
        assert check_batch_or_message(data, position) == header
        found += iterate_records_in_any_format(data, position)
    return found


def bare(records: list[Record], magic: int) -> list[Record]:
    """Return what is left of records in a format."""
    kept = [record._replace(headers=()) if magic < 2 else record for record in records]
    return kept if magic else without_times(kept)


@given(record_lists(), st.sampled_from(CODECS), st.permutations(MAGICS), st.sampled_from(MAGICS))
def test_records_are_the_same_in_every_format(
    records: list[Record], codec: int, path: tuple[int, ...], last: int
) -> None:
    expected = records
    for magic in (2, *path, last):
        data = build_records_in_format(expected, magic, compression=codec)
        expected = bare(expected, magic)
        assert records_of_data(data) == expected
    assert [(r.offset, r.key, r.value) for r in expected] == [(r.offset, r.key, r.value) for r in records]


@given(record_lists(), st.sampled_from(CODECS), st.sampled_from([(2, 1), (2, 0), (1, 0)]))
def test_a_batch_is_down_converted_with_its_codec(records: list[Record], codec: int, formats: tuple[int, int]) -> None:
    source, target = formats
    data = build_records_in_format(records, source, compression=codec)
    converted = bytearray()
    for position, header in iterate_batches_in_any_format(data):
        converted += down_converted(data[position : position + header.size_bytes], header, target)
    assert records_of_data(converted) == bare(records, target)
    assert {(header.magic, header.compression) for _, header in iterate_batches_in_any_format(converted)} == {
        (target, codec)
    }
    assert max(header.last_offset for _, header in iterate_batches_in_any_format(converted)) == records[-1].offset


@given(record_lists(), st.sampled_from((*CODECS, Compression.ZSTD)))
def test_an_up_converted_batch_equals_one_written_by_kafka(records: list[Record], codec: int) -> None:
    expected = build_batch(records, base_offset=records[0].offset, keep_offsets=True, compression=codec)
    assert build_records_in_format(records, 2, compression=codec) == expected


@pytest.mark.parametrize("magic", [0, 1])
def test_headers_are_dropped_by_down_conversion(magic: int) -> None:
    data = build_batch(SMALL)
    converted = down_converted(data, check_batch(data), magic)
    assert records_of_data(converted) == bare(SMALL, magic)


@pytest.mark.parametrize("magic", [0, 1])
def test_control_batches_are_omitted(magic: int) -> None:
    marker = make_transaction_marker(committed=True, coordinator_epoch=3, timestamp=T)
    data = build_batch([marker], control=True, transactional=True, producer_id=5, producer_epoch=0)
    assert down_converted(data, check_batch(data), magic) == b""


def test_a_batch_emptied_by_compaction_is_omitted() -> None:
    data = build_batch(SMALL)
    assert down_converted(data, check_batch(data)._replace(record_count=0), 1) == b""


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_not_down_converted(magic: int) -> None:
    data = build_batch(SMALL, compression=Compression.ZSTD)
    with pytest.raises(KafkaError) as raised:
        down_converted(data, check_batch(data), magic)
    assert raised.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", CODECS)
def test_uncompressed_records_below_the_requested_offset_are_omitted(codec: int) -> None:
    data = build_batch(SMALL, base_offset=10, compression=codec)
    found = [record.offset for record in records_of_data(down_converted(data, check_batch(data), 1, 12))]
    assert found == ([12, 13, 14] if codec == Compression.NONE else [10, 11, 12, 13, 14])


@for_each("codec", CODECS)
@for_each("magic", [1, 2])
def test_conversion_keeps_log_append_time(codec: int, magic: int) -> None:
    stamped = [record._replace(timestamp=T, headers=()) for record in SMALL]
    data = build_records_in_format(stamped, 2, compression=codec, timestamp_type=LOG_APPEND_TIME)
    converted = down_converted(data, check_batch(data), 1) if magic == 1 else data
    assert {header.timestamp_type for _, header in iterate_batches_in_any_format(converted)} == {LOG_APPEND_TIME}
    assert records_of_data(converted) == stamped


@pytest.mark.parametrize("magic", MAGICS)
def test_an_empty_list_of_records_is_converted_to_no_bytes(magic: int) -> None:
    assert build_records_in_format([], magic, compression=Compression.GZIP) == b""
