"""Checks one segment, in one task. Its batches are read once, in blocks, by all chosen checks.

In the cleaned part of a log, which `cleaner-offset-checkpoint` names, each key occurs once, and no record lacks a key;
`verify_job` compares the keys of all segments. `partition_checks.py` checks what else spans segments, from a small
summary of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from minibroker.pipeline.array_types import Bools, Int64s
from minibroker.pipeline.verifying.findings import Finding, Findings, Problem
from minibroker.pipeline.verifying.index_checks import OffsetIndexCheck, TimeIndexCheck
from minibroker.pipeline.verifying.log_blocks import EpochRun, LogBlock, LogFileReader, OffsetCheck, SegmentOffsets
from minibroker.pipeline.verifying.log_files import PartitionPlan, SegmentPlan
from minibroker.pipeline.verifying.producer_checks import (
    ProducerCheck,
    ProducerEvent,
    SegmentTransactions,
    read_transaction_index,
    read_transaction_marker,
)
from minibroker.pipeline.verifying.record_checks import (
    CheckedBlock,
    RecordsOfBlock,
    UnreadableRecords,
    check_old_messages,
    check_records,
)
from minibroker.protocol.records.batch import DELETE_HORIZON_BIT, MAGIC, MAX_SEQUENCE
from minibroker.storage.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX

KEYS = pa.schema([("key", pa.binary()), ("offset", pa.int64()), ("file", pa.string()), ("position", pa.int64())])


def find_wrong_cleaned_records(
    block: LogBlock, records: RecordsOfBlock, start_offset: int, clean_offset: int
) -> Iterator[Problem]:
    """Yield records without a key, and tombstones without a delete horizon, one for each batch."""
    cleaned = _find_cleaned_records(block, records, start_offset, clean_offset)
    for row in np.flatnonzero(cleaned & (records.key_size < 0)).tolist():
        batch = int(records.batch[row])
        yield Problem("keyless-record", int(block.positions[batch]), int(records.offset[row]), "the record has no key")
    headers = block.headers
    is_cleaned_batch = (headers.magic == MAGIC) & (headers.last_offset < clean_offset)
    is_old = is_cleaned_batch & (headers.attributes & DELETE_HORIZON_BIT == 0)
    tombstones = cleaned & (records.key_size >= 0) & ~records.has_value & is_old[records.batch]
    for batch in np.unique(records.batch[tombstones]).tolist():
        yield block.make_problem("tombstone-horizon", batch, f"cleaned up to {clean_offset}, no delete horizon")


def _find_cleaned_records(block: LogBlock, records: RecordsOfBlock, start_offset: int, clean_offset: int) -> Bools:
    """Return which records have offsets that the log cleaner has passed, and are no markers."""
    in_range = (records.offset >= start_offset) & (records.offset < clean_offset)
    cleaned: Bools = in_range & ~block.headers.is_control[records.batch]
    return cleaned


@dataclass
class SegmentSummary:
    """The part of a segment's check that is kept. Its size depends on the number of producers, not of batches."""

    base_offset: int
    offsets: SegmentOffsets
    runs: list[EpochRun]
    producers: ProducerCheck
    transactions: SegmentTransactions
    damages: int
    file: str


@dataclass(frozen=True)
class RemovedSegment:
    """In place of the summary of a segment that a running broker has removed: nothing is known of it."""

    base_offset: int


CheckedSegment = tuple[list[Finding], SegmentSummary | RemovedSegment]


def check_segment(plan: SegmentPlan) -> CheckedSegment:
    """Check a segment by itself. Return its findings and its summary. Raises `OSError`."""
    try:
        return _check_segment(plan)
    except FileNotFoundError:
        return [], RemovedSegment(plan.base_offset)


def _check_segment(plan: SegmentPlan) -> tuple[list[Finding], SegmentSummary]:
    checks = _SegmentChecks(plan)
    with closing(checks.file):
        for block in checks.file.iterate_blocks():
            checks.check_block(block)
        checks.check_end_of_segment()
    return list(checks.findings), checks.make_summary()


def check_metadata_snapshot(plan: PartitionPlan, name: str, findings: Findings) -> None:
    """Check a snapshot of the metadata log. It has batches like a `.log` file."""
    with closing(LogFileReader(plan.make_path(name), check_crc="crc" in plan.checks)) as file:
        for block in file.iterate_blocks():
            if "records" in plan.checks:
                findings.add_problems(name, check_records(block, compacted=False).problems)
    findings.add_problems(name, file.problems)


def find_cleaned_keys_of_segment(plan: SegmentPlan) -> Iterator[pa.RecordBatch]:
    """Yield the keys in the cleaned part of a segment, as rows of `KEYS`; none if it is gone. Raises `OSError`."""
    partition = plan.partition
    try:
        file = LogFileReader(partition.make_path(plan.make_file_name(LOG_SUFFIX)))
    except FileNotFoundError:
        return  # the keys of what replaces it would not fit those of the others
    with closing(file):
        for block in file.iterate_blocks():
            for records in check_all_records(block, compacted=True).records:
                cleaned = _find_cleaned_records(block, records, partition.log_start, partition.clean_offset)
                rows = np.flatnonzero(cleaned & (records.key_size >= 0))
                spans = zip(records.key_start[rows].tolist(), records.key_size[rows].tolist(), strict=True)
                keys = [records.data[start : start + size] for start, size in spans]
                files = [f"{partition.directory}/{plan.make_file_name(LOG_SUFFIX)}"] * len(keys)
                columns = keys, records.offset[rows], files, block.positions[records.batch[rows]]
                yield pa.RecordBatch.from_pydict(dict(zip(KEYS.names, columns, strict=True)), KEYS)


def check_all_records(block: LogBlock, *, compacted: bool) -> CheckedBlock:
    """Return the problems and the records of all sound batches in the block, of all formats."""
    checked, old = check_records(block, compacted=compacted), check_old_messages(block, compacted=compacted)
    return CheckedBlock(checked.problems + old.problems, checked.records + old.records)


class _SegmentChecks:
    """All checks of one segment."""

    def __init__(self, plan: SegmentPlan) -> None:
        self._plan, self._partition = plan, plan.partition
        self._checks = self._partition.checks
        self._log_name = plan.make_file_name(LOG_SUFFIX)
        self.findings: Findings = self._partition.make_findings()
        is_last = plan.next_base is None
        path = self._partition.make_path(self._log_name)
        self.file = LogFileReader(path, check_crc="crc" in self._checks, is_last=is_last)
        self._offsets = OffsetCheck(plan.base_offset, self._partition.compacted)
        self._producers = ProducerCheck(self._partition.log_start)
        self._transactions = SegmentTransactions()
        self._index = self._time_index = None
        if "index" in self._checks and self._has_file(INDEX_SUFFIX):
            self._index = OffsetIndexCheck(
                self._partition.make_path(plan.make_file_name(INDEX_SUFFIX)), plan.base_offset
            )
        if "timeindex" in self._checks and self._has_file(TIME_INDEX_SUFFIX):
            self._time_index = TimeIndexCheck(
                self._partition.make_path(plan.make_file_name(TIME_INDEX_SUFFIX)), plan.base_offset
            )
        self._reads_records = plan.is_cleaned or "records" in self._checks
        self._follows_producers = not self._checks.isdisjoint(("producers", "transactions", "snapshots"))

    def _has_file(self, suffix: str) -> bool:
        return self._plan.make_file_name(suffix) in self._partition.names

    def check_block(self, block: LogBlock) -> None:
        """Run all checks on a block."""
        if self._reads_records:
            self._check_records_of_block(block)
        self.findings.add_problems(self._log_name, self._offsets.check_offsets_of_block(block))
        if self._index is not None:
            self._index.compare_with_block(block)
        if self._time_index is not None:
            self._time_index.compare_with_block(block)
        if self._follows_producers:
            self._check_producers_of_block(block, self._offsets.missing_before)

    def _check_records_of_block(self, block: LogBlock) -> None:
        checked = check_all_records(block, compacted=self._partition.compacted)
        self.findings.add_problems(self._log_name, checked.problems)
        if self._plan.is_cleaned:
            for each in checked.records:
                found = find_wrong_cleaned_records(block, each, self._partition.log_start, self._partition.clean_offset)
                self.findings.add_problems(self._log_name, found)

    def _check_producers_of_block(self, block: LogBlock, missing: Int64s) -> None:
        """Check producers' sequences, epochs and transactions. `missing` counts gaps and damages before each batch."""
        is_control = block.headers.is_control
        rows = np.flatnonzero(block.sound & (is_control | (block.headers.producer_id >= 0)))
        transactional = block.headers.is_transactional[rows].tolist()
        # Batches that compaction has emptied are only kept for the sequence in the header.
        holds_data = ~is_control[rows] & ((block.headers.record_count[rows] != 0) | (not self._partition.compacted))
        each = zip(
            rows.tolist(),
            holds_data.tolist(),
            transactional,
            _iterate_producer_events(block, rows, missing),
            strict=True,
        )
        for index, is_data, in_transaction, (producer_id, event) in each:
            problem = other = None
            if is_data:
                problem = self._transactions.add_data_batch(producer_id, in_transaction, event)
            elif is_control[index]:
                self._check_transaction_marker(block, index)
            if producer_id >= 0:
                other = self._producers.apply_and_check_event(producer_id, event)
            if problem is not None or other is not None:
                self.findings.add_problems(self._log_name, filter(None, (problem, other)))

    def _check_transaction_marker(self, block: LogBlock, index: int) -> None:
        try:
            marker = read_transaction_marker(block, index, compacted=self._partition.compacted)
        except UnreadableRecords as error:
            self.findings.add_problem(self._log_name, block.make_problem("control-batch", index, str(error)))
            return
        if marker is not None:
            for problem in self._transactions.add_marker(marker):
                if problem.kind != "marker-without-transaction" or not self._may_batches_be_missing():
                    self.findings.add_problem(self._log_name, problem)

    def _may_batches_be_missing(self) -> bool:
        """Return whether missing batches may have been compacted away, or may be in damaged parts."""
        return self._partition.compacted or bool(self.file.problems)

    def check_end_of_segment(self) -> None:
        """Check what can be checked only after all batches."""
        self.findings.add_problems(self._log_name, self.file.problems)
        closed, damaged = self._plan.next_base is not None, bool(self.file.problems)
        if self._index is not None:
            problems = self._index.iterate_problems(self.file.end_position, damaged=damaged)
            self.findings.add_problems(self._plan.make_file_name(INDEX_SUFFIX), problems)
        if self._time_index is not None:
            times = self._time_index.iterate_problems(self._offsets.offsets.last, closed=closed, damaged=damaged)
            self.findings.add_problems(self._plan.make_file_name(TIME_INDEX_SUFFIX), times)
        if closed and self._plan.size_bytes:
            for suffix, kind in ((INDEX_SUFFIX, "index-missing"), (TIME_INDEX_SUFFIX, "timeindex-missing")):
                if not self._has_file(suffix):
                    self.findings.add_problem(
                        self._plan.make_file_name(suffix), Problem(kind, -1, -1, "the segment is closed and has none")
                    )
        if self._has_file(TRANSACTION_INDEX_SUFFIX):
            name = self._plan.make_file_name(TRANSACTION_INDEX_SUFFIX)
            end = self._offsets.offsets.last + 1 if self._plan.next_base is None else self._plan.next_base
            self._transactions.entries, wrong = read_transaction_index(
                self._partition.make_path(name), self._plan.base_offset, end
            )
            self.findings.add_problems(name, wrong)

    def make_summary(self) -> SegmentSummary:
        """Return what the checks across segments need of this one."""
        return SegmentSummary(
            self._plan.base_offset,
            self._offsets.offsets,
            self._offsets.runs,
            self._producers,
            self._transactions,
            len(self.file.problems),
            self._log_name,
        )


def _iterate_producer_events(block: LogBlock, rows: Int64s, missing: Int64s) -> Iterator[tuple[int, ProducerEvent]]:
    """Yield (producer id, event) of some batches. Markers have no sequence."""
    headers = block.headers
    base, last = headers.base_offset[rows], headers.last_offset[rows]
    first_sequence = np.where(headers.is_control[rows], -1, headers.base_sequence[rows])
    last_sequence = np.where(first_sequence < 0, -1, (first_sequence + last - base) & MAX_SEQUENCE)
    columns = (
        headers.producer_epoch[rows],
        first_sequence,
        last_sequence,
        base,
        last,
        headers.max_timestamp[rows],
        block.positions[rows],
        missing[rows],
    )
    return zip(
        headers.producer_id[rows].tolist(), map(ProducerEvent, *(column.tolist() for column in columns)), strict=True
    )
