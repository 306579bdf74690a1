"""Converts the batches of one segment, a chunk at a time: which are joined, and what their records become.

`segment_rewriting.py` reads and writes the batches; `rewrite_settings.py` decides how each is rewritten.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minibroker.pipeline.array_types import Int64s
from minibroker.pipeline.decode.batch_headers import MAX_BATCH_BYTES
from minibroker.pipeline.decode.decoder import RecordsDecoder
from minibroker.pipeline.encode.batch_settings import BatchSettings, EncodeError, Producer, RowsOrigin
from minibroker.pipeline.encode.encoder import encode_rows_of_origins
from minibroker.pipeline.log_source import OffsetRange, ReadRequest, TopicPartition
from minibroker.pipeline.rewriting import rewrite_settings
from minibroker.protocol.records.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    MAGIC,
    MAX_SEQUENCE,
    BatchHeader,
)
from minibroker.protocol.records.building import assemble_batch
from minibroker.protocol.records.compression import compress, decompress
from minibroker.protocol.records.varints import Bytes

COLUMNS = ("key", "value", "offset", "timestampMs", "headers")
ENCODED_COLUMNS = ["timestamp" if name == "timestampMs" else name for name in COLUMNS]  # in ms, too
OFFSET, HEADERS = (COLUMNS.index(name) for name in ("offset", "headers"))
REPLACEMENT = "\ufffd"  # invalid UTF-8 is decoded to this
MAX_OFFSET = 2**63 - 1
ENCODED = (rewrite_settings.RewriteWay.ALONE, rewrite_settings.RewriteWay.JOIN)


class SourceBatch(NamedTuple):
    """A whole, sound batch, and how to rewrite it."""

    header: BatchHeader
    data: bytes
    target: rewrite_settings.TargetForm


class JoinedBatches(NamedTuple):
    """Consecutive batches that are joined: what they share, and the first and the last of them."""

    run: rewrite_settings.ProducerRun
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
        settings: rewrite_settings.RewriteSettings,
        epoch_at: Callable[[int], int],
    ) -> None:
        self._partition = partition
        self._place = place
        self._settings = settings
        self._epoch_at = epoch_at
        self.expansion = 1.0

    def convert_batches(self, sources: list[SourceBatch]) -> Iterator[Bytes]:
        """Yield what becomes of some consecutive batches, in the order of the log."""
        rows = self._decode_rows([source for source in sources if source.target.way in ENCODED])
        sources = self._mark_inexact_batches(sources, rows)
        for (target, timestamp_type), some in groupby(sources, _get_joining_key):
            if target.way in ENCODED:
                settings = self._make_batch_settings(target, timestamp_type)
                yield from self._encode_joined_batches(list(self._iterate_joined_batches(some)), settings, rows)
            elif target.way is rewrite_settings.RewriteWay.COPY:
                yield from (source.data for source in some)
            else:
                for source in some:
                    rows.drop_rows_up_to(source.header.last_offset)
                    yield recompress_batch(source, self._settings.level)

    def _mark_inexact_batches(self, sources: list[SourceBatch], rows: _DecodedRows) -> list[SourceBatch]:
        """Return the batches. Those with a record that rows cannot express will keep their records as they are.

        Rows cannot express header keys with invalid UTF-8: readers get an approximation, but a log must keep them.
        """
        keys = rows.find_inexact_offsets()
        if not keys:
            return sources
        found = list(sources)
        last_offsets = [source.header.last_offset for source in sources]
        for offset in keys:
            at = bisect_left(last_offsets, offset)
            source = sources[at]
            if source.header.magic == MAGIC:
                found[at] = source._replace(target=source.target._replace(way=rewrite_settings.RewriteWay.RECODE))
        return found

    def _iterate_joined_batches(self, sources: Iterable[SourceBatch]) -> Iterator[JoinedBatches]:
        """Yield the batches in stretches that are joined, as long as possible."""
        joined: JoinedBatches | None = None
        for source in sources:
            header = source.header
            run = rewrite_settings.make_producer_run(header, self._epoch_at(header.base_offset))
            is_alone = joined is None or source.target.way is rewrite_settings.RewriteWay.ALONE or run != joined.run
            if joined is not None and not is_alone and rewrite_settings.continues_sequence(joined.last, header):
                joined = joined._replace(last=header)
                continue
            if joined is not None:
                yield joined
            joined = JoinedBatches(run, header, header)
        if joined is not None:
            yield joined

    def _decode_rows(self, sources: list[SourceBatch]) -> _DecodedRows:
        if not sources:
            return _DecodedRows([])
        every = OffsetRange(self._partition, 0, MAX_OFFSET)
        decoder = RecordsDecoder(self._partition, ReadRequest("records", COLUMNS), every)
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
        for some, following in rows.remove_rows_up_to(joined_batches[-1].last.last_offset):
            offsets = some.column(OFFSET).to_numpy()
            origins, joined_batches = _find_origins(joined_batches, offsets, following)
            try:
                yield from (batch.data for batch in encode_rows_of_origins(some, settings, origins))
            except EncodeError as error:
                raise rewrite_settings.RewriteError(
                    f"{self._partition}, from offset {offsets[0]} on: {error}"
                ) from error

    def _make_batch_settings(self, target: rewrite_settings.TargetForm, timestamp_type: int) -> BatchSettings:
        batch_bytes = self._settings.batch_bytes or rewrite_settings.DEFAULT_BATCH_BYTES
        return BatchSettings(
            target.codec,
            self._settings.level,
            rewrite_settings.UNBOUNDED_BYTES if target.way is rewrite_settings.RewriteWay.ALONE else batch_bytes,
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

    def drop_rows_up_to(self, last_offset: int) -> None:
        """Drop the remaining rows up to this offset."""
        for _ in self.remove_rows_up_to(last_offset):
            pass

    def find_inexact_offsets(self) -> set[int]:
        """Return the offsets of rows with an inexact header key."""
        keys: set[int] = set()
        for batch in self._batches:
            offsets = batch.column(OFFSET).to_numpy()
            headers = batch.column(HEADERS)
            if headers.null_count < len(headers):
                replaced = pc.match_substring(pc.list_flatten(headers).field("key"), REPLACEMENT)
                parents = pc.list_parent_indices(headers).filter(replaced).to_numpy()
                keys |= set(offsets[parents].tolist())
        return keys

    def _get_next_row_offset(self) -> int:
        return int(self._batches[-1].column(OFFSET)[0].as_py())


def _find_origins(
    joined_batches: list[JoinedBatches], offsets: Int64s, next_offset: int
) -> tuple[list[RowsOrigin], list[JoinedBatches]]:
    """Return the origins of rows, and the stretches for the following rows, from the offset `next_offset` on."""
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


def _get_joining_key(source: SourceBatch) -> tuple[rewrite_settings.TargetForm, int]:
    """Return what batches must share to be encoded together."""
    return source.target, source.header.timestamp_type


def _find_producer(joined_batch: JoinedBatches, offset: int) -> Producer:
    """Return the producer of the stretch's rows from `offset` on."""
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
