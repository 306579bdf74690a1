"""Converts the batches of one segment, a chunk at a time: how each is rewritten, by the settings, and which are joined.

`segment_rewriting.py` reads and writes the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from minibroker.pipeline.array_types import Int64s
from minibroker.pipeline.decode.batch_headers import MAX_BATCH_BYTES
from minibroker.pipeline.decode.decoder import RecordsDecoder
from minibroker.pipeline.encoder import BatchSettings, EncodeError, Producer, RowsOrigin, encode_rows_of_origins
from minibroker.pipeline.log_source import OffsetRange, ReadRequest, TopicPartition
from minibroker.pipeline.schemas import EXACT_HEADERS, RECORDS, choose_columns
from minibroker.protocol.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    MAGIC,
    MAX_SEQUENCE,
    BatchHeader,
)
from minibroker.protocol.records.building import assemble_batch
from minibroker.protocol.records.compression import Compression, compress, decompress
from minibroker.protocol.records.varints import Bytes

DEFAULT_BATCH_BYTES = 16384
UNBOUNDED_BYTES = 2**31 - 1


class RewriteError(Exception):
    """Why a directory cannot be rewritten, in one line."""


@dataclass(frozen=True)
class RewriteSettings:
    """The form of all batches, which have format 2. None leaves a property of each batch as it is.

    `level` is the codec's. Without `batch_bytes` each batch stays one batch, and messages of formats 0 and 1 are joined
    to batches of 16384 bytes. Raises `EncodeError`
    for contradicting settings.
    """

    codec: Compression | None = None
    level: int | None = None
    batch_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.level is not None and self.codec is None:
            raise EncodeError("a level needs a codec")
        BatchSettings(self.codec or Compression.NONE, self.level)


class RewriteWay(Enum):
    """How a batch is rewritten."""

    COPY = "its bytes stay"
    RECODE = "its records stay as they are, under another codec"
    ALONE = "its records are one batch again"
    JOIN = "its records are batched again, with those of its neighbours"


class TargetForm(NamedTuple):
    """The form that one batch gets, and how."""

    way: RewriteWay
    codec: Compression


def choose_target_form(header: BatchHeader, settings: RewriteSettings) -> TargetForm:
    """Return the way in which a batch with this header is rewritten, and its new codec."""
    codec = Compression(header.compression) if settings.codec is None else settings.codec
    is_same = codec == header.compression and (settings.level is None or not codec)
    return TargetForm(_choose_rewrite_way(header, is_same, settings), codec)


def _choose_rewrite_way(header: BatchHeader, is_same: bool, settings: RewriteSettings) -> RewriteWay:
    """Return whether a batch is copied, recompressed, or its records batched again; `is_same` if its codec stays."""
    if header.magic < MAGIC:
        return RewriteWay.JOIN if settings.batch_bytes or not header.compression else RewriteWay.ALONE
    if header.is_control or header.record_count == 0:
        return RewriteWay.COPY
    if settings.batch_bytes and not header.attributes & DELETE_HORIZON_BIT:
        return RewriteWay.JOIN
    return RewriteWay.COPY if is_same else RewriteWay.RECODE


class ProducerRun(NamedTuple):
    """What batches must share, beside their target, to be joined."""

    leader_epoch: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool


def make_producer_run(header: BatchHeader, leader_epoch: int) -> ProducerRun:
    """Return what batches must share to be joined. `leader_epoch` is for old formats, which do not have one."""
    epoch = header.partition_leader_epoch if header.magic == MAGIC else leader_epoch
    return ProducerRun(epoch, header.producer_id, header.producer_epoch, header.is_transactional)


def continues_sequence(before: BatchHeader, after: BatchHeader) -> bool:
    """Return whether the sequences of two batches of a run are as far apart as their offsets, as within one batch.

    This is not so if there was a marker, a batch that was compacted away, or another producer's record between them.
    """
    if before.producer_id < 0:
        return True
    if before.base_sequence < 0 or after.base_sequence < 0:
        return False
    distance = after.base_offset - before.base_offset
    return (after.base_sequence - before.base_sequence - distance) & MAX_SEQUENCE == 0


COLUMNS = ("key", "value", "offset", "timestampMs", "headers")
ENCODED_COLUMNS = ["timestamp" if name == "timestampMs" else name for name in COLUMNS]  # in ms, too
OFFSET = COLUMNS.index("offset")
# Readers get an approximation of header keys with invalid UTF-8, but a log must keep them.
SCHEMA = choose_columns(RECORDS, COLUMNS[:-1]).append(pa.field("headers", EXACT_HEADERS))
MAX_OFFSET = 2**63 - 1
ENCODED = (RewriteWay.ALONE, RewriteWay.JOIN)


class SourceBatch(NamedTuple):
    """A whole, sound batch, and how to rewrite it."""

    header: BatchHeader
    data: bytes
    target: TargetForm


class JoinedBatches(NamedTuple):
    """Consecutive batches that are joined: what they share, and the first and the last of them."""

    run: ProducerRun
    first: BatchHeader
    last: BatchHeader

    @property
    def must_keep_last_offset(self) -> bool:
        """Whether the offsets that the last batch had behind its last record must be kept."""
        return self.last.magic == MAGIC


class BatchConverter:
    """Rewrites the batches of one partition. `epoch_at` returns the leader epoch of an offset, -1 if unknown.

    `expansion` is how much larger the last decoded batches were in memory, at least 1. Methods raise `RewriteError`,
    `CorruptData`, and `KafkaError` for records that cannot be read.
    """

    def __init__(
        self,
        partition: TopicPartition,
        place: str,
        settings: RewriteSettings,
        epoch_at: Callable[[int], int],
    ) -> None:
        self._partition = partition
        self._place = place
        self._settings = settings
        self._epoch_at = epoch_at
        self.expansion = 1.0

    def convert_batches(self, sources: list[SourceBatch]) -> Iterator[Bytes]:
        """Yield the converted batches, in order, that take the place of consecutive ones of the log."""
        rows = self._decode_rows([source for source in sources if source.target.way in ENCODED])
        for (target, timestamp_type), some in groupby(sources, _get_joining_key):
            if target.way in ENCODED:
                settings = self._make_batch_settings(target, timestamp_type)
                yield from self._encode_joined_batches(list(self._iterate_joined_batches(some)), settings, rows)
            elif target.way is RewriteWay.COPY:
                yield from (source.data for source in some)
            else:
                yield from (recompress_batch(source, self._settings.level) for source in some)

    def _iterate_joined_batches(self, sources: Iterable[SourceBatch]) -> Iterator[JoinedBatches]:
        """Yield the longest runs of consecutive batches that may be joined."""
        joined: JoinedBatches | None = None
        for source in sources:
            header = source.header
            run = make_producer_run(header, self._epoch_at(header.base_offset))
            is_alone = joined is None or source.target.way is RewriteWay.ALONE or run != joined.run
            if joined is not None and not is_alone and continues_sequence(joined.last, header):
                joined = joined._replace(last=header)
                continue
            if joined is not None:
                yield joined
            joined = JoinedBatches(run, header, header)
        if joined is not None:
            yield joined

    def _decode_rows(self, sources: list[SourceBatch]) -> _DecodedRows:
        """Return the records of these batches as rows."""
        if not sources:
            return _DecodedRows([])
        every = OffsetRange(self._partition, 0, MAX_OFFSET)
        decoder = RecordsDecoder(self._partition, ReadRequest("records", COLUMNS), every, schema=SCHEMA)
        data = b"".join(source.data for source in sources)
        batches = [
            each.rename_columns(ENCODED_COLUMNS)
            for each in (*decoder.decode_data(data, self._place, None), *decoder.decode_remaining_batches())
        ]
        self.expansion = max(1.0, sum(batch.nbytes for batch in batches) / len(data))
        return _DecodedRows(batches)

    def _encode_joined_batches(
        self, joined_batches: list[JoinedBatches], settings: BatchSettings, rows: _DecodedRows
    ) -> Iterator[Bytes]:
        """Yield new batches with the rows of these joined batches, which are removed from `rows`."""
        for some, following in rows.remove_rows_up_to(joined_batches[-1].last.last_offset):
            offsets = some.column(OFFSET).to_numpy()
            origins, joined_batches = _find_origins(joined_batches, offsets, following)
            try:
                yield from (batch.data for batch in encode_rows_of_origins(some, settings, origins))
            except EncodeError as error:
                raise RewriteError(f"{self._partition}, from offset {offsets[0]} on: {error}") from error

    def _make_batch_settings(self, target: TargetForm, timestamp_type: int) -> BatchSettings:
        batch_bytes = self._settings.batch_bytes or DEFAULT_BATCH_BYTES
        return BatchSettings(
            target.codec,
            self._settings.level,
            UNBOUNDED_BYTES if target.way is RewriteWay.ALONE else batch_bytes,
            timestamp_type=timestamp_type,
        )


class _DecodedRows:
    """Decoded rows, which are taken in the order of their offsets."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches[::-1]

    def remove_rows_up_to(self, last_offset: int) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the remaining rows up to this offset, with the offset of the row that follows them."""
        while self._batches and self._get_next_row_offset() <= last_offset:
            batch = self._batches.pop()
            count = int(np.searchsorted(batch.column(OFFSET).to_numpy(), last_offset, side="right"))
            if count < batch.num_rows:
                self._batches.append(batch.slice(count))
            yield batch.slice(0, count), self._get_next_row_offset() if self._batches else MAX_OFFSET

    def _get_next_row_offset(self) -> int:
        return int(self._batches[-1].column(OFFSET)[0].as_py())


def _find_origins(
    joined_batches: list[JoinedBatches], offsets: Int64s, next_offset: int
) -> tuple[list[RowsOrigin], list[JoinedBatches]]:
    """Return the producer of each run of rows, and the joined batches of which rows are left for the next call."""
    ends = np.searchsorted(offsets, [stretch.last.last_offset for stretch in joined_batches], side="right").tolist()
    origins = []
    start = 0
    for at, (stretch, end) in enumerate(zip(joined_batches, ends, strict=True)):
        last_offset = stretch.last.last_offset
        is_whole = end < len(offsets) or next_offset > last_offset
        if end > start:
            reach = last_offset if is_whole and stretch.must_keep_last_offset else None
            producer = _find_producer(stretch, int(offsets[start]))
            origins.append(RowsOrigin(start, producer, stretch.run.leader_epoch, reach))
        start = end
        if not is_whole:
            return origins, joined_batches[at:]
    return origins, []


def _get_joining_key(source: SourceBatch) -> tuple[TargetForm, int]:
    """Return what batches must share to be decoded and encoded in one call."""
    return source.target, source.header.timestamp_type


def _find_producer(joined_batch: JoinedBatches, offset: int) -> Producer:
    """Return the producer of joined batches, with its sequence at this offset."""
    run, first = joined_batch.run, joined_batch.first
    if run.producer_id < 0:
        return Producer(transactional=run.is_transactional)
    sequence = first.base_sequence
    if sequence >= 0:
        sequence = (sequence + offset - first.base_offset) & MAX_SEQUENCE
    return Producer(run.producer_id, run.producer_epoch, sequence, run.is_transactional)


def recompress_batch(source: SourceBatch, level: int | None) -> bytearray:
    """Return the batch with the same records under another codec."""
    header, codec = source.header, source.target.codec
    payload = decompress(header.compression, memoryview(source.data)[HEADER_BYTES:], MAX_BATCH_BYTES)
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    return assemble_batch(header._replace(attributes=attributes), compress(codec, payload, level))
