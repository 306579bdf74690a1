"""The decoder of the batches table against headers as the protocol reads them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.log_source import OffsetRange
from minibroker.pipeline.schemas import BATCHES
from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import BatchHeader
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.formats import check_batch_or_message, iterate_batches_in_any_format
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from tests.pipeline.decode.reference import PARTITION, Row, batch_rows, micros
from tests.pipeline.decode.samples import logs, marker, with_header
from tests.protocol.records.samples import SMALL, T


def row_of(header: BatchHeader, position: int) -> Row:
    return {
        "topic": "t",
        "partition": 3,
        "segment": "a.log",
        "position": position,
        "sizeInBytes": header.size_bytes,
        "magic": header.magic,
        "codec": Compression(header.compression).name.lower(),
        "timestampType": header.timestamp_type if header.magic else -1,
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "recordCount": None if header.record_count < 0 else header.record_count,
        "baseTimestamp": micros(header.base_timestamp),
        "maxTimestamp": micros(header.max_timestamp),
        "baseTimestampMs": header.base_timestamp,
        "maxTimestampMs": header.max_timestamp,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "baseSequence": header.base_sequence,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "attributes": header.attributes,
        "crc": header.crc,
        **dict.fromkeys(("crcValid", "_corrupt")),
    }


@given(data=logs(), start=st.integers(0, 1000))
def test_each_batch_is_one_row(data: bytes, start: int) -> None:
    rows = batch_rows(data, position=start)
    assert rows == [row_of(header, start + position) for position, header in iterate_batches_in_any_format(data)]


def test_batches_of_a_broker_have_no_segments() -> None:
    (row,) = batch_rows(bytes(build_batch(SMALL)), position=None)
    assert (row["segment"], row["position"]) == (None, None)


@given(data=logs(max_batches=3), at=st.integers(0, 10000))
def test_checksums_are_verified_on_request(data: bytes, at: int) -> None:
    if not data:
        return
    changed = bytearray(data)
    changed[at % len(data)] ^= 4
    try:
        wanted = [
            is_sound(changed[position : position + header.size_bytes])
            for position, header in iterate_batches_in_any_format(changed)
        ]
    except CorruptBatch:
        return  # no batches can be found
    rows = batch_rows(bytes(changed), mode="DROPMALFORMED", verify_crc=True)
    assert [row["crcValid"] for row in rows] == wanted


def is_sound(batch: bytearray) -> bool:
    try:
        check_batch_or_message(bytes(batch))
    except CorruptBatch:
        return False
    return True


def test_each_batch_belongs_to_exactly_one_of_two_adjacent_offset_ranges() -> None:
    data = b"".join(
        (
            bytes(build_batch(SMALL)),
            marker(5),
            bytes(build_batch(SMALL, base_offset=6)),
            bytes(
                build_message_set([record._replace(offset=record.offset + 20) for record in SMALL], 1, compression=1)
            ),
        )
    )
    for middle in range(30):
        below = batch_rows(data, offsets=OffsetRange(PARTITION, 0, middle))
        above = batch_rows(data, offsets=OffsetRange(PARTITION, middle, 30))
        assert [row["lastOffset"] for row in below + above] == [4, 5, 10, 24]


def test_an_unknown_codec_is_shown_by_number() -> None:
    (row,) = batch_rows(with_header(bytes(build_batch([Record(0, T)])), attributes=5))
    assert row["codec"] == "5"


def test_each_column_of_the_batches_table_is_filled() -> None:
    (row,) = batch_rows(bytes(build_batch(SMALL)), verify_crc=True)
    assert [name for name, value in row.items() if value is None] == ["_corrupt"]
    assert list(row) == BATCHES.names
