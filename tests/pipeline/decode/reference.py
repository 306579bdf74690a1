"""What the decoders must give, said by the broker's own codec, which makes an object of each record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from minibroker.pipeline.decode.decoder import AbortedRanges, BatchesDecoder, RecordsDecoder
from minibroker.pipeline.log_source import Mode, OffsetRange, ReadRequest, TopicPartition
from minibroker.pipeline.schemas import BATCHES, CORRUPT, RECORDS
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import BatchHeader
from minibroker.protocol.records.formats import (
    check_batch_or_message,
    iterate_batches_in_any_format,
    iterate_records_in_any_format,
)
from minibroker.protocol.records.record import Record

PARTITION = TopicPartition("t", 3)
EVERYTHING = OffsetRange(PARTITION, 0, 1 << 62)
ALL_COLUMNS = tuple(RECORDS.names)
Row = dict[str, Any]


def decoded(
    *data: bytes,
    offsets: OffsetRange = EVERYTHING,
    aborted: AbortedRanges | None = None,
    mode: Mode = "FAILFAST",
    columns: Sequence[str] = ALL_COLUMNS,
    chunk_bytes: int = 4 << 20,
) -> list[Row]:
    """The rows that the decoder of records gives, fed with each of `data`; timestamps are in microseconds."""
    request = ReadRequest("records", tuple(columns), mode)
    decoder = RecordsDecoder(PARTITION, request, offsets, aborted, chunk_bytes)
    position, found = 0, []
    for part in data:
        found += decoder.decode_data(part, "a.log", position)
        position += len(part)
    return rows_of([*found, *decoder.decode_remaining_batches()])


def batch_rows(data: bytes, mode: Mode = "FAILFAST", position: int | None = 0, **settings: Any) -> list[Row]:
    """The rows that the decoder of batches gives."""
    request = ReadRequest("batches", tuple(BATCHES.names), mode, verify_crc=settings.pop("verify_crc", False))
    decoder = BatchesDecoder(PARTITION, request, settings.pop("offsets", EVERYTHING), **settings)
    return rows_of([*decoder.decode_data(data, "/logs/t-3/a.log", position), *decoder.decode_remaining_batches()])


def rows_of(batches: list[pa.RecordBatch]) -> list[Row]:
    """Return the rows as dictionaries; timestamps as numbers, because not all that there are have a date."""
    for batch in batches:
        batch.validate(full=True)
    rows: list[Row] = []
    for batch in batches:
        columns = [
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in batch.columns
        ]
        rows += pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()
    return rows


def expected(data: bytes, offsets: OffsetRange = EVERYTHING, mode: Mode = "FAILFAST") -> list[Row]:
    """The rows that there must be, if batches can be found in `data`. Raises `KafkaError` for damage in FAILFAST."""
    rows: list[Row] = []
    for position, header in iterate_batches_in_any_format(data):
        batch = data[position : position + header.size_bytes]
        try:
            check_batch_or_message(batch)
            if header.is_control:
                continue
            found = [row_of(header, record) for record in iterate_records_in_any_format(batch)]
        except KafkaError:
            if mode == "FAILFAST":
                raise
            if mode == "PERMISSIVE":
                rows.append(dict.fromkeys(ALL_COLUMNS) | {"offset": header.base_offset, "topic": "t", "partition": 3})
                rows[-1][CORRUPT] = True
        else:
            rows += [row for row in found if offsets.start <= row["offset"] < offsets.end]
    return rows


def row_of(header: BatchHeader, record: Record) -> Row:
    """The row of a record."""
    return {
        "key": record.key,
        "value": record.value,
        "topic": PARTITION.topic,
        "partition": PARTITION.partition,
        "offset": record.offset,
        "timestamp": micros(record.timestamp),
        "timestampType": header.timestamp_type if header.magic else -1,
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        "timestampMs": record.timestamp,
        CORRUPT: None,
    }


def micros(timestamp_ms: int) -> int | None:
    """Null where there is none, and where microseconds do not reach."""
    limit = ((1 << 63) - 1) // 1000
    return None if timestamp_ms == -1 or abs(timestamp_ms) > limit else timestamp_ms * 1000


def without_reasons(rows: list[Row]) -> list[Row]:
    """With True in place of what is said of damage."""
    return [row | {CORRUPT: True} if row.get(CORRUPT) is not None else row for row in rows]
