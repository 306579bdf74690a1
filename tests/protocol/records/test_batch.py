"""Headers of batches: what they say, what is refused, and changing them in place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from minibroker.protocol.errors import CorruptBatch, ErrorCode
from minibroker.protocol.records.batch import (
    CREATE_TIME,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    check_batch,
    iterate_batches,
    read_header,
    set_checksum,
    set_log_append_time,
    set_offset_and_epoch,
    set_timestamp_type_and_max,
)
from minibroker.protocol.records.payload import iterate_records_of_batch
from tests.cases import for_each
from tests.protocol.records.samples import CLIENTS, JAVA, T, golden

BATCH = JAVA["small none"]
ALL_GOLDEN = [batch for client in CLIENTS for batch in golden(client).values()]


def changed(**fields: int) -> bytes:
    """`BATCH` with other values in its header, and a checksum that is right."""
    batch = bytearray(BATCH)
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(**fields))
    set_checksum(batch, 0, len(batch))
    return bytes(batch)


class TestReading:
    def test_fields_of_a_java_batch_are_decoded(self) -> None:
        header = read_header(JAVA["transactional"])
        assert header == BatchHeader(40, 118, 9, 2, 0x9FD1F3B4, 0x10, 2, T, T, 77, 3, 2147483646, 3)
        assert header.size_bytes == len(JAVA["transactional"])
        assert (header.last_offset, header.next_offset) == (42, 43)
        assert header.is_transactional
        assert not header.is_control

    def test_the_last_sequence_of_a_batch_wraps_around(self) -> None:
        assert read_header(JAVA["transactional"]).last_sequence == 0
        assert read_header(BATCH)._replace(base_sequence=2147483645, last_offset_delta=2).last_sequence == 2147483647

    def test_a_batch_without_a_sequence_has_last_sequence_minus_1(self) -> None:
        assert read_header(BATCH).last_sequence == -1

    def test_attributes_of_a_batch_are_decoded(self) -> None:
        header = read_header(BATCH)
        assert (header.compression, header.timestamp_type, header.delete_horizon_ms) == (0, CREATE_TIME, None)
        assert not header.is_transactional
        assert header._replace(attributes=0x07).compression == 7
        assert header._replace(attributes=0x08).timestamp_type == LOG_APPEND_TIME
        assert header._replace(attributes=0x20).is_control
        assert header._replace(attributes=0x40).delete_horizon_ms == T

    def test_a_batch_header_of_fewer_than_61_bytes_is_rejected(self) -> None:
        assert read_header(BATCH[:HEADER_BYTES]) == read_header(BATCH)
        with pytest.raises(CorruptBatch, match="60 bytes are left") as refusal:
            read_header(b"xx" + BATCH[:60], 2)
        assert refusal.value.position == 2
        with pytest.raises(CorruptBatch, match="1 byte is left, fewer than a batch header's 61"):
            read_header(BATCH[:1])


class TestChecking:
    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_batches_of_real_clients_are_valid_at_any_position(self, kind: Callable[[bytes], bytes]) -> None:
        for batch in ALL_GOLDEN:
            assert check_batch(kind(b"before" + batch + b"after"), 6).size_bytes == len(batch)

    def test_a_truncated_batch_is_rejected(self) -> None:
        for end in range(len(BATCH)):
            with pytest.raises(CorruptBatch) as refusal:
                check_batch(BATCH[:end])
            assert refusal.value.code == ErrorCode.CORRUPT_MESSAGE

    def test_any_flipped_bit_is_detected(self) -> None:
        """But not in the two fields that the broker sets, which nothing guards."""
        unguarded = {*range(0, 8), *range(12, 16)}
        for bit in range(8 * len(BATCH)):
            if bit // 8 in unguarded:
                continue
            batch = bytearray(BATCH)
            batch[bit // 8] ^= 1 << bit % 8
            with pytest.raises(CorruptBatch):
                check_batch(batch)

    def test_a_checksum_error_shows_both_checksums(self) -> None:
        with pytest.raises(CorruptBatch, match=r"stored crc = 2480127982, computed crc = \d+"):
            check_batch(BATCH[:-1] + b"\xfe")

    @pytest.mark.parametrize("magic", [0, 1])
    def test_old_formats_are_reported_as_unsupported(self, magic: int) -> None:
        message = bytes(8) + b"\0\0\0\x0e" + bytes(4) + bytes((magic,)) + bytes(9)
        with pytest.raises(CorruptBatch, match=f"format {magic} is not supported"):
            check_batch(message)

    @pytest.mark.parametrize("magic", [3, 127, 255])
    def test_unknown_formats_are_rejected(self, magic: int) -> None:
        with pytest.raises(CorruptBatch, match=f"Invalid magic found in record: {magic}"):
            check_batch(BATCH[:16] + bytes((magic,)) + BATCH[17:])

    @for_each("length", [48, 14, 0, -1, -12, -(2**31)])
    def test_lengths_too_small_for_a_header_are_rejected(self, length: int) -> None:
        with pytest.raises(CorruptBatch, match="smaller than the minimum"):
            check_batch(BATCH[:8] + length.to_bytes(4, "big", signed=True) + BATCH[12:])

    @given(st.binary(max_size=200))
    def test_arbitrary_bytes_are_rejected_as_a_batch(self, data: bytes) -> None:
        with pytest.raises(CorruptBatch):
            check_batch(data)


class TestIterating:
    def test_each_batch_is_returned_with_its_position(self) -> None:
        data = BATCH + JAVA["abort"] + BATCH
        positions = [0, len(BATCH), len(BATCH) + len(JAVA["abort"])]
        assert list(iterate_batches(data)) == [(position, read_header(data, position)) for position in positions]

    def test_a_truncated_last_batch_is_omitted(self) -> None:
        for end in range(len(BATCH), 2 * len(BATCH)):
            assert [position for position, _ in iterate_batches((BATCH + BATCH)[:end])] == [0]

    def test_empty_data_has_no_batches(self) -> None:
        assert list(iterate_batches(b"")) == []

    @pytest.mark.parametrize("bad", [changed(batch_length=48), changed(batch_length=-1), changed(magic=1)])
    def test_iteration_stops_where_the_next_batch_cannot_be_found(self, bad: bytes) -> None:
        found = iterate_batches(BATCH + bad)
        assert next(found)[0] == 0
        with pytest.raises(CorruptBatch) as refusal:
            next(found)
        assert refusal.value.position == len(BATCH)

    @given(st.binary(max_size=300))
    def test_iterating_over_arbitrary_bytes_ends_or_reports_corruption(self, data: bytes) -> None:
        try:
            for position, header in iterate_batches(data):
                assert position + header.size_bytes <= len(data)
        except CorruptBatch:
            pass


class TestChangingInPlace:
    def test_setting_offset_and_epoch_keeps_the_checksum_valid(self) -> None:
        data = bytearray(b"xxx" + BATCH)
        set_offset_and_epoch(memoryview(data), 3, 2**40, 17)
        header = check_batch(data, 3)
        assert header == read_header(BATCH)._replace(base_offset=2**40, partition_leader_epoch=17)
        assert [record.offset - 2**40 for record in iterate_records_of_batch(data, 3)] == [0, 1, 2, 3, 4]

    def test_log_append_time_set_in_place_is_read_by_clients(self) -> None:
        data = bytearray(b"xxx" + BATCH + b"yyy")
        set_log_append_time(memoryview(data), 3, T + 12345)
        batch = bytes(data[3:-3])
        assert check_batch(batch).timestamp_type == LOG_APPEND_TIME
        theirs = DefaultRecordBatch(bytearray(batch))
        assert theirs.validate_crc()
        assert [(record.timestamp, record.timestamp_type) for record in theirs] == [(T + 12345, LOG_APPEND_TIME)] * 5
        assert [record.timestamp for record in MemoryRecords(batch).next_batch()] == [T + 12345] * 5
        assert [record.timestamp for record in iterate_records_of_batch(batch)] == [T + 12345] * 5
        assert data[:3] + data[-3:] == b"xxxyyy"

    def test_setting_create_time_undoes_setting_log_append_time(self) -> None:
        data = bytearray(BATCH)
        set_log_append_time(data, 0, T + 12345)
        set_timestamp_type_and_max(data, 0, CREATE_TIME, T + 100000)
        assert data == BATCH

    def test_unsupported_attribute_bits_are_cleared(self) -> None:
        data = bytearray(changed(attributes=-1))
        set_timestamp_type_and_max(data, 0, CREATE_TIME, T)
        assert check_batch(data).attributes == 0x77
