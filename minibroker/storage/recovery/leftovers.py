"""What a crash may leave in a log's directory between two steps and of its last write, and how each is settled.

The rules for files are Kafka's (LogLoader), so that a directory left by either broker is settled the same way. A crash
tears the end of a log: a batch is shorter than it says, or sectors of it were never written and are read as zeros.
Anything else was whole once: a batch with a wrong byte in it, or one that has a sound batch behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from minibroker.protocol.records.batch import CRC_START, HEADER_BYTES, read_header
from minibroker.protocol.records.crc import crc32c
from minibroker.storage.batch_scanning import spans
from minibroker.storage.files import Disk, File
from minibroker.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    offset_in,
    offsets_with,
    segment_name,
)

logger = logging.getLogger(__name__)

SECTOR_BYTES = 512


def settle(disk: Disk, directory: str) -> list[str]:
    """Finish or undo what was interrupted; the names that are in the directory then. Raises `OSError`, `CorruptBatch`.

    `.deleted`, `.cleaned` and temporary files are removed. A `.swap` file is whole, and replaces the segments whose
    offsets it covers, unless a `.cleaned` file of the same or an earlier offset shows that its group was not whole.
    Indexes without their `.log` file are removed.
    """
    names = disk.names(directory)
    if any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX, SWAP_SUFFIX)) for name in names):
        _remove_unfinished(disk, directory, names)
        _complete_swaps(disk, directory, disk.names(directory))
        names = disk.names(directory)
    orphans = _orphans(names)
    for name in orphans:
        logger.warning("%s/%s is removed: there is no log file beside it", directory, name)
        disk.remove(f"{directory}/{name}")
    return [name for name in names if name not in orphans] if orphans else names


def _remove_unfinished(disk: Disk, directory: str, names: Sequence[str]) -> None:
    cleaned = [offset for name in names if name.endswith(CLEANED_SUFFIX) and (offset := offset_in(name)) is not None]
    for name in names:
        offset = offset_in(name)
        half_cleaned = name.endswith(SWAP_SUFFIX) and cleaned and offset is not None and offset >= min(cleaned)
        if half_cleaned or name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)):
            disk.remove(f"{directory}/{name}")


def _complete_swaps(disk: Disk, directory: str, names: Sequence[str]) -> None:
    """First the originals go, then the new files get their names: a crash between leaves what this settles again."""
    for base_offset in offsets_with(names, LOG_SUFFIX + SWAP_SUFFIX):
        file = disk.open(f"{directory}/{segment_name(base_offset)}{LOG_SUFFIX}{SWAP_SUFFIX}")
        end_offset = base_offset + 1  # the file may hold no batch, and still replaces the one of its name
        for _, _, _, last_offset in spans(file, 0, file.size_bytes()):
            end_offset = last_offset + 1
        for name in names:
            offset = offset_in(name)
            original = name[len(segment_name(0)) :] in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)
            if original and offset is not None and base_offset <= offset < end_offset:
                disk.remove(f"{directory}/{name}")
    for name in names:
        if name.endswith(SWAP_SUFFIX):
            disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")


def _orphans(names: Sequence[str]) -> set[str]:
    logs = set(offsets_with(names, LOG_SUFFIX))
    return {
        segment_name(offset) + suffix
        for suffix in SEGMENT_SUFFIXES[1:]
        for offset in offsets_with(names, suffix)
        if offset not in logs
    }


def damage_behind(file: File, position: int, end: int) -> str | None:
    """Why the bytes from `position` to `end`, which begin with no sound batch, are no torn write; None if they are one.

    Raises `OSError`.
    """
    from minibroker.protocol.records.walking import next_sound_batch  # most starts need none of it

    data = file.read(position, end - position)
    behind = next_sound_batch(data, 1)
    if behind is not None:
        return f"behind it there is a sound batch at {position + behind}"
    if len(data) < HEADER_BYTES or not any(data[:HEADER_BYTES]):
        return None
    header = read_header(data)
    if crc32c(data[CRC_START:]) == header.crc:
        return "it is whole but for its length"
    whole = HEADER_BYTES <= header.size_bytes <= len(data)
    return "it is as long as it says" if whole and not _has_blank_sector(position, data[: header.size_bytes]) else None


def _has_blank_sector(position: int, batch: bytes) -> bool:
    """Whether a sector of the file has only zeros where the batch lies in it."""
    starts = range(-(position % SECTOR_BYTES), len(batch), SECTOR_BYTES)
    return any(not any(batch[max(start, 0) : start + SECTOR_BYTES]) for start in starts)
