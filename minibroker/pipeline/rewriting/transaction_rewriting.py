"""Finds records that an old format must not get: those of transactions that were aborted or never ended.

Format 2 keeps them with their markers, and does not need this.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import BatchHeader
from minibroker.storage.batch_scanning import headers
from minibroker.storage.files import Disk
from minibroker.storage.names import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_name
from minibroker.storage.producers.aborted_transactions import (
    AbortedTransaction,
    transactions_from_bytes,
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


def survey(disk: Disk, directory: str, base_offset: int, *, is_torn: bool = False) -> Survey:
    """Read the headers of a segment, up to the first invalid one if it may be torn."""
    found = Survey(base_offset, {}, {}, {})
    with closing(disk.open_to_read(f"{directory}/{segment_name(base_offset)}{LOG_SUFFIX}")) as file:
        try:
            for _, header in headers(file, 0, file.size_bytes()):
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


@dataclass(frozen=True)
class Uncommitted:
    """The uncommitted transactions of a log: aborted ones by producer, in the order of their ends, and open ones."""

    aborted: Mapping[int, Sequence[AbortedTransaction]] = field(default_factory=dict)
    open: Mapping[int, int] = field(default_factory=dict)

    def has(self, header: BatchHeader) -> bool:
        """Return whether the transactional batch with this header is part of one of them."""
        if header.base_offset >= self.open.get(header.producer_id, header.base_offset + 1):
            return True
        of_producer = self.aborted.get(header.producer_id, ())
        at = bisect_left(of_producer, header.base_offset, key=lambda transaction: transaction.last_offset)
        return at < len(of_producer) and of_producer[at].first_offset <= header.base_offset


def uncommitted(disk: Disk, directory: str, base_offsets: Iterable[int], open: Mapping[int, int]) -> Uncommitted:
    """Return the aborted transactions of a log, by its indexes, and the open ones. Raises `CorruptIndex`, `OSError`."""
    aborted: dict[int, list[AbortedTransaction]] = {}
    for transaction in indexed(disk, directory, base_offsets):
        aborted.setdefault(transaction.producer_id, []).append(transaction)
    return Uncommitted(aborted, open)


def content(disk: Disk, path: str) -> bytes:
    """Return a small file, which need not be writable. Raises `OSError`."""
    with closing(disk.open_to_read(path)) as file:
        return file.read(0, file.size_bytes())


def indexed(disk: Disk, directory: str, base_offsets: Iterable[int]) -> list[AbortedTransaction]:
    """Return the aborted transactions in the indexes of these segments. Raises `CorruptIndex`, `OSError`."""
    found: list[AbortedTransaction] = []
    for base_offset in base_offsets:
        path = f"{directory}/{segment_name(base_offset)}{TRANSACTION_INDEX_SUFFIX}"
        if disk.exists(path):
            found += transactions_from_bytes(content(disk, path))
    return sorted(found, key=lambda transaction: transaction.last_offset)
