"""Batches made wrong: in the way that was asked for and no other, of all formats."""

from __future__ import annotations

import pytest

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import check_batch, read_header
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.formats import check_batch_or_message, iterate_batches_in_any_format
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from minibroker.testing.faults.error_answers import corrupt_first_batch
from minibroker.testing.faults.rules import Corruption

RECORDS = [Record(0, 1, b"k", b"v" * 40)] * 3
BATCH = bytes(build_batch(RECORDS, base_offset=5))
NEXT = bytes(build_batch(RECORDS, base_offset=8))


def test_only_the_checksum_of_the_first_batch_is_corrupted() -> None:
    data = corrupt_first_batch(BATCH + NEXT, "crc")
    with pytest.raises(CorruptBatch, match="stored crc"):
        check_batch(data)
    assert check_batch(data, len(BATCH)).base_offset == 8


def test_the_length_of_the_first_batch_is_corrupted() -> None:
    with pytest.raises(CorruptBatch):
        list(iterate_batches_in_any_format(corrupt_first_batch(BATCH, "length")))


@pytest.mark.parametrize("codec", range(5))
def test_compressed_records_are_corrupted_under_a_valid_checksum(codec: int) -> None:
    data = corrupt_first_batch(bytes(build_batch(RECORDS, compression=codec)), "codec")
    assert check_batch(data).compression == 1
    with pytest.raises(Exception, match="gzip|header|compress|Invalid|incorrect"):
        list(iterate_records_of_batch(data))


def test_a_response_is_truncated_within_a_batch() -> None:
    data = corrupt_first_batch(BATCH + NEXT, "truncated")
    assert BATCH.startswith(data) and 0 < len(data) < len(BATCH)


def test_the_offsets_fault_sends_a_batch_with_decreasing_offsets() -> None:
    offsets = [
        header.base_offset for _, header in iterate_batches_in_any_format(corrupt_first_batch(BATCH + NEXT, "offsets"))
    ]
    assert offsets == [1_000_005, 5, 8]
    assert read_header(corrupt_first_batch(BATCH, "offsets")).base_offset == 1_000_005


@pytest.mark.parametrize("magic", [0, 1])
def test_checksums_of_old_messages_are_corrupted(magic: int) -> None:
    data = bytes(build_message_set(RECORDS, magic=magic))
    check_batch_or_message(data)
    with pytest.raises(CorruptBatch):
        check_batch_or_message(corrupt_first_batch(data, "crc"))


@pytest.mark.parametrize("how", ["crc", "length", "codec", "truncated", "offsets"])
def test_nothing_is_corrupted_without_a_complete_batch(how: Corruption) -> None:
    assert corrupt_first_batch(b"", how) == b""
    assert corrupt_first_batch(BATCH[:40], how) == BATCH[:40]
