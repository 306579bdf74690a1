"""Gathers batches by kind, and decodes them when there are enough: a chunk.

`decoder.py` decides which batches are gathered. Damage is found by trial: a chunk is decoded as a whole; if some
batches turn out to be damaged, the others are decoded again.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minibroker.pipeline.array_types import Bools, Int64s, UInt8s
from minibroker.pipeline.decode.arrow import RowMaker
from minibroker.pipeline.decode.batch_headers import BatchHeaders, Buffer, DataOrigin
from minibroker.pipeline.decode.record_columns import (
    PARTS,
    FieldColumns,
    find_record_starts,
    list_record_parts_of_columns,
    read_record_fields,
)
from minibroker.pipeline.log_source import OffsetRange, ReadRequest
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import ELIDED_BIT, HEADER_BYTES, MAGIC, TIMESTAMP_TYPE_BIT, BatchHeader
from minibroker.protocol.records.compression import decompress
from minibroker.protocol.records.message_set import iterate_records_of_message
from minibroker.protocol.records.record import Record, parse_records
from minibroker.protocol.records.restarting import restore_attributes_of_payload

_PADDING: Final = bytes(2)  # `find_record_starts` may read behind the last record


class BatchColumns(NamedTuple):
    """Some batches of format 2, one column for each field."""

    headers: BatchHeaders
    start: Int64s  # of the records in the chunk's data
    end: Int64s
    place: Int64s  # the index in the chunk's places, from which positions count

    def select_batches(self, first: int, last: int) -> BatchColumns:
        """Return the batches from `first` to before `last`."""
        start, end, place = (each[first:last] for each in (self.start, self.end, self.place))
        return BatchColumns(self.headers.select_batches(slice(first, last)), start, end, place)

    @classmethod
    def join_batches(cls, parts: list[BatchColumns]) -> BatchColumns:
        """Return the batches of all parts."""
        if len(parts) == 1:
            return parts[0]
        headers = BatchHeaders(
            *(np.concatenate(columns) for columns in zip(*(each.headers for each in parts), strict=True))
        )
        rest = (np.concatenate(columns) for columns in zip(*(each[1:] for each in parts), strict=True))
        return cls(headers, *rest)


class BatchDamage(NamedTuple):
    """A batch that cannot be decoded, and why; or the place after which no batch can be found."""

    offset: int
    reason: str
    place: DataOrigin
    position: int  # from the start of the place


RowsOrDamage = Iterator[pa.RecordBatch | BatchDamage]


class ChunkDecoder:
    """Decodes chunks."""

    def __init__(
        self, rows: RowMaker, wanted_parts: set[str], offsets: OffsetRange, chunk_bytes: int, fails_fast: bool
    ) -> None:
        self.data: UInt8s = np.empty(0, np.uint8)  # with the records of the batches
        self._rows = rows
        self._wanted = wanted_parts
        self._depth = max((PARTS.index(each) + 1 for each in wanted_parts), default=0)
        self._offsets = offsets
        self._chunk_bytes = chunk_bytes
        self._fails_fast = fails_fast
        self.places: list[DataOrigin] = []

    def decode_records(self, batches: BatchColumns) -> RowsOrDamage:
        """Yield the rows of batches."""
        if not len(batches.start):
            return
        counts = batches.headers.record_count
        starts, sound = find_record_starts(self.data, batches.start, batches.end, counts)
        if not sound.all():
            yield from self._decode_around_damage(batches, np.flatnonzero(~sound))
            return
        batch = np.repeat(np.arange(len(batches.start)), counts)
        spans = self._cut_into_spans(starts)
        if len(spans) > 1 and not self._fails_fast:  # no row of a batch may be yielded if a later record is damaged
            malformed = [self._read_record_fields(batches, starts[span], batch[span])[1] for span in spans]
            if any(each.any() for each in malformed):
                yield from self._decode_around_damage(batches, np.unique(batch[np.concatenate(malformed)]))
                return
        for span in spans:
            fields, malformed_here = self._read_record_fields(batches, starts[span], batch[span])
            if malformed_here.any():
                yield from self._decode_around_damage(batches, np.unique(batch[span][malformed_here]))
                return
            yield from self.make_rows(fields)

    def _read_record_fields(
        self, batches: BatchColumns, record_starts: Int64s, batch_indexes: Int64s
    ) -> tuple[FieldColumns, Bools]:
        """Return the fields that columns need of all records, and which records are malformed."""
        headers, wanted = batches.headers, self._wanted
        has_attributes = (headers.attributes & ELIDED_BIT == 0).astype(np.int64)
        is_cut = bool((headers.base_offset < self._offsets.start).any()) or bool(
            (headers.last_offset >= self._offsets.end).any()
        )
        found = read_record_fields(
            self.data,
            record_starts,
            _repeat_for_records(has_attributes, batch_indexes),
            max(self._depth, 2 if is_cut else 1),
        )
        fields = FieldColumns(
            len(record_starts),
            timestamp_types=_repeat_for_records(find_timestamp_types(headers), batch_indexes),
            keys=found.keys if "key" in wanted else None,
            values=found.values if "value" in wanted else None,
            headers=found.headers,
        )
        if found.offset_deltas is not None:
            fields.offsets = headers.base_offset[batch_indexes] + found.offset_deltas
        if "timestamp" in wanted:
            fields.timestamps_ms = headers.base_timestamp[batch_indexes] + found.timestamp_deltas
            stamped = headers.attributes & TIMESTAMP_TYPE_BIT != 0
            if stamped.any():
                np.copyto(fields.timestamps_ms, headers.max_timestamp[batch_indexes], where=stamped[batch_indexes])
        return fields, found.malformed

    def _cut_into_spans(self, starts: Int64s) -> list[slice]:
        """Return slices of consecutive records of about a chunk's size each, by the positions where records start."""
        if not len(starts) or starts[-1] - starts[0] < 2 * self._chunk_bytes:
            return [slice(0, len(starts))]
        steps = np.arange(int(starts[0]) + self._chunk_bytes, int(starts[-1]), self._chunk_bytes)
        bounds = [0, *np.unique(np.searchsorted(starts, steps)).tolist(), len(starts)]
        return [slice(first, last) for first, last in zip(bounds, bounds[1:], strict=False) if first < last]

    def _decode_around_damage(self, batches: BatchColumns, damaged: npt.NDArray[np.intp]) -> RowsOrDamage:
        """Yield the rows of the batches between the damaged ones, and the damage, in order.

        If the first damage ends the read, yield only that: some of these rows may have been yielded already.
        """
        if self._fails_fast:
            yield self._describe_damage(batches, int(damaged[0]))
            return
        first = 0
        for index in damaged.tolist():
            yield from self.decode_records(batches.select_batches(first, index))
            yield self._describe_damage(batches, index)
            first = index + 1
        yield from self.decode_records(batches.select_batches(first, len(batches.start)))

    def make_rows(self, fields: FieldColumns) -> RowsOrDamage:
        """Yield the rows of the records within the range of offsets."""
        rows = self._rows.make_record_rows(self.data, fields)
        first, end = self._offsets.start, self._offsets.end
        offsets = fields.offsets
        if offsets is not None and len(offsets) and (offsets.min() < first or offsets.max() >= end):
            rows = rows.filter(pa.array((offsets >= first) & (offsets < end)))
        if rows.num_rows:
            yield rows

    def _describe_damage(self, batches: BatchColumns, index: int) -> BatchDamage:
        one = batches.select_batches(index, index + 1)
        payload = self.data[int(one.start[0]) : int(one.end[0])].tobytes()
        header = one.headers.make_header(0)
        return BatchDamage(
            header.base_offset,
            _find_damage_reason(header, payload),
            self.places[int(one.place[0])],
            int(one.headers.position[0]),
        )


def find_timestamp_types(headers: BatchHeaders) -> Int64s:
    """Return 0 for create time, 1 for log append time, and -1 for none, as in format 0."""
    return np.where(headers.magic == 0, -1, (headers.attributes & TIMESTAMP_TYPE_BIT) // TIMESTAMP_TYPE_BIT)


def _repeat_for_records(batch_values: Int64s, batch_indexes: Int64s) -> Int64s | int:
    """Repeat the value of each batch for its records. Return an array, or a number if all values are equal."""
    first = int(batch_values[0])
    return first if (batch_values == first).all() else batch_values[batch_indexes]


def _find_damage_reason(header: BatchHeader, payload: bytes) -> str:
    """Return what `parse_records`, which is strict, finds wrong with the records."""
    count = header.record_count
    if count < 0:
        return f"Found invalid record count {count}"
    try:
        whole = restore_attributes_of_payload(payload, count) if header.attributes & ELIDED_BIT else payload
        for _ in parse_records(whole, header):
            pass
    except KafkaError as error:
        return error.message or str(error)
    return "its records are malformed"


class BatchKind(IntEnum):
    """Kinds of batches, by what it takes to read their records."""

    PLAIN = 0  # format 2, uncompressed
    COMPRESSED = 1
    OLD = 2  # messages of formats 0 and 1, and wrappers


class ChunkGatherer:
    """The batches of one partition on their way to rows, in order."""

    def __init__(
        self, rows: RowMaker, request: ReadRequest, offsets: OffsetRange, chunk_bytes: int, max_batch_bytes: int
    ) -> None:
        wanted = list_record_parts_of_columns(request.columns)
        self._chunk_bytes = chunk_bytes
        self._max_batch_bytes = max_batch_bytes
        self._held: list[Buffer] = []  # decompressed records, and copies of uncompressed batches
        self._held_bytes = 0
        fails_fast = request.mode == "FAILFAST"
        self._decoder = ChunkDecoder(rows, wanted, offsets, chunk_bytes, fails_fast)
        self._parts: list[BatchColumns] = []

    def add_batches(self, view: memoryview, headers: BatchHeaders, origin: DataOrigin) -> RowsOrDamage:
        """Gather these batches, whose checksums are right. Yield the results of chunks that get full."""
        kinds = np.where(
            headers.magic < MAGIC, BatchKind.OLD, np.where(headers.codec != 0, BatchKind.COMPRESSED, BatchKind.PLAIN)
        )
        bounds = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
        for first, last in zip(bounds, bounds[1:], strict=False):
            some = headers.select_batches(slice(first, last))
            if first == last:
                continue
            if kinds[first] == BatchKind.OLD:
                yield from self.decode_gathered_batches()
                yield from self._decode_old_messages(view, some, origin)
            elif kinds[first] == BatchKind.COMPRESSED:
                yield from self._decompress_batches(view, some, origin)
            else:
                yield from self._gather_or_decode_plain_batches(view, some, origin)
            if self._held_bytes >= self._chunk_bytes:
                yield from self.decode_gathered_batches()

    def decode_gathered_batches(self, data: UInt8s | None = None) -> RowsOrDamage:
        """Yield the rows of the gathered batches, whose bytes are in the chunk, or else in `data`."""
        held, self._held, self._held_bytes = self._held, [], 0
        if self._parts:
            self._decoder.data = np.frombuffer(b"".join((*held, _PADDING)), np.uint8) if data is None else data
            del held
            yield from self._decoder.decode_records(BatchColumns.join_batches(self._parts))
        self._parts = []
        self._decoder.places.clear()

    def _append_bytes_to_chunk(self, data: Buffer) -> int:
        """Keep bytes until the chunk is decoded, and return where they start in its data."""
        start = self._held_bytes
        self._held.append(data)
        self._held_bytes += len(data)
        return start

    def _gather_or_decode_plain_batches(
        self, view: memoryview, headers: BatchHeaders, origin: DataOrigin
    ) -> RowsOrDamage:
        """Decode uncompressed batches in place if they are half a chunk or more; else copy them into the chunk."""
        first, last = int(headers.position[0]), int(headers.position[-1] + headers.size[-1])
        if not self._parts and 2 * (last - first) >= self._chunk_bytes:
            self._add_batches_at(headers, headers.position + HEADER_BYTES, headers.position + headers.size, origin)
            yield from self.decode_gathered_batches(np.frombuffer(view, np.uint8))
            return
        start = headers.position - first + self._append_bytes_to_chunk(bytes(view[first:last]))
        self._add_batches_at(headers, start + HEADER_BYTES, start + headers.size, origin)

    def _decompress_batches(self, view: memoryview, headers: BatchHeaders, origin: DataOrigin) -> RowsOrDamage:
        """Decompress the batches one after the other. Yield damage between the rows before and after it."""
        edges = [self._held_bytes]  # where the records of the batches begin and end in the chunk's data
        first = 0
        spans = zip(headers.position.tolist(), headers.size.tolist(), headers.codec.tolist(), strict=True)
        for index, (position, size, codec) in enumerate(spans):
            damage = None
            try:
                compressed = view[position + HEADER_BYTES : position + size]
                self._append_bytes_to_chunk(decompress(codec, compressed, self._max_batch_bytes))
                edges.append(self._held_bytes)
            except KafkaError as error:
                damage = BatchDamage(int(headers.base_offset[index]), error.message or str(error), origin, position)
            is_full = self._held_bytes >= self._chunk_bytes
            if damage is not None or is_full or index == len(headers.size) - 1:
                at = np.array(edges, np.int64)
                self._add_batches_at(headers.select_batches(slice(first, first + len(at) - 1)), at[:-1], at[1:], origin)
                if damage is not None or is_full:
                    yield from self.decode_gathered_batches()
                edges, first = [self._held_bytes], index + 1
            if damage is not None:
                yield damage

    def _add_batches_at(self, headers: BatchHeaders, start: Int64s, end: Int64s, origin: DataOrigin) -> None:
        """Add batches to the chunk, whose records are from `start` to `end` in its data."""
        places = self._decoder.places
        if not places or places[-1] != origin:
            places.append(origin)
        which = np.full(len(start), len(places) - 1, np.int64)
        self._parts.append(BatchColumns(headers, start, end, which))

    def _decode_old_messages(self, view: memoryview, headers: BatchHeaders, origin: DataOrigin) -> RowsOrDamage:
        """Yield the rows of messages of formats 0 and 1, which the protocol reads one by one, and damage."""
        found: list[tuple[Record, int]] = []
        held_bytes = 0
        kinds = find_timestamp_types(headers).tolist()
        for position, size, kind in zip(headers.position.tolist(), headers.size.tolist(), kinds, strict=True):
            damage = None
            try:
                records = list(
                    iterate_records_of_message(view[position : position + size], limit_bytes=self._max_batch_bytes)
                )
                found += ((each, kind) for each in records)
                held_bytes += sum(len(each.value or b"") for each in records)
            except KafkaError as error:
                (offset,) = headers.base_offset[headers.position == position].tolist()
                damage = BatchDamage(offset, error.message or str(error), origin, position)
            if damage is not None or held_bytes >= self._chunk_bytes:
                yield from self._make_rows_of_records(found)
                found, held_bytes = [], 0
            if damage is not None:
                yield damage
        yield from self._make_rows_of_records(found)

    def _make_rows_of_records(self, records_and_types: list[tuple[Record, int]]) -> RowsOrDamage:
        """Yield rows of pairs (record, timestamp type)."""
        if not records_and_types:
            return
        fields = FieldColumns(
            len(records_and_types),
            np.array([each.offset for each, _ in records_and_types], np.int64),
            np.array([each.timestamp for each, _ in records_and_types], np.int64),
            np.array([kind for _, kind in records_and_types], np.int64),
            pa.array([each.key for each, _ in records_and_types], pa.binary()),
            pa.array([each.value for each, _ in records_and_types], pa.binary()),
        )
        yield from self._decoder.make_rows(fields)
