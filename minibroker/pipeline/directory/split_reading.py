"""Reads the stretches of a split, block by block, into the rows of a table.

First it checks that they still are where the plan says. Damage that hides the next batch is skipped here; damage within
a batch is handled in `minibroker.pipeline.decode`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing

import pyarrow as pa

from minibroker.pipeline.decode import chunk as decode_chunk
from minibroker.pipeline.decode.batch_headers import Place, may_be_whole, scan_headers
from minibroker.pipeline.decode.decoder import AbortedRanges, make_decoder
from minibroker.pipeline.directory.batch_walking import describe_damage_at
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.directory.splitting import Stretch, Stretches
from minibroker.pipeline.log_source import DataLoss, OffsetRange, ReadRequest, Split
from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader
from minibroker.protocol.records.formats import check_any, read_header_at
from minibroker.protocol.records.message import MAGIC_POSITION
from minibroker.storage.batch_scanning import iterate_headers
from minibroker.storage.files import File
from minibroker.storage.inspection.log_inspection import Damage

logger = logging.getLogger(__name__)

BLOCK_BYTES = 4 << 20

Find = Callable[[OffsetRange], list[Stretch]]


class SplitReader:
    """The rows of one split. `find` returns where offsets are now, if they are no longer where the plan says."""

    def __init__(self, split: Split, request: ReadRequest, find: Find, block_bytes: int = BLOCK_BYTES) -> None:
        assert isinstance(split.place, Stretches)
        self._split = split
        self._place = split.place
        self._request = request
        self._find = find
        self._block_bytes = max(block_bytes, HEADER_BYTES)  # a block must show the size of its first batch
        self._aborted = None if split.place.aborted is None else AbortedRanges(split.place.aborted)
        self._decoder = make_decoder(self._request, self._split.offsets, self._aborted)
        self._next_offset = split.offsets.start  # offsets before were decoded

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Raises `DataLoss`, `CorruptData`, `OSError`."""
        for stretch in self._place.stretches:
            yield from self._read_stretch(stretch)
        yield from self._decoder.finish()

    def _read_stretch(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._read_as_planned(stretch)
        except DataLoss as loss:
            if self._request.fail_on_data_loss:
                raise
            logger.warning("%s; reading what is left", loss)
            rest = OffsetRange(self._split.offsets.partition, max(stretch.start, self._next_offset), stretch.end)
            for each in self._find(rest):
                try:
                    yield from self._read_as_planned(each)
                except DataLoss as again:  # it was just found, and is gone again
                    logger.warning("%s", again)

    def _read_as_planned(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        with closing(_open_file(stretch)) as file:
            yield from self._decode_blocks(file, stretch)

    def _decode_blocks(self, file: File, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        position, end = stretch.position, stretch.end_position
        self._next_offset = max(self._next_offset, stretch.start)
        while position < end:
            data = self._read_block(file, position, end)
            whole, next_offset, is_damaged = _measure_whole(data, end - position)
            if whole:
                yield from self._decoder.feed(memoryview(data)[:whole], file.path, position)
                self._next_offset = max(self._next_offset, next_offset)
                position += whole
            if is_damaged:
                damage = describe_damage_at(file, position, end, self._next_offset, stretch.start)
                yield from self._yield_damage(damage)
                position += damage.size_bytes

    def _read_block(self, file: File, position: int, end: int) -> bytes:
        """Return a block at `position`, or more, so that it has the first batch and the header that follows."""
        size = min(self._block_bytes, end - position)
        data = _read_exactly(file, position, size)
        if size < end - position:
            batch_bytes = LOG_OVERHEAD_BYTES + int.from_bytes(data[8:LOG_OVERHEAD_BYTES], signed=True)
            wanted = min(batch_bytes + HEADER_BYTES, end - position)
            if batch_bytes <= end - position and size < wanted:
                data += _read_exactly(file, position + size, wanted - size)
        return data

    def _yield_damage(self, damage: Damage) -> Iterator[pa.RecordBatch]:
        reason = f"expected {damage.expected}, found {damage.found}"
        if self._request.mode == "PERMISSIVE":
            yield from self._decoder.finish()
            self._decoder = make_decoder(self._request, self._split.offsets, self._aborted)
            reason += f"; {damage.size_bytes} bytes are skipped"
        assert damage.offset is not None
        place = Place(damage.path, damage.position)
        yield from self._decoder.damaged(decode_chunk.Damage(damage.offset, reason, place, position=0))


def _open_file(stretch: Stretch) -> File:
    """Open the file if the stretch is unchanged. Raises `DataLoss`."""
    try:
        file = DISK.open_to_read(stretch.path)
    except FileNotFoundError:
        raise DataLoss(f"{_get_planned_path(stretch)}, and the file is gone") from None
    size = file.size_bytes()
    if size < stretch.end_position:
        file.close()
        raise DataLoss(f"{_get_planned_path(stretch)}, and the file has {size} bytes now")
    if not _is_unchanged(file, stretch):
        file.close()
        raise DataLoss(f"{_get_planned_path(stretch)}, and other batches are there now")
    return file


def _get_planned_path(stretch: Stretch) -> str:
    return (
        f"{stretch.path}: offsets {stretch.start} to {stretch.end - 1} were from {stretch.position} to "
        f"{stretch.end_position} when the read was planned"
    )


def _is_unchanged(file: File, stretch: Stretch) -> bool:
    """Return whether the first and the last batch still begin and end at the same positions, with the same offsets.

    If both were damaged, it must be the same file, and it must not have been written to.
    """
    if stretch.first_offset is None and stretch.last_position is None:
        try:
            return DISK.stamp(stretch.path) == (stretch.size_bytes, stretch.modified_ns)
        except FileNotFoundError:
            return False
    if stretch.first_offset is not None:
        first = _read_header(file, stretch.position, stretch.end_position)
        if first is None or first.base_offset != stretch.first_offset:
            return False
    if stretch.last_position is None:
        return True
    last = _read_header(file, stretch.last_position, stretch.end_position)
    return (
        last is not None
        and last.next_offset == stretch.next_offset
        and stretch.last_position + last.size_bytes == stretch.end_position
    )


def _read_header(file: File, position: int, end: int) -> BatchHeader | None:
    try:
        return next((header for _, header in iterate_headers(file, position, end)), None)
    except CorruptBatch:
        return None


def _read_exactly(file: File, position: int, size: int) -> bytes:
    data = file.read(position, size)
    if len(data) < size:
        raise DataLoss(f"{file.path}: it now ends at {position + len(data)}")
    return data


def _measure_whole(data: bytes, left: int) -> tuple[int, int, bool]:
    """Return (size of the whole batches at the start of `data`, next offset, whether damage follows) of `left` bytes.

    If the last of these batches has a wrong checksum, the damage begins with it: its length was wrong. So a batch is
    returned only when the bytes behind it are known.
    """
    view, size = memoryview(data), len(data)
    found = scan_headers(view)
    end, (before, start) = found.end, ([0, 0] + found.positions)[-2:]
    is_seen = size - end > MAGIC_POSITION
    is_damaged = end < left and (left == size or (is_seen and not may_be_whole(view, end, left - end)))
    is_unseen = end < left and not is_seen and not is_damaged
    if start and (is_unseen or (is_damaged and not _is_sound(data, start))):
        return start, _next_offset(data, before), is_damaged
    if is_damaged and end and not _is_sound(data, start):
        return 0, 0, True
    return end, _next_offset(data, start) if end else 0, is_damaged


def _next_offset(data: bytes, position: int) -> int:
    return read_header_at(data, position).next_offset


def _is_sound(data: bytes, position: int) -> bool:
    try:
        check_any(data, position)
    except CorruptBatch:
        return False
    return True
