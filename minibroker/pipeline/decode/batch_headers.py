"""Finds the batches in some bytes, and reads their headers as columns: a loop over lengths, then numpy.

Nothing is decompressed, and no record is read. The layouts are drawn in the protocol's `records/batch.py` and
`records/message.py`. A message of format 0 or 1 counts as a batch; fields that it does not have are -1.
"""

from __future__ import annotations

from os.path import basename
from struct import Struct
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from minibroker.pipeline.array_types import Bools, Int64s
from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from minibroker.protocol.records.crc import crc32c
from minibroker.protocol.records.formats import MIN_LENGTHS, check_batch_or_message
from minibroker.protocol.records.message import KNOWN_MESSAGE_ATTRIBUTES, MAGIC_POSITION

Buffer = bytes | bytearray | memoryview

MAX_BATCH_BYTES: Final = 512 << 20
"""Limit on the decompressed size of one batch."""

MAX_BATCH_RECORDS: Final = 1 << 23
"""Limit on the records of one batch: finding them then takes at most 0.5 GB of memory."""

_LENGTH: Final = Struct(">i")
_LENGTH_POSITION: Final = 8
_UNBOUNDED: Final = 1 << 62
_MESSAGE_TIMESTAMP_POSITION: Final = 18

# By the names of `BatchHeaders`, though a batch has the length behind it for its size, and a delta for its last offset.
_BATCH: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("size", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
_MESSAGE: Final = np.dtype(
    [("base_offset", ">i8"), ("size", ">i4"), ("crc", ">u4"), ("magic", "i1"), ("attributes", "i1")]
)


class DataOrigin(NamedTuple):
    """The origin of some bytes: a file and the position in it, or a broker with position None."""

    name: str
    position: int | None

    @property
    def segment(self) -> str | None:
        """The file's name without its directory; None for a broker."""
        return None if self.position is None else basename(self.name)

    def describe_position(self, position: int) -> str:
        """Return a text for messages about this position of the bytes."""
        return self.name if self.position is None else f"{self.name}: position {self.position + position}"


class HeaderScan(NamedTuple):
    """Where batches begin, and where the last of them ends. `problem` says why none can be found after that."""

    positions: list[int]
    end: int
    problem: str | None


class BatchHeaders(NamedTuple):
    """The headers of some batches, one column for each field. All columns are int64 of the same length."""

    position: Int64s
    size: Int64s  # of the whole batch
    magic: Int64s
    crc: Int64s
    attributes: Int64s
    base_offset: Int64s  # of a compressed message: the offset of the last message in it
    last_offset: Int64s
    base_timestamp: Int64s  # ms; -1: none
    max_timestamp: Int64s
    leader_epoch: Int64s
    producer_id: Int64s
    producer_epoch: Int64s
    base_sequence: Int64s
    record_count: Int64s  # -1: unknown, as a compressed message does not have it

    def select_batches(self, index: slice | Int64s | Bools) -> BatchHeaders:
        """Return the headers that a slice, indexes or booleans select."""
        return BatchHeaders(*(column[index] for column in self))

    def make_header(self, index: int) -> BatchHeader:
        """Return one header as the protocol's class."""
        (_, size, magic, crc, attributes, base_offset, last_offset, *times, leader_epoch) = (
            int(column[index]) for column in self[:10]
        )
        producer = (int(column[index]) for column in self[10:])
        length, last_delta = size - LOG_OVERHEAD_BYTES, last_offset - base_offset
        return BatchHeader(
            base_offset, length, leader_epoch, magic, crc, attributes, last_delta, times[0], times[1], *producer
        )

    @property
    def codec(self) -> Int64s:
        """The number of the codec, 0 to 7."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_control(self) -> Bools:
        """Whether each batch is a control batch."""
        is_control: Bools = (self.attributes & CONTROL_BIT != 0) & (self.magic == MAGIC)
        return is_control

    @property
    def is_transactional(self) -> Bools:
        """Whether each batch is part of a transaction."""
        is_transactional: Bools = (self.attributes & TRANSACTIONAL_BIT != 0) & (self.magic == MAGIC)
        return is_transactional


def scan_headers(view: memoryview, start: int = 0, window_bytes: int = 1 << 62) -> HeaderScan:
    """Find the whole batches from `start` on, up to the one that reaches or crosses `start + window_bytes`."""
    positions: list[int] = []
    note, length_at, minima, end = positions.append, _LENGTH.unpack_from, MIN_LENGTHS, len(view)
    position, last = start, min(end, start + window_bytes)
    while position < last and end - position > MAGIC_POSITION:
        magic = view[position + MAGIC_POSITION]
        if magic > MAGIC:
            return HeaderScan(positions, position, f"Invalid magic found in record: {magic}")
        (length,) = length_at(view, position + _LENGTH_POSITION)
        if length < minima[magic]:
            return HeaderScan(positions, position, f"a batch of format {magic} of {length + LOG_OVERHEAD_BYTES} bytes")
        following = position + length + LOG_OVERHEAD_BYTES
        if following > end:
            return HeaderScan(
                positions, position, f"the batch has {following - position} bytes, but only {end - position} are left"
            )
        note(position)
        position = following
    if position < last:
        return HeaderScan(positions, position, f"{end - position} bytes are left, less than a batch's header")
    return HeaderScan(positions, position, None)


def measure_whole_batches(data: Buffer) -> tuple[int, int | None]:
    """Return the size of the whole batches in an answer, and the offset after the last one.

    An answer may end in a part of a batch. If a magic, a length or an offset is invalid, the rest counts as whole, and
    the offset is None: a decoder reports what is wrong.
    """
    view = memoryview(data)
    found = scan_headers(view)
    if len(view) - found.end > MAGIC_POSITION and not may_batch_be_whole(view, found.end, _UNBOUNDED):
        return len(view), None
    if not found.positions:
        return 0, None
    last = read_headers_at(view, found.positions[-1:])
    base_offset, last_offset = int(last.base_offset[0]), int(last.last_offset[0])
    return (len(view), None) if last_offset < base_offset else (found.end, last_offset + 1)


def may_batch_be_whole(view: memoryview, position: int, bytes_left: int) -> bool:
    """Return whether magic and length at `position` can be those of a batch within `bytes_left` bytes."""
    magic = view[position + MAGIC_POSITION]
    (length,) = _LENGTH.unpack_from(view, position + _LENGTH_POSITION)
    return bool(magic <= MAGIC and MIN_LENGTHS[magic] <= length <= bytes_left - LOG_OVERHEAD_BYTES)


def read_headers_at(view: memoryview, positions: list[int]) -> BatchHeaders:
    """Return the headers of the whole batches at these positions."""
    at = np.array(positions, np.int64)
    magic = np.frombuffer(view, np.uint8)[at + MAGIC_POSITION].astype(np.int64)
    if (magic == MAGIC).all():
        return _read_batch_headers(view, at)
    if (magic < MAGIC).all():
        return _read_message_headers(view, at, magic)
    is_old = magic < MAGIC
    merged = (np.empty(len(at), np.int64) for _ in BatchHeaders._fields)
    headers = BatchHeaders(*merged)
    for column, old, new in zip(
        headers,
        _read_message_headers(view, at[is_old], magic[is_old]),
        _read_batch_headers(view, at[~is_old]),
        strict=True,
    ):
        column[is_old], column[~is_old] = old, new
    return headers


def _read_batch_headers(view: memoryview, positions: Int64s) -> BatchHeaders:
    columns = _read_columns_at(view, _BATCH, positions)
    columns["size"] += LOG_OVERHEAD_BYTES
    columns["last_offset"] += columns["base_offset"]
    return BatchHeaders(position=positions, **columns)


def _read_message_headers(view: memoryview, positions: Int64s, magic: Int64s) -> BatchHeaders:
    columns = _read_columns_at(view, _MESSAGE, positions)
    columns["size"] += LOG_OVERHEAD_BYTES
    columns["attributes"] &= np.where(magic == 1, KNOWN_MESSAGE_ATTRIBUTES, COMPRESSION_MASK)
    columns["record_count"] = np.where(columns["attributes"] & COMPRESSION_MASK, -1, 1)
    none, timestamp = np.full(len(positions), -1, np.int64), np.full(len(positions), -1, np.int64)
    timed = magic == 1
    timestamp[timed] = _read_values_at(view, ">i8", positions[timed] + _MESSAGE_TIMESTAMP_POSITION)
    columns |= dict.fromkeys(("base_timestamp", "max_timestamp"), timestamp)
    columns |= dict.fromkeys(("leader_epoch", "producer_id", "producer_epoch", "base_sequence"), none)
    return BatchHeaders(position=positions, last_offset=columns["base_offset"], **columns)


def _read_columns_at(view: memoryview, dtype: np.dtype[np.void], positions: Int64s) -> dict[str, Int64s]:
    """Return each field of the structures at these positions."""
    raw = _read_values_at(view, dtype, positions)
    return {name: raw[name].astype(np.int64) for name in dtype.names or ()}


def _read_values_at(view: memoryview, dtype: npt.DTypeLike, positions: Int64s) -> npt.NDArray[Any]:
    """Return the values of type `dtype` at these positions, by a view of the buffer with one item for each byte."""
    count = max(len(view) - np.dtype(dtype).itemsize + 1, 0)
    everywhere: npt.NDArray[Any] = np.ndarray((count,), dtype, view, strides=(1,))
    return everywhere[positions]


def check_checksums(view: memoryview, headers: BatchHeaders) -> Bools:
    """Return whether the stored checksum of each batch is right."""
    spans = zip(
        headers.magic.tolist(), headers.position.tolist(), (headers.position + headers.size).tolist(), strict=True
    )
    computed = [
        crc32c(view[start + CRC_START : end]) if magic == MAGIC else crc32(view[start + MAGIC_POSITION : end])
        for magic, start, end in spans
    ]
    return np.equal(np.array(computed, np.int64), headers.crc)


def find_checksum_problem(view: memoryview, headers: BatchHeaders, index: int) -> str | None:
    """Return what is wrong with the checksum of a batch, or None."""
    position, size = int(headers.position[index]), int(headers.size[index])
    try:
        check_batch_or_message(view[position : position + size])
    except CorruptBatch as error:
        return error.message
    return None


def are_headers_possible(headers: BatchHeaders, preceding: Int64s, max_batch_bytes: int) -> bool:
    """Return whether each batch begins at its offset in `preceding` or later, and has no other problem."""
    in_order = (headers.base_offset >= preceding) & (headers.last_offset >= headers.base_offset)
    is_small = (headers.size <= max_batch_bytes) & (headers.record_count <= MAX_BATCH_RECORDS)
    return bool((in_order & is_small).all())


def find_header_problem(headers: BatchHeaders, index: int, next_offset: int, max_batch_bytes: int) -> str | None:
    """Return what is wrong in the header of a batch that must begin at `next_offset` or later, or None."""
    base_offset, last_offset = int(headers.base_offset[index]), int(headers.last_offset[index])
    if headers.size[index] > max_batch_bytes:
        return f"a batch of {headers.size[index]} bytes, more than the limit of {max_batch_bytes}"
    if headers.record_count[index] > MAX_BATCH_RECORDS:
        return f"a batch of {headers.record_count[index]} records, more than {MAX_BATCH_RECORDS}"
    if last_offset < base_offset:
        return f"Batch has an invalid offset range: [{base_offset}, {last_offset}]"
    return None if base_offset >= next_offset else f"the batches before it reach up to offset {next_offset - 1}"


assert _BATCH.itemsize == HEADER_BYTES
