"""Reads the stretches of a split, block by block, into the rows of a table.

First it checks that they still are where the plan says. `log_walking.py` passes damage that hides the next batch;
`minibroker.pipeline.decode` handles damage within a batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing

import pyarrow as pa

from minibroker.pipeline.decode.batch_headers import DataOrigin
from minibroker.pipeline.decode.decoder import AbortedRanges, make_decoder
from minibroker.pipeline.decode.gathering import BatchDamage
from minibroker.pipeline.directory.log_walking import (
    BLOCK_BYTES,
    BatchBlock,
    Checksums,
    FileShortened,
    iterate_blocks_or_damage,
)
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.directory.splitting import BatchStretch, SplitStretches
from minibroker.pipeline.log_source import DataLoss, OffsetRange, ReadRequest, Split
from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import BatchHeader
from minibroker.protocol.records.walking import SkippedBytes
from minibroker.storage.batch_scanning import iterate_headers
from minibroker.storage.files import File
from minibroker.storage.inspection.file_walking import make_batch_walker
from minibroker.storage.segment_indexes import MAX_RELATIVE_OFFSET

logger = logging.getLogger(__name__)

FindStretches = Callable[[OffsetRange], list[BatchStretch]]


class SplitReader:
    """The rows of one split. `find` returns where offsets are now, if they are no longer where the plan says."""

    def __init__(
        self, split: Split, request: ReadRequest, find_stretches: FindStretches, block_bytes: int = BLOCK_BYTES
    ) -> None:
        assert isinstance(split.place, SplitStretches)
        self._split = split
        self._place = split.place
        self._request = request
        self._find = find_stretches
        self._block_bytes = block_bytes
        self._aborted = None if split.place.aborted is None else AbortedRanges(split.place.aborted)
        self._decoder = make_decoder(self._request, self._split.offsets, self._aborted)
        self._next_offset = split.offsets.start  # offsets before were decoded

    def read_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Raises `DataLoss`, `CorruptData`, `OSError`."""
        for stretch in self._place.stretches:
            yield from self._read_stretch(stretch)
        yield from self._decoder.decode_remaining_batches()

    def _read_stretch(self, stretch: BatchStretch) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._read_planned_stretch(stretch)
        except DataLoss as loss:
            if self._request.fail_on_data_loss:
                raise
            logger.warning("%s; reading what is left", loss)
            rest = OffsetRange(self._split.offsets.partition, max(stretch.start, self._next_offset), stretch.end)
            for each in self._find(rest):
                try:
                    yield from self._read_planned_stretch(each)
                except DataLoss as again:  # it was just found, and is gone again
                    logger.warning("%s", again)

    def _read_planned_stretch(self, stretch: BatchStretch) -> Iterator[pa.RecordBatch]:
        with closing(_open_file(stretch)) as file:
            yield from self._decode_blocks(file, stretch)

    def _decode_blocks(self, file: File, stretch: BatchStretch) -> Iterator[pa.RecordBatch]:
        limit = stretch.start + MAX_RELATIVE_OFFSET + 1  # a segment cannot name a later offset
        walker = make_batch_walker(file, stretch.end_position, next_offset=stretch.start, limit=limit)
        self._next_offset = max(self._next_offset, stretch.start)
        try:
            for step in iterate_blocks_or_damage(file, walker, stretch.position, Checksums.LAST, self._block_bytes):
                if isinstance(step, BatchBlock):
                    yield from self._decoder.decode_batches(step.data, step.headers, DataOrigin(file.path, step.origin))
                    self._next_offset = max(self._next_offset, int(step.headers.last_offset[-1]) + 1)
                else:
                    yield from self._yield_damaged_range(step, file.path)
        except FileShortened as error:
            raise DataLoss(str(error)) from None

    def _yield_damaged_range(self, damage: SkippedBytes, path: str) -> Iterator[pa.RecordBatch]:
        reason = f"expected {damage.expected}, found {damage.found}"
        if self._request.mode == "PERMISSIVE":
            yield from self._decoder.decode_remaining_batches()
            self._decoder = make_decoder(self._request, self._split.offsets, self._aborted)
            reason += f"; {damage.size_bytes} bytes are skipped"
        place = DataOrigin(path, damage.position)
        yield from self._decoder.report_damage(BatchDamage(self._next_offset, reason, place, position=0))


def _open_file(stretch: BatchStretch) -> File:
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


def _get_planned_path(stretch: BatchStretch) -> str:
    return (
        f"{stretch.path}: offsets {stretch.start} to {stretch.end - 1} were from {stretch.position} to "
        f"{stretch.end_position} when the read was planned"
    )


def _is_unchanged(file: File, stretch: BatchStretch) -> bool:
    """Return whether the first and the last batch still begin and end at the same positions, with the same offsets.

    If both were damaged, it must be the same file, and it must not have been written to.
    """
    if stretch.first_offset is None and stretch.last_position is None:
        try:
            return DISK.get_size_and_modified_ns(stretch.path) == (stretch.size_bytes, stretch.modified_ns)
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
