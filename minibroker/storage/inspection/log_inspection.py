"""Reads a `.log` file to show people every batch and every damage. Behind damage it goes on with the next sound batch.

`batch_scanning.py` stops at the first invalid byte, but this goes on to the end of the file, by the protocol's
`walking.py`. `index_verification.py` compares the log with its indexes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from minibroker.protocol.records.batch import MAGIC, BatchHeader
from minibroker.protocol.records.walking import NO_LIMIT, FoundBatch, SkippedBytes, format_checksums
from minibroker.storage.checkpoints.checkpoint_texts import LEADER_EPOCH_CHECKPOINT
from minibroker.storage.checkpoints.leader_epochs import LeaderEpochs
from minibroker.storage.files import File
from minibroker.storage.inspection.file_walking import make_batch_walker
from minibroker.storage.segment_indexes import MAX_RELATIVE_OFFSET


class DamagedBytes(NamedTuple):
    """Invalid bytes: where they are, what was expected and what was found.

    `size_bytes` were skipped, 0 if the damaged part could be read nevertheless; `offset` is that of the first record
    concerned, None if it is unknown.
    """

    path: str
    position: int
    size_bytes: int
    offset: int | None
    expected: str
    found: str


class InspectionNote(NamedTuple):
    """A remark that is not about damage."""

    path: str
    position: int
    offset: int | None
    text: str


InspectionFinding = FoundBatch | InspectionNote | DamagedBytes


class LogInspection:
    """A `.log` file from its start to its end.

    `base_offset` is the segment's (None if the file's name has none), `end_offset` the next segment's (None if there is
    none), `known` the (last offset, position) of batches in the index, ascending; wrong entries do no harm. `epochs`
    are the leader epochs that the batches should have; without them, the epochs must only not decrease.
    """

    def __init__(
        self,
        file: File,
        *,
        base_offset: int | None = None,
        end_offset: int | None = None,
        known: Iterable[tuple[int, int]] = (),
        epochs: LeaderEpochs | None = None,
    ) -> None:
        self._path = file.path
        limit = NO_LIMIT if base_offset is None else base_offset + MAX_RELATIVE_OFFSET + 1
        self._walker = make_batch_walker(
            file,
            file.size_bytes(),
            next_offset=0 if base_offset is None else base_offset,
            limit=limit if end_offset is None else min(limit, end_offset),
            indexed_batches=known,
        )
        self._epochs = epochs or LeaderEpochs()
        self._epoch = -1
        self._is_certain = base_offset is not None  # the next offset is known, not only bounded from below

    def iterate_findings(self) -> Iterator[InspectionFinding]:
        """Yield all batches, in the order of their positions, with notes and damage. Raises `OSError`."""
        position, walker = 0, self._walker
        while position < walker.size_bytes:
            step = walker.read_batch_or_damage_at(position)
            if isinstance(step, SkippedBytes):
                self._is_certain = False
                yield DamagedBytes(self._path, position, step.size_bytes, walker.next_offset, step.expected, step.found)
                position += step.size_bytes
                continue
            judged = list(self._check_batch(step))
            yield step._replace(is_credible=not any(isinstance(each, DamagedBytes) for each in judged))
            yield from judged
            position += step.header.size_bytes

    def _check_batch(self, batch: FoundBatch) -> Iterator[InspectionNote | DamagedBytes]:
        """Yield what is wrong with a batch, and set the offset that must follow it."""
        header, expected = batch.header, self._walker.next_offset
        if not batch.is_sound:
            self._is_certain = False
            yield self._make_batch_damage(batch, expected, *format_checksums(batch))
            return
        following = self._read_following_header(batch) if header.magic == MAGIC else None
        if self._has_contradicting_offset(header, following):
            self._is_certain = False
            first, last = header.base_offset, header.last_offset
            what = f"offsets {first} to {last}" if header.magic == MAGIC else f"offset {first}"
            yield self._make_batch_damage(batch, expected, self._describe_expected_offsets(), what)
            return
        if self._is_certain and header.base_offset > expected and header.magic == MAGIC:
            text = f"no offsets {expected} to {header.base_offset - 1}, as compaction leaves it"
            yield InspectionNote(self._path, batch.position, expected, text)
        self._walker.next_offset = header.next_offset
        self._is_certain = True
        if header.magic == MAGIC:
            yield from self._check_leader_epoch(batch, following)

    def _has_contradicting_offset(self, header: BatchHeader, next_header: BatchHeader | None) -> bool:
        """Return whether the base offset, which no checksum covers, contradicts the batch before or behind."""
        if header.last_offset_delta < 0 or not self._walker.has_valid_offsets(header):
            return True
        expected = self._walker.next_offset
        gap = header.base_offset > expected
        return gap and next_header is not None and expected <= next_header.base_offset <= header.last_offset

    def _check_leader_epoch(self, batch: FoundBatch, next_header: BatchHeader | None) -> Iterator[DamagedBytes]:
        """Yield the damage if the leader epoch, which no checksum covers, is wrong."""
        epoch, offset = batch.header.partition_leader_epoch, batch.header.base_offset
        expected = self._describe_expected_epoch(offset, epoch, next_header)
        if expected:
            yield self._make_batch_damage(batch, offset, expected, f"{epoch}")
        else:
            self._epoch = epoch

    def _describe_expected_epoch(self, offset: int, epoch: int, next_header: BatchHeader | None) -> str | None:
        """Return what the epoch should be, None if it may be right."""
        known = self._epochs.find_epoch_at(offset)
        if known >= 0:
            return None if epoch == known else f"leader epoch {known}, which {LEADER_EPOCH_CHECKPOINT} says"
        if next_header is not None and self._epoch <= next_header.partition_leader_epoch < epoch:
            return f"a leader epoch from {self._epoch} to {next_header.partition_leader_epoch}"
        return f"a leader epoch of at least {self._epoch}" if epoch < self._epoch else None

    def _read_following_header(self, batch: FoundBatch) -> BatchHeader | None:
        """Return the header behind the batch, None unless it is a plausible one of format 2."""
        header = self._walker.read_header_at(batch.position + batch.header.size_bytes)
        return header if header is not None and header.magic == MAGIC else None

    def _make_batch_damage(self, batch: FoundBatch, offset: int, expected: str, problem: str) -> DamagedBytes:
        return DamagedBytes(self._path, batch.position, 0, offset, expected, problem)

    def _describe_expected_offsets(self) -> str:
        limit = "" if self._walker.limit == NO_LIMIT else f" and below {self._walker.limit}"
        return f"offsets from {self._walker.next_offset} on{limit}"
