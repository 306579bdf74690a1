"""Gathers batches in the arena by kind, and decodes them when there are enough: a chunk.

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

from minibroker.pipeline.array_types import Bools, Int64s
from minibroker.pipeline.decode import message_columns
from minibroker.pipeline.decode.arena import Arena
from minibroker.pipeline.decode.arrow import Rows
from minibroker.pipeline.decode.batch_headers import Headers, Place
from minibroker.pipeline.decode.record_field_columns import Fields, Wanted, read_fields
from minibroker.pipeline.decode.record_starts import find_record_starts
from minibroker.pipeline.log_source import OffsetRange, ReadRequest
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import ELIDED_BIT, HEADER_BYTES, MAGIC, TIMESTAMP_TYPE_BIT, BatchHeader
from minibroker.protocol.records.record import parse_records
from minibroker.protocol.records.restarting import restore_attributes_of_payload

MAX_ROWS: Final = 1 << 18  # in a record batch without bytes of records


class Batches(NamedTuple):
    """Some batches, one column for each field."""

    headers: Headers
    start: Int64s  # of the records in the arena
    end: Int64s
    records: Int64s  # the number of records
    inner: Int64s  # where all messages of formats 0 and 1 begin in the arena, in order
    place: Int64s  # the index in the chunk's places, from which positions count

    def between(self, first: int, last: int) -> Batches:
        """Return the batches from `first` to before `last`."""
        before = int(self.records[:first].sum())
        inner = self.inner[before : before + int(self.records[first:last].sum())]
        start, end, records, place = (each[first:last] for each in (self.start, self.end, self.records, self.place))
        return Batches(self.headers.select(slice(first, last)), start, end, records, inner, place)

    @classmethod
    def joined(cls, parts: list[Batches]) -> Batches:
        """Return the batches of all parts."""
        if len(parts) == 1:
            return parts[0]
        headers = Headers(*(np.concatenate(columns) for columns in zip(*(each.headers for each in parts), strict=True)))
        rest = (np.concatenate(columns) for columns in zip(*(each[1:] for each in parts), strict=True))
        return cls(headers, *rest)


class Damage(NamedTuple):
    """A batch that cannot be decoded, and why; or the place after which no batch can be found."""

    offset: int
    reason: str
    place: Place
    position: int  # from the start of the place


Decoded = Iterator[pa.RecordBatch | Damage]


class ChunkDecoder:
    """Decodes chunks. Each has batches of one kind."""

    def __init__(
        self, arena: Arena, rows: Rows, wanted: Wanted, offsets: OffsetRange, chunk_bytes: int, fails_fast: bool
    ) -> None:
        self._arena = arena
        self._rows = rows
        self._wanted = wanted
        self._offsets = offsets
        self._chunk_bytes = chunk_bytes
        self._fails_fast = fails_fast
        self.places: list[Place] = []

    def counted(self, batches: Batches) -> Decoded:
        """Yield the rows of batches whose headers have all of it: consecutive offsets, and at most one timestamp."""
        headers = batches.headers
        ends = np.cumsum(batches.records)
        kinds = find_timestamp_types(headers)
        for first in range(0, int(ends[-1]), MAX_ROWS):
            record = np.arange(first, min(first + MAX_ROWS, int(ends[-1])))
            batch = np.searchsorted(ends, record, side="right")
            fields = Fields(len(record), timestamp_types=_spread_by_batch(kinds, batch))
            fields.offsets = headers.base_offset[batch] + record - (ends - batches.records)[batch]
            if self._wanted.timestamp:
                fields.timestamps_ms = headers.max_timestamp[batch]
            yield from self._decode_given_records(fields)

    def records(self, batches: Batches) -> Decoded:
        """Yield the rows of batches of format 2."""
        if not len(batches.start):
            return
        starts, sound = find_record_starts(self._arena.data, batches.start, batches.end, batches.records)
        if not sound.all():
            yield from self._decode_around(batches, np.flatnonzero(~sound))
            return
        batch = np.repeat(np.arange(len(batches.start)), batches.records)
        spans = self._cut_into_spans(starts)
        if len(spans) > 1 and not self._fails_fast:  # no row of a batch may be yielded if a later record is damaged
            malformed = [self._read_record_fields(batches, starts[span], batch[span])[1] for span in spans]
            if any(each.any() for each in malformed):
                yield from self._decode_around(batches, np.unique(batch[np.concatenate(malformed)]))
                return
        for span in spans:
            fields, malformed_here = self._read_record_fields(batches, starts[span], batch[span])
            if malformed_here.any():
                yield from self._decode_around(batches, np.unique(batch[span][malformed_here]))
                return
            yield from self._decode_given_records(fields)

    def _read_record_fields(self, batches: Batches, starts: Int64s, batch: Int64s) -> tuple[Fields, Bools]:
        headers, wanted = batches.headers, self._wanted
        has_attributes = (headers.attributes & ELIDED_BIT == 0).astype(np.int64)
        is_cut = bool((headers.base_offset < self._offsets.start).any()) or bool(
            (headers.last_offset >= self._offsets.end).any()
        )
        found = read_fields(
            self._arena.data, starts, _spread_by_batch(has_attributes, batch), max(wanted.depth, 2 if is_cut else 1)
        )
        fields = Fields(
            len(starts),
            timestamp_types=_spread_by_batch(find_timestamp_types(headers), batch),
            keys=found.keys if wanted.key else None,
            values=found.values if wanted.value else None,
            headers=found.headers,
        )
        if found.offset_deltas is not None:
            fields.offsets = headers.base_offset[batch] + found.offset_deltas
        if wanted.timestamp:
            fields.timestamps_ms = headers.base_timestamp[batch] + found.timestamp_deltas
            stamped = headers.attributes & TIMESTAMP_TYPE_BIT != 0
            if stamped.any():
                np.copyto(fields.timestamps_ms, headers.max_timestamp[batch], where=stamped[batch])
        return fields, found.malformed

    def messages(self, batches: Batches) -> Decoded:
        """Yield the rows of messages of formats 0 and 1."""
        if not len(batches.start):
            return
        batch = np.repeat(np.arange(len(batches.start)), batches.records)
        offsets, bad = self._find_message_offsets(batches, batch)
        fields = []
        for span in self._cut_into_spans(batches.inner):
            found, malformed = self._read_message_fields(batches, batches.inner[span], batch[span])
            found.offsets = offsets[span]
            bad[batch[span][malformed]] = True
            fields.append(found)
        if bad.any():
            yield from self._decode_around(batches, np.flatnonzero(bad))
            return
        for each in fields:
            yield from self._decode_given_records(each)

    def _find_message_offsets(self, batches: Batches, batch: Int64s) -> tuple[Int64s, Bools]:
        """Return the offset of each message, and whether each batch contradicts the offsets of its messages.

        A wrapper is a message that contains a compressed batch. In format 1 its own offset is that of its last message,
        and the messages in it count from 0. Some old clients leave the wrapper's offset at 0: their messages have their
        final offsets already.
        """
        headers = batches.headers
        offsets = message_columns.read_offsets(self._arena.data, batches.inner)
        last = offsets[np.cumsum(batches.records) - 1]
        is_relative = (headers.magic == 1) & (headers.codec != 0) & (headers.base_offset != 0)
        base = np.where(is_relative, headers.base_offset - last, 0)
        return offsets + base[batch], base < 0

    def _read_message_fields(self, batches: Batches, starts: Int64s, batch: Int64s) -> tuple[Fields, Bools]:
        headers, wanted, data = batches.headers, self._wanted, self._arena.data
        magic = headers.magic[batch]
        fields = Fields(len(starts), timestamp_types=_spread_by_batch(find_timestamp_types(headers), batch))
        if wanted.timestamp:
            fields.timestamps_ms = message_columns.read_timestamps(data, starts, magic)
            stamped = headers.attributes & TIMESTAMP_TYPE_BIT != 0
            np.copyto(fields.timestamps_ms, headers.max_timestamp[batch], where=stamped[batch])
        malformed = np.zeros(len(starts), np.bool_)
        if wanted.key or wanted.value:
            keys, values, malformed = message_columns.read_key_and_value(data, starts, magic)
            fields.keys = keys if wanted.key else None
            fields.values = values if wanted.value else None
        return fields, malformed

    def _cut_into_spans(self, starts: Int64s) -> list[slice]:
        """Return runs of records of about a chunk's size. Each becomes a record batch."""
        if not len(starts) or starts[-1] - starts[0] < 2 * self._chunk_bytes:
            return [slice(0, len(starts))]
        steps = np.arange(int(starts[0]) + self._chunk_bytes, int(starts[-1]), self._chunk_bytes)
        bounds = [0, *np.unique(np.searchsorted(starts, steps)).tolist(), len(starts)]
        return [slice(first, last) for first, last in zip(bounds, bounds[1:], strict=False) if first < last]

    def _decode_around(self, batches: Batches, bad: npt.NDArray[np.intp]) -> Decoded:
        """Yield the rows of the batches between the damaged ones, and the damage, in order.

        If the first damage ends the read, yield only that: some of these rows may have been yielded already.
        """
        if self._fails_fast:
            yield self._describe_damage(batches, int(bad[0]))
            return
        decode = self.records if batches.headers.magic[0] == MAGIC else self.messages
        first = 0
        for index in bad.tolist():
            yield from decode(batches.between(first, index))
            yield self._describe_damage(batches, index)
            first = index + 1
        yield from decode(batches.between(first, len(batches.start)))

    def _decode_given_records(self, fields: Fields) -> Decoded:
        """Yield the rows of the records within the range of offsets."""
        rows = self._rows.of_records(self._arena.data, fields)
        first, end = self._offsets.start, self._offsets.end
        offsets = fields.offsets
        if offsets is not None and len(offsets) and (offsets.min() < first or offsets.max() >= end):
            rows = rows.filter(pa.array((offsets >= first) & (offsets < end)))
        if rows.num_rows:
            yield rows

    def _describe_damage(self, batches: Batches, index: int) -> Damage:
        one = batches.between(index, index + 1)
        payload = self._arena.data[int(one.start[0]) : int(one.end[0])].tobytes()
        header = one.headers.make_header(0)
        reason = "a message in it contradicts its own sizes"
        if header.magic == MAGIC:
            reason = _find_reason(header, payload)
        return Damage(header.base_offset, reason, self.places[int(one.place[0])], int(one.headers.position[0]))


def find_timestamp_types(headers: Headers) -> Int64s:
    """Return 0 for create time, 1 for log append time, and -1 for none, as in format 0."""
    return np.where(headers.magic == 0, -1, (headers.attributes & TIMESTAMP_TYPE_BIT) // TIMESTAMP_TYPE_BIT)


def _spread_by_batch(of_batches: Int64s, batch: Int64s) -> Int64s | int:
    """Return the batch number of each record: an array, or one number if all records are in the same batch."""
    first = int(of_batches[0])
    return first if (of_batches == first).all() else of_batches[batch]


def _find_reason(header: BatchHeader, payload: bytes) -> str:
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


Given = Iterator[pa.RecordBatch | Damage]

_NOTHING: Final = np.empty(0, np.int64)


class Kind(IntEnum):
    """Kinds of batches, by what it takes to read their records."""

    COUNTED = 0  # nothing: the header has all that is wanted
    PLAIN = 1  # format 2, uncompressed
    COMPRESSED = 2
    MESSAGE = 3  # formats 0 and 1
    WRAPPER = 4


_DECODED_ALIKE: Final = (0, 1, 1, 2, 2)  # by kind; all batches of a chunk are decoded the same way


class Gathering:
    """The batches of one partition on their way to rows, in order."""

    def __init__(
        self, rows: Rows, request: ReadRequest, offsets: OffsetRange, chunk_bytes: int, max_batch_bytes: int
    ) -> None:
        self._wanted = Wanted.by(request.columns)
        self._chunk_bytes = chunk_bytes
        self._arena = Arena(chunk_bytes, max_batch_bytes)
        fails_fast = request.mode == "FAILFAST"
        self._decoder = ChunkDecoder(self._arena, rows, self._wanted, offsets, chunk_bytes, fails_fast)
        self._parts: list[Batches] = []
        self._record_count = 0
        self._decoded_as = 0

    def add(self, view: memoryview, headers: Headers, place: Place) -> Given:
        """Gather these batches, whose checksums are right. Yield the results of chunks that get full."""
        if not len(headers.size):
            return
        kinds = self._find_kinds(headers)
        bounds = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
        for first, last in zip(bounds, bounds[1:], strict=False):
            kind = Kind(int(kinds[first]))
            if _DECODED_ALIKE[kind] != self._decoded_as:
                yield from self.flush()
                self._decoded_as = _DECODED_ALIKE[kind]
            yield from self._bring_kind(kind, view, headers.select(slice(first, last)), place)
            if self._is_full:
                yield from self.flush()

    def flush(self) -> Given:
        """Decode what was gathered."""
        if self._parts:
            decode = (self._decoder.counted, self._decoder.records, self._decoder.messages)[self._decoded_as]
            yield from decode(Batches.joined(self._parts))
        self._arena.clear()
        self._parts, self._record_count = [], 0
        self._decoder.places.clear()

    @property
    def _is_full(self) -> bool:
        return self._arena.used >= self._chunk_bytes or self._record_count >= MAX_ROWS

    def _find_kinds(self, headers: Headers) -> Int64s:
        is_old = headers.magic < MAGIC
        is_packed = headers.codec != 0
        kinds: Int64s = np.where(is_old, Kind.MESSAGE, Kind.PLAIN) + is_packed
        if self._wanted.depth > 2:
            return kinds
        is_known = (headers.record_count == headers.last_offset - headers.base_offset + 1) & ~(is_old & is_packed)
        if self._wanted.timestamp:
            is_known &= is_old | (headers.attributes & TIMESTAMP_TYPE_BIT != 0)
        for of_format in (is_old, ~is_old):
            if is_known[of_format].all():  # else chunks would be as small as the runs of such batches
                kinds[of_format] = Kind.COUNTED
        return kinds

    def _bring_kind(self, kind: Kind, view: memoryview, headers: Headers, place: Place) -> Given:
        if kind == Kind.COUNTED:
            nowhere = np.zeros(len(headers.size), np.int64)
            self._note_batches(headers, nowhere, nowhere, headers.record_count, _NOTHING, place)
        elif kind in (Kind.PLAIN, Kind.MESSAGE):
            self._copy_batches(kind, view, headers, place)
        else:
            yield from self._decompress_batches(kind, view, headers, place)

    def _copy_batches(self, kind: Kind, view: memoryview, headers: Headers, place: Place) -> None:
        """Copy all batches at once, with their headers and what is between them."""
        first, last = int(headers.position[0]), int(headers.position[-1] + headers.size[-1])
        start = headers.position - first + self._arena.append(view[first:last])
        end = start + headers.size
        if kind == Kind.MESSAGE:
            self._note_batches(headers, start, end, headers.record_count, start, place)
        else:
            self._note_batches(headers, start + HEADER_BYTES, end, headers.record_count, _NOTHING, place)

    def _decompress_batches(self, kind: Kind, view: memoryview, headers: Headers, place: Place) -> Given:
        """Decompress the batches one after the other. Yield damage between the rows before and after it."""
        starts: list[int] = []  # where the records of the batches begin and end in the arena
        ends: list[int] = []
        inner: list[Int64s] = []
        first = 0
        spans = zip(headers.position.tolist(), headers.size.tolist(), headers.codec.tolist(), strict=True)
        for index, (position, size, codec) in enumerate(spans):
            batch = view[position : position + size]
            damage = None
            try:
                start = self._arena.used
                if kind == Kind.WRAPPER:
                    inner.append(message_columns.decompress_wrapper_messages(batch, self._arena))
                else:
                    self._arena.decompress(codec, batch[HEADER_BYTES:])
                starts.append(start)
                ends.append(self._arena.used)
            except KafkaError as error:
                reason = error.message or str(error)
                damage = Damage(int(headers.base_offset[index]), reason, place, position)
            if damage is not None or self._is_full or index == len(headers.size) - 1:
                self._note_unpacked(headers.select(slice(first, first + len(starts))), starts, ends, inner, place)
                starts, ends, inner, first = [], [], [], index + 1
            if damage is not None:
                yield from self.flush()
                yield damage
            elif self._is_full:
                yield from self.flush()

    def _note_unpacked(
        self, headers: Headers, starts: list[int], ends: list[int], inner: list[Int64s], place: Place
    ) -> None:
        if not starts:
            return
        counts = np.array([len(each) for each in inner], np.int64) if inner else headers.record_count
        at = np.array(starts, np.int64), np.array(ends, np.int64)
        self._note_batches(headers, *at, counts, np.concatenate([_NOTHING, *inner]), place)

    def _note_batches(
        self, headers: Headers, start: Int64s, end: Int64s, count: Int64s, inner: Int64s, place: Place
    ) -> None:
        places = self._decoder.places
        if not places or places[-1] != place:
            places.append(place)
        which = np.full(len(start), len(places) - 1, np.int64)
        self._parts.append(Batches(headers, start, end, count, inner, which))
        self._record_count += int(count.sum())
