"""Finds records that an old format must not get: those of transactions that were aborted or never ended.

Format 2 keeps them with their markers, and does not need this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import NamedTuple

from minibroker.pipeline.decode.aborted import AbortedRanges
from minibroker.protocol.errors import CorruptBatch
from minibroker.storage.batch_scanning import iterate_headers
from minibroker.storage.files import Disk
from minibroker.storage.names import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, make_segment_name
from minibroker.storage.producers.aborted_transactions import (
    AbortedTransaction,
    decode_transactions,
)


class Survey(NamedTuple):
    """The transactions in the batches of one segment.

    By producer: `first` is the first offset of its transactional batches, `ended` the offset of its last marker, and
    `open` the first offset of transactional batches after that marker.
    """

    base_offset: int
    first: dict[int, int]
    ended: dict[int, int]
    open: dict[int, int]

    @property
    def has_transactions(self) -> bool:
        """Whether there is a transactional batch or a marker."""
        return bool(self.first or self.ended)


def survey_segment(disk: Disk, directory: str, base_offset: int, *, is_torn: bool = False) -> Survey:
    """Read the headers of a segment, up to the first invalid one if it may be torn."""
    found = Survey(base_offset, {}, {}, {})
    with closing(disk.open_to_read(f"{directory}/{make_segment_name(base_offset)}{LOG_SUFFIX}")) as file:
        try:
            for _, header in iterate_headers(file, 0, file.size_bytes()):
                if not header.is_transactional or header.producer_id < 0:
                    continue
                if header.is_control:
                    found.ended[header.producer_id] = header.base_offset
                    found.open.pop(header.producer_id, None)
                else:
                    found.first.setdefault(header.producer_id, header.base_offset)
                    found.open.setdefault(header.producer_id, header.base_offset)
        except CorruptBatch:
            if not is_torn:
                raise
    return found


def open_transactions(surveys: Iterable[Survey]) -> dict[int, int]:
    """Return the first offset of each transaction without an end in a log, by producer id."""
    found: dict[int, int] = {}
    for each in sorted(surveys, key=lambda survey: survey.base_offset):
        for producer_id, offset in each.first.items():
            found.setdefault(producer_id, offset)
        for producer_id in each.ended:
            found.pop(producer_id, None)
        found.update({producer_id: offset for producer_id, offset in each.open.items() if producer_id not in found})
    return found


def read_aborted_ranges(
    disk: Disk, directory: str, base_offsets: Iterable[int], open: Mapping[int, int]
) -> AbortedRanges:
    """Return the aborted transactions of a log, by its indexes, and the open ones. Raises `CorruptIndex`, `OSError`."""
    found = AbortedRanges(each[:3] for each in read_indexed_transactions(disk, directory, base_offsets))
    for producer_id, first_offset in open.items():
        found.add(producer_id, first_offset)
    return found


def read_content(disk: Disk, path: str) -> bytes:
    """Return a small file, which need not be writable. Raises `OSError`."""
    with closing(disk.open_to_read(path)) as file:
        return file.read(0, file.size_bytes())


def read_indexed_transactions(disk: Disk, directory: str, base_offsets: Iterable[int]) -> list[AbortedTransaction]:
    """Return the aborted transactions in the indexes of these segments. Raises `CorruptIndex`, `OSError`."""
    found: list[AbortedTransaction] = []
    for base_offset in base_offsets:
        path = f"{directory}/{make_segment_name(base_offset)}{TRANSACTION_INDEX_SUFFIX}"
        if disk.exists(path):
            found += decode_transactions(read_content(disk, path))
    return sorted(found, key=lambda transaction: transaction.last_offset)
