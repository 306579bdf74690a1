"""Walking through a `.log` file from batch to batch, and on behind damage to the next batch whose checksum is right.

It gives blocks of batches as columns, the sizes and magic bytes that cannot be, and wrong checksums. What the fields
mean for the log is judged elsewhere.

    0 base offset   8 length   12 leader epoch   16 magic   17 crc   21 attributes   23 last offset delta
    27 base timestamp   35 max timestamp   43 producer id   51 epoch   53 sequence   57 count   61 records
    formats 0 and 1:  0 offset   8 size   12 crc   16 magic   17 attributes   18 timestamp (format 1)

The layout is written here once more, and not taken from the protocol: what verifies a log is a second opinion.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from zlib import crc32

import numpy as np
import numpy.typing as npt

from minibroker.pipeline.jobs.verify.kinds import Problem
from minibroker.protocol.records.crc import crc32c

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

BLOCK_BYTES = 4 << 20
MAGIC_AT, HEAD_BYTES, HEADER_BYTES, LOG_OVERHEAD = 16, 21, 61, 12
MIN_BYTES = (26, 34, 61)  # by magic
MAX_OFFSET = 1 << 48  # what a search takes for an offset: no log gets that far
COMPRESSION, TIMESTAMP_TYPE, TRANSACTIONAL, CONTROL, DELETE_HORIZON, ELIDED = 7, 8, 16, 32, 64, 128

_HEAD = Struct(">qiiBI")  # of format 2: base offset, length, leader epoch, magic, crc
_OLD_CRC = Struct(">I")
_FIELDS = np.dtype(
    {
        "names": [
            "base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_delta", "base_timestamp",
            "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "record_count",
            "old_attributes", "old_timestamp",
        ],
        "formats": [
            ">i8", ">i4", ">i4", "u1", ">u4", ">u2", ">i4", ">i8",
            ">i8", ">i8", ">i2", ">i4", ">i4",
            "u1", ">i8",
        ],
        "offsets": [0, 8, 12, 16, 17, 21, 23, 27, 35, 43, 51, 53, 57, 17, 18],
        "itemsize": HEADER_BYTES,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Block:
    """Batches that lie in `data`, each from `starts` on with `sizes` bytes; `positions` are those in the file.

    A column has one number a batch; what a message of format 0 or 1 does not have is -1, and it is a batch of one:
    `first_offset` is -1 for a wrapper until its messages have been read. `sound` says whether the checksum is right,
    and `damages` how many damages lay in the file before the batch, its own included.
    """

    data: bytes
    starts: Ints
    sizes: Ints
    positions: Ints
    sound: Flags
    damages: Ints
    magic: Ints
    attributes: Ints
    first_offset: Ints
    base_offset: Ints
    last_offset: Ints
    leader_epoch: Ints
    base_timestamp: Ints
    max_timestamp: Ints
    producer_id: Ints
    producer_epoch: Ints
    base_sequence: Ints
    record_count: Ints

    def __len__(self) -> int:
        return len(self.starts)

    def batch(self, index: int) -> memoryview:
        """The bytes of one batch."""
        start = int(self.starts[index])
        return memoryview(self.data)[start : start + int(self.sizes[index])]


class LogFile:
    """A `.log` file that is read from batch to batch. Methods raise `OSError`.

    `problems` has what was found so far of sizes, magic bytes and checksums; `size_bytes` is the file's, `end_position`
    where its last batch ends, once all blocks were given.
    """

    def __init__(
        self, path: str, *, check_crc: bool = True, is_last: bool = False, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self.problems: list[Problem] = []
        self.end_position = 0
        self._check_crc = check_crc
        self._is_last = is_last
        self._block_bytes = max(block_bytes, HEADER_BYTES)
        self._damages = 0
        self._giant_bytes = 0
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self._fd).st_size

    def close(self) -> None:
        """Give the file back."""
        os.close(self._fd)

    def blocks(self) -> Iterator[Block]:
        """All batches, in blocks of about `block_bytes`."""
        position = 0
        while position < self.size_bytes:
            data = self._read(position, max(self._block_bytes, self._giant_bytes))
            self._giant_bytes = 0
            found, used = self._walk(data, position)
            if found:
                self.end_position = position + found[-1][0] + found[-1][1]
                yield _block(data, position, found)
            if used:
                position += used
                continue
            position = self._giant_or_damage(data, position)
            if position < 0:
                return

    def _read(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, min(size, self.size_bytes - position), position)
        if not data:
            raise OSError(f"{self._path} has become shorter")
        return data

    def _walk(self, data: bytes, origin: int) -> tuple[list[tuple[int, int, bool, int]], int]:
        """(start, size, sound, damages) of the batches in `data`, and how many of its bytes are done with.

        It ends before the first one that is not wholly in `data`, or cannot be.
        """
        found: list[tuple[int, int, bool, int]] = []
        at, end = 0, len(data)
        while end - at >= HEAD_BYTES:
            _, length, _, magic, _ = _HEAD.unpack_from(data, at)
            size = length + LOG_OVERHEAD
            if magic > 2 or size < MIN_BYTES[magic] or size > end - at:
                break
            sound = not self._check_crc or is_sound(data, at, size)
            if not sound:
                if not self._leads_on(data, at + size, origin):
                    break  # the length itself is what is wrong
                self._wrong_checksum(data, at, size, origin)
            found.append((at, size, sound, self._damages))
            at += size
        return found, at

    def _leads_on(self, data: bytes, at: int, origin: int) -> bool:
        """Whether what follows looks like a batch, or is the file's end."""
        if origin + at == self.size_bytes:
            return True
        head = data[at : at + HEAD_BYTES]
        if len(head) < HEAD_BYTES:
            head = os.pread(self._fd, HEAD_BYTES, origin + at)
        return len(head) == HEAD_BYTES and _looks_right(head, self.size_bytes - origin - at)

    def _wrong_checksum(self, data: bytes, at: int, size: int, origin: int) -> None:
        self._damages += 1
        base, _, _, magic, crc = _HEAD.unpack_from(data, at)
        if magic < 2 and size >= MIN_BYTES[2] and crc32c(memoryview(data)[at + 21 : at + size]) == crc:
            detail = f"magic {magic}, but the checksum is right for a batch of format 2"
            self.problems.append(Problem("magic", origin + at, base, detail))
            return
        stored, computed = checksums(data, at, size)
        detail = f"stored {stored:08x}, computed {computed:08x} over {size} bytes of format {magic}"
        self.problems.append(Problem("crc", origin + at, base, detail))

    def _giant_or_damage(self, data: bytes, position: int) -> int:
        """Where to go on from a batch that `_walk` could not take; -1 if nothing more can be read.

        One that is larger than a block is read as a whole; of a block that only cuts it off nothing is wrong.
        """
        left = self.size_bytes - position
        if left >= HEAD_BYTES:
            _, length, _, magic, _ = _HEAD.unpack_from(data, 0)
            size = length + LOG_OVERHEAD
            if magic <= 2 and MIN_BYTES[magic] <= size <= left and len(data) < size:
                self._giant_bytes = size
                return position
        return self._damage(data, position, left)

    def _damage(self, data: bytes, position: int, left: int) -> int:
        base, length, _, magic, crc = _HEAD.unpack_from(data.ljust(_HEAD.size, b"\0"), 0)
        size = length + LOG_OVERHEAD
        if self._is_zero(position):
            if not self._is_last:
                self._note("torn-tail", position, -1, f"the file ends in {left} zeros")
            return -1
        if left > HEADER_BYTES and magic > 2 and MIN_BYTES[2] <= size <= left:
            whole = data if len(data) >= size else self._read(position, size)
            if crc32c(memoryview(whole)[21:size]) == crc or self._leads_on(whole, size, position):
                self._note("magic", position, base, f"magic {magic}")
                return position + int(size)
        found = self._next_sound(position + 1)
        if found < 0 and (left < HEAD_BYTES or magic <= 2 and size > left):
            self._note("torn-tail", position, base, f"{left} bytes are left of a batch{_of(size, left)}")
            return -1
        behind = f"the next sound batch is at {found}" if found >= 0 else "no sound batch follows"
        if magic > 2:
            self._note("magic", position, base, f"magic {magic}; {behind}")
        else:
            self._note("length", position, base, f"a length of {length} bytes, {left} are left; {behind}")
        return found

    def _note(self, kind: str, position: int, offset: int, detail: str) -> None:
        self._damages += 1
        self.problems.append(Problem(kind, position, offset, detail))

    def _is_zero(self, position: int) -> bool:
        """Whether nothing but zeros follows, as at the end of a file that was made large beforehand."""
        while position < self.size_bytes:
            data = self._read(position, BLOCK_BYTES)
            if data.count(0) != len(data):
                return False
            position += len(data)
        return True

    def _next_sound(self, position: int) -> int:
        """Where the next batch begins whose checksum is right; -1 if there is none."""
        while position < self.size_bytes:
            data = self._read(position, BLOCK_BYTES + HEADER_BYTES)
            for at in _candidates(data):
                left = self.size_bytes - position - at
                head = data[at : at + HEAD_BYTES]
                if len(head) == HEAD_BYTES and _looks_right(head, left):
                    size = _HEAD.unpack_from(head)[1] + LOG_OVERHEAD
                    whole = self._read(position + at, size)
                    if len(whole) == size and is_sound(whole, 0, size):
                        return position + at
            position += BLOCK_BYTES
        return -1


def is_sound(data: bytes | memoryview, at: int, size: int) -> bool:
    """Whether the checksum of the batch, or message, is right."""
    stored, computed = checksums(data, at, size)
    return stored == computed


def checksums(data: bytes | memoryview, at: int, size: int) -> tuple[int, int]:
    """(stored, computed): CRC-32C of all behind the checksum in format 2, CRC-32 in formats 0 and 1."""
    view = memoryview(data)
    if view[at + MAGIC_AT] < 2:
        return _OLD_CRC.unpack_from(data, at + 12)[0], crc32(view[at + 16 : at + size])
    return _OLD_CRC.unpack_from(data, at + 17)[0], crc32c(view[at + 21 : at + size])


def _of(size: int, left: int) -> str:
    return f" of {size}" if size > left else ""


def _looks_right(head: bytes, left: int) -> bool:
    base, length, _, magic, _ = _HEAD.unpack_from(head)
    return bool(magic <= 2 and MIN_BYTES[magic] <= length + LOG_OVERHEAD <= left and 0 <= base < MAX_OFFSET)


def _candidates(data: bytes) -> list[int]:
    """Where a batch could begin: a magic that is known behind an offset whose first bytes are zero."""
    bytes_ = np.frombuffer(data, np.uint8)
    count = len(bytes_) - HEAD_BYTES + 1
    if count <= 0:
        return []

    def at(place: int) -> npt.NDArray[np.uint8]:
        return bytes_[place : place + count]

    likely = (at(MAGIC_AT) <= 2) & (at(0) == 0) & (at(1) == 0)
    likely &= at(9) | at(10) | at(11) != 0  # the length: zero is what a file is full of that was made large beforehand
    found: list[int] = np.flatnonzero(likely).tolist()
    return found


def _block(data: bytes, origin: int, found: list[tuple[int, int, bool, int]]) -> Block:
    table = np.array(found, np.int64).reshape(-1, 4)
    return block_of(data, table[:, 0], table[:, 1], origin, table[:, 2].astype(np.bool_), table[:, 3])


def block_of(data: bytes, starts: Ints, sizes: Ints, origin: int, sound: Flags, damages: Ints) -> Block:
    """The columns of the batches from `starts` on."""
    padded = np.frombuffer(data[int(starts[0]) :] + bytes(HEADER_BYTES), np.uint8)
    rows = np.lib.stride_tricks.sliding_window_view(padded, HEADER_BYTES)[starts - starts[0]]
    fields = np.ascontiguousarray(rows).view(_FIELDS)[:, 0]

    def column(name: str) -> Ints:
        return fields[name].astype(np.int64)

    magic = column("magic")
    is_new = magic == 2

    def only_new(name: str, otherwise: Ints | int = -1) -> Ints:
        return np.where(is_new, column(name), otherwise)

    attributes = only_new("attributes", column("old_attributes") & np.where(magic == 0, COMPRESSION, 15))
    base = column("base_offset")
    is_wrapper = ~is_new & (attributes & COMPRESSION != 0)
    old_timestamp = np.where(magic == 1, column("old_timestamp"), -1)
    return Block(
        data=data,
        starts=starts,
        sizes=sizes,
        positions=starts + origin,
        sound=sound,
        damages=damages,
        magic=magic,
        attributes=attributes,
        first_offset=np.where(is_wrapper, -1, base),
        base_offset=base,
        last_offset=base + only_new("last_delta", 0),
        leader_epoch=only_new("leader_epoch"),
        base_timestamp=only_new("base_timestamp", old_timestamp),
        max_timestamp=only_new("max_timestamp", old_timestamp),
        producer_id=only_new("producer_id"),
        producer_epoch=only_new("producer_epoch"),
        base_sequence=only_new("base_sequence"),
        record_count=only_new("record_count", np.where(is_wrapper, -1, 1)),
    )
