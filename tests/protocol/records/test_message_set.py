"""Message sets and wrappers: read against what old clients wrote, and no bytes that make the reader fall over."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from random import Random
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import CorruptBatch, ErrorCode, InvalidRecords, KafkaError
from minibroker.protocol.records.batch import LOG_APPEND_TIME, BatchHeader
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.message import Message, encode_message, read_message, set_message_offset
from minibroker.protocol.records.message_set import (
    build_message_set,
    decompress_inner_messages,
    find_base_offset_in_steps,
    find_last_inner_offset,
    iterate_headers_of_set,
    iterate_messages_in,
    iterate_messages_in_steps,
    iterate_records_of_message,
)
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import run_all_steps
from tests.cases import for_each
from tests.protocol.records.samples import GOLDEN, T, damaged

OLD = {name: bytes.fromhex(data) for name, data in json.loads((GOLDEN / "old_messages.json").read_text()).items()}
FORMATS = {"0.8.2.2": 0, "0.9.0.1": 0, "0.10.0.1": 1, "0.10.2.2": 1, "0.11.0.3": 1}
CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)

SMALL = [
    Record(0, T, b"key", b"value"),
    Record(1, T + 1, None, b"no key"),
    Record(2, T + 2, b"no value", None),
    Record(3, T - 5, b"", b""),
    Record(4, T + 100000, "clé".encode(), b"x" * 300),
]
LARGE = [Record(index, T, None, b"minibroker " * 1000) for index in range(3)]


def without_times(records: list[Record]) -> list[Record]:
    return [record._replace(timestamp=-1) for record in records]


def records_of_set(data: bytes) -> list[Record]:
    return [
        record for position, _ in iterate_headers_of_set(data) for record in iterate_records_of_message(data, position)
    ]


def named(magic: int, records: list[Record]) -> list[Record]:
    return records if magic else without_times(records)


@for_each("name", OLD)
def test_message_sets_of_old_clients_are_decoded(name: str) -> None:
    version, kind, codec = name.split()
    magic = FORMATS[version]
    headers: list[BatchHeader] = [header for _, header in iterate_headers_of_set(OLD[name])]
    assert {header.magic for header in headers} == {magic}
    assert {header.compression for header in headers} == {Compression[codec.upper()]}
    assert len(headers) == (len(SMALL) if codec == "none" else 1)
    found = records_of_set(OLD[name])
    if magic == 0:  # all are 0: it is the broker that gives these their offsets
        assert {record.offset for record in found} == {0}
        found = [record._replace(offset=index) for index, record in enumerate(found)]
    assert found == named(magic, SMALL if kind == "small" else LARGE)


@for_each("name", [name for name in OLD if "none" not in name])
def test_inner_messages_equal_those_of_old_clients(name: str) -> None:
    version, kind, codec = name.split()
    magic = FORMATS[version]
    ours = build_message_set(SMALL if kind == "small" else LARGE, magic, compression=Compression[codec.upper()])
    wrapper, _ = read_message(bytes(ours))
    theirs, _ = read_message(OLD[name])
    inner = bytearray(decompress_inner_messages(theirs))
    if magic == 0:  # where they have all offsets 0
        for index, (position, _) in enumerate(iterate_headers_of_set(inner)):
            set_message_offset(inner, position, index)
    assert decompress_inner_messages(wrapper) == inner
    assert wrapper._replace(value=b"") == theirs._replace(value=b"")


@for_each("name", [name for name in OLD if name.endswith("lz4")])
def test_the_lz4_header_checksum_equals_that_of_old_clients(name: str) -> None:
    theirs, _ = read_message(OLD[name])
    ours, _ = read_message(bytes(build_message_set(SMALL, theirs.magic, compression=Compression.LZ4)))
    assert ours.value is not None
    assert theirs.value is not None
    assert ours.value[4:7] == theirs.value[4:7]  # flags, block size, checksum


def test_uncompressed_messages_equal_those_of_old_clients() -> None:
    for version, magic in FORMATS.items():
        theirs = bytearray(OLD[f"{version} small none"])
        for index, (position, _) in enumerate(iterate_headers_of_set(theirs)):
            set_message_offset(theirs, position, index)
        assert build_message_set(SMALL, magic) == theirs


_fields = st.tuples(
    st.integers(1, 3), st.integers(-1, 1 << 50), st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=60)
)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Records whose offsets rise, with gaps."""
    offset, found = draw(st.integers(0, 1 << 40)), []
    for step, timestamp, key, value in draw(st.lists(_fields, min_size=1, max_size=15)):
        found.append(Record(offset, timestamp, key, value))
        offset += step
    return found


@given(record_lists(), st.sampled_from([0, 1]), st.sampled_from(CODECS))
def test_an_encoded_message_set_is_decoded_unchanged(records: list[Record], magic: int, codec: int) -> None:
    data = bytes(build_message_set(records, magic, compression=codec))
    assert records_of_set(data) == named(magic, records)
    headers = [header for _, header in iterate_headers_of_set(data)]
    assert sum(header.size_bytes for header in headers) == len(data)
    assert headers[-1].last_offset == records[-1].offset
    if magic:
        assert max(header.max_timestamp for header in headers) == max(record.timestamp for record in records)


@given(record_lists())
def test_inner_offsets_are_absolute_in_format_0_and_relative_in_format_1(records: list[Record]) -> None:
    for magic in (0, 1):
        wrapper, _ = read_message(bytes(build_message_set(records, magic, compression=Compression.GZIP)))
        first = records[0].offset if magic else 0
        inner = decompress_inner_messages(wrapper)
        assert [message.offset for message in iterate_messages_in(wrapper, inner)] == [
            r.offset - first for r in records
        ]
        assert find_last_inner_offset(inner) == records[-1].offset - first
        assert wrapper.offset == records[-1].offset


def test_log_append_time_applies_to_all_messages_in_a_wrapper() -> None:
    inner = encode_message(1, 0, T, 0, b"a", b"") + encode_message(1, 1, T + 9, 0, b"b", b"")
    wrapper = encode_message(1, 41, T + 100, 0x08 | Compression.GZIP, None, gzip.compress(inner))
    assert [(record.offset, record.timestamp) for record in iterate_records_of_message(wrapper)] == [
        (40, T + 100),
        (41, T + 100),
    ]
    ours = build_message_set(
        [Record(40, T, b"a", b""), Record(41, T, b"b", b"")],
        1,
        compression=Compression.GZIP,
        timestamp_type=LOG_APPEND_TIME,
    )
    (_, header), *_ = iterate_headers_of_set(ours)
    assert (header.timestamp_type, header.max_timestamp) == (LOG_APPEND_TIME, T)


def test_a_librdkafka_wrapper_with_offset_0_is_read_from_offset_0() -> None:
    inner = b"".join(encode_message(1, offset, T, 0, None, b"") for offset in range(3))
    wrapper = encode_message(1, 0, T, Compression.GZIP, None, gzip.compress(inner))
    assert [record.offset for record in iterate_records_of_message(wrapper)] == [0, 1, 2]


def gzipped(inner: bytes, *, magic: int = 1, offset: int = 9) -> bytes:
    return encode_message(magic, offset, T, Compression.GZIP, None, gzip.compress(inner))


def read_at_once(wrapper: bytes) -> list[Record]:
    return list(iterate_records_of_message(wrapper))


def read_in_steps(wrapper: bytes) -> list[Message | None]:
    message, _ = read_message(wrapper, 0)
    messages = list(iterate_messages_in_steps(message))
    run_all_steps(find_base_offset_in_steps(message))
    return messages


READERS: tuple[Callable[[bytes], object], ...] = (read_at_once, read_in_steps)
ONE = encode_message(1, 0, T, 0, None, b"v")


@for_each(
    ("wrapper", "code"),
    [
        (encode_message(1, 0, T, Compression.GZIP, None, None), ErrorCode.INVALID_RECORD),
        (encode_message(1, 0, T, Compression.GZIP, None, b"not gzip"), ErrorCode.CORRUPT_MESSAGE),
        (encode_message(1, 0, T, Compression.ZSTD, None, b"?"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (encode_message(0, 0, T, 7, None, b"?"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (encode_message(0, 0, T, Compression.LZ4, None, b"?"), ErrorCode.CORRUPT_MESSAGE),
        (gzipped(b""), ErrorCode.INVALID_RECORD),
        (gzipped(ONE[:-1]), ErrorCode.CORRUPT_MESSAGE),
        (gzipped(ONE + ONE[:5]), ErrorCode.CORRUPT_MESSAGE),
        (gzipped(pack(">qi", 0, -1)), ErrorCode.CORRUPT_MESSAGE),
        (gzipped(pack(">qi", 0, 0) * 100), ErrorCode.CORRUPT_MESSAGE),
        (gzipped(encode_message(0, 0, T, 0, None, b"v")), ErrorCode.INVALID_RECORD),
        (gzipped(gzipped(ONE, offset=0)), ErrorCode.INVALID_RECORD),
        (gzipped(encode_message(1, 10, T, 0, None, b"v")), ErrorCode.INVALID_RECORD),
    ],
)
def test_an_invalid_wrapper_is_rejected(wrapper: bytes, code: ErrorCode) -> None:
    for read in READERS:
        with pytest.raises(KafkaError) as raised:
            read(wrapper)
        assert raised.value.code == code


@for_each("invalid", [encode_message(0, 0, T, 0, None, b"v"), gzipped(ONE, offset=0)])
def test_an_invalid_inner_message_is_named_by_its_index(invalid: bytes) -> None:
    for read in READERS:
        with pytest.raises(InvalidRecords, match="record 2: "):
            read(gzipped(ONE + ONE + invalid))


def test_messages_of_a_wrapper_are_read_in_steps_however_the_decompressed_data_is_split() -> None:
    inner = b"".join(encode_message(1, offset, T, 0, None, b"v" * (offset % 40)) for offset in range(9000))
    wrapper, _ = read_message(gzipped(inner, offset=9000), 0)
    in_steps = [message for message in iterate_messages_in_steps(wrapper) if message is not None]
    assert in_steps == list(iterate_messages_in(wrapper, inner))


def test_an_inner_checksum_is_verified() -> None:
    inner = bytearray(ONE)
    inner[-1] ^= 1
    with pytest.raises(CorruptBatch, match="crc"):
        list(iterate_records_of_message(gzipped(bytes(inner))))


def test_a_wrapper_uses_no_more_memory_than_allowed() -> None:
    bomb = gzipped(bytes(1 << 22))
    with pytest.raises(KafkaError) as raised:
        list(iterate_records_of_message(bomb, limit_bytes=1 << 20))
    assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_partial_message_at_the_end_of_a_set_is_omitted() -> None:
    data = build_message_set(SMALL, 0)
    for cut in range(1, 26):
        assert [record.key for record in records_of_set(bytes(data[:-cut]))] == [record.key for record in SMALL[:-1]]


def test_an_empty_list_of_records_makes_no_message_set() -> None:
    assert build_message_set([], 1, compression=Compression.GZIP) == b""


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_message_sets_cannot_be_encoded(magic: int) -> None:
    with pytest.raises(KafkaError) as raised:
        build_message_set(SMALL, magic, compression=Compression.ZSTD)
    assert raised.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def read_or_refused(data: bytes) -> None:
    try:
        records_of_set(data)
    except (CorruptBatch, InvalidRecords):
        pass
    except KafkaError as error:
        assert error.code in (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.MESSAGE_TOO_LARGE)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_decoded_or_rejected(data: bytes) -> None:
    read_or_refused(data)
    read_or_refused(gzipped(data))


@for_each("seed", range(60))
def test_corrupt_message_sets_are_decoded_or_rejected(seed: int) -> None:
    random = Random(seed)
    data = OLD[random.choice([name for name in OLD if "small" in name])]
    read_or_refused(damaged(random, data))
    wrapper, _ = read_message(OLD["0.10.2.2 small gzip"])
    read_or_refused(gzipped(damaged(random, decompress_inner_messages(wrapper))))
