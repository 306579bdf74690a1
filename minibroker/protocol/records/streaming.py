"""Yields the records of a batch or message of any format one by one, in steps: None is a pause.

The records have no headers, which conversion to formats 0 and 1 and the search for a timestamp do not need. Only one is
held at a time, so that a batch takes no more memory than its largest record. `formats.py` returns whole records.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.protocol.errors import InvalidRecords
from minibroker.protocol.records.batch import LOG_APPEND_TIME, MAX_RECORD_BYTES, BatchHeader, read_header
from minibroker.protocol.records.compression import MAX_UNCOMPRESSED_BYTES, UNBOUNDED_BYTES
from minibroker.protocol.records.formats import is_old_format
from minibroker.protocol.records.message import Message, check_message, read_message
from minibroker.protocol.records.message_set import find_base_offset_in_steps, iterate_messages_in_steps
from minibroker.protocol.records.payload import get_payload_if_small, iterate_payload_chunks
from minibroker.protocol.records.record import MalformedRecord, Record, read_record
from minibroker.protocol.records.slicing import RecordSlice, iterate_record_slices
from minibroker.protocol.records.varints import Bytes, MalformedVarint, convert_to_zigzag, wrap_to_64_bits
from minibroker.protocol.records.windows import ByteWindow, LargeRecord, RecordExtent
from minibroker.protocol.steps import Steps

WHOLE_BYTES = 1 << 20  # decompressed at once, outside of the event loop
_RECORDS_AT_ONCE = 128


def stream_records(batch: Bytes, position: int = 0, *, with_values: bool = True) -> Iterator[Record | None]:
    """Yield the records of the batch or message at `position`, without headers, and None for a pause.

    Without `with_values`, large records lack key and value, and there is no limit on the size of all. Raises what
    `iterate_records_in_any_format` raises.
    """
    if is_old_format(batch, position):
        return _stream_message_records(batch, position)
    return _stream_batch_records(batch, position, read_header(batch, position), with_values)


def _stream_batch_records(
    batch: Bytes, position: int, header: BatchHeader, with_values: bool
) -> Iterator[Record | None]:
    """Yield the records of a batch of format 2, and None for a pause."""
    append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    limit_bytes = MAX_UNCOMPRESSED_BYTES if with_values else UNBOUNDED_BYTES
    window = ByteWindow(iterate_payload_chunks(batch, position, header, limit_bytes))
    at = 0
    for index in range(header.record_count):
        if index % _RECORDS_AT_ONCE == 0:
            yield None
        try:
            while (extent := window.find_record_extent(at)) is None or window.needs_more_bytes(extent):
                at = window.drop_and_read_next_chunk(at)
                yield None
            if extent.length > window.large_bytes:
                record, at = yield from _read_large_record(window, extent, (header, append_time), with_values)
            else:
                record, at = read_record(window.data, at, header, append_time, with_headers=False)
        except (MalformedVarint, MalformedRecord) as error:
            raise InvalidRecords(f"record {index} is malformed: {error}", ((index, str(error)),)) from error
        yield record


def _read_large_record(
    window: ByteWindow, extent: RecordExtent, times: tuple[BatchHeader, int | None], with_values: bool
) -> Steps[tuple[Record, int]]:
    """Return, in steps, a record larger than the window, and its end. `times` are those of its batch."""
    header, append_time = times
    walked = LargeRecord(window, extent, keeps=2 if with_values else 0)
    yield from walked.step_over_record(with_headers=False)
    timestamp = wrap_to_64_bits(header.base_timestamp + walked.timestamp_delta) if append_time is None else append_time
    record = Record(header.base_offset + walked.offset_delta, timestamp, walked.key, walked.value)
    return record, walked.position


def check_record_sizes(batch: Bytes, header: BatchHeader, limit_bytes: int) -> Steps[None]:
    """Check, in steps, that no record of a compressed batch is above max.decompressed.message.bytes (`limit_bytes`).

    Its length does not count. Malformed records are for others to find. Raises `InvalidRecords`, and what `decompress`
    raises.
    """
    if limit_bytes >= MAX_RECORD_BYTES or not header.compression or is_old_format(batch, 0):
        return
    window, at = ByteWindow(iterate_payload_chunks(batch, 0, header)), 0
    for index in range(header.record_count):
        if index % _RECORDS_AT_ONCE == 0:
            yield
        try:
            while (extent := window.find_record_extent(at)) is None:
                at = window.drop_and_read_next_chunk(at)
                yield
        except MalformedVarint:
            return
        if extent.length > limit_bytes:
            message = f"record {index} has {extent.length} bytes, max.decompressed.message.bytes is {limit_bytes}"
            raise InvalidRecords(message, ((index, message),))
        at = extent.end - window.start
        while at > len(window.data) and not window.ended:
            at = window.drop_and_read_next_chunk(at)
            yield


def stream_record_slices(batch: Bytes, header: BatchHeader) -> Iterator[RecordSlice | None]:
    """Yield the records of the batch by `iterate_record_slices` or, if they are large, by `slice_keyed_records`."""
    payload = get_payload_if_small(batch, header, WHOLE_BYTES)
    if payload is not None:
        return iterate_record_slices(payload, header.record_count)
    return slice_keyed_records(ByteWindow(iterate_payload_chunks(batch, 0, header)), header.record_count)


def slice_keyed_records(window: ByteWindow, count: int) -> Iterator[RecordSlice | None]:
    """Yield the `count` records as `iterate_record_slices` does, but their start and end mean nothing; None is a pause.

    Raises `InvalidRecords`, and what the window's chunks raise.
    """
    position = index = 0
    while index < count:
        at = position
        try:
            for record_slice in iterate_record_slices(window.data[at:], count - index):
                position, index = at + record_slice[1], index + 1
                yield record_slice
        except InvalidRecords:
            if index < count:
                extent = _find_record_extent(window, position)
                if extent is None or window.needs_more_bytes(extent):
                    position = window.drop_and_read_next_chunk(position)
                    yield None
                    continue
                if extent.length > window.large_bytes:
                    record_slice, position = yield from _slice_large_record(window, extent)
                    index += 1
                    yield record_slice
                    continue
            raise
    end = window.start + position
    if (yield from window.skip_and_count_remaining_bytes(end + 1)) != end:
        raise InvalidRecords("bytes are left after the last record")


def _find_record_extent(window: ByteWindow, position: int) -> RecordExtent | None:
    """Return the extent of the record at `position`, None if too little is at hand. Raises `InvalidRecords`."""
    try:
        return window.find_record_extent(position)
    except MalformedVarint as error:
        raise InvalidRecords(f"the record at byte {window.start + position} is malformed: {error}") from error


def _slice_large_record(window: ByteWindow, extent: RecordExtent) -> Steps[tuple[RecordSlice, int]]:
    """Return, in steps, a record larger than the window as a slice from 0 to 0, and its end in the window's data."""
    walked = LargeRecord(window, extent, keeps=1)
    try:
        yield from walked.step_over_record(with_headers=False)
    except (MalformedVarint, MalformedRecord) as error:
        raise InvalidRecords(f"the record that ends at byte {extent.end} is malformed: {error}") from error
    deltas = convert_to_zigzag(walked.offset_delta), convert_to_zigzag(walked.timestamp_delta)
    return (0, 0, *deltas, walked.key, walked.value_bytes < 0), walked.position


def _stream_message_records(data: Bytes, position: int) -> Iterator[Record | None]:
    """Yield the record of a message of format 0 or 1, or those in a wrapper, and None for a pause."""
    header = check_message(data, position)
    message, _ = read_message(bytes(memoryview(data)[position : position + header.size_bytes]), is_checked=True)
    if message.compression:
        return _stream_wrapper_records(message)
    return iter((Record(message.offset, message.timestamp, message.key, message.value),))  # type: ignore[arg-type]


def _stream_wrapper_records(wrapper: Message) -> Iterator[Record | None]:
    """Yield the records in a wrapper, and None for a pause."""
    base_offset = yield from find_base_offset_in_steps(wrapper)
    append_time = wrapper.timestamp if wrapper.timestamp_type == LOG_APPEND_TIME else None
    for message in iterate_messages_in_steps(wrapper):
        if message is None:
            yield None
            continue
        timestamp = message.timestamp if append_time is None else append_time
        yield Record(base_offset + message.offset, timestamp, message.key, message.value)  # type: ignore[arg-type]
