"""Records in steps, one by one, against all of them at once: the same records, also where windows are tiny."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.protocol.errors import ErrorCode, InvalidRecords, KafkaError
from minibroker.protocol.records import streaming, windows
from minibroker.protocol.records.batch import read_header
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression, cut_into_pieces
from minibroker.protocol.records.conversion import build_records_in_format
from minibroker.protocol.records.elision import elide_attributes
from minibroker.protocol.records.formats import iterate_records_in_any_format
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.restarting import add_to_timestamps, renumber_records, restore_attributes_of_chunks
from minibroker.protocol.records.slicing import iterate_record_slices
from minibroker.protocol.records.streaming import (
    check_record_sizes,
    slice_keyed_records,
    stream_record_slices,
    stream_records,
)
from minibroker.protocol.records.windows import ByteWindow
from minibroker.protocol.steps import run_all_steps
from tests.cases import for_each
from tests.protocol.records.samples import CODECS, T, payload, similar_records

SEEDS = st.integers(0, 2**32)
PIECES = st.integers(1, 300)


def there(found: Iterable[Record | None]) -> list[Record]:
    return [record for record in found if record is not None]


@for_each("magic", [0, 1, 2])
@for_each("codec", CODECS)
@for_each("seed", range(5))
def test_streamed_records_equal_those_of_the_reader(
    magic: int, codec: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "STEP_BYTES", 100 + seed)
    monkeypatch.setattr(windows, "LARGE_BYTES", 50)
    if magic < 2 and codec == Compression.ZSTD:
        return
    sent = [record._replace(offset=7 + record.offset) for record in similar_records(Random(seed))]
    data = bytes(build_records_in_format(sent, magic, compression=codec))
    if magic < 2 and not codec:
        data = data[: read_header_size(data)]
    expected = [record._replace(headers=()) for record in iterate_records_in_any_format(data)]
    assert there(stream_records(data)) == expected
    found = there(stream_records(data, with_values=False))
    assert [record[:2] for record in found] == [record[:2] for record in expected]


def read_header_size(data: bytes) -> int:
    """The size of the first message."""
    return 12 + int.from_bytes(data[8:12], "big")


@settings(deadline=None)
@given(SEEDS, PIECES, st.integers(1, 200))
def test_streamed_keys_offsets_and_timestamps_equal_those_of_slices(seed: int, piece: int, large: int) -> None:
    sent = similar_records(Random(seed))
    data = payload(sent)
    found = slice_keyed_records(ByteWindow(cut_into_pieces((data,), piece), large), len(sent))
    expected = [each[2:] for each in iterate_record_slices(data, len(sent))]
    assert [each[2:] for each in found if each is not None] == expected


@pytest.mark.parametrize("count, tail", [(1, b""), (3, b""), (2, b"\0")])
def test_a_wrong_record_count_is_rejected(count: int, tail: bytes) -> None:
    data = payload([Record(value=b"v" * 50)] * 2) + tail
    for large in (10, 1000):
        with pytest.raises(InvalidRecords):
            list(slice_keyed_records(ByteWindow(cut_into_pieces((data,), 7), large), count))


def test_bytes_after_the_records_are_rejected_however_the_data_is_split() -> None:
    data = payload([Record(value=b"v" * 50)] * 2)
    with pytest.raises(InvalidRecords):
        list(slice_keyed_records(ByteWindow(iter((data, b"\0"))), 2))


@settings(deadline=None)
@given(SEEDS, PIECES, st.integers(-(10**12), 10**12))
def test_streaming_can_omit_records_and_shift_their_timestamps(seed: int, piece: int, by_ms: int) -> None:
    random = Random(seed)
    sent = similar_records(random)
    stays = bytes(random.randrange(2) for _ in sent)
    found = b"".join(add_to_timestamps(cut_into_pieces((payload(sent),), piece), stays, by_ms))
    kept = [each for each, stay in zip(iterate_record_slices(payload(sent), len(sent)), stays, strict=True) if stay]
    again = list(iterate_record_slices(found, len(kept)))
    assert [(each[2], each[4], each[5]) for each in again] == [(each[2], each[4], each[5]) for each in kept]
    assert [number(each[3]) for each in again] == [number(each[3]) + by_ms for each in kept]


def number(raw: int) -> int:
    return (raw >> 1) ^ -(raw & 1)


@settings(deadline=None)
@given(SEEDS, PIECES)
def test_streamed_records_get_new_offset_deltas(seed: int, piece: int) -> None:
    sent = similar_records(Random(seed))
    wrong = build_batch([record._replace(offset=3 * record.offset) for record in sent], keep_offsets=True)
    data = bytes(wrong[61:])
    assert b"".join(renumber_records(cut_into_pieces((data,), piece), len(sent))) == payload(sent, sent[0].timestamp)


@settings(deadline=None)
@given(SEEDS, PIECES)
def test_elided_attributes_are_restored_however_the_data_is_split(seed: int, piece: int) -> None:
    batch = build_batch(similar_records(Random(seed)))
    elided = elide_attributes(batch, read_header(batch))
    assert elided is not None
    count = read_header(batch).record_count
    assert b"".join(restore_attributes_of_chunks(cut_into_pieces((elided[61:],), piece), count)) == batch[61:]


def test_streaming_many_records_yields_often_for_other_work() -> None:
    batch = build_batch([Record(value=b"x")] * 10_000, compression=Compression.GZIP)
    turns = sum(record is None for record in stream_records(batch))
    assert turns >= 10_000 // streaming._RECORDS_AT_ONCE


@for_each("codec", CODECS)
@for_each("limit", [10, 99, 100, 101, 1000])
def test_a_compressed_record_above_max_decompressed_message_bytes_is_rejected(codec: int, limit: int) -> None:
    sent = [Record(value=bytes(20)), Record(value=bytes(93))]  # 100 bytes, which its length does not count
    batch = bytes(build_batch(sent, compression=codec))
    check = check_record_sizes(batch, read_header(batch), limit)
    if codec and limit < 100:
        with pytest.raises(InvalidRecords, match=f"bytes, max.decompressed.message.bytes is {limit}"):
            run_all_steps(check)
    else:
        run_all_steps(check)


def test_a_large_record_is_found_by_timestamp_but_not_converted() -> None:
    batch = bytes(build_batch([Record(timestamp=T, value=bytes(101 << 20)), Record(timestamp=T + 1)], compression=4))
    assert [record.timestamp for record in there(stream_records(batch, with_values=False))] == [T, T + 1]
    with pytest.raises(KafkaError) as refusal:
        there(stream_records(batch))
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_key_is_buffered_only_up_to_a_limit() -> None:
    batch = bytes(build_batch([Record(key=bytes(101 << 20))], compression=4))
    with pytest.raises(KafkaError) as refusal:
        list(stream_record_slices(batch, read_header(batch)))
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
