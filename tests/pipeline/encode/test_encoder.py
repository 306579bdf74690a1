"""Rows become the batches that the broker's own codec makes of the same records, byte for byte, and reads back."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.decode.decoder import RecordsDecoder
from minibroker.pipeline.encoder import (
    BatchSettings,
    EncodedBatch,
    EncodeError,
    Producer,
    RowsOrigin,
    encode_rows,
    encode_rows_of_origins,
)
from minibroker.pipeline.log_source import OffsetRange, ReadRequest, TopicPartition
from minibroker.protocol.records.batch import LOG_APPEND_TIME, check_batch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.validation import RecordRules, check_records
from tests.cases import for_each
from tests.pipeline.encode.rows import rows_of
from tests.protocol.records.samples import LARGE, SMALL, T

CODECS = tuple(Compression)
LEVELS = [(Compression.GZIP, 9), (Compression.LZ4, 12), (Compression.ZSTD, -5), (Compression.ZSTD, 19)]
UNBOUNDED = 1 << 30

_bytes = st.none() | st.binary(max_size=200)
_headers = st.lists(st.tuples(st.text(max_size=10), _bytes), max_size=3).map(tuple)
_timestamps = st.just(-1) | st.integers(T - 100, T + 10000) | st.integers(0, 2**53)  # in microseconds it fits Spark
_fields = st.tuples(_timestamps, _bytes, _bytes, _headers)
_distances = st.integers(1, 3) | st.integers(1, 2**33)


@st.composite
def compacted(draw: st.DrawFn) -> list[Record]:
    """Records with gaps between their offsets, some larger than a batch can have."""
    all_fields = draw(st.lists(_fields, min_size=1, max_size=20))
    offset, out = draw(st.integers(0, 2**40)), []
    for fields in all_fields:
        out.append(Record(offset, *fields))
        offset += draw(_distances)
    return out


def read(batches: list[EncodedBatch]) -> list[Record]:
    """The records of batches, as the broker's own codec reads them."""
    return [record for batch in batches for record in iterate_records_of_batch(batch.data)]


@pytest.mark.parametrize("codec", CODECS)
@given(records=st.lists(_fields, min_size=1, max_size=20).map(lambda all: [Record(i, *f) for i, f in enumerate(all)]))
def test_encoded_batches_equal_those_of_the_brokers_codec(codec: Compression, records: list[Record]) -> None:
    (batch,) = encode_rows(rows_of(records), BatchSettings(codec=codec, batch_bytes=UNBOUNDED))
    assert batch.data == build_batch(records, compression=codec)
    assert batch.record_count == len(records)


@given(records=compacted(), batch_bytes=st.integers(1, 2000), batch_records=st.none() | st.integers(1, 5))
def test_offsets_and_gaps_are_kept_however_batches_are_split(
    records: list[Record], batch_bytes: int, batch_records: int | None
) -> None:
    settings = BatchSettings(batch_bytes=batch_bytes, batch_records=batch_records)
    batches = list(encode_rows(rows_of(records), settings, base_offset=None))
    assert read(batches) == records
    for batch in batches:
        assert batch.record_count == 1 or len(batch.data) <= batch_bytes
        assert batch_records is None or batch.record_count <= batch_records


@given(records=compacted())
def test_a_change_of_log_append_time_ends_a_batch(records: list[Record]) -> None:
    settings = BatchSettings(timestamp_type=LOG_APPEND_TIME, batch_bytes=UNBOUNDED)
    batches = list(encode_rows(rows_of(records), settings, base_offset=None))
    assert read(batches) == records
    headers = [check_batch(batch.data) for batch in batches]
    for before, after in pairwise(headers):
        is_far = after.base_offset - before.base_offset > 2**31 - 1 or after.last_offset - before.base_offset >= 2**31
        assert is_far or before.max_timestamp != after.max_timestamp
    assert all(header.timestamp_type == LOG_APPEND_TIME for header in headers)


@pytest.mark.parametrize(("codec", "level"), LEVELS)
def test_compression_levels_are_passed_to_the_codec(codec: Compression, level: int) -> None:
    (batch,) = encode_rows(rows_of(LARGE), BatchSettings(codec=codec, level=level, batch_bytes=UNBOUNDED))
    assert batch.data == build_batch(LARGE, compression=codec, level=level)


def test_every_batch_has_the_producer_and_consecutive_sequences() -> None:
    records = [Record(index, T, None, b"x" * 50) for index in range(100)]
    producer = Producer(42, 3, 2**31 - 10, transactional=True)
    batches = list(encode_rows(rows_of(records), BatchSettings(batch_records=7), producer))
    headers = [check_batch(batch.data) for batch in batches]
    assert {(header.producer_id, header.producer_epoch, header.is_transactional) for header in headers} == {
        (42, 3, True)
    }
    expected = [(2**31 - 10 + index) % 2**31 for index in range(0, 100, 7)]
    assert [header.base_sequence for header in headers] == expected
    for batch, header in zip(batches, headers, strict=True):
        check_records(batch.data, 0, header, RecordRules(keys_required=False))


@pytest.mark.parametrize("codec", CODECS)
def test_the_broker_accepts_encoded_batches(codec: Compression) -> None:
    for batch in encode_rows(rows_of(SMALL * 50), BatchSettings(codec=codec, batch_bytes=2000)):
        header = check_batch(batch.data)
        assert check_records(batch.data, 0, header, RecordRules(keys_required=False)) == header.max_timestamp


def test_many_batches_are_encoded_with_contiguous_offsets() -> None:
    records = [
        Record(index, T + index, b"%d" % index, bytes(10_000), (("h", b"1"),) * (index % 3)) for index in range(1500)
    ]
    batches = list(encode_rows(rows_of(records), BatchSettings(batch_bytes=100_000, codec=Compression.LZ4)))
    assert read(batches) == records
    headers = [check_batch(batch.data) for batch in batches]
    assert [header.base_offset for header in headers[1:]] == [header.next_offset for header in headers[:-1]]


def test_a_slice_of_an_arrow_batch_encodes_only_its_own_rows() -> None:
    assert read(list(encode_rows(rows_of(SMALL).slice(2, 2), BatchSettings(), base_offset=None))) == SMALL[2:4]


def test_no_rows_give_no_batches() -> None:
    assert list(encode_rows(rows_of([]), BatchSettings())) == []


@for_each(
    ("settings", "words"),
    [
        ({"batch_records": 0}, "at least"),
        ({"codec": Compression.GZIP, "level": 10}, "gzip has no level 10"),
        ({"codec": Compression.SNAPPY, "level": 1}, "snappy has no level 1"),
        ({"level": 1}, "none has no level 1"),
        ({"batch_bytes": 0}, "at least"),
    ],
)
def test_invalid_batch_settings_are_rejected(settings: dict[str, int], words: str) -> None:
    with pytest.raises(EncodeError, match=words):
        BatchSettings(**settings)  # type: ignore[arg-type]


@for_each(
    ("rows", "settings", "base_offset", "words"),
    [
        (rows_of(SMALL[::-1]), BatchSettings(), None, "must rise"),
        (rows_of([Record(0, T, None, b"", ((None, b""),))]), BatchSettings(), 0, "a key"),
    ],
)
def test_invalid_rows_are_rejected(
    rows: pa.RecordBatch, settings: BatchSettings, base_offset: int | None, words: str
) -> None:
    with pytest.raises(EncodeError, match=words):
        list(encode_rows(rows, settings, base_offset=base_offset))


@given(
    parts=st.lists(st.tuples(compacted(), st.integers(0, 2**31 - 1), st.integers(0, 5)), min_size=1, max_size=4),
    batch_records=st.none() | st.integers(1, 5),
)
def test_rows_of_several_producers_are_encoded_in_separate_batches(
    parts: list[tuple[list[Record], int, int]], batch_records: int | None
) -> None:
    settings = BatchSettings(batch_records=batch_records)
    records: list[Record] = []
    origins: list[RowsOrigin] = []
    alone: list[EncodedBatch] = []
    for number, (some, sequence, further) in enumerate(parts):
        moved = records[-1].offset + 7 - some[0].offset if records else 0  # room for what the one before reaches to
        some = [record._replace(offset=record.offset + moved) for record in some]
        producer = Producer(number, number, sequence, transactional=number % 2 == 1)
        origin = RowsOrigin(len(records), producer, 10 + number, some[-1].offset + further)
        alone += encode_rows_of_origins(rows_of(some), settings, [origin._replace(start=0)])
        records += some
        origins.append(origin)
    assert list(encode_rows_of_origins(rows_of(records), settings, origins)) == alone
    headers = [check_batch(batch.data) for batch in alone]
    ends = {header.producer_id: header.last_offset for header in headers}
    assert ends == {number: origin.last_offset for number, origin in enumerate(origins)}
    assert [header.partition_leader_epoch - header.producer_id for header in headers] == [10] * len(headers)


def test_encoding_fails_if_the_given_last_offset_precedes_that_of_the_last_record() -> None:
    with pytest.raises(EncodeError, match="last record has offset 4 cannot end at 3"):
        list(encode_rows_of_origins(rows_of(SMALL), BatchSettings(), [RowsOrigin(0, last_offset=3)]))


@given(records=compacted(), codec=st.sampled_from(CODECS))
def test_the_pipelines_decoder_reads_encoded_batches(codec: Compression, records: list[Record]) -> None:
    settings = BatchSettings(codec, batch_bytes=500)
    rows = rows_of(records)
    partition = TopicPartition("orders", 0)
    request = ReadRequest("records", ("key", "value", "offset", "timestampMs", "headers"))
    decoder = RecordsDecoder(partition, request, OffsetRange(partition, 0, 2**63 - 1))
    data = b"".join(batch.data for batch in encode_rows(rows, settings, base_offset=None))
    found = pa.Table.from_batches([*decoder.decode_data(data, "here", 0), *decoder.decode_remaining_batches()])
    expected = pa.Table.from_batches([rows])
    for name in ("key", "value", "offset", "timestamp"):
        assert found.column("timestampMs" if name == "timestamp" else name).equals(expected.column(name))
    headers = expected.column("headers").to_pylist()
    assert [some or [] for some in found.column("headers").to_pylist()] == headers
