"""The decoder of records against the broker's own codec, which makes an object of each record."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.decode.decoder import RecordsDecoder
from minibroker.pipeline.log_source import OffsetRange, ReadRequest
from minibroker.pipeline.schemas import RECORDS, choose_columns
from minibroker.protocol.records.batch import DELETE_HORIZON_BIT, LOG_APPEND_TIME, read_header
from minibroker.protocol.records.building import build_batch, encode_record
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.formats import iterate_batches_in_any_format
from minibroker.protocol.records.message import encode_message, set_message_offset
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from tests.cases import for_each
from tests.pipeline.decode.reference import ALL_COLUMNS, EVERYTHING, PARTITION, decoded, expected
from tests.pipeline.decode.samples import elided, emptied, logs, marker, old_records, renumbered, with_header
from tests.protocol.records.samples import CLIENTS, GOLDEN, JAVA, LARGE, SMALL, T, golden, payload
from tests.protocol.records.test_message_set import OLD

LOG = bytes(build_batch(SMALL)) + bytes(build_batch(renumbered(SMALL, 10), base_offset=10))
COLUMN_CHOICES = (
    ("value",),
    ("key",),
    ("offset",),
    ("timestamp",),
    ("offset", "timestamp"),
    ("headers",),
    ("topic", "partition"),
    ("timestampType", "offset", "key"),
    ALL_COLUMNS[::-1],
)


def of(columns: tuple[str, ...], rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: row[name] for name in columns} for row in rows]


class TestAgainstTheBrokersCodec:
    @given(data=logs(), chunk_bytes=st.sampled_from((1, 100, 1000, 4 << 20)))
    def test_all_formats_codecs_and_kinds_of_batches_are_decoded(self, data: bytes, chunk_bytes: int) -> None:
        assert decoded(data, chunk_bytes=chunk_bytes) == expected(data)

    @given(data=logs(), columns=st.sampled_from(COLUMN_CHOICES), chunk_bytes=st.sampled_from((100, 4 << 20)))
    def test_any_columns_are_decoded_in_any_order(
        self, data: bytes, columns: tuple[str, ...], chunk_bytes: int
    ) -> None:
        assert decoded(data, columns=columns, chunk_bytes=chunk_bytes) == of(columns, expected(data))

    @given(
        data=logs(), ends=st.tuples(st.integers(-2, 40), st.integers(0, 20)), columns=st.sampled_from(COLUMN_CHOICES)
    )
    def test_a_range_of_offsets_is_decoded(self, data: bytes, ends: tuple[int, int], columns: tuple[str, ...]) -> None:
        first = next((header.base_offset for _, header in iterate_batches_in_any_format(data)), 0)
        offsets = OffsetRange(PARTITION, first + ends[0], first + sum(ends))
        assert decoded(data, columns=columns, offsets=offsets) == of(columns, expected(data, offsets))

    @given(data=logs(), cuts=st.lists(st.integers(0, 10), max_size=3), chunk_bytes=st.sampled_from((100, 4 << 20)))
    def test_data_may_arrive_in_pieces_that_are_overwritten_later(
        self, data: bytes, cuts: list[int], chunk_bytes: int
    ) -> None:
        positions = [position for position, _ in iterate_batches_in_any_format(data)]
        bounds = sorted({0, len(data), *(positions[cut] for cut in cuts if cut < len(positions))})
        decoder = RecordsDecoder(PARTITION, ReadRequest("records", ALL_COLUMNS), EVERYTHING, None, chunk_bytes)
        found = []
        for start, end in zip(bounds, bounds[1:], strict=False):
            piece = bytearray(data[start:end])
            found += decoder.decode_data(piece, "a.log", start)
            piece[:] = bytes(len(piece))
        found += decoder.decode_remaining_batches()
        wanted = RecordsDecoder(PARTITION, ReadRequest("records", ALL_COLUMNS), EVERYTHING)
        whole = [*wanted.decode_data(data, "a.log", 0), *wanted.decode_remaining_batches()]
        assert pa.Table.from_batches(found, RECORDS).equals(pa.Table.from_batches(whole, RECORDS))


class TestWhatClientsWrote:
    @pytest.mark.parametrize("client", CLIENTS)
    def test_format_2_batches_of_clients_are_decoded(self, client: str) -> None:
        for name, batch in golden(client).items():
            if not read_header(batch).is_control:
                assert decoded(batch) == expected(batch), name
        assert (GOLDEN / f"{client}.json").exists()

    @for_each("name", OLD)
    def test_format_0_and_1_messages_of_clients_are_decoded(self, name: str) -> None:
        data = bytearray(OLD[name])
        messages = [position for position, _ in iterate_batches_in_any_format(bytes(data))]
        if len(messages) > 1:  # as the broker does
            for offset, position in enumerate(messages):
                set_message_offset(data, position, offset)
        rows = decoded(bytes(data))
        assert rows == expected(bytes(data))
        assert len(rows) == len(SMALL if "small" in name else LARGE)


class TestKindsOfBatches:
    @pytest.mark.parametrize("compression", Compression)
    def test_batches_with_elided_attributes_are_decoded(self, compression: Compression) -> None:
        batch = bytes(build_batch(SMALL, compression=compression))
        assert decoded(elided(batch)) == decoded(batch)
        assert len(elided(batch)) != len(batch)

    def test_log_append_time_applies_to_all_records(self) -> None:
        rows = decoded(bytes(build_batch(SMALL, timestamp_type=LOG_APPEND_TIME)))
        assert {(row["timestamp"], row["timestampType"]) for row in rows} == {((T + 100000) * 1000, 1)}

    def test_records_without_a_timestamp_have_null(self) -> None:
        rows = decoded(bytes(build_batch([Record(0, -1), Record(1, -1)])))
        assert [row["timestamp"] for row in rows] == [None, None]

    @pytest.mark.parametrize(
        ("timestamp_ms", "micros"),
        [(2**62, None), (-(2**62), None), (-5, -5000), (0, 0), (9223372036854775, 9223372036854775000)],
    )
    def test_timestamps_beyond_the_range_of_microseconds_are_null_and_exact_in_ms(
        self, timestamp_ms: int, micros: int | None
    ) -> None:
        rows = decoded(bytes(build_batch([Record(0, timestamp_ms), Record(1, T)])))
        assert [row["timestamp"] for row in rows] == [micros, T * 1000]
        assert [row["timestampMs"] for row in rows] == [timestamp_ms, T]

    def test_format_0_has_no_timestamp(self) -> None:
        (row,) = decoded(encode_message(0, 5, -1, 0, None, b"v"))
        assert (row["timestamp"], row["timestampType"], row["headers"]) == (None, -1, None)

    def test_the_base_timestamp_is_unaffected_by_a_delete_horizon(self) -> None:
        batch = bytes(build_batch(SMALL))
        attributes = read_header(batch).attributes | DELETE_HORIZON_BIT
        rows = decoded(with_header(batch, attributes=attributes, base_timestamp=T + 1000))
        assert [row["timestamp"] for row in rows] == [(record.timestamp + 1000) * 1000 for record in SMALL]

    def test_offset_gaps_left_by_compaction_are_kept(self) -> None:
        records = renumbered(SMALL, 100, gap=7)
        data = bytes(build_batch(records, base_offset=100, keep_offsets=True))
        for columns in (ALL_COLUMNS, ("offset",)):
            assert [row["offset"] for row in decoded(data, columns=columns)] == [100, 107, 114, 121, 128]

    def test_emptied_batches_and_markers_have_no_rows(self) -> None:
        assert decoded(emptied(3) + marker(4) + bytes(build_batch([Record(5, T)], base_offset=5)))[0]["offset"] == 5
        assert decoded(emptied(3) + marker(4)) == []

    def test_wrappers_of_an_old_librdkafka_have_offset_0(self) -> None:
        wrapper = bytearray(build_message_set(SMALL, 1, compression=Compression.GZIP))
        set_message_offset(wrapper, 0, 0)
        assert [row["offset"] for row in decoded(bytes(wrapper))] == [0, 1, 2, 3, 4]

    def test_log_append_time_applies_to_all_messages_in_a_wrapper(self) -> None:
        records = old_records(SMALL)
        data = bytes(build_message_set(records, 1, compression=Compression.GZIP, timestamp_type=LOG_APPEND_TIME))
        assert {(row["timestamp"], row["timestampType"]) for row in decoded(data)} == {((T + 100000) * 1000, 1)}


class TestFields:
    def test_header_keys_that_are_invalid_utf_8_are_decoded(self) -> None:
        record = encode_record(Record(0, T, None, None, (("kk", b"1"), ("good", None))), 0, 0).replace(b"kk", b"\xffk")
        batch = bytearray(build_batch([Record(0, T, None, None, (("kk", b"1"), ("good", None)))]))
        batch[61:] = record
        (row,) = decoded(with_header(bytes(batch)))
        assert row["headers"] == [{"key": "\ufffdk", "value": b"1"}, {"key": "good", "value": None}]

    def test_thousands_of_headers_are_decoded(self) -> None:
        many = tuple((f"h{index % 7}", None if index % 3 else b"x" * (index % 5)) for index in range(5000))
        data = bytes(build_batch([Record(0, T, b"k", b"v", many), Record(1, T), Record(2, T, headers=many[:9])]))
        assert decoded(data) == expected(data)

    def test_a_giant_batch_is_returned_as_several_arrow_batches(self) -> None:
        records = [Record(index, T + index, b"key", bytes(100)) for index in range(20000)]
        data = bytes(build_batch(records, compression=Compression.ZSTD))
        for mode in ("FAILFAST", "PERMISSIVE"):
            request = ReadRequest("records", ALL_COLUMNS, mode)
            decoder = RecordsDecoder(PARTITION, request, EVERYTHING, chunk_bytes=100_000)
            batches = [*decoder.decode_data(data, "a.log", 0), *decoder.decode_remaining_batches()]
            assert max(batch.num_rows for batch in batches) < 2000
            assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(20000))

    def test_a_giant_batch_with_damage_at_its_end_returns_nothing(self) -> None:
        records = [Record(index, T + index, b"key", bytes(100)) for index in range(5000)]
        content = bytearray(payload(records))
        content[-1] = 2  # a header that is not there
        good = build_batch(records)
        good[61:] = content
        data = with_header(bytes(good))
        assert [row["offset"] for row in decoded(data, mode="PERMISSIVE", chunk_bytes=10_000)] == [0]
        assert decoded(data, mode="DROPMALFORMED", chunk_bytes=10_000) == []

    def test_a_record_larger_than_a_chunk_is_decoded(self) -> None:
        data = bytes(build_batch([Record(0, T, b"k", b"v" * (9 << 20)), Record(1, T, b"k", b"w")]))
        assert [len(row["value"]) for row in decoded(data)] == [9 << 20, 1]


class TestForm:
    def test_decoded_batches_have_exactly_the_requested_columns(self) -> None:
        columns = ("headers", "offset", "key", "_corrupt")
        for data in (LOG, JAVA["small gzip"], emptied(0)):
            decoder = RecordsDecoder(PARTITION, ReadRequest("records", columns), EVERYTHING)
            for batch in [*decoder.decode_data(data, "a.log", 0), *decoder.decode_remaining_batches()]:
                assert batch.schema == choose_columns(RECORDS, columns)

    def test_a_request_for_no_columns_returns_the_row_count(self) -> None:
        decoder = RecordsDecoder(PARTITION, ReadRequest("records", ()), EVERYTHING)
        assert (
            sum(
                batch.num_rows for batch in (*decoder.decode_data(LOG, "a.log", 0), *decoder.decode_remaining_batches())
            )
            == 10
        )

    def test_a_request_for_no_columns_of_an_offset_range_returns_its_row_count(self) -> None:
        gaps = bytes(build_batch(renumbered(SMALL, 0, gap=3), keep_offsets=True))
        for data, rows in ((LOG, 3), (gaps, 1)):
            decoder = RecordsDecoder(PARTITION, ReadRequest("records", ()), OffsetRange(PARTITION, 2, 5))
            assert (
                sum(
                    batch.num_rows
                    for batch in (*decoder.decode_data(data, "a.log", 0), *decoder.decode_remaining_batches())
                )
                == rows
            )

    def test_small_batches_are_combined_into_one_arrow_batch(self) -> None:
        data = b"".join(bytes(build_batch([Record(0, T)], base_offset=offset)) for offset in range(1000))
        decoder = RecordsDecoder(PARTITION, ReadRequest("records", ALL_COLUMNS), EVERYTHING)
        assert list(decoder.decode_data(data, "a.log", 0)) == []
        (batch,) = decoder.decode_remaining_batches()
        assert batch.num_rows == 1000
        assert list(decoder.decode_remaining_batches()) == []
