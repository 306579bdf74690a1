"""Cleans up what a crash has left in a log's directory: unfinished steps, and a torn last write.

The rules for files are Kafka's (LogLoader), so that the directories of both brokers are treated the same way. A crash
tears the end of a log: a batch is shorter than its header says, or contains sectors of zeros that were never written.
Anything else is damage: a batch with a wrong byte, or one with a sound batch behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from minibroker.protocol.records.batch import CRC_START, HEADER_BYTES, read_header
from minibroker.protocol.records.crc import crc32c
from minibroker.storage.batch_scanning import iterate_batch_spans
from minibroker.storage.files import Disk, File
from minibroker.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    list_offsets_with_suffix,
    make_segment_name,
    parse_base_offset,
)

logger = logging.getLogger(__name__)

SECTOR_BYTES = 512


def finish_or_undo_file_swaps(disk: Disk, directory: str) -> list[str]:
    """Finish or undo interrupted swaps of files. Return the names that are left. Raises `OSError`, `CorruptBatch`.

    `.deleted`, `.cleaned` and temporary files are removed. A `.swap` file is complete, and replaces the segments whose
    offsets it covers, unless a `.cleaned` file of the same or an earlier offset shows that its group was incomplete.
    Indexes without their `.log` file are removed.
    """
    names = disk.list_names(directory)
    if any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX, SWAP_SUFFIX)) for name in names):
        _remove_unfinished_files(disk, directory, names)
        _complete_segment_swaps(disk, directory, disk.list_names(directory))
        names = disk.list_names(directory)
    orphans = _find_indexes_without_log(names)
    for name in orphans:
        logger.warning("%s/%s is removed: there is no log file beside it", directory, name)
        disk.remove(f"{directory}/{name}")
    return [name for name in names if name not in orphans] if orphans else names


def _remove_unfinished_files(disk: Disk, directory: str, names: Sequence[str]) -> None:
    """Remove `.deleted`, `.cleaned` and temporary files, and `.swap` files of an incomplete group."""
    cleaned = [
        offset for name in names if name.endswith(CLEANED_SUFFIX) and (offset := parse_base_offset(name)) is not None
    ]
    for name in names:
        offset = parse_base_offset(name)
        half_cleaned = name.endswith(SWAP_SUFFIX) and cleaned and offset is not None and offset >= min(cleaned)
        if half_cleaned or name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)):
            disk.remove(f"{directory}/{name}")


def _complete_segment_swaps(disk: Disk, directory: str, names: Sequence[str]) -> None:
    """Remove the originals, then rename the new files. After another crash in between, this is done again."""
    for base_offset in list_offsets_with_suffix(names, LOG_SUFFIX + SWAP_SUFFIX):
        file = disk.open(f"{directory}/{make_segment_name(base_offset)}{LOG_SUFFIX}{SWAP_SUFFIX}")
        end_offset = base_offset + 1  # even without batches, the file replaces the original of its name
        for _, _, _, last_offset in iterate_batch_spans(file, 0, file.size_bytes()):
            end_offset = last_offset + 1
        for name in names:
            offset = parse_base_offset(name)
            original = name[len(make_segment_name(0)) :] in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)
            if original and offset is not None and base_offset <= offset < end_offset:
                disk.remove(f"{directory}/{name}")
    for name in names:
        if name.endswith(SWAP_SUFFIX):
            disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")


def _find_indexes_without_log(names: Sequence[str]) -> set[str]:
    logs = set(list_offsets_with_suffix(names, LOG_SUFFIX))
    return {
        make_segment_name(offset) + suffix
        for suffix in SEGMENT_SUFFIXES[1:]
        for offset in list_offsets_with_suffix(names, suffix)
        if offset not in logs
    }


def find_damage_beyond_torn_write(file: File, position: int, end: int) -> str | None:
    """Return why the unsound bytes from `position` to `end` are damage, None if they are a torn write.

    Raises `OSError`.
    """
    from minibroker.protocol.records.walking import find_next_sound_batch  # here, as most starts do not need it

    data = file.read(position, end - position)
    behind = find_next_sound_batch(data, 1)
    if behind is not None:
        return f"behind it there is a sound batch at {position + behind}"
    if len(data) < HEADER_BYTES or not any(data[:HEADER_BYTES]):
        return None
    header = read_header(data)
    if crc32c(data[CRC_START:]) == header.crc:
        return "only its length is wrong"
    whole = HEADER_BYTES <= header.size_bytes <= len(data)
    if whole and not _has_blank_sector(position, data[: header.size_bytes]):
        return "its length is right, but not its checksum"
    return None


def _has_blank_sector(position: int, batch: bytes) -> bool:
    """Return whether the part of the batch in one sector of the disk has only zeros."""
    starts = range(-(position % SECTOR_BYTES), len(batch), SECTOR_BYTES)
    return any(not any(batch[max(start, 0) : start + SECTOR_BYTES]) for start in starts)
