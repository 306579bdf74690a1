"""Gathers batches in the arena by kind, and decodes them when there are enough.

`decoder.py` decides which batches are gathered, `chunk.py` makes the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import numpy as np
import pyarrow as pa

from minibroker.pipeline.array_types import Int64s
from minibroker.pipeline.decode import message_columns
from minibroker.pipeline.decode.arena import Arena
from minibroker.pipeline.decode.arrow import Rows
from minibroker.pipeline.decode.batch_headers import Headers, Place
from minibroker.pipeline.decode.chunk import MAX_ROWS, Batches, ChunkDecoder, Damage
from minibroker.pipeline.decode.record_field_columns import Wanted
from minibroker.pipeline.log_source import OffsetRange, ReadRequest
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import HEADER_BYTES, MAGIC, TIMESTAMP_TYPE_BIT

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
                    inner.append(message_columns.unwrap_messages(batch, self._arena))
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
