"""The strict reader of records, on batches of real clients and on damaged ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import ErrorCode, InvalidRecords, KafkaError
from minibroker.protocol.records.batch import LOG_APPEND_TIME, read_header
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record, parse_records
from minibroker.protocol.records.varints import encode_zigzag
from tests.cases import for_each
from tests.protocol.records.samples import CLIENTS, CODECS, JAVA, LARGE, SMALL, T, golden, payload, records

HEADER = read_header(JAVA["small none"])


def parsed(data: bytes, count: int) -> list[Record]:
    return list(parse_records(data, HEADER._replace(record_count=count)))


def record(*parts: bytes) -> bytes:
    """A record of these parts, with the right length."""
    body = b"".join(parts)
    return encode_zigzag(len(body)) + body


HEAD = b"\0\0\0"  # attributes, timestamp delta and offset delta


class TestRealClients:
    @for_each("codec", CODECS)
    @for_each("client", CLIENTS)
    def test_small_records_of_real_clients_are_decoded(self, client: str, codec: Compression) -> None:
        batch = golden(client)[f"small {codec.name.lower()}"]
        assert read_header(batch).compression == codec
        assert list(iterate_records_of_batch(batch)) == SMALL

    @for_each("codec", CODECS[1:])
    @for_each("client", CLIENTS)
    def test_large_records_of_real_clients_are_decoded(self, client: str, codec: Compression) -> None:
        assert list(iterate_records_of_batch(golden(client)[f"large {codec.name.lower()}"])) == LARGE

    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize("client", [aiokafka_records, kafka_python_records])
    @given(sent=records())
    def test_records_of_python_clients_are_decoded(self, client: Any, codec: Compression, sent: list[Record]) -> None:
        if client is kafka_python_records and codec == Compression.SNAPPY:
            return  # which it does only with one more library
        builder = client.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
        for offset, timestamp, key, value, headers in sent:
            builder.append(offset, timestamp, key, value, list(headers))
        assert list(iterate_records_of_batch(bytes(builder.build()))) == sent


class TestMeaning:
    def test_null_and_empty_keys_and_values_are_different(self) -> None:
        (found,) = parsed(record(HEAD, b"\x01", b"\0", b"\0"), 1)
        assert (found.key, found.value) == (None, b"")

    def test_any_negative_key_or_value_length_means_null_as_in_java(self) -> None:
        (found,) = parsed(record(HEAD, b"\x03", b"\x63", b"\0"), 1)
        assert (found.key, found.value) == (None, None)

    def test_unknown_record_attributes_are_ignored(self) -> None:
        assert parsed(record(b"\xff\0\0", b"\x01", b"\x01", b"\0"), 1) == [Record(0, T, None, None)]

    def test_log_append_time_replaces_all_timestamps(self) -> None:
        batch = build_batch(SMALL, timestamp_type=LOG_APPEND_TIME)
        assert {found.timestamp for found in iterate_records_of_batch(batch)} == {T + 100000}

    def test_offsets_are_relative_to_the_base_offset(self) -> None:
        batch = build_batch(SMALL, base_offset=1000)
        assert [found.offset for found in iterate_records_of_batch(batch)] == [1000, 1001, 1002, 1003, 1004]

    def test_header_keys_that_are_not_utf8_are_still_decoded(self) -> None:
        (found,) = parsed(record(HEAD, b"\x01", b"\x01", b"\x02", b"\x02\xff", b"\x01"), 1)
        assert found.headers == (("\ufffd", None),)

    def test_a_batch_emptied_by_compaction_has_no_records(self) -> None:
        assert list(iterate_records_of_batch(JAVA["small none"][:57] + bytes(4))) == []

    def test_a_batch_within_other_bytes_is_decoded(self) -> None:
        data = memoryview(b"x" * 7 + JAVA["small zstd"] + b"y" * 7)
        assert list(iterate_records_of_batch(data, 7)) == SMALL


MALFORMED = {
    "of no length": (b"\0", "a length of 0 bytes"),
    "of negative length": (b"\x01", "a length of -1 bytes"),
    "longer than the rest": (encode_zigzag(9) + bytes(8), "a length of 9 bytes, 8 are left"),
    "of a length that is no varint": (b"\xff\xff\xff\xff\xff\x01", "a varint of more than 5 bytes"),
    "with bytes left": (record(HEAD, b"\x01", b"\x01", b"\0", b"left"), "4 bytes are left in it after its headers"),
    "with a key longer than it": (record(HEAD, b"\x08", b"abc"), "4 bytes of a key or value, 3 are left"),
    "with a value longer than it": (record(HEAD, b"\x01", b"\x08", b"abc"), "4 bytes of a key or value, 3 are left"),
    "that ends in its timestamp": (record(b"\0\x80"), "the data ends in a varint"),
    "with a timestamp that is no varlong": (record(b"\0", b"\xff" * 10, b"\0\1\1\0"), "a varint of more than 10 bytes"),
    "with fewer than no headers": (record(HEAD, b"\x01", b"\x01", b"\x01"), "-1 headers"),
    "with more headers than bytes": (record(HEAD, b"\x01", b"\x01", b"\x06", b"\0\0"), "3 headers, 2 bytes are left"),
    "with 2^30 headers": (record(HEAD, b"\x01", b"\x01", encode_zigzag(2**30)), "1073741824 headers, 0 bytes"),
    "with a header without a key": (record(HEAD, b"\x01", b"\x01", b"\x02", b"\x01\x01"), "a header without a key"),
    "that ends in a header": (record(HEAD, b"\x01", b"\x01", b"\x02", b"\x02k"), "the data ends in a varint"),
}


class TestMalformedRecords:
    @for_each("data, message", MALFORMED.values())
    def test_malformed_records_are_reported_by_index(self, data: bytes, message: str) -> None:
        good = payload(SMALL)
        found = parse_records(good + data, HEADER._replace(record_count=6))
        assert [next(found) for _ in range(5)] == SMALL
        with pytest.raises(InvalidRecords) as refusal:
            next(found)
        assert refusal.value.code == ErrorCode.INVALID_RECORD
        ((index, error),) = refusal.value.record_errors
        assert index == 5
        assert message in error
        assert str(refusal.value) == f"INVALID_RECORD: record 5 is malformed: {error}"

    def test_bytes_after_the_last_record_are_rejected(self) -> None:
        with pytest.raises(InvalidRecords, match="records still remaining"):
            parsed(payload(SMALL), 4)

    def test_fewer_records_than_announced_are_rejected(self) -> None:
        with pytest.raises(InvalidRecords, match="record 5 is malformed"):
            parsed(payload(SMALL), 6)

    @given(records(), st.data())
    def test_truncated_records_are_rejected(self, sent: list[Record], data: st.DataObject) -> None:
        whole = payload(sent)
        cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
        with pytest.raises(InvalidRecords):
            parsed(cut, len(sent))

    @given(st.binary(max_size=100), st.integers(1, 5))
    def test_arbitrary_record_bytes_are_rejected(self, data: bytes, count: int) -> None:
        try:
            parsed(data, count)
        except InvalidRecords as refusal:
            assert all(index < count for index, _ in refusal.record_errors)

    @pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"x" + data])
    def test_malformed_records_in_a_compressed_batch_are_rejected(self, change: Callable[[bytes], bytes]) -> None:
        """The codec's data is cut, followed or preceded by a byte: never anything but a refusal, or all the records."""
        for codec in CODECS[1:]:
            batch = JAVA[f"small {codec.name.lower()}"]
            data = batch[:61] + change(batch[61:])
            longer = data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:]
            try:
                assert list(iterate_records_of_batch(longer)) == SMALL
            except KafkaError as refusal:
                assert refusal.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_decompression_of_records_is_bounded() -> None:
    for codec in CODECS[1:]:
        with pytest.raises(KafkaError) as refusal:
            iterate_records_of_batch(JAVA[f"large {codec.name.lower()}"], limit_bytes=100_000)
        assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
