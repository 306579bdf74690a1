"""Checks quickly whether the records of a produced batch are well formed, and their offset deltas 0 to n-1.

It creates no objects, and only finds that all records are good, or about which record is bad. The strict reader of
`record.py`, which comes to the same result, then finds the reason. The broker's other rules are in `validation.py`.

There are three methods: the walk steps from record to record, and accepts any; the jog compares the start of each
record with what it must be if only the sizes of values differ, at less than half the cost; the leap checks a run of
records with the same layout at once (`columns.py`), at about a thirtieth. Real producers send all kinds. Where
`strides.py` is compiled, the walk costs less than a jog, and than a leap over fewer than a thousand records.
"""

from __future__ import annotations

from functools import cache

from minibroker.protocol.records.columns import find_run
from minibroker.protocol.records.strides import IS_COMPILED, after_headers, stride
from minibroker.protocol.records.varints import (
    MAX_VARINT_BYTES,
    MAX_VARLONG_BYTES,
    SECOND_BYTE,
    MalformedVarint,
    read_raw,
    zigzag_bytes,
)

MIN_RUN = 16  # a leap costs about as much as walking this many records
MIN_COMPILED_RUN = 1024  # the same where the walk is compiled
MIN_JOG = 16  # a jog has a fixed cost: after two of fewer records, there is no other
MAX_JOG_INDEX = 1 << 13  # above, offset deltas have three bytes
MAX_WALK = 1024  # records to walk before the next search for a run
WALK_BYTES = 1 << 15  # bytes to walk in one step: twice the largest record that is not large

_STEPS_AT_ONCE = 256


@cache
def _offset_deltas() -> list[bytes]:
    """Return the encoded offset deltas."""
    return [zigzag_bytes(index) for index in range(MAX_JOG_INDEX)]


@cache
def _tails(width: int) -> list[bytes | None]:
    """Return by the size of a record, in zigzag encoding: a null key, and the length of a value that fills the record.

    `width` is the size of attributes and deltas. None for a size that no such record can have.
    """
    tails: list[bytes | None] = [None] * (2 * len(SECOND_BYTE) << 6)
    for value_bytes in range(len(tails) >> 1):
        length = zigzag_bytes(value_bytes)
        size = 2 * (width + 1 + len(length) + value_bytes + 1)
        if size < len(tails):
            tails[size] = b"\x01" + length
    return tails


class Scan:
    """A scan of the records in `payload`, and what it has found.

    The records before `index`, which end at `position`, are good. If `run` returns False, the next one is bad, or bytes
    follow the last. If `payload` is only a part of the records, use `advance`, and set `payload` and `position` to the
    next part. `timestamp_deltas` has the distinct timestamp deltas, in zigzag encoding; `saw_null_key` says that a
    record has no key. With `any_offsets`, `advance` accepts any offset deltas.
    """

    __slots__ = (
        "payload",
        "count",
        "index",
        "position",
        "timestamp_deltas",
        "saw_null_key",
        "any_offsets",
        "_jogs",
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
        self._jogs = not IS_COMPILED
        self._steps = MIN_RUN

    def run(self) -> bool:
        """Scan all records. Return whether all `count` are good, and nothing follows them."""
        if self.count < (MIN_COMPILED_RUN if IS_COMPILED else MIN_RUN):  # a single call for the usual small batch
            self._stride(self.count)
            if self.index == self.count and self.position == len(self.payload):
                return True
            self.index = self.position = 0
        steps = MIN_RUN
        while self.index < self.count:
            if self.count - self.index >= MIN_RUN and self._leap() >= MIN_RUN:
                steps = MIN_RUN
            elif not self._walk(min(self.count, self.index + steps)):
                return False
            else:
                steps = min(steps * 2, MAX_WALK)
        return self.position == len(self.payload)

    def _leap(self) -> int:
        """Pass the run that starts here. Return its number of records, 0 if there is none."""
        run = find_run(self.payload, self.position, self.index, self.count)
        if run is None:
            return 0
        if not run.keyed:
            self.saw_null_key = True
        self.timestamp_deltas |= run.timestamp_deltas
        self.index += run.length
        self.position += run.length * run.size_bytes
        return run.length

    def advance(self) -> bool:
        """Scan the next records in `payload`, for about a millisecond. Return False if none was passed.

        The next record is then bad, or `payload` ends before it does.
        """
        index, end = self.index, self.position + WALK_BYTES
        if self.any_offsets:
            return self._step_on(min(self.count, index + _STEPS_AT_ONCE))
        while self.index < self.count and self.position < end:
            if self.count - self.index >= MIN_RUN and self._leap() >= MIN_RUN:
                self._steps = MIN_RUN
            elif self._walk_piece(min(self.count, self.index + self._steps)):
                self._steps = min(self._steps * 2, MAX_WALK)
            else:
                break
        return self.index > index

    def _walk_piece(self, end_index: int) -> bool:
        """Walk as `_walk` does, but for a millisecond at most."""
        whole, start = self.payload, self.position
        if len(whole) - start <= WALK_BYTES:
            return self._walk(end_index)
        self.payload, self.position = whole[start : start + WALK_BYTES], 0
        is_good = self._walk(end_index)
        self.payload, self.position = whole, start + self.position
        return is_good

    def _step_on(self, end_index: int) -> bool:
        """Step over the good records before `end_index`. Return False if there are none."""
        index, end = self.index, self.position + WALK_BYTES
        while self.index < end_index and self.position < end and self._step():
            pass
        return self.index > index

    def _walk(self, end_index: int) -> bool:
        """Step over the records before `end_index`, up to the first bad one. Return whether all are good."""
        while self.index < end_index:
            if self._jogs and end_index - self.index >= MIN_JOG:
                self._jog_on(end_index)
            last_position = self._stride(end_index)
            if self.position > len(self.payload):  # the last one is longer than the data
                self.index, self.position = self.index - 1, last_position
                return False
            if self.index < end_index and not self._step():
                return False
        return True

    def _jog_on(self, end_index: int) -> None:
        """Jog from one timestamp to the next, as long as that is worth it: a single jog may be short."""
        began, short = self.index, 0
        while short < 2 and end_index - self.index >= MIN_JOG:
            short = 0 if self._jog(end_index) >= MIN_JOG else short + 1
        self._jogs = self.index - began >= MIN_JOG

    def _jog(self, end_index: int) -> int:
        """Pass records without key and headers that have the timestamp of the first one. Return their number.

        Size and index of such a record determine its start, so that one comparison shows that it is good.
        """
        data, position, index = self.payload, self.position, self.index
        is_at = data.startswith
        try:
            first = position + 1 + (data[position] > 0x7F)  # the attributes
            raw, after = read_raw(data, first + 1, MAX_VARLONG_BYTES)
            start = bytes(1) + data[first + 1 : after]
            while index < min(end_index, MAX_JOG_INDEX):
                end_of_width = min(end_index, 64 if index < 64 else MAX_JOG_INDEX)
                tails = _tails(len(start) + (1 if index < 64 else 2))
                for offset in _offset_deltas()[index:end_of_width]:
                    size, at = data[position], position + 1
                    if size > 0x7F:
                        size, at = size + SECOND_BYTE[data[at]], at + 1
                    end = at + (size >> 1)
                    # A size without a tail ends in a TypeError; the last byte is the count of headers.
                    if not is_at(start + offset + tails[size], at) or data[end - 1]:  # type: ignore[operator]
                        raise IndexError
                    position, index = end, index + 1
        except (IndexError, TypeError, MalformedVarint):
            pass
        taken = index - self.index
        if taken:
            self.timestamp_deltas.add(raw)
            self.saw_null_key = True
            self.index, self.position = index, position
        return taken

    def _stride(self, end_index: int) -> int:
        """Step over records with short varints, as `stride` does. Return the position of the last one."""
        self.index, self.position, last, saw_null_key = stride(
            self.payload, self.position, self.index, end_index, self.timestamp_deltas
        )
        self.saw_null_key |= saw_null_key
        return last

    def _step(self) -> bool:
        """Step over one record of any kind. Return False if it is bad."""
        data = self.payload
        try:
            length, position = read_raw(data, self.position, MAX_VARINT_BYTES)
            end = position + (length >> 1)
            delta, position = read_raw(data, position + 1, MAX_VARLONG_BYTES)
            offset, position = read_raw(data, position, MAX_VARINT_BYTES)
            key, position = read_raw(data, position, MAX_VARINT_BYTES)
            position += 0 if key & 1 else key >> 1
            value, position = read_raw(data, position, MAX_VARINT_BYTES)
            position += 0 if value & 1 else value >> 1
            position = after_headers(data, position, end)
        except (MalformedVarint, IndexError):
            return False
        if length & 1 or position != end or end > len(data):
            return False
        if offset != 2 * self.index and not self.any_offsets:
            return False
        self.saw_null_key |= bool(key & 1)
        self.timestamp_deltas.add(delta)
        self.index, self.position = self.index + 1, end
        return True
