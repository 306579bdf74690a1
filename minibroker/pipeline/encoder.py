"""The encoder: from rows of Arrow to batches of format 2, as they are in a log or a Produce request.

It cuts rows into batches, and batches into chunks; it makes the bytes of a chunk's records at once, then a header
before each batch. Records never become objects. Their layout is drawn in `minibroker.protocol.records.record`.

    |varints: length, attributes 0, timestamp delta, offset delta, key length|key|value length|value|headers|

Each part is a column of binary values. When they are joined row by row, one buffer has the data, record after record.
It is the payload of the batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from minibroker.pipeline.array_types import Bools, Int64s, UInt8s, UInt64s
from minibroker.protocol.records.batch import (
    CRC_POSITION,
    CRC_START,
    CREATE_TIME,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAX_SEQUENCE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from minibroker.protocol.records.compression import Compression, compress
from minibroker.protocol.records.crc import crc32c

LEVELS = {Compression.GZIP: (1, 9), Compression.LZ4: (1, 17), Compression.ZSTD: (-131072, 22)}  # the others have none


class EncodeError(ValueError):
    """Rows that cannot be encoded with these settings. The message is one line."""


@dataclass(frozen=True)
class BatchSettings:
    """How to encode rows.

    A batch has at most `batch_bytes` before compression and at most `batch_records` records, but at least one. `level`
    is the codec's; None is its default. With `timestamp_type` 1 (log append time), a batch ends where the timestamp
    changes, as all its records share one. Raises `EncodeError` for contradicting settings.
    """

    codec: Compression = Compression.NONE
    level: int | None = None
    batch_bytes: int = 16384
    batch_records: int | None = None
    timestamp_type: int = CREATE_TIME

    def __post_init__(self) -> None:
        if self.level is not None and not _has_level(self.codec, self.level):
            raise EncodeError(f"the codec {self.codec.name.lower()} has no level {self.level}")
        if self.batch_bytes < 1 or (self.batch_records is not None and self.batch_records < 1):
            raise EncodeError("a batch holds at least a byte and a record")


def _has_level(codec: Compression, level: int) -> bool:
    """Return whether Kafka's codec has this level; -1 is gzip's default."""
    levels = LEVELS.get(codec)
    return (codec == Compression.GZIP and level == -1) or (levels is not None and levels[0] <= level <= levels[1])


@dataclass(frozen=True)
class Producer:
    """The producer of batches; -1 is none. Sequences continue from `base_sequence`, by the distance of offsets."""

    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


class RowsOrigin(NamedTuple):
    """The producer of the rows from `start` to the next origin. A batch has the rows of only one origin.

    Its last batch reaches to `last_offset`, beyond its last record, as after compaction.
    """

    start: int
    producer: Producer = Producer()
    leader_epoch: int = -1
    last_offset: int | None = None


class EncodedBatch(NamedTuple):
    """A batch of format 2."""

    data: bytes
    record_count: int


_EMPTY = pa.scalar(b"", pa.binary())


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Rows by column: key and value binary, times in ms (-1: none), rising offsets.

    `headers` is None if no row has any.
    """

    key: pa.BinaryArray
    value: pa.BinaryArray
    timestamps_ms: Int64s
    offsets: Int64s
    headers: pa.ListArray | None

    def __len__(self) -> int:
        return len(self.offsets)

    def select_rows(self, start: int, end: int) -> RowColumns:
        """Return the rows from `start` to before `end`, without a copy."""
        headers = None if self.headers is None else self.headers.slice(start, end - start)
        return RowColumns(
            self.key.slice(start, end - start),
            self.value.slice(start, end - start),
            self.timestamps_ms[start:end],
            self.offsets[start:end],
            headers,
        )


def make_row_columns(rows: pa.RecordBatch, base_offset: int | None) -> RowColumns:
    """Return the columns of rows: `key`, `value`, `timestamp` (in ms), `headers`, and `offset` without a base offset.

    Raises `EncodeError` for offsets that do not rise.
    """
    if base_offset is None:
        offsets = rows.column("offset").to_numpy()
        if (np.diff(offsets) <= 0).any():
            raise EncodeError("the offsets of rows must rise")
    else:
        offsets = np.arange(base_offset, base_offset + rows.num_rows, dtype=np.int64)
    times, headers = rows.column("timestamp").to_numpy(), rows.column("headers")
    found = headers if count_headers(headers).any() else None
    return RowColumns(rows.column("key"), rows.column("value"), times, offsets, found)


def measure_value_lengths(column: pa.BinaryArray) -> Int64s:
    """Return the length of each value in bytes; -1 for null."""
    lengths: Int64s = pc.binary_length(column).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def count_headers(headers: pa.ListArray) -> Int64s:
    """Return how many headers each row has; 0 for null."""
    counts: Int64s = pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return counts


def join_columns(*parts: pa.BinaryArray | pa.BinaryScalar) -> pa.BinaryArray:
    """Join the columns' values in each row into one value; null is empty. The result's data buffer has all rows.

    The data must be smaller than 2 GiB.
    """
    return pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement=b"")


def get_value_offsets(column: pa.BinaryArray) -> NDArray[np.int32]:
    """Return where the values of a column begin in its data, and where the last one ends."""
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


MAX_OFFSET_DELTA = 2**31 - 1

_CHUNK_BYTES = 4 << 20  # fits into the processor's caches, and limits the memory


class RowChunk(NamedTuple):
    """The rows from `start` to before `end`, and the first row of each batch, counted from `start`."""

    start: int
    end: int
    starts: Int64s


def iterate_chunks(
    columns: RowColumns, sizes: Int64s, settings: BatchSettings, origins: Sequence[RowsOrigin]
) -> Iterator[RowChunk]:
    """Yield all rows in batches, some batches at a time. `sizes` are the rows' largest sizes in bytes."""
    ends = np.cumsum(sizes)
    starts: list[int] = []
    done = 0
    for start, end in _iterate_batch_ranges(columns, ends, settings.batch_bytes - HEADER_BYTES, settings, origins):
        if starts and ends[end - 1] - ends[starts[0]] + sizes[starts[0]] > _CHUNK_BYTES:
            yield _make_chunk(starts, start)
            starts = []
        starts.append(start)
        done = end
    yield _make_chunk(starts, done)


def iterate_batch_header_values(columns: RowColumns, starts: Int64s) -> Iterator[tuple[int, ...]]:
    """Yield, of each batch: its first row, the row after its last one, and what its header needs of those between them.

    These are the first and the last offset, and the first and the largest time in ms. Batches begin at the rows
    `starts`, of which the first is 0.
    """
    ends = np.append(starts[1:], len(columns))
    times = columns.timestamps_ms
    offsets = columns.offsets[starts], columns.offsets[ends - 1]
    found = starts, ends, *offsets, times[starts], np.maximum.reduceat(times, starts)
    return zip(*(column.tolist() for column in found), strict=True)


def _make_chunk(starts: list[int], end: int) -> RowChunk:
    """Return the rows of some batches, which begin at the rows `starts`; `end` is the row after the last."""
    return RowChunk(starts[0], end, np.array(starts, np.int64) - starts[0])


def _iterate_batch_ranges(
    columns: RowColumns, ends: Int64s, limit_bytes: int, settings: BatchSettings, origins: Sequence[RowsOrigin]
) -> Iterator[tuple[int, int]]:
    """Yield (first row, row after the last) of each batch: as many rows as fit, but at least one."""
    most = len(columns) if settings.batch_records is None else settings.batch_records
    start = 0
    for stop in _find_batch_ends(columns, settings, origins):
        while start < stop:
            before = int(ends[start - 1]) if start else 0
            end = bisect_right(ends, before + limit_bytes, start, min(start + most, stop))
            end = max(end, start + 1)
            largest = int(columns.offsets[start]) + MAX_OFFSET_DELTA
            if columns.offsets[end - 1] > largest:
                end = bisect_right(columns.offsets, largest, start, end)
            yield start, end
            start = end


def _find_batch_ends(columns: RowColumns, settings: BatchSettings, origins: Sequence[RowsOrigin]) -> list[int]:
    """Return the rows before which a batch must end, and the end of all rows."""
    starts = [origin.start for origin in origins[1:]]
    if settings.timestamp_type != LOG_APPEND_TIME:
        return [*starts, len(columns)]
    changes = np.flatnonzero(np.diff(columns.timestamps_ms)) + 1
    return sorted({*starts, *changes.tolist(), len(columns)})


_NO_HEADERS = pa.scalar(b"\0", pa.binary())
_MAX_PAYLOAD_BYTES = 2**31 - 1 - HEADER_BYTES
_CRC = Struct(">I")

_VARINT_BITS = 7  # of each byte


_NOBODY = Producer()


def encode_rows(
    rows: pa.RecordBatch, settings: BatchSettings, producer: Producer = _NOBODY, base_offset: int | None = 0
) -> Iterator[EncodedBatch]:
    """Yield the batches of the rows, in order; none if there are no rows.

    It uses the columns `key`, `value`, `timestamp` (in ms; -1: none) and `headers`. Records get offsets from
    `base_offset` on. If that is None they keep those of the column `offset`, which must rise and may have gaps. Raises
    `EncodeError`.
    """
    return encode_rows_of_origins(rows, settings, [RowsOrigin(0, producer)], base_offset)


def encode_rows_of_origins(
    rows: pa.RecordBatch, settings: BatchSettings, origins: Sequence[RowsOrigin], base_offset: int | None = None
) -> Iterator[EncodedBatch]:
    """Encode rows of several producers as `encode_rows` does, but much faster than with one call for each.

    The first origin starts at row 0, and each one after the one before it. Raises `EncodeError`.
    """
    if not rows.num_rows:
        return
    columns = make_row_columns(rows, base_offset)
    blocks = None if columns.headers is None else encode_header_blocks(columns.headers)
    sizes = compute_max_record_sizes(columns, blocks)
    writer = _BatchWriter(columns, settings, origins)
    for chunk in iterate_chunks(columns, sizes, settings, origins):
        start, end, starts = chunk
        some = None if blocks is None else blocks.select_rows(start, end)
        payloads = encode_records(columns.select_rows(start, end), some, starts)
        yield from writer.make_batches(chunk, payloads)


class _BatchWriter:
    """Puts headers before the records of batches, and compresses them. Batches must be in order."""

    def __init__(self, columns: RowColumns, settings: BatchSettings, origins: Sequence[RowsOrigin]) -> None:
        self._columns = columns
        self._settings = settings
        self._origins = origins
        self._next = 0  # the index of the next origin
        self._attributes = settings.codec | (TIMESTAMP_TYPE_BIT if settings.timestamp_type == LOG_APPEND_TIME else 0)

    def make_batches(self, chunk: RowChunk, payloads: Iterator[memoryview]) -> Iterator[EncodedBatch]:
        """Yield the batches of a chunk."""
        facts = iterate_batch_header_values(self._columns.select_rows(chunk.start, chunk.end), chunk.starts)
        for (start, end, base_offset, last_offset, *times), records in zip(facts, payloads, strict=True):
            origin = self._find_origin(chunk.start + start)
            last_offset = self._find_last_offset_of_batch(origin, chunk.start + end, base_offset, last_offset)
            sequence = self._compute_sequence(origin, base_offset)
            fields = origin, base_offset, last_offset - base_offset, times, sequence, end - start
            data = self._assemble_batch(fields, records)
            yield EncodedBatch(data, end - start)

    def _find_origin(self, start: int) -> RowsOrigin:
        """Return the origin of the batch that begins with the row `start`."""
        while self._next < len(self._origins) and self._origins[self._next].start <= start:
            self._next += 1
        return self._origins[self._next - 1]

    def _find_last_offset_of_batch(self, origin: RowsOrigin, end: int, base_offset: int, last_offset: int) -> int:
        """Return the last offset of a batch that ends before the row `end`. Raises `EncodeError`."""
        limit = self._origins[self._next].start if self._next < len(self._origins) else len(self._columns)
        if origin.last_offset is None or end != limit:
            return last_offset
        if origin.last_offset < last_offset:
            raise EncodeError(f"a batch whose last record has offset {last_offset} cannot end at {origin.last_offset}")
        return min(origin.last_offset, base_offset + MAX_OFFSET_DELTA)

    def _compute_sequence(self, origin: RowsOrigin, base_offset: int) -> int:
        """Return the sequence of the batch's first record; -1 if the producer has none."""
        first = origin.producer.base_sequence
        if first < 0:
            return -1
        return (first + base_offset - int(self._columns.offsets[origin.start])) & MAX_SEQUENCE

    def _assemble_batch(self, fields: tuple[RowsOrigin, int, int, list[int], int, int], records: memoryview) -> bytes:
        """Return a batch. `fields`: origin, base offset, last delta, first and largest time, sequence, record count."""
        origin, base_offset, last_delta, times, sequence, count = fields
        producer = origin.producer
        attributes = self._attributes | (TRANSACTIONAL_BIT if producer.transactional else 0)
        payload = compress(self._settings.codec, records, self._settings.level)
        length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload)
        before = base_offset, length, origin.leader_epoch, MAGIC
        origin_fields = producer.producer_id, producer.epoch, sequence
        header = bytearray(HEADER.pack(*before, 0, attributes, last_delta, *times, *origin_fields, count))
        crc = crc32c(payload, crc32c(memoryview(header)[CRC_START:]))
        _CRC.pack_into(header, CRC_POSITION, crc)
        return b"".join((header, payload))


class HeaderBlocks(NamedTuple):
    """The encoded headers of each row, with their count; `sizes` are in bytes."""

    data: pa.BinaryArray
    sizes: Int64s

    def select_rows(self, start: int, end: int) -> HeaderBlocks:
        """Return the encoded headers of the rows from `start` to before `end`."""
        return HeaderBlocks(self.data.slice(start, end - start), self.sizes[start:end])


def encode_header_blocks(headers: pa.ListArray) -> HeaderBlocks:
    """Encode the headers of each row. Raises `EncodeError` if one has no key.

    First each header is a row; as those of a row are adjacent, they then become one slice.
    """
    counts = count_headers(headers)
    keys, values = _flatten_headers(headers)
    joined = join_columns(
        encode_varint_rows([encode_zigzag(measure_value_lengths(keys))]),
        keys,
        encode_varint_rows([encode_zigzag(measure_value_lengths(values))]),
        values,
    )
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    offsets = get_value_offsets(joined)[ends]
    blocks = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(offsets), joined.buffers()[2]])
    numbers = encode_zigzag(counts)
    return HeaderBlocks(
        join_columns(encode_varint_rows([numbers]), blocks), measure_varint_sizes(numbers) + np.diff(offsets)
    )


def _flatten_headers(headers: pa.ListArray) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Return the keys and the values of all headers, one after another."""
    keys, values = pc.list_flatten(headers).flatten()[:2]
    if keys.null_count:
        raise EncodeError("a header without a key: only its value may be null")
    return keys.cast(pa.binary()), values.cast(pa.binary())


def compute_max_record_sizes(columns: RowColumns, blocks: HeaderBlocks | None) -> Int64s:
    """Return the largest size of each row as a record in any batch, in bytes. Raises `EncodeError` from 2 GiB on."""
    span = int(columns.offsets[-1] - columns.offsets[0])
    times = columns.timestamps_ms
    time_span = int(times.max()) - int(times.min())
    deltas = measure_varint_size(2 * min(span, 2**31 - 1)) + measure_varint_size(2 * min(time_span, 2**63 - 1))
    bodies = _measure_field_sizes(measure_value_lengths(columns.key)) + _measure_field_sizes(
        measure_value_lengths(columns.value)
    )
    bodies += deltas + 1 + (1 if blocks is None else blocks.sizes)
    sizes = bodies + measure_varint_sizes(encode_zigzag(bodies))
    if sizes.max() > _MAX_PAYLOAD_BYTES:
        raise EncodeError(f"a record of {sizes.max()} bytes: a batch holds less than 2 GiB")
    return sizes


def encode_records(columns: RowColumns, blocks: HeaderBlocks | None, starts: Int64s) -> Iterator[memoryview]:
    """Return the records of each of the batches that begin at the rows `starts`, of which the first is 0."""
    counts = np.diff(starts, append=len(columns))
    timestamp_deltas = encode_zigzag(columns.timestamps_ms - np.repeat(columns.timestamps_ms[starts], counts))
    offset_deltas = encode_zigzag(columns.offsets - np.repeat(columns.offsets[starts], counts))
    key_lengths, value_lengths = (
        measure_value_lengths(columns.key),
        measure_value_lengths(columns.value),
    )
    bodies = (
        measure_varint_sizes(timestamp_deltas)
        + measure_varint_sizes(offset_deltas)
        + _measure_field_sizes(key_lengths)
        + _measure_field_sizes(value_lengths)
    )
    bodies += 1 + (1 if blocks is None else blocks.sizes)
    head = [np.zeros(len(columns), np.uint64), timestamp_deltas, offset_deltas, encode_zigzag(key_lengths)]
    joined = join_columns(
        encode_varint_rows([encode_zigzag(bodies), *head]),
        columns.key,
        encode_varint_rows([encode_zigzag(value_lengths)]),
        columns.value,
        _NO_HEADERS if blocks is None else blocks.data,
    )
    offsets = get_value_offsets(joined)
    data = memoryview(joined.buffers()[2])
    return (data[start:end] for start, end in pairwise([*offsets[starts].tolist(), int(offsets[-1])]))


def _measure_field_sizes(lengths: Int64s) -> Int64s:
    """Return the sizes of keys or values of these lengths (-1: null) with their length before them."""
    return measure_varint_sizes(encode_zigzag(lengths)) + np.maximum(lengths, 0)


def encode_zigzag(values: Int64s) -> UInt64s:
    """Return the zigzag form of signed numbers: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def measure_varint_sizes(numbers: UInt64s) -> Int64s:
    """Return the size of each number as a varint: 1 to 10 bytes."""
    sizes = np.ones(len(numbers), np.int64)
    for size in range(1, _measure_widest_varint(numbers)):
        sizes += numbers >= np.uint64(1 << _VARINT_BITS * size)
    return sizes


def measure_varint_size(number: int) -> int:
    """Return the size of an unsigned number as a varint, in bytes."""
    return max(1, -(-number.bit_length() // _VARINT_BITS))


def encode_varint_rows(columns: Sequence[UInt64s]) -> pa.BinaryArray:
    """Return a binary value for each row: the varints of the row's numbers, in the order of the columns.

    They are written into a table with the longest row's size for each row; then the used bytes are taken out of it.
    """
    count = len(columns[0])
    widths = [_measure_widest_varint(column) for column in columns]
    table = np.empty((count, sum(widths)), np.uint8)
    used = np.ones(table.shape, np.bool_)
    at = 0
    for column, width in zip(columns, widths, strict=True):
        _write_varints(column, table[:, at : at + width], used[:, at : at + width])
        at += width
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(used.sum(axis=1, dtype=np.int32), out=offsets[1:])
    data = table[used] if table.shape[1] > len(columns) else table.reshape(-1)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _measure_widest_varint(numbers: UInt64s) -> int:
    """Return the size of the largest number as a varint, in bytes; 1 without any."""
    return measure_varint_size(int(numbers.max())) if len(numbers) else 1


def _write_varints(numbers: UInt64s, table: UInt8s, used: Bools) -> None:
    """Write each number's varint into its row of `table`, and into `used` which bytes of the row it has."""
    width = table.shape[1]
    for byte in range(width):
        if byte:
            numbers = numbers >> np.uint64(_VARINT_BITS)
            used[:, byte] = numbers > 0
        low = numbers.astype(np.uint8)
        if byte == width - 1:
            table[:, byte] = low
        else:
            more = numbers >= np.uint64(1 << _VARINT_BITS)
            table[:, byte] = np.where(more, low | np.uint8(0x80), low & np.uint8(0x7F))
