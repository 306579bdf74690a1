"""The decoders: from one partition's bytes to Arrow record batches, for each of the two tables.

Readers provide the bytes. The request says whether damage fails the read, becomes a row or is skipped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from minibroker.pipeline.array_types import Bools, Int64s
from minibroker.pipeline.decode import batch_headers
from minibroker.pipeline.decode.arrow import RowMaker, convert_times
from minibroker.pipeline.decode.batch_headers import (
    MAX_BATCH_BYTES,
    BatchHeaders,
    Buffer,
    DataOrigin,
    HeaderScan,
    read_headers_at,
)
from minibroker.pipeline.decode.gathering import BatchDamage, ChunkGatherer, RowsOrDamage, find_timestamp_types
from minibroker.pipeline.log_source import CorruptData, OffsetRange, ReadRequest, TopicPartition
from minibroker.pipeline.schemas import BATCHES, RECORDS, choose_columns
from minibroker.protocol.records.batch import MAGIC
from minibroker.protocol.records.compression import Compression

_OPEN: Final = (1 << 63) - 1  # the last offset of a transaction whose marker has not been read yet


class AbortedRanges:
    """The aborted transactions of one partition, each as (producer id, first offset, offset of its marker).

    A broker tells only the first offset in its answers to Fetch. The offset of the marker is then None until the
    decoder reads the producer's next marker and calls `end`.
    """

    def __init__(self, ranges: Iterable[tuple[int, int, int | None]] = ()) -> None:
        self._by_producer: dict[int, list[tuple[int, int]]] = {}  # (first, last), sorted, without overlaps
        for producer_id, first_offset, last_offset in ranges:
            self.add_range(producer_id, first_offset, last_offset)

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def add_range(self, producer_id: int, first_offset: int, last_offset: int | None = None) -> None:
        """Add a transaction, unless one with the same first offset is known."""
        known = self._by_producer.setdefault(producer_id, [])
        at = bisect_right(known, (first_offset, -1))
        if at == len(known) or known[at][0] != first_offset:
            insort(known, (first_offset, _OPEN if last_offset is None else last_offset))

    def end_range_of(self, producer_id: int, offset: int) -> None:
        """End the producer's open transaction at `offset`, where its marker is."""
        known = self._by_producer.get(producer_id, ())
        for index, (first, last) in enumerate(known):
            if last == _OPEN and first <= offset:
                self._by_producer[producer_id][index] = (first, offset)

    def are_aborted(self, producer_ids: Int64s, offsets: Int64s) -> Bools:
        """Return, for each producer and offset of a transactional record, whether it was aborted."""
        found = np.zeros(len(offsets), np.bool_)
        for producer_id in np.unique(producer_ids).tolist():
            known = self._by_producer.get(producer_id)
            if known:
                mine = np.flatnonzero(producer_ids == producer_id)
                bounds = np.array(known, np.int64)
                at = np.searchsorted(bounds[:, 0], offsets[mine], side="right") - 1
                found[mine] = (at >= 0) & (offsets[mine] <= bounds[at, 1])
        return found


RecordBatches = Iterator[pa.RecordBatch]

CHUNK_BYTES: Final = 4 << 20
_MAX_CHUNK_BYTES: Final = 256 << 20
_MAX_OFFSET: Final = (1 << 63) - 1

_CODECS: Final = (*(codec.name.lower() for codec in Compression), "5", "6", "7")  # 5 to 7 are unknown


class _Decoder(ABC):
    """The part that both decoders share: the walk over the batches, and the handling of damage.

    A batch is decompressed to at most `max_batch_bytes`, which is at most `MAX_BATCH_BYTES`. `schema` has other types
    for the columns of the request.
    """

    table: ClassVar[pa.Schema]

    def __init__(
        self,
        partition: TopicPartition,
        request: ReadRequest,
        offsets: OffsetRange,
        aborted: AbortedRanges | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        schema: pa.Schema | None = None,
    ) -> None:
        self._request = request
        self._offsets = offsets
        self._aborted = aborted
        self._chunk_bytes = min(chunk_bytes, _MAX_CHUNK_BYTES)
        self._max_batch_bytes = min(max_batch_bytes, MAX_BATCH_BYTES)
        self._rows = RowMaker(schema or choose_columns(self.table, request.columns), partition)

    def decode_data(self, data: Buffer, place: str, position: int | None) -> RecordBatches:
        """Yield the rows of the whole batches in `data` as chunks get full; `decode_remaining_batches` yields the rest.

        `place` (a file's path, or a broker) and `position` (where `data` begins in the file; None for a broker) are for
        messages about damage. The caller may reuse `data` once the iterator is exhausted. Raises `CorruptData`.
        """
        view = memoryview(data)
        whence = DataOrigin(place, position)
        end = 0
        while end < len(view):
            scanned = batch_headers.scan_headers(view, end, self._chunk_bytes)
            end = scanned.end
            if scanned.positions:
                yield from self.decode_batches(view, read_headers_at(view, scanned.positions), whence)
            if scanned.problem is not None:
                yield from self._report_missing_batches(view, scanned, whence)
                return

    def decode_remaining_batches(self) -> RecordBatches:
        """Yield the remaining rows. Raises `CorruptData`."""
        return iter(())

    @abstractmethod
    def decode_batches(self, view: memoryview, headers: BatchHeaders, origin: DataOrigin) -> RecordBatches:
        """Yield the rows of some consecutive batches in `view`, which begins at `origin`. Raises `CorruptData`."""

    def _report_missing_batches(self, view: memoryview, scan: HeaderScan, origin: DataOrigin) -> RecordBatches:
        """Report as damage that there is no batch where the scan ended. Its offset is read from the bytes there."""
        yield from self.decode_remaining_batches()
        offset = int.from_bytes(bytes(view[scan.end : scan.end + 8]).ljust(8, b"\0"), "big", signed=True)
        yield from self.report_damage(BatchDamage(offset, str(scan.problem), origin, scan.end))

    def report_damage(self, damage: BatchDamage) -> RecordBatches:
        """Yield the row of a damage, if the request wants one. Raises `CorruptData`."""
        place, offset = damage.place, damage.offset
        message = f"{place.describe_position(damage.position)}, offset {offset}: {damage.reason}"
        if self._request.mode == "FAILFAST":
            raise CorruptData(message)
        if self._request.mode == "PERMISSIVE":
            position = None if place.position is None else place.position + damage.position
            yield self._rows.make_damage_row(
                message, offset=offset, baseOffset=offset, segment=place.segment, position=position
            )

    def _find_aborted_batches(self, headers: BatchHeaders) -> Bools:
        """Return which batches belong to aborted transactions. Markers among them end open transactions."""
        if not self._aborted:
            return np.zeros(len(headers.size), np.bool_)
        for marker in np.flatnonzero(headers.is_control & headers.is_transactional).tolist():
            self._aborted.end_range_of(int(headers.producer_id[marker]), int(headers.base_offset[marker]))
        aborted = self._aborted.are_aborted(headers.producer_id, headers.base_offset)
        return aborted & headers.is_transactional & ~headers.is_control


def _get_offset_after(offset: np.int64) -> int:
    """Return the next offset, at most the largest that exists."""
    return min(int(offset) + 1, _MAX_OFFSET)


class RecordsDecoder(_Decoder):
    """Decodes one partition's batches, in order, to rows of `choose_columns(RECORDS, columns)`.

    Records outside the range, control batches and, with `aborted`, aborted transactions are left out. The checksum of
    each batch in the range is verified. Of each record, only as much as the columns need is read. A batch is also
    damaged if its offsets do not follow those before it, or if it takes more than `max_batch_bytes`, compressed or not.
    So the memory in use is at most about that and twice `chunk_bytes`.
    """

    table = RECORDS
    _next_offset = -1 << 63

    @cached_property
    def _chunk_gatherer(self) -> ChunkGatherer:
        return ChunkGatherer(self._rows, self._request, self._offsets, self._chunk_bytes, self._max_batch_bytes)

    def decode_remaining_batches(self) -> RecordBatches:
        """Yield the remaining rows. Raises `CorruptData`."""
        return self._pass_rows_and_report_damage(self._chunk_gatherer.decode_gathered_batches())

    def decode_batches(self, view: memoryview, headers: BatchHeaders, origin: DataOrigin) -> RecordBatches:
        """Yield the rows as chunks get full. Raises `CorruptData`."""
        preceding = np.concatenate(([self._next_offset], headers.last_offset[:-1] + 1))
        concerns = self._find_batches_in_range(headers, preceding)
        has_rows = concerns & self._find_batches_with_rows(headers)
        is_sound = batch_headers.are_headers_possible(headers, preceding, self._max_batch_bytes) and bool(
            batch_headers.check_checksums(view, headers.select_batches(concerns)).all()
        )
        if not is_sound:
            yield from self._decode_batch_by_batch(view, headers, concerns, has_rows, origin)
            return
        self._next_offset = _get_offset_after(headers.last_offset[-1])
        yield from self._pass_rows_and_report_damage(
            self._chunk_gatherer.add_batches(view, headers.select_batches(has_rows), origin)
        )

    def _decode_batch_by_batch(
        self, view: memoryview, headers: BatchHeaders, is_in_range: Bools, has_rows: Bools, origin: DataOrigin
    ) -> RecordBatches:
        """Decode batch by batch, so that damage in one does not affect the next."""
        first = 0
        for index in range(len(headers.size)):
            problem = batch_headers.find_checksum_problem(view, headers, index)
            if problem is None:
                problem = batch_headers.find_header_problem(headers, index, self._next_offset, self._max_batch_bytes)
                self._next_offset = _get_offset_after(headers.last_offset[index])
            elif not is_in_range[index]:
                problem = None
            if problem is not None:
                between = headers.select_batches(slice(first, index)).select_batches(has_rows[first:index])
                yield from self._pass_rows_and_report_damage(self._chunk_gatherer.add_batches(view, between, origin))
                yield from self.decode_remaining_batches()
                offset, position = int(headers.base_offset[index]), int(headers.position[index])
                yield from self.report_damage(BatchDamage(offset, problem, origin, position))
                first = index + 1
        rest = headers.select_batches(slice(first, None)).select_batches(has_rows[first:])
        yield from self._pass_rows_and_report_damage(self._chunk_gatherer.add_batches(view, rest, origin))

    def _pass_rows_and_report_damage(self, rows_or_damage: RowsOrDamage) -> RecordBatches:
        """Yield rows as they are, and for damage what `report_damage` yields. Raises `CorruptData`."""
        for each in rows_or_damage:
            if isinstance(each, BatchDamage):
                yield from self.report_damage(each)
            else:
                yield each

    def _find_batches_in_range(self, headers: BatchHeaders, preceding: Int64s) -> Bools:
        """Return which batches may have records in the range, also if they are damaged.

        The last offset of a damaged batch may be wrong, so the next batch's base offset counts too. A compressed
        message does not have its first offset, so the last offset of the message before counts.
        """
        first = np.where(headers.record_count < 0, preceding, headers.base_offset)
        next_base_offset = np.append(headers.base_offset[1:], _MAX_OFFSET)
        last = np.where(
            headers.magic < MAGIC, headers.last_offset, np.maximum(headers.last_offset, next_base_offset - 1)
        )
        concerns: Bools = (first < self._offsets.end) & (last >= self._offsets.start)
        return concerns

    def _find_batches_with_rows(self, headers: BatchHeaders) -> Bools:
        """Return which batches have records, by their headers."""
        has_records: Bools = (headers.record_count != 0) & ~headers.is_control & ~self._find_aborted_batches(headers)
        return has_records & (headers.last_offset >= self._offsets.start)


class BatchesDecoder(_Decoder):
    """Decodes one partition's batches to rows of `choose_columns(BATCHES, columns)`, from their headers.

    A batch belongs to the range that has its last offset, so that adjacent ranges have it once. Control batches are
    included. With `aborted`, batches of aborted transactions are left out.
    """

    table = BATCHES

    def decode_batches(self, view: memoryview, headers: BatchHeaders, origin: DataOrigin) -> RecordBatches:
        """Yield a row for each batch of the range. Raises `CorruptData`."""
        given = headers.select_batches(
            (headers.last_offset >= self._offsets.start)
            & (headers.last_offset < self._offsets.end)
            & ~self._find_aborted_batches(headers)
        )
        if len(given.size):
            is_valid = batch_headers.check_checksums(view, given) if self._request.verify_crc else None
            yield make_batch_rows(self._rows, given, is_valid, origin)


def make_decoder(
    request: ReadRequest, offsets: OffsetRange, aborted: AbortedRanges | None = None
) -> RecordsDecoder | BatchesDecoder:
    """Return the decoder for the table of the request."""
    kind = RecordsDecoder if request.table == "records" else BatchesDecoder
    return kind(offsets.partition, request, offsets, aborted)


@cache
def _list_codecs() -> pa.Array:
    """Return the names of the codecs.

    They are not made at import: the first `pa.array` imports pandas, which planning does not need.
    """
    return pa.array(_CODECS)


def make_batch_rows(
    rows: RowMaker, headers: BatchHeaders, is_valid: Bools | None, origin: DataOrigin
) -> pa.RecordBatch:
    """Return a row for each header. `is_valid` is whether checksums match, None if unknown."""
    counts = pa.array(headers.record_count, mask=(headers.record_count < 0) & (headers.magic < MAGIC))
    columns = {
        "segment": origin.segment,
        "position": None if origin.position is None else headers.position + origin.position,
        "sizeInBytes": headers.size,
        "magic": headers.magic,
        "codec": _list_codecs().take(pa.array(headers.codec)),
        "timestampType": find_timestamp_types(headers),
        "baseOffset": headers.base_offset,
        "lastOffset": headers.last_offset,
        "recordCount": counts,
        "baseTimestamp": convert_times(headers.base_timestamp),
        "maxTimestamp": convert_times(headers.max_timestamp),
        "baseTimestampMs": headers.base_timestamp,
        "maxTimestampMs": headers.max_timestamp,
        "partitionLeaderEpoch": headers.leader_epoch,
        "producerId": headers.producer_id,
        "producerEpoch": headers.producer_epoch,
        "baseSequence": headers.base_sequence,
        "isTransactional": headers.is_transactional,
        "isControl": headers.is_control,
        "attributes": headers.attributes,
        "crc": headers.crc,
        "crcValid": is_valid,
    }
    return rows.make_rows(columns, len(headers.size))
