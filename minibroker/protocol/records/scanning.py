"""Checks quickly whether the records of a produced batch are well formed, and their offset deltas 0 to n-1.

It creates no objects, and only finds that all records are good, or about which record is bad. The strict reader of
`record.py`, which comes to the same result, then finds the reason. The broker's other rules are in `validation.py`.

There are two methods: the walk steps from record to record, and accepts any; the leap checks a run of records with the
same layout at once, a column at a time, which takes some nanoseconds for a record, and more if their timestamps differ.
Where `strides.py` is compiled, all are walked: that takes 20 to 50 ns for a record, however they differ. In such a run,
every byte of a length is repeated after the size of a record:

    |len|at|ts|of|kl|vl|value.........|hc|len|at|ts|of|kl|vl|value.........|hc|len|at|ts|of|kl|vl|value.........|hc|
      ^                                    ^                                    ^       a column: data[i::size]

The columns of lengths and of the count of headers must have one value each; the offset deltas must be those of the
indexes; the timestamp deltas must end where the first record's ends. Then every record of the run parses like the first
one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from minibroker.protocol.records.strides import IS_COMPILED, scan_short_records, skip_headers
from minibroker.protocol.records.varints import (
    MAX_VARINT_BYTES,
    MAX_VARLONG_BYTES,
    MalformedVarint,
    read_zigzag_varint,
)

MIN_RUN: Final = 16  # a leap costs about as much as walking this many records
MAX_WALK: Final = 1024  # records to walk before the next search for a run
WALK_BYTES: Final = 1 << 15  # bytes to walk in one step: twice the largest record that is not large

_STEPS_AT_ONCE: Final = 256

MAX_HEADERS: Final = 16  # each header needs at least two columns; records with more headers are walked
MAX_RUN: Final = 4096  # records of one look ahead, which is wasted if the run is short


class RecordScan:
    """A scan of the records in `payload`, and what it has found.

    The records before `index`, which end at `position`, are good. If `run` returns False, the next one is bad, or bytes
    follow the last. If `payload` is only a part of the records, use `scan_next_records`, and set `payload` and
    `position` to the next part. `timestamp_deltas` has the distinct timestamp deltas, in zigzag encoding;
    `saw_null_key` says that a record has no key. With `any_offsets`, `scan_next_records` accepts any offset deltas.
    """

    __slots__ = (
        "payload",
        "count",
        "index",
        "position",
        "timestamp_deltas",
        "saw_null_key",
        "any_offsets",
        "_steps",
    )

    def __init__(self, payload: bytes, count: int) -> None:
        self.payload = payload
        self.count = count
        self.index = 0
        self.position = 0
        self.timestamp_deltas: set[int] = set()
        self.saw_null_key = False
        self.any_offsets = False
        self._steps = MIN_RUN

    def scan_all_records(self) -> bool:
        """Scan all records. Return whether all `count` are good, and nothing follows them."""
        if IS_COMPILED or self.count < MIN_RUN:  # a single call for the usual small batch
            self._scan_short_records(self.count, len(self.payload))
            if self.index == self.count and self.position == len(self.payload):
                return True
            self.index = self.position = 0
        steps = MIN_RUN
        while self.index < self.count:
            if self.count - self.index >= MIN_RUN and self._scan_run_of_records() >= MIN_RUN:
                steps = MIN_RUN
            elif not self._scan_records_until(min(self.count, self.index + steps), len(self.payload)):
                return False
            else:
                steps = min(steps * 2, MAX_WALK)
        return self.position == len(self.payload)

    def _scan_run_of_records(self) -> int:
        """Pass the run of equally laid out records that starts here. Return their number, 0 if there is none."""
        if IS_COMPILED:
            return 0
        run = find_run_of_records(self.payload, self.position, self.index, self.count)
        if run is None:
            return 0
        if not run.keyed:
            self.saw_null_key = True
        self.timestamp_deltas |= run.timestamp_deltas
        self.index += run.length
        self.position += run.length * run.size_bytes
        return run.length

    def scan_next_records(self) -> bool:
        """Scan the next records in `payload`, for about a millisecond. Return False if none was passed.

        The next record is then bad, or `payload` ends before it does.
        """
        index, end = self.index, self.position + WALK_BYTES
        if self.any_offsets:
            return self._scan_valid_records(min(self.count, index + _STEPS_AT_ONCE))
        while self.index < self.count and self.position < end:
            if self.count - self.index >= MIN_RUN and self._scan_run_of_records() >= MIN_RUN:
                self._steps = MIN_RUN
            elif self._scan_records_up_to_walk_limit(min(self.count, self.index + self._steps)):
                self._steps = min(self._steps * 2, MAX_WALK)
            else:
                break
        return self.index > index

    def _scan_records_up_to_walk_limit(self, end_index: int) -> bool:
        """Scan as `_scan_records_until` does, but no more bytes than take a millisecond."""
        return self._scan_records_until(end_index, min(self.position + WALK_BYTES, len(self.payload)))

    def _scan_valid_records(self, end_index: int) -> bool:
        """Step over the good records before `end_index`, for a millisecond. Return False if there are none."""
        index, end = self.index, self.position + WALK_BYTES
        while self.index < end_index and self.position < end and self._scan_one_record(len(self.payload)):
            pass
        return self.index > index

    def _scan_records_until(self, end_index: int, stop_position: int) -> bool:
        """Step over the records before `end_index` that end by `stop_position`. Return whether all do, and are good."""
        while self.index < end_index:
            self._scan_short_records(end_index, stop_position)
            if self.index < end_index and not self._scan_one_record(stop_position):
                return False
        return True

    def _scan_short_records(self, end_index: int, stop_position: int) -> None:
        """Step over records with short varints, as `scan_short_records` does."""
        self.index, self.position, saw_null_key = scan_short_records(
            self.payload, self.position, stop_position, self.index, end_index, self.timestamp_deltas
        )
        self.saw_null_key |= saw_null_key

    def _scan_one_record(self, stop_position: int) -> bool:
        """Step over one record of any kind. Return False if it is bad, or ends behind `stop_position`."""
        data = self.payload
        try:
            length, position = read_zigzag_varint(data, self.position, MAX_VARINT_BYTES)
            end = position + (length >> 1)
            if end > stop_position:
                return False
            delta, position = read_zigzag_varint(data, position + 1, MAX_VARLONG_BYTES)
            offset, position = read_zigzag_varint(data, position, MAX_VARINT_BYTES)
            key, position = read_zigzag_varint(data, position, MAX_VARINT_BYTES)
            position += 0 if key & 1 else key >> 1
            value, position = read_zigzag_varint(data, position, MAX_VARINT_BYTES)
            position += 0 if value & 1 else value >> 1
            position = skip_headers(data, position, end)
        except (MalformedVarint, IndexError):
            return False
        if length & 1 or position != end:
            return False
        if offset != 2 * self.index and not self.any_offsets:
            return False
        self.saw_null_key |= bool(key & 1)
        self.timestamp_deltas.add(delta)
        self.index, self.position = self.index + 1, end
        return True


class RecordRun(NamedTuple):
    """`length` records of `size_bytes` each, all well formed and with the right offset deltas."""

    length: int
    size_bytes: int
    timestamp_deltas: set[int]  # each distinct one, still zigzag
    keyed: bool


class _Layout(NamedTuple):
    """The positions of a record's fields in the payload."""

    lengths: list[int]  # each byte of each length, and of the count of headers
    timestamp_delta: range
    offset_delta: range
    end: int
    keyed: bool


def find_run_of_records(payload: bytes | bytearray, position: int, index: int, count: int) -> RecordRun | None:
    """Return the run of equally laid out records that begins with record `index` of `count`, None if there is none.

    A run ends where the layout changes, so also where a delta needs one byte more (offset delta 64, 8192), after every
    8192nd record, and after `MAX_RUN` records. It may be a single record.
    """
    if not _may_begin_run(payload, position):
        return None
    layout = _find_record_layout(payload, position)
    if layout is None:
        return None
    size = layout.end - position
    end_index = min(count, index + MAX_RUN, _find_index_of_next_delta_width(index))
    length = min(end_index - index, (len(payload) - position) // size)
    for start in layout.lengths:
        length = _count_equal_at_start(_slice_column_of_rows(payload, start, size, length))
    offset_deltas = [_slice_column_of_rows(payload, start, size, length) for start in layout.offset_delta]
    timestamp_deltas = [_slice_column_of_rows(payload, start, size, length) for start in layout.timestamp_delta]
    if offset_deltas != _make_expected_offset_deltas(index, length) or not _is_each_row_a_whole_varint(
        timestamp_deltas
    ):
        return None
    return RecordRun(length, size, _collect_distinct_numbers(timestamp_deltas), layout.keyed)


def _may_begin_run(payload: bytes | bytearray, position: int) -> bool:
    """Return whether the next two records begin like this one. If there is no run, this is usually false.

    It is also false for records of 8 KiB and more: a batch has so few of them that walking them is fast.
    """
    try:
        low, high = payload[position], payload[position + 1]
        size = (low >> 1) + 1 if low < 0x80 else ((low & 0x7F | high << 7) >> 1) + 2
        return low == payload[position + size] == payload[position + 2 * size]
    except IndexError:
        return False


def _find_record_layout(payload: bytes | bytearray, position: int) -> _Layout | None:
    """Return the layout of the record at `position`; None if it is malformed, or has too many headers."""
    lengths: list[int] = []

    def read_length_at(at: int) -> tuple[int, int]:
        raw, after = read_zigzag_varint(payload, at, MAX_VARINT_BYTES)
        lengths.extend(range(at, after))
        return raw, after

    def skip_length_and_bytes(at: int) -> tuple[int, int]:
        raw, after = read_length_at(at)
        return raw, after if raw & 1 else after + (raw >> 1)

    try:
        raw, body = read_length_at(position)
        _, offset_at = read_zigzag_varint(payload, body + 1, MAX_VARLONG_BYTES)
        _, key_at = read_zigzag_varint(payload, offset_at, MAX_VARINT_BYTES)
        key, value_at = skip_length_and_bytes(key_at)
        _, headers_at = skip_length_and_bytes(value_at)
        headers, at = read_length_at(headers_at)
        if raw & 1 or headers & 1 or headers > 2 * MAX_HEADERS:
            return None
        for _ in range(headers >> 1):
            name, at = skip_length_and_bytes(at)
            if name & 1:
                return None
            _, at = skip_length_and_bytes(at)
    except MalformedVarint:
        return None
    if at != body + (raw >> 1) or at > len(payload):
        return None
    return _Layout(lengths, range(body + 1, offset_at), range(offset_at, key_at), at, not key & 1)


def _slice_column_of_rows(payload: bytes | bytearray, start: int, size: int, length: int) -> bytes | bytearray:
    """Return the byte at `start` of each of `length` records of `size` bytes."""
    return payload[start : start + size * (length - 1) + 1 : size]


def _count_equal_at_start(column: bytes | bytearray) -> int:
    """Return how many bytes at the start equal the first. Comparing all is much faster, and usually enough."""
    first = column[:1]
    return len(column) if column == first * len(column) else len(column) - len(column.lstrip(first))


# The columns of the zigzag varints 0, 2, 4, ... (offset deltas 0, 1, 2, ...). The low byte repeats after 64 records,
# the second one after 8192.
_ONE_BYTE: Final = bytes(range(0, 0x80, 2))
_LOW: Final = bytes(range(0x80, 0x100, 2)) * 128
_MIDDLE: Final = b"".join(bytes((0x80 | value,)) * 64 for value in range(0x80))
_HIGH: Final = b"".join(bytes((value,)) * 64 for value in range(0x80))
_PERIOD: Final = 8192
_MAX_INDEX: Final = 1 << 20  # from here on an offset delta takes four bytes, and records are walked


def _find_index_of_next_delta_width(index: int) -> int:
    """Return the index behind `index` where offset deltas change their upper bytes: 64, or the next 8192."""
    return 64 if index < 64 else (index | _PERIOD - 1) + 1


def _make_expected_offset_deltas(index: int, length: int) -> list[bytes | bytearray] | None:
    """Return the columns of the offset deltas `index`, `index` + 1, ..., which all need as many bytes as the first."""
    if index < 64:
        return [_ONE_BYTE[index : index + length]]
    at = index % _PERIOD
    if index < _PERIOD:
        return [_LOW[at : at + length], _HIGH[at : at + length]]
    if index < _MAX_INDEX:
        return [_LOW[at : at + length], _MIDDLE[at : at + length], bytes((index // _PERIOD,)) * length]
    return None


_WITH_TOP_BIT: Final = bytes(range(0x80, 0x100))


def _is_each_row_a_whole_varint(columns: list[bytes | bytearray]) -> bool:
    """Return whether each row is one whole varint: the top bit is set in all columns but the last."""
    return columns[-1].isascii() and not any(column.translate(None, _WITH_TOP_BIT) for column in columns[:-1])


def _collect_distinct_numbers(columns: list[bytes | bytearray]) -> set[int]:
    """Return the distinct varints in the rows, in zigzag encoding. Each column has one byte of each."""
    if len(columns) == 1:
        return _collect_distinct_bytes(columns[0])
    numbers: set[int] = set()
    if len(columns) == 2:
        for _ in range(32):  # timestamps usually increase, so that equal high bytes are neighbours
            low, high = columns
            length = _count_equal_at_start(high)
            numbers.update((byte & 0x7F) + (high[0] << 7) for byte in _collect_distinct_bytes(low[:length]))
            columns = [low[length:], high[length:]]
            if length == len(high):
                return numbers
    return numbers.union(
        read_zigzag_varint(bytes(row), 0, MAX_VARLONG_BYTES)[0] for row in set(zip(*columns, strict=True))
    )


def _collect_distinct_bytes(column: bytes | bytearray) -> set[int]:
    """Return `set(column)`, faster if there are few distinct values, as for timestamps within some milliseconds."""
    found: set[int] = set()
    for _ in range(8):
        if not column:
            return found
        found.add(column[0])
        column = column.translate(None, bytes(column[:1]))
    return found | set(column)
