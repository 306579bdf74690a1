"""The decoders: one partition's bytes in, record batches of Arrow out, for each of the two tables.

Where the bytes come from is the reader's business. What is damaged fails, is set apart or passed over, as the request
says.
"""

from __future__ import annotations

from collections.abc import Iterator
from os.path import basename
from typing import Any

import pyarrow as pa

from minibroker.pipeline.decode.aborted import AbortedRanges
from minibroker.pipeline.log_source import CorruptData, OffsetRange, ReadRequest, TopicPartition
from minibroker.pipeline.schemas import BATCHES, CORRUPT, RECORDS, chosen
from minibroker.protocol.errors import CorruptBatch, KafkaError
from minibroker.protocol.records.batch import BatchHeader
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.control import ControlType, control_type
from minibroker.protocol.records.formats import batches_in, check_any, records_in

Buffer = bytes | bytearray | memoryview

__all__ = ["AbortedRanges", "BatchesDecoder", "Buffer", "RecordsDecoder", "whole_batches"]

CHUNK_BYTES = 4 << 20


def whole_batches(data: Buffer, position: int = 0) -> int:
    """How many bytes from `position` on are whole batches: a Fetch answer or a block of a file may end in a torn one.

    Where no batch can be found any more, because a magic or a length cannot be, the rest counts as whole: a decoder
    says what is wrong with it.
    """
    end = position
    view = memoryview(data)[position:]
    try:
        for start, header in batches_in(view):
            end = position + start + header.size_bytes
    except CorruptBatch:
        return len(view)
    return end - position


class _Decoder:
    """What both decoders share: the walk over the batches, and what becomes of damage."""

    table: pa.Schema

    def __init__(
        self,
        partition: TopicPartition,
        request: ReadRequest,
        offsets: OffsetRange,
        aborted: AbortedRanges | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._partition = partition
        self._request = request
        self._offsets = offsets
        self._aborted = aborted
        self._chunk_bytes = chunk_bytes
        self._schema = chosen(self.table, request.columns)
        self._rows: list[dict[str, Any]] = []
        self._pending_bytes = 0

    def feed(self, data: Buffer, place: str, position: int | None) -> Iterator[pa.RecordBatch]:
        """The rows of the whole batches in `data`, as far as they fill chunks; `finish` gives the rest.

        `place` (a file's path, or a broker) and `position` (where in the file `data` begins; None: no file) are told
        of what is damaged. `data` may be used otherwise once the iterator is exhausted. Raises `CorruptData`.
        """
        view = memoryview(data)
        end = 0
        try:
            for start, header in batches_in(view):
                end = start + header.size_bytes
                self._pending_bytes += header.size_bytes
                self._one(view[start:end], header, place, None if position is None else position + start)
                if self._pending_bytes >= self._chunk_bytes:
                    yield from self.finish()
            if end < len(view):
                raise CorruptBatch(f"{len(view) - end} bytes are left that are no whole batch")
        except CorruptBatch as error:
            offset = int.from_bytes(bytes(view[end : end + 8]).ljust(8, b"\0"), "big", signed=True)
            self._damaged(offset, str(error), place, None if position is None else position + end)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The rows that are still to be given."""
        if self._rows:
            yield pa.RecordBatch.from_pylist(self._rows, schema=self._schema)
        self._rows = []
        self._pending_bytes = 0

    def _one(self, batch: memoryview, header: BatchHeader, place: str, position: int | None) -> None:
        raise NotImplementedError

    def _damaged(self, offset: int, reason: str, place: str, position: int | None) -> None:
        where = place if position is None else f"{place}: position {position}"
        message = f"{where}, offset {offset}: {reason}"
        if self._request.mode == "FAILFAST":
            raise CorruptData(message)
        if self._request.mode == "PERMISSIVE":
            topic, partition = self._partition
            self._rows.append(
                {"topic": topic, "partition": partition, "offset": offset, "baseOffset": offset, CORRUPT: message}
            )

    def _is_aborted(self, header: BatchHeader) -> bool:
        return (
            self._aborted is not None
            and header.is_transactional
            and not header.is_control
            and self._aborted.is_aborted(header.producer_id, header.base_offset)
        )


class RecordsDecoder(_Decoder):
    """One partition's batches in order -> the rows of `chosen(RECORDS, columns)`.

    Left out are records outside of the range, control batches, and, with `aborted`, aborted transactions.
    """

    table = RECORDS

    def _one(self, batch: memoryview, header: BatchHeader, place: str, position: int | None) -> None:
        if header.is_control and self._aborted is not None:
            record = next(records_in(batch), None)
            if record is not None and control_type(record.key) == ControlType.ABORT:
                self._aborted.end(header.producer_id, header.base_offset)
        if header.last_offset < self._offsets.start or header.is_control or self._is_aborted(header):
            return
        try:
            check_any(batch)
            rows = [self._row(header, record) for record in records_in(batch)]
        except KafkaError as error:
            self._damaged(header.base_offset, str(error), place, position)
        else:
            self._rows += [row for row in rows if self._offsets.start <= row["offset"] < self._offsets.end]

    def _row(self, header: BatchHeader, record: Any) -> dict[str, Any]:
        topic, partition = self._partition
        return {
            "key": record.key,
            "value": record.value,
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": _time(record.timestamp),
            "timestampType": header.timestamp_type if header.magic else -1,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
            CORRUPT: None,
        }


class BatchesDecoder(_Decoder):
    """One partition's batches -> the rows of `chosen(BATCHES, columns)`, from headers alone.

    Given are the batches whose last offset is in the range, so that of ranges side by side one has it; control batches
    too, and, with `aborted`, not those of aborted transactions.
    """

    table = BATCHES

    def _one(self, batch: memoryview, header: BatchHeader, place: str, position: int | None) -> None:
        if self._offsets.start <= header.last_offset < self._offsets.end and not self._is_aborted(header):
            topic, partition = self._partition
            self._rows.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "segment": None if position is None else basename(place),
                    "position": position,
                    "sizeInBytes": header.size_bytes,
                    "magic": header.magic,
                    "codec": _codec(header.compression),
                    "timestampType": header.timestamp_type if header.magic else -1,
                    "baseOffset": header.base_offset,
                    "lastOffset": header.last_offset,
                    "recordCount": None if header.record_count < 0 else header.record_count,
                    "baseTimestamp": _time(header.base_timestamp),
                    "maxTimestamp": _time(header.max_timestamp),
                    "partitionLeaderEpoch": header.partition_leader_epoch,
                    "producerId": header.producer_id,
                    "producerEpoch": header.producer_epoch,
                    "baseSequence": header.base_sequence,
                    "isTransactional": header.is_transactional,
                    "isControl": header.is_control,
                    "attributes": header.attributes,
                    "crc": header.crc,
                    "crcValid": _is_valid(batch) if self._request.verify_crc else None,
                    CORRUPT: None,
                }
            )


def _codec(number: int) -> str:
    return Compression(number).name.lower() if number <= Compression.ZSTD else str(number)


def _time(timestamp_ms: int) -> int | None:
    """Microseconds; none (-1) is null, and what they cannot express is the last or first that they can."""
    return None if timestamp_ms == -1 else max(-(1 << 63), min((1 << 63) - 1, timestamp_ms * 1000))


def _is_valid(batch: memoryview) -> bool:
    try:
        check_any(batch)
    except CorruptBatch:
        return False
    return True
