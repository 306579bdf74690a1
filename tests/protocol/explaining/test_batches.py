"""Explained records of all formats and codecs, whole, cut and damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.explaining.messages import explain_records
from minibroker.protocol.records.batch import ELIDED_BIT, LOG_APPEND_TIME
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from tests.protocol.explaining.explained import check_that_each_byte_has_one_part, named

RECORDS = [
    Record(offset=0, timestamp=1_700_000_000_000, key=b"k", value=b"v" * 100, headers=(("h", b"x"), ("none", None))),
    Record(offset=1, timestamp=1_700_000_000_005, key=None, value=None),
]
WHOLE = ("records", "RecordBatch", "Record", "header", "Message")  # types of what has fields


@pytest.mark.parametrize("codec", list(Compression))
def test_each_byte_of_a_batch_is_explained_by_exactly_one_field(codec: Compression) -> None:
    data = bytes(build_batch(RECORDS, base_offset=40, compression=codec))
    part = explain_records(data)
    assert not list(part.iterate_problems())
    check_that_each_byte_has_one_part(part, 0, len(data))
    assert named(part, "crc").meaning == "right"
    assert named(part, "record [1]").meaning == "offset 41"
    assert named(part, "timestamp_delta").meaning == "2023-11-14T22:13:20.000Z"


def test_compressed_records_have_ranges_of_the_decompressed_bytes() -> None:
    part = explain_records(bytes(build_batch(RECORDS, compression=Compression.GZIP)))
    records = named(part, "records") if part.name != "records" else named(part.parts[0], "records")
    assert records.payload is not None
    for record in records.parts:
        check_that_each_byte_has_one_part(record, record.start, record.end)
    assert records.parts[-1].end == len(records.payload)
    value = named(records, "value")
    assert records.payload[value.start + value.prefix_bytes : value.end] == b"v" * 100


def test_attributes_and_producers_are_explained_in_words() -> None:
    data = build_batch(
        RECORDS, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True, timestamp_type=LOG_APPEND_TIME
    )
    part = explain_records(bytes(data))
    assert named(part, "attributes").meaning == "none, log append time, transactional"
    assert named(part, "producer_id").meaning == ""
    assert named(explain_records(bytes(build_batch(RECORDS))), "producer_id").meaning == "none"


def test_a_batch_without_timestamps_is_explained_as_such() -> None:
    (batch,) = explain_records(bytes(build_batch([Record(-1, -1, b"k", b"v", ())]))).parts
    assert {part.meaning for part in batch.parts if part.name in ("base_timestamp", "max_timestamp")} == {"none"}


def test_control_records_are_explained() -> None:
    marker = make_transaction_marker(committed=True, coordinator_epoch=0, timestamp=0)
    data = build_batch([marker], control=True, transactional=True, producer_id=1, producer_epoch=0)
    assert named(explain_records(bytes(data)), "key").meaning == "control record: COMMIT"


def test_a_wrong_checksum_is_shown_with_the_right_one() -> None:
    data = bytearray(build_batch(RECORDS))
    data[-1] ^= 1
    assert named(explain_records(bytes(data)), "crc").meaning.startswith("WRONG: the bytes have ")


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_each_byte_of_older_messages_is_explained_by_exactly_one_field(magic: int, codec: Compression) -> None:
    data = bytes(build_message_set([each._replace(headers=()) for each in RECORDS], magic=magic, compression=codec))
    part = explain_records(data)
    assert not list(part.iterate_problems())
    check_that_each_byte_has_one_part(part, 0, len(data))
    assert named(part, "crc").meaning == "right"
    values = [each.value for _, each in part.iterate_parts() if each.name == "value"]
    assert b"v" * 100 in values


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_every_explained_field_has_a_description(magic: int) -> None:
    data = build_batch(RECORDS) if magic == 2 else build_message_set([RECORDS[0]._replace(headers=())], magic=magic)
    fields = [each for _, each in explain_records(bytes(data)).iterate_parts() if each.type not in WHOLE]
    assert [each.name for each in fields if not each.about] == []


def test_the_batch_after_a_corrupt_one_is_explained() -> None:
    data = bytearray(build_batch(RECORDS))
    size = len(data)
    data[61] = 0x7F  # the length of the first record
    part = explain_records(bytes(data + build_batch(RECORDS, base_offset=2)))
    assert [each.name for each in part.parts] == ["batch [0]", "batch [1]"]
    assert (part.parts[0].end, list(part.parts[1].iterate_problems())) == (size, [])
    assert named(part.parts[0], "record [0]").problem.startswith("a length of ")


def test_a_truncated_batch_is_explained_up_to_its_end() -> None:
    data = bytes(build_batch(RECORDS))
    for size in range(1, len(data)):
        part = explain_records(data[:size])
        assert list(part.iterate_problems())
        check_that_each_byte_has_one_part(part, 0, size)


def test_unknown_codecs_and_attribute_bits_are_reported() -> None:
    data = bytearray(build_batch(RECORDS))
    data[22] = 7 | ELIDED_BIT
    part = explain_records(bytes(data))
    assert named(part, "attributes").meaning == "unknown codec 7, create time, records without attributes"
    assert any("cannot be decompressed" in each.problem for each in part.iterate_problems())


@given(st.binary(max_size=300))
def test_explaining_arbitrary_bytes_never_raises(data: bytes) -> None:
    check_that_each_byte_has_one_part(explain_records(data), 0, len(data))
