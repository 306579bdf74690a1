"""Batches of one segment into others, a chunk at a time: which are joined, and what their records become.

Where batches come from and go to is in `segments.py`; what becomes of each is decided in `settings.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from minibroker.pipeline.decode.decoder import RecordsDecoder
from minibroker.pipeline.encode.encoder import BatchSettings, EncodedBatch, EncodeError, Producer, encode
from minibroker.pipeline.log_source import OffsetRange, ReadRequest, TopicPartition
from minibroker.pipeline.rewriting.settings import (
    DEFAULT_BATCH_BYTES,
    UNBOUNDED_BYTES,
    RewriteError,
    RewriteSettings,
    Run,
    Target,
    Way,
    goes_on,
    run_of,
)
from minibroker.protocol.records.batch import (
    COMPRESSION_MASK,
    ELIDED_BIT,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    read_header,
)
from minibroker.protocol.records.building import assemble
from minibroker.protocol.records.compression import compress, decompress
from minibroker.protocol.records.elision import elided, restored
from minibroker.protocol.records.message import message_header
from minibroker.protocol.records.record import MAX_UNCOMPRESSED_BYTES

COLUMNS = ("key", "value", "offset", "timestamp", "headers")
MAX_OFFSET = 2**63 - 1


class Source(NamedTuple):
    """A batch to be rewritten: whole, sound, and what is to become of it."""

    header: BatchHeader
    data: bytes
    target: Target


class Written(NamedTuple):
    """A batch, or a message of an old format, as it is to lie in the log."""

    header: BatchHeader
    data: bytes | bytearray | memoryview


class Converter:
    """Rewrites the batches of one partition. `epoch_at` tells the leader epoch of an offset, -1 if it is not known.

    Methods raise `RewriteError`, `CorruptData`, and `KafkaError` for records that cannot be read.
    """

    def __init__(
        self, partition: TopicPartition, place: str, settings: RewriteSettings, epoch_at: Callable[[int], int]
    ) -> None:
        self._partition = partition
        self._place = place
        self._settings = settings
        self._epoch_at = epoch_at

    def convert(self, sources: list[Source]) -> Iterator[Written]:
        """What becomes of some neighbouring batches, in the order of the log."""
        rows = self._decoded([source for source in sources if source.target.way in (Way.ALONE, Way.JOIN)])
        joined: list[Source] = []
        for source in sources:
            run = self._run(source)
            if joined and (run != self._run(joined[-1]) or run is None or not self._joins(joined[-1], source)):
                yield from self._encoded(joined, rows)
                joined = []
            if run is not None:
                joined.append(source)
            elif source.target.way is Way.COPY:
                yield Written(source.header, source.data)
            elif source.target.way is Way.RECODE:
                data = recoded(source, self._settings.level)
                yield Written(read_header(data), data)
        if joined:
            yield from self._encoded(joined, rows)

    def _run(self, source: Source) -> Run | None:
        if source.target.way not in (Way.ALONE, Way.JOIN):
            return None
        return run_of(source.header, source.target, self._epoch_at(source.header.base_offset))

    def _joins(self, before: Source, after: Source) -> bool:
        return after.target.way is Way.JOIN and (after.target.magic < MAGIC or goes_on(before.header, after.header))

    def _decoded(self, sources: list[Source]) -> _Rows:
        if not sources:
            return _Rows([])
        every = OffsetRange(self._partition, 0, MAX_OFFSET)
        decoder = RecordsDecoder(self._partition, ReadRequest("records", COLUMNS), every)
        data = b"".join(source.data for source in sources)
        return _Rows([*decoder.feed(data, self._place, None), *decoder.finish()])

    def _encoded(self, sources: list[Source], rows: _Rows) -> Iterator[Written]:
        first, last = sources[0].header, sources[-1].header
        target = sources[0].target
        run = run_of(first, target, self._epoch_at(first.base_offset))
        settings = self._batch_settings(target, run)
        keeps_end = last.magic == target.magic == MAGIC
        for some, is_last in rows.up_to(last.last_offset):
            offset = some.column(2)[0].as_py()
            producer = _producer(first, run, offset)
            end = last.last_offset if is_last and keeps_end else None
            try:
                for batch in encode(some, settings, producer, base_offset=None, last_offset=end):
                    yield from _written(batch, target.magic)
            except EncodeError as error:
                topic, partition = self._partition
                raise RewriteError(f"{topic}-{partition}, from offset {offset} on: {error}") from error

    def _batch_settings(self, target: Target, run: Run) -> BatchSettings:
        batch_bytes = self._settings.batch_bytes or DEFAULT_BATCH_BYTES
        return BatchSettings(
            target.magic,
            target.codec,
            self._settings.level,
            UNBOUNDED_BYTES if target.way is Way.ALONE else batch_bytes,
            elide_attributes=target.elide,
            timestamp_type=run.timestamp_type,
            leader_epoch=run.leader_epoch,
            drop_headers=self._settings.drop_headers,
        )


class _Rows:
    """Decoded rows, which are taken in the order of their offsets."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches[::-1]

    def up_to(self, last_offset: int) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """The rows up to this offset that nobody has taken, and whether they are the last of these."""
        while self._batches:
            batch = self._batches.pop()
            count = int(np.searchsorted(batch.column(2).to_numpy(), last_offset, side="right"))
            if count < batch.num_rows:
                self._batches.append(batch.slice(count))
            is_last = count < batch.num_rows or not self._batches or self._begins_after(last_offset)
            if count:
                yield batch.slice(0, count), is_last
            if is_last:
                return

    def _begins_after(self, offset: int) -> bool:
        return bool(self._batches[-1].column(2)[0].as_py() > offset)


def _producer(first: BatchHeader, run: Run, offset: int) -> Producer:
    """Whose rows from `offset` on are, in a run that begins with the batch `first`."""
    if run.producer_id < 0:
        return Producer(transactional=run.is_transactional)
    sequence = first.base_sequence
    if sequence >= 0:
        sequence = (sequence + offset - first.base_offset) & 0x7FFFFFFF
    return Producer(run.producer_id, run.producer_epoch, sequence, run.is_transactional)


def _written(batch: EncodedBatch, magic: int) -> Iterator[Written]:
    """The batch, or each of the messages that are one set."""
    if magic == MAGIC:
        yield Written(read_header(batch.data), batch.data)
        return
    view, position = memoryview(batch.data), 0
    while position < len(view):
        header = message_header(view, position)
        yield Written(header, view[position : position + header.size_bytes])
        position += header.size_bytes


def recoded(source: Source, level: int | None) -> bytearray:
    """The batch with the same records under another codec, or with or without their attributes byte.

    One whose records have attributes that say something keeps them. Raises `KafkaError`.
    """
    header, target = source.header, source.target
    payload = decompress(header.compression, memoryview(source.data)[HEADER_BYTES:], MAX_UNCOMPRESSED_BYTES)
    elision = header.attributes & ELIDED_BIT
    if target.elide and not elision:
        shorter = elided(bytes(payload), header.record_count)
        if shorter is not None:
            payload, elision = shorter, ELIDED_BIT
    elif elision and not target.elide:
        payload, elision = restored(bytes(payload), header.record_count), 0
    attributes = header.attributes & ~(COMPRESSION_MASK | ELIDED_BIT) | target.codec | elision
    return assemble(header._replace(attributes=attributes), compress(target.codec, payload, level))
