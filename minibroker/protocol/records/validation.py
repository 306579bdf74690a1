"""What a broker checks in the records of a produced batch before it takes it, as Kafka's LogValidator does.

The batch must be whole and sound already (`check_batch`). How records are looked at fast is in `scanning.py`; what
depends on a log (sequences, sizes, a topic's codec and timestamp type) is the storage layer's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from minibroker.protocol.errors import ErrorCode, InvalidRecords
from minibroker.protocol.records.batch import CONTROL_BIT, TIMESTAMP_TYPE_BIT, BatchHeader
from minibroker.protocol.records.record import Record, parse_records, payload_of
from minibroker.protocol.records.scanning import Scan
from minibroker.protocol.records.varints import INT64_MAX, INT64_MIN, Bytes, from_zigzag, to_zigzag, wrapped

NO_TIMESTAMP = -1

NO_KEY_MESSAGE = "Compacted topic cannot accept message without key"


class MisnumberedRecords(InvalidRecords):
    """Records in which nothing but the offset deltas is wrong."""


def check_records(
    data: Bytes,
    position: int,
    header: BatchHeader,
    *,
    keys_required: bool,
    any_offsets: bool = False,
    earliest_ms: int = INT64_MIN,
    latest_ms: int = INT64_MAX,
) -> int:
    """Check all records of the batch at `position`, decompressed if need be; their largest timestamp, at least -1.

    Every record must parse and end where its length says, nothing may follow the last record; unless `any_offsets`, the
    offset deltas must be 0 to n-1 in this order; with `keys_required` (a compacted topic) no key may be null;
    timestamps other than -1 must be within `earliest_ms` to `latest_ms`. Raises `InvalidRecords` (INVALID_RECORD, or
    INVALID_TIMESTAMP if a timestamp is at fault) with an entry in record_errors for each record at fault, and what
    `decompress` raises. Where only the offset deltas are wrong, it is `MisnumberedRecords`.
    """
    check_header(header)
    payload = payload_of(data, position, header)
    if isinstance(payload, memoryview):
        payload = bytes(payload)  # slices of it are then bytes too, and each byte is read twice as fast
    scan = Scan(payload, header.record_count)
    if not scan.run():
        _look_closely(scan, header, any_offsets)
    smallest, largest = _timestamp_range(scan, header)
    in_time = largest == NO_TIMESTAMP or earliest_ms <= smallest <= largest <= latest_ms
    if not in_time or (keys_required and scan.saw_null_key):
        _refuse(payload, header, keys_required, earliest_ms, latest_ms)
    return max(largest, NO_TIMESTAMP)


def check_header(header: BatchHeader) -> None:
    """Check what a client's batch says of itself. Raises `InvalidRecords`."""
    if header.last_offset_delta < 0:
        raise InvalidRecords(f"Batch has an invalid offset range: [{header.base_offset}, {header.last_offset}]")
    if header.record_count <= 0:
        raise InvalidRecords(f"Invalid reported count for record batch: {header.record_count}")
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidRecords(
            f"Inconsistent batch offset range [{header.base_offset}, {header.last_offset}] "
            f"and count of records {header.record_count}"
        )
    if header.attributes & CONTROL_BIT:
        raise InvalidRecords("Clients are not allowed to write control records")
    if header.producer_id > -1 and header.base_sequence < 0:
        raise InvalidRecords(
            f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}"
        )


def _timestamp_range(scan: Scan, header: BatchHeader) -> tuple[int, int]:
    """The smallest and the largest timestamp of the records, -1 left out; both -1 if there is no other."""
    if header.attributes & TIMESTAMP_TYPE_BIT:
        return header.max_timestamp, header.max_timestamp
    base = header.base_timestamp
    if len(scan.timestamp_deltas) == 1:  # one record, or one instant: the small batches that come in thousands
        (raw,) = scan.timestamp_deltas
        timestamp = wrapped(base + from_zigzag(raw))
        return timestamp, timestamp
    timestamps = {wrapped(base + from_zigzag(raw)) for raw in scan.timestamp_deltas} - {NO_TIMESTAMP}
    return (min(timestamps), max(timestamps)) if timestamps else (NO_TIMESTAMP, NO_TIMESTAMP)


def _look_closely(scan: Scan, header: BatchHeader, any_offsets: bool) -> None:
    """Take the records from where the scan stopped, if nothing but their offset deltas is wrong, and those may be."""
    first_wrong = None
    for index, record in enumerate(parse_records(scan.payload, header, scan.index, scan.position), scan.index):
        delta = record.offset - header.base_offset
        if delta != index and first_wrong is None:
            first_wrong = index, f"Record {index} has the offset delta {delta}, expected {index}"
        scan.timestamp_deltas.add(to_zigzag(record.timestamp - header.base_timestamp))
        scan.saw_null_key |= record.key is None
    if first_wrong is None:
        raise AssertionError("the scan refused records that the strict reader takes")
    if not any_offsets:
        raise MisnumberedRecords(first_wrong[1], (first_wrong,))


def _refuse(payload: Bytes, header: BatchHeader, keys_required: bool, earliest_ms: int, latest_ms: int) -> NoReturn:
    """Name each record that breaks a rule; one without a key is not also named for its timestamp."""
    errors = []
    code = ErrorCode.INVALID_RECORD
    for index, record in enumerate(parse_records(payload, header)):
        if keys_required and record.key is None:
            errors.append((index, NO_KEY_MESSAGE))
        elif record.timestamp != NO_TIMESTAMP and not earliest_ms <= record.timestamp <= latest_ms:
            errors.append((index, timestamp_message(record, earliest_ms, latest_ms)))
            code = ErrorCode.INVALID_TIMESTAMP
    raise InvalidRecords(summary(errors, code), tuple(errors), code)


def timestamp_message(record: Record, earliest_ms: int, latest_ms: int) -> str:
    """What is said of a record whose time is not between these."""
    return (
        f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range. "
        f"The timestamp should be within [{earliest_ms}, {latest_ms}]"
    )


def stamped_by_producer(indexes: Iterable[int]) -> InvalidRecords:
    """What is said of records that came with the time of an append."""
    message = "Producer should not set timestamp type to LogAppendTime"
    errors = tuple((index, message) for index in indexes)
    code = ErrorCode.INVALID_TIMESTAMP
    return InvalidRecords(summary([], code), errors, code)


def summary(errors: list[tuple[int, str]], code: ErrorCode) -> str:
    """One sentence about records that were refused."""
    if code == ErrorCode.INVALID_TIMESTAMP:
        return "One or more records have been rejected due to invalid timestamp"
    first = "; ".join(f"record {index}: {message}" for index, message in errors[:3])
    return f"One or more records have been rejected due to {len(errors)} record errors, the first of them: {first}"
