"""Records seen through a window: the same verdict as of all of them at once, in small memory and many steps."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.protocol.errors import ErrorCode, InvalidRecords, KafkaError
from minibroker.protocol.records.batch import HEADER_BYTES, BatchHeader, read_header
from minibroker.protocol.records.building import assemble_batch, build_batch, encode_record
from minibroker.protocol.records.compression import (
    MAX_UNCOMPRESSED_BYTES,
    STEP_BYTES,
    Compression,
    compress,
    cut_into_pieces,
)
from minibroker.protocol.records.payload import get_uncompressed_payload
from minibroker.protocol.records.record import Record, parse_records
from minibroker.protocol.records.scanning import WALK_BYTES
from minibroker.protocol.records.validation import (
    MAX_RECORD_ERRORS,
    NO_KEY_MESSAGE,
    NO_TIMESTAMP,
    RecordRules,
    check_records_in_steps,
    check_records_in_window,
    make_timestamp_message,
)
from minibroker.protocol.records.varints import INT64_MAX, encode_zigzag
from minibroker.protocol.records.windows import ByteWindow
from minibroker.protocol.steps import Steps, run_all_steps
from tests.cases import for_each
from tests.protocol.records.samples import T, payload, similar_records

HEADER = read_header(build_batch([Record(timestamp=T)]))
Verdict = tuple[object, ...]


def verdict_of(steps: Steps[int]) -> Verdict:
    try:
        return (run_all_steps(steps),)
    except InvalidRecords as error:
        return error.code, error.message, error.record_errors


def strict_verdict(data: bytes, header: BatchHeader, rules: RecordRules) -> Verdict:
    """Return the strict reader's verdict on all records at once, with the rules for each one that it reads."""
    errors, code, largest, misnumbered = [], ErrorCode.INVALID_RECORD, NO_TIMESTAMP, None
    try:
        for index, record in enumerate(parse_records(data, header)):
            delta = record.offset - header.base_offset
            if delta != index and misnumbered is None:
                misnumbered = index, f"Record {index} has the offset delta {delta}, expected {index}"
            largest = max(largest, record.timestamp)
            if rules.keys_required and record.key is None:
                errors.append((index, NO_KEY_MESSAGE))
            elif not rules.allows_timestamp(record.timestamp):
                errors.append((index, make_timestamp_message(record, rules.earliest_ms, rules.latest_ms)))
                code = ErrorCode.INVALID_TIMESTAMP
    except InvalidRecords as error:
        return error.code, error.message, error.record_errors
    if misnumbered is not None and not rules.any_offsets:
        return ErrorCode.INVALID_RECORD, misnumbered[1], (misnumbered,)
    if not errors:
        return (largest,)
    if code == ErrorCode.INVALID_TIMESTAMP:
        return code, "One or more records have been rejected due to invalid timestamp", tuple(errors)
    first = "; ".join(f"record {index}: {message}" for index, message in errors[:3])
    message = f"One or more records have been rejected due to {len(errors)} record errors, the first of them: {first}"
    return code, message, tuple(errors)


def header_of(count: int) -> BatchHeader:
    return HEADER._replace(base_timestamp=T, record_count=count, last_offset_delta=count - 1)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 300), st.integers(1, 200), st.booleans())
def test_windowed_validation_agrees_with_the_strict_reader(seed: int, piece: int, large: int, mutated: bool) -> None:
    random = Random(seed)
    sent = similar_records(random)
    data, count = bytearray(payload(sent)), len(sent) + random.choice((0, 0, 0, -1, 1))
    for _ in range(random.choice((0, 1, 3)) if mutated else 0):
        match random.randrange(3):
            case 0:
                data[random.randrange(len(data))] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)))
            case 1 if random.random() < 0.5:
                sent[random.randrange(len(sent))] = sent[0]
                data = bytearray(
                    b"".join(encode_record(each, random.choice((i, i, 0)), 0) for i, each in enumerate(sent))
                )
            case 1:
                del data[random.randrange(len(data)) :][:50]
            case _:
                at = random.randrange(len(data))
                data[at:at] = random.randbytes(random.randrange(1, 9))
        if not data:
            return
    header = header_of(max(count, 1))
    rules = random.choice(
        (
            RecordRules(False),
            RecordRules(True),
            RecordRules(random.random() < 0.5, T, T + 50),
            RecordRules(True, INT64_MAX, INT64_MAX),
        )
    )
    rules = rules._replace(any_offsets=random.random() < 0.3)
    window = ByteWindow(cut_into_pieces((data,), piece), large)
    assert verdict_of(check_records_in_window(window, header, rules)) == strict_verdict(bytes(data), header, rules)


@for_each("codec", Compression)
@for_each("seed", range(8))
def test_mutated_compressed_batches_get_the_same_result_in_steps_as_at_once(seed: int, codec: int) -> None:
    """The codec's refusal is in its own words, whatever is wrong with the records before it."""
    random = Random(seed)
    batch = build_batch(similar_records(random), compression=codec)
    for _ in range(random.randrange(3)):
        batch[random.randrange(HEADER_BYTES, len(batch))] ^= 1 << random.randrange(8)
    header = read_header(batch)
    try:
        expected = strict_verdict(bytes(get_uncompressed_payload(batch, 0, header)), header, RecordRules(True))
    except KafkaError as error:
        with pytest.raises(type(error)) as refusal:
            run_all_steps(check_records_in_steps(batch, 0, header, RecordRules(True)))
        assert (refusal.value.code, refusal.value.message) == (error.code, error.message)
    else:
        assert verdict_of(check_records_in_steps(batch, 0, header, RecordRules(True))) == expected


# --- how much and how long ------------------------------------------------------------------------


class Watched(ByteWindow):
    """A window that knows the most it ever held."""

    __slots__ = ("most_bytes",)

    def __init__(self, chunks: Iterator[bytes | bytearray | memoryview], large_bytes: int) -> None:
        super().__init__(chunks, large_bytes)
        self.most_bytes = 0

    def drop_and_read_next_chunk(self, position: int) -> int:
        found = super().drop_and_read_next_chunk(position)
        self.most_bytes = max(self.most_bytes, len(self.data))
        return found


def steps_of(steps: Steps[int]) -> int:
    """How many steps it takes, whatever comes of it."""
    count = 0
    try:
        for _ in steps:
            count += 1
    except InvalidRecords:
        pass
    return count


def with_headers(count: int, key: bytes | None = b"k") -> bytes:
    """A record with so many headers, whose keys and values are empty."""
    body = b"\0\0\0" + (encode_zigzag(-1) if key is None else encode_zigzag(len(key)) + key) + b"\0"
    body += encode_zigzag(count) + bytes(2 * count)
    return encode_zigzag(len(body)) + body


@pytest.mark.parametrize("record", [with_headers(50_000), encode_record(Record(value=bytes(100_000)), 0, 0)])
def test_a_record_larger_than_the_window_is_validated(record: bytes) -> None:
    window = Watched(cut_into_pieces((record,), 1000), 500)
    count = steps_of(check_records_in_window(window, header_of(1), RecordRules(False)))
    assert window.most_bytes < 3 * 1000
    assert count >= 100


@for_each("sizes", [(1, 1), (63, 64), (64, 63), (200, 8191), (8192, 200), (9000, 9000)])
def test_a_large_record_may_have_headers_of_any_size(sizes: tuple[int, int]) -> None:
    key_bytes, value_bytes = sizes
    headers = tuple(("k" * key_bytes, bytes([index]) * value_bytes) for index in range(60))
    record = encode_record(Record(timestamp=T, value=bytes(10_000), headers=headers), 0, 0)
    header = header_of(1)
    for pieces in (1000, 100_000):
        window = ByteWindow(cut_into_pieces((record,), pieces), 500)
        assert verdict_of(check_records_in_window(window, header, RecordRules(False))) == strict_verdict(
            record, header, RecordRules(False)
        )


def test_records_with_many_headers_each_take_many_steps() -> None:
    record = with_headers(5000)
    records = b"".join(record[:5] + bytes((2 * index,)) + record[6:] for index in range(60))  # the offset's delta
    steps = steps_of(
        check_records_in_window(ByteWindow(cut_into_pieces((records,), 1 << 18)), header_of(60), RecordRules(True))
    )
    assert steps >= len(records) // WALK_BYTES


def test_a_million_rejected_records_are_counted_but_not_listed() -> None:
    sent = [Record(timestamp=T)] * 20_000
    batch = build_batch(sent, compression=Compression.ZSTD)
    with pytest.raises(InvalidRecords) as refusal:
        run_all_steps(check_records_in_steps(batch, 0, read_header(batch), RecordRules(True)))
    assert "due to 20000 record errors" in str(refusal.value)
    assert [index for index, _ in refusal.value.record_errors] == list(range(MAX_RECORD_ERRORS))
    assert steps_of(check_records_in_steps(batch, 0, read_header(batch), RecordRules(True))) >= 20_000 // 512


@pytest.mark.parametrize("size_bytes", [20_000_000, 120_000_000])
def test_a_decompression_bomb_is_never_held_in_memory(size_bytes: int) -> None:
    bomb = compress(Compression.ZSTD, encode_record(Record(value=bytes(size_bytes)), 0, 0))
    batch = assemble_batch(header_of(1)._replace(attributes=int(Compression.ZSTD)), bomb)
    assert steps_of(check_records_in_steps(batch, 0, read_header(batch), RecordRules(False))) >= size_bytes >> 17


def test_validation_stops_soon_after_an_invalid_record() -> None:
    bomb = compress(Compression.ZSTD, bytes(400 << 20))
    batch = assemble_batch(header_of(1)._replace(attributes=int(Compression.ZSTD)), bomb)
    steps = check_records_in_steps(batch, 0, read_header(batch), RecordRules(False))
    assert steps_of(steps) <= MAX_UNCOMPRESSED_BYTES // STEP_BYTES + 10
