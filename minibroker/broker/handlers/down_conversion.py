"""Down-conversion of records, within a Fetch and batch by batch, for clients that do not know their stored format.

The handler knows the client's format; `conversion.py` of the protocol converts a batch.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from minibroker.protocol.errors import CorruptBatch, ErrorCode, KafkaError
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.records.batch import ELIDED_BIT, BatchHeader
from minibroker.protocol.records.conversion import down_convert_batch_in_steps
from minibroker.protocol.records.elision import restore_attributes_in_steps
from minibroker.protocol.steps import Steps
from minibroker.storage.batch_scanning import iterate_headers, read_stored_batch_in_steps
from minibroker.storage.log import Log
from minibroker.storage.segment import Region

# The most that one request converts, at 5 us per record, and holds in memory. Clients fetch the rest later.
MAX_CONVERTED_BYTES: Final = 1 << 20


class LogReadRequest(NamedTuple):
    """A client's read from a log, and the newest format that it knows; records must have attributes.

    It gets at most `max_converted_bytes` of converted records. With `minimum_one` it gets at least one batch, if there
    is one, of any size.
    """

    offset: int
    max_bytes: int
    max_converted_bytes: int
    limit_offset: int
    minimum_one: bool
    magic: int


class ConvertedRecords(NamedTuple):
    """Batches in a format that the client knows. Reading continues at `next_offset`."""

    data: bytearray
    size_bytes: int
    next_offset: int


class DownConversionNeeded(Exception):
    """A read whose batches must be examined, and perhaps converted, in steps.

    `answer` is the partition's answer without the records. It becomes void when the log loses records.
    """

    def __init__(
        self, answer: FetchResponse.FetchableTopicResponse.PartitionData, log: Log, read_request: LogReadRequest
    ) -> None:
        self.answer = answer
        self.log = log
        self.read_request = read_request
        self._generation = log.truncation_generation
        self._segments = list(log.segments)
        self._start_offset = log.log_start_offset

    def must_reread_log(self) -> bool:
        """Return whether to read again, as the log was truncated, closed, compacted or shortened."""
        log = self.log
        if self._generation != log.truncation_generation or self._segments != list(log.segments[: len(self._segments)]):
            return True
        return self._start_offset != log.log_start_offset > self.read_request.offset


def read_records_for_client_in_steps(log: Log, read_request: LogReadRequest) -> Steps[Region | ConvertedRecords | None]:
    """Return the records to answer, converted if the client needs an older format; None if there are none.

    Stored bytes are returned unchanged if the client knows them. Converted, they take at most `max_bytes` and
    `max_converted_bytes` of memory, or one batch. Batches that convert to nothing (for old formats, control batches and
    batches emptied by compaction) are skipped, as the client would fetch them again for ever. Raises `KafkaError` as
    `Log.read` does, and UNSUPPORTED_COMPRESSION_TYPE if zstd comes first.
    """
    offset = read_request.offset
    while True:
        region = log.read(
            offset,
            read_request.max_bytes,
            limit_offset=read_request.limit_offset,
            minimum_one=read_request.minimum_one,
        )
        if region is None:
            return None
        try:
            if not (yield from has_newer_format(log, region, read_request.magic)):
                return region
            converted = yield from _convert_region(region, read_request)
        except (OSError, CorruptBatch) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log}: cannot read offset {offset}: {error}") from error
        if converted is None or converted.size_bytes:
            return converted
        offset = converted.next_offset


def has_newer_format(log: Log, region: Region, magic: int) -> Steps[bool]:
    """Return whether a region just read from `log` has a batch newer than format `magic`, or without attributes."""
    at = bisect_right(log.segments, region.next_offset - 1, key=lambda segment: segment.base_offset) - 1
    end = region.position + region.size_bytes
    return (yield from log.segments[at].has_format_newer_than(magic, region.position, end))


def _convert_region(region: Region, read_request: LogReadRequest) -> Steps[ConvertedRecords | None]:
    """Convert as much of the region as fits; return None if not even one batch fits."""
    out = bytearray()
    max_bytes = min(read_request.max_bytes, read_request.max_converted_bytes)
    next_offset = read_request.offset
    for position, header in iterate_headers(region.file, region.position, region.position + region.size_bytes):
        try:
            converted = yield from _convert_batch(region, position, header, read_request)
        except KafkaError:
            if not out:
                raise
            break  # it is the first batch of the next request
        if len(out) + len(converted) > max_bytes and (out or not read_request.minimum_one):
            return ConvertedRecords(out, len(out), next_offset) if out else None
        out += converted
        next_offset = header.next_offset
    return ConvertedRecords(out, len(out), next_offset)


def _convert_batch(
    region: Region, position: int, header: BatchHeader, read_request: LogReadRequest
) -> Steps[bytes | bytearray]:
    data = yield from read_stored_batch_in_steps(region.file, position, header)
    yield
    if header.magic > read_request.magic:
        return (yield from down_convert_batch_in_steps(data, header, read_request.magic, read_request.offset))
    if header.attributes & ELIDED_BIT:
        return (yield from restore_attributes_in_steps(data, header))
    return data
