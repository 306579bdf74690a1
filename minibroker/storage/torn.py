"""Whether what lies behind the sound batches of a log is what a crash has left of the last write, or damage.

A crash tears the end: a batch is shorter than it says, or sectors of it were never written and are read as zeros.
Anything else was whole once: a batch with a wrong byte in it, or one that has a sound batch behind it.
"""

from __future__ import annotations

from minibroker.protocol.records.batch import CRC_START, HEADER_BYTES, read_header
from minibroker.protocol.records.crc import crc32c
from minibroker.protocol.records.walking import next_sound_batch
from minibroker.storage.files import File

SECTOR_BYTES = 512


def damage_behind(file: File, position: int, end: int) -> str | None:
    """Why the bytes from `position` to `end`, which begin with no sound batch, are no torn write; None if they are one.

    Raises `OSError`.
    """
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
