"""Checks the records of a produced batch, as Kafka's LogValidator does.

The batch must be complete and sound (`check_batch`). `scanning.py` has the fast scan. The storage checks what depends
on a log: sequences, sizes, and the topic's codec and timestamp type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from minibroker.protocol.errors import ErrorCode, InvalidRecords
from minibroker.protocol.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
)
from minibroker.protocol.records.compression import MAX_UNCOMPRESSED_BYTES
from minibroker.protocol.records.payload import ENCODING_MASK, iterate_payload_chunks
from minibroker.protocol.records.record import MalformedRecord, Record, read_record
from minibroker.protocol.records.scanning import RecordScan
from minibroker.protocol.records.slicing import iterate_record_slices
from minibroker.protocol.records.varints import (
    INT64_MAX,
    INT64_MIN,
    SECOND_BYTE,
    Bytes,
    MalformedVarint,
    convert_from_zigzag,
    wrap_to_64_bits,
)
from minibroker.protocol.records.windows import ByteWindow, LargeRecord, RecordExtent
from minibroker.protocol.steps import Steps, run_all_steps

NO_TIMESTAMP: Final = -1

SMALL_BYTES: Final = 1 << 16  # the most to check in one step, which takes a millisecond or two
MAX_DELTAS: Final = 4096  # the most distinct timestamps to remember
MAX_RECORD_ERRORS: Final = 1000  # the most records that a refusal lists; Kafka lists all

STAMPED_MESSAGE: Final = "Producer should not set timestamp type to LogAppendTime"
NO_KEY_MESSAGE: Final = "Compacted topic cannot accept message without key"


class MisnumberedRecords(InvalidRecords):
    """Records whose only fault are the offset deltas."""


class RecordRules(NamedTuple):
    """The rules for records.

    With `keys_required` (a compacted topic) no key may be null. Timestamps other than -1 must be from `earliest_ms` to
    `latest_ms`. Unless `any_offsets`, the offset deltas must be 0 to n-1 in this order.
    """

    keys_required: bool
    earliest_ms: int = INT64_MIN
    latest_ms: int = INT64_MAX
    any_offsets: bool = False

    def allows_timestamp(self, timestamp: int) -> bool:
        """Return whether a record may have this timestamp."""
        return timestamp == NO_TIMESTAMP or self.earliest_ms <= timestamp <= self.latest_ms


def check_records(data: Bytes, position: int, header: BatchHeader, rules: RecordRules) -> int:
    """Check all records of the batch at `position`. Return their largest timestamp, -1 for none.

    Every record must parse and end where its length says, nothing may follow the last record, and the rules must hold.
    Raises `InvalidRecords` (INVALID_RECORD, or INVALID_TIMESTAMP for a wrong timestamp) with an entry in record_errors
    for each of the first `MAX_RECORD_ERRORS` bad records, and what `decompress` raises. If only the offset deltas are
    wrong, it is `MisnumberedRecords`.
    """
    check_batch_header(header)
    if header.batch_length <= SMALL_BYTES and not header.attributes & ENCODING_MASK:
        view = memoryview(data)[position + HEADER_BYTES : position + header.batch_length + LOG_OVERHEAD_BYTES]
        payload = bytes(view)  # reading a byte of bytes is twice as fast
        largest = _find_largest_timestamp_if_valid(payload, header, rules)
        if largest is not None:
            return largest
    return run_all_steps(check_records_in_steps(data, position, header, rules))


def check_plain_records(data: memoryview, header: BatchHeader, rules: RecordRules) -> int:
    """Check the small uncompressed batch at the start of `data`, as `check_records` does."""
    check_batch_header(header)
    payload = bytes(data[HEADER_BYTES : header.batch_length + LOG_OVERHEAD_BYTES])
    if header.record_count == 1 and _is_only_one_usual_record(payload, header, rules):
        return max(header.base_timestamp, NO_TIMESTAMP)
    largest = _find_largest_timestamp_if_valid(payload, header, rules)
    return run_all_steps(check_records_in_steps(data, 0, header, rules)) if largest is None else largest


def check_records_in_steps(data: Bytes, position: int, header: BatchHeader, rules: RecordRules) -> Steps[int]:
    """Check records as `check_records` does, in steps, with only a piece of the records in memory."""
    check_batch_header(header)
    return (
        yield from check_records_in_window(ByteWindow(iterate_payload_chunks(data, position, header)), header, rules)
    )


def check_records_in_window(window: ByteWindow, header: BatchHeader, rules: RecordRules) -> Steps[int]:
    """Check a batch as `check_records_in_steps` does. The window begins with its first record."""
    window.drop_and_read_next_chunk(0)
    if len(window.data) < SMALL_BYTES:
        window.drop_and_read_next_chunk(0)
    yield
    largest = _find_largest_timestamp_if_valid(window.data, header, rules) if window.ended else None
    return (yield from _RecordsCheck(window, header, rules).check_all_records()) if largest is None else largest


def _is_only_one_usual_record(data: bytes, header: BatchHeader, rules: RecordRules) -> bool:
    """Return whether the only record is of the usual kind: good, below 8 KiB, without attributes, deltas and headers.

    Its timestamp is then the batch's. Another record may also be good.
    """
    keys_required, earliest_ms, latest_ms, _ = rules
    if header.attributes & TIMESTAMP_TYPE_BIT or not earliest_ms <= header.base_timestamp <= latest_ms:
        return False
    try:
        size, position = data[0], 1
        if size >= 0x80:
            size, position = size + SECOND_BYTE[data[position]], position + 1
        # Lengths are in zigzag encoding: odd ones are negative, and 1 is null.
        if (
            size & 1
            or position + (size >> 1) != len(data)
            or data[position]
            or data[position + 1]
            or data[position + 2]
        ):
            return False
        size, position = data[position + 3], position + 4
        if size == 1:
            if keys_required:
                return False
        elif size & 1 or size >= 0x80:
            return False
        else:
            position += size >> 1
        size, position = data[position], position + 1
        if size >= 0x80:
            size, position = size + SECOND_BYTE[data[position]], position + 1
        if size != 1:
            if size & 1:
                return False
            position += size >> 1
        return position + 1 == len(data) and data[position] == 0
    except IndexError:
        return False


def _find_largest_timestamp_if_valid(payload: bytes, header: BatchHeader, rules: RecordRules) -> int | None:
    """Return the largest timestamp of a few records, -1 for none; None if a record is bad."""
    scan = RecordScan(payload, header.record_count)
    if not scan.scan_all_records():
        return None
    smallest, largest = _find_timestamp_range(scan.timestamp_deltas, header)
    keys_required, earliest_ms, latest_ms, _ = rules
    in_time = largest == NO_TIMESTAMP or earliest_ms <= smallest <= largest <= latest_ms
    if not in_time or (keys_required and scan.saw_null_key):
        return None
    return max(largest, NO_TIMESTAMP)


class RecordErrors:
    """The records that break a rule. The first `MAX_RECORD_ERRORS` are listed, the others are only counted."""

    def __init__(self) -> None:
        self.count = 0
        self.code = ErrorCode.INVALID_RECORD
        self.listed: list[tuple[int, str]] = []

    def check_record(self, index: int, record: Record, rules: RecordRules, has_key: bool) -> None:
        """Check a record, and add an error if it lacks its key, or else if its timestamp is out of range."""
        if rules.keys_required and not has_key:
            self.add_record_error(index, NO_KEY_MESSAGE)
        elif not rules.allows_timestamp(record.timestamp):
            self.code = ErrorCode.INVALID_TIMESTAMP
            if self.count < MAX_RECORD_ERRORS:
                self.add_record_error(index, make_timestamp_message(record, rules.earliest_ms, rules.latest_ms))
            else:
                self.count += 1

    def add_record_error(self, index: int, message: str) -> None:
        """Add a record that is refused."""
        self.count += 1
        if self.count <= MAX_RECORD_ERRORS:
            self.listed.append((index, message))

    def make_error(self) -> InvalidRecords:
        """Return the error with the records that were added."""
        return InvalidRecords(summarize_errors(self, self.code), tuple(self.listed), self.code)


class _RecordsCheck:
    """The check of the records of one batch, through a window."""

    def __init__(self, window: ByteWindow, header: BatchHeader, rules: RecordRules) -> None:
        self._window = window
        self._header = header
        self._rules = rules
        self._scan = RecordScan(window.data, header.record_count)
        self._noted = (
            0,
            0,
        )  # index and position of the first record that `_check_newly_scanned_records` has not included
        self._largest = NO_TIMESTAMP
        self._errors = RecordErrors()
        self._misnumbered: tuple[int, str] | None = None
        self._append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None

    def check_all_records(self) -> Steps[int]:
        """Check all records. Raises `InvalidRecords`, and what the window's chunks raise."""
        scan, window = self._scan, self._window
        while scan.index < scan.count:
            if scan.scan_next_records():
                if len(scan.timestamp_deltas) > MAX_DELTAS:
                    yield from self._check_newly_scanned_records()
            else:
                yield from self._check_newly_scanned_records()
                yield from self._continue_at_unscanned_record()
            yield
        yield from self._check_newly_scanned_records()
        end = window.start + scan.position
        size = yield from window.skip_and_count_remaining_bytes(end + 1)
        if end != size:
            raise InvalidRecords("Incorrect declared batch size, records still remaining in file")
        if self._misnumbered is not None and not self._rules.any_offsets:
            raise MisnumberedRecords(self._misnumbered[1], (self._misnumbered,))
        if self._errors.count:
            raise self._errors.make_error()
        return self._largest

    def _check_newly_scanned_records(self) -> Steps[None]:
        """Check timestamps and keys of the records scanned since the last call, while their bytes are in memory."""
        scan, header, rules = self._scan, self._header, self._rules
        index, position = self._noted
        if scan.index > index:
            smallest, largest = _find_timestamp_range(scan.timestamp_deltas, header)
            self._largest = max(self._largest, largest)
            in_time = rules.allows_timestamp(smallest) and rules.allows_timestamp(largest)
            if not in_time or (rules.keys_required and scan.saw_null_key):
                yield from self._check_records_one_by_one(index, self._window.data[position : scan.position])
            scan.timestamp_deltas.clear()
            scan.saw_null_key = False
        self._noted = scan.index, scan.position

    def _check_records_one_by_one(self, first: int, data: bytes) -> Steps[None]:
        """Check the records in `data` one by one, as some of them break a rule."""
        found = iterate_record_slices(data, self._scan.index - first)
        for index, (_, _, raw_offset, raw_time, key, _) in enumerate(found, first):
            self._check_record(index, convert_from_zigzag(raw_offset), convert_from_zigzag(raw_time), key is not None)
            if index & 255 == 0:
                yield

    def _check_record(self, index: int, offset_delta: int, timestamp_delta: int, has_key: bool) -> int:
        """Check one record. Return its timestamp."""
        timestamp = self._append_time
        if timestamp is None:
            timestamp = wrap_to_64_bits(self._header.base_timestamp + timestamp_delta)
        self._errors.check_record(
            index, Record(self._header.base_offset + offset_delta, timestamp), self._rules, has_key
        )
        return timestamp

    def _continue_at_unscanned_record(self) -> Steps[None]:
        """Read more data, or step over the next record if it is large, or refuse it."""
        scan, window = self._scan, self._window
        try:
            extent = window.find_record_extent(scan.position)
        except MalformedVarint as error:
            raise (yield from self._make_error_of_next_record(str(error))) from error
        if extent is None or window.needs_more_bytes(extent):
            scan.position = window.drop_and_read_next_chunk(scan.position)
            scan.payload = window.data
            self._noted = scan.index, scan.position
        elif extent.length > window.large_bytes:
            yield from self._step_over_large_record(extent)
        else:
            yield from self._raise_if_malformed(extent)

    def _step_over_large_record(self, extent: RecordExtent) -> Steps[None]:
        """Check, in steps, a record larger than the window. Raises `InvalidRecords`."""
        scan, window = self._scan, self._window
        record = LargeRecord(window, extent)
        try:
            yield from record.step_over_record()
        except (MalformedVarint, MalformedRecord) as error:
            raise (yield from self._make_error_of_next_record(str(error), extent)) from error
        self._remember_wrong_offset_delta(record.offset_delta)
        timestamp = self._check_record(scan.index, record.offset_delta, record.timestamp_delta, record.key_bytes >= 0)
        self._largest = max(self._largest, timestamp)
        scan.index, scan.position, scan.payload = scan.index + 1, record.position, window.data
        self._noted = scan.index, scan.position

    def _raise_if_malformed(self, extent: RecordExtent) -> Steps[None]:
        """Raise `InvalidRecords` if the next record is malformed; else remember its wrong offset delta."""
        window, scan = self._window, self._scan
        if not 1 <= extent.length <= window.end - extent.body:
            raise (yield from self._make_error_of_next_record("", extent))
        try:
            record, _ = read_record(window.data, scan.position, self._header, None)
        except (MalformedVarint, MalformedRecord) as error:
            raise (yield from self._make_error_of_next_record(str(error), extent)) from error
        self._remember_wrong_offset_delta(record.offset - self._header.base_offset)

    def _make_error_of_next_record(self, message: str, extent: RecordExtent | None = None) -> Steps[InvalidRecords]:
        """Return the error for the malformed next record. Raises that of the data behind it, if it is corrupt."""
        index, size = self._scan.index, (yield from self._window.skip_and_count_remaining_bytes(MAX_UNCOMPRESSED_BYTES))
        if extent is not None and not 1 <= extent.length <= size - extent.body:
            message = f"a length of {extent.length} bytes, {size - extent.body} are left"
        return InvalidRecords(f"record {index} is malformed: {message}", ((index, message),))

    def _remember_wrong_offset_delta(self, offset_delta: int) -> None:
        """Remember the first record with a wrong offset delta. From there on the scan accepts any."""
        index = self._scan.index
        if offset_delta != index and self._misnumbered is None:
            self._misnumbered = index, f"Record {index} has the offset delta {offset_delta}, expected {index}"
            self._scan.any_offsets = True


def check_batch_header(header: BatchHeader) -> None:
    """Check the header of a client's batch. Raises `InvalidRecords`."""
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


def _find_timestamp_range(deltas: set[int], header: BatchHeader) -> tuple[int, int]:
    """Return the smallest and the largest timestamp of the records without -1; both are -1 if there is no other."""
    if header.attributes & TIMESTAMP_TYPE_BIT:
        return header.max_timestamp, header.max_timestamp
    base = header.base_timestamp
    if len(deltas) == 1:  # one record, or one timestamp: the usual small batch
        (raw,) = deltas
        timestamp = wrap_to_64_bits(base + convert_from_zigzag(raw))
        return timestamp, timestamp
    timestamps = {wrap_to_64_bits(base + convert_from_zigzag(raw)) for raw in deltas} - {NO_TIMESTAMP}
    return (min(timestamps), max(timestamps)) if timestamps else (NO_TIMESTAMP, NO_TIMESTAMP)


def make_timestamp_message(record: Record, earliest_ms: int, latest_ms: int) -> str:
    """Return the message about a record whose timestamp is out of range."""
    return (
        f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range. "
        f"The timestamp should be within [{earliest_ms}, {latest_ms}]"
    )


def make_log_append_time_error(indexes: Sequence[int]) -> InvalidRecords:
    """Return the error for records that a producer has sent with LogAppendTime."""
    errors = RecordErrors()
    errors.code = ErrorCode.INVALID_TIMESTAMP
    for index in indexes[:MAX_RECORD_ERRORS]:
        errors.add_record_error(index, STAMPED_MESSAGE)
    errors.count = len(indexes)
    return errors.make_error()


def summarize_errors(errors: RecordErrors, code: ErrorCode) -> str:
    """Return a sentence about the refused records."""
    if code == ErrorCode.INVALID_TIMESTAMP:
        return "One or more records have been rejected due to invalid timestamp"
    first = "; ".join(f"record {index}: {message}" for index, message in errors.listed[:3])
    return f"One or more records have been rejected due to {errors.count} record errors, the first of them: {first}"
