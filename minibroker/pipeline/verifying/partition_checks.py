"""Checks what spans the segments of a partition: offsets between them, producers, transactions, checkpoints.

It is a fold over the summaries of the segments, in order. It reads no batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from minibroker.pipeline.directory.cluster_metadata import METADATA
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.verifying.checkpoint_checks import (
    find_wrong_aborted_counts,
    find_wrong_epochs,
    find_wrong_topic_id,
    read_epochs,
)
from minibroker.pipeline.verifying.findings import Finding, Findings, Problem
from minibroker.pipeline.verifying.log_blocks import EpochRun
from minibroker.pipeline.verifying.log_files import PartitionPlan
from minibroker.pipeline.verifying.producer_checks import (
    NO_RECORD,
    OpenTransaction,
    ProducerState,
    TransactionMarker,
    check_first_events_of_segment,
    find_index_entry_problems,
    find_missing_index_entries,
    find_wrong_snapshot_entries,
    make_marker_without_transaction_problem,
    make_older_coordinator_problem,
    make_outside_transaction_problem,
    read_coordinator_states,
    read_snapshot,
)
from minibroker.pipeline.verifying.segment_checks import RemovedSegment, SegmentSummary, check_metadata_snapshot
from minibroker.storage import names
from minibroker.storage.checkpoints.checkpoint_texts import (
    ABORTED_TRANSACTIONS_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
)
from minibroker.storage.inspection.index_inspection import ProducerStateEntry

MAX_TRANSACTION_MS = 15 * 60 * 1000  # transaction.max.timeout.ms


def collect_findings(
    plan: PartitionPlan, checked: Iterable[tuple[list[Finding], SegmentSummary | RemovedSegment]]
) -> list[Finding]:
    """Return all findings about a partition, by what `check_segment` returns for its segments. Raises `OSError`."""
    found: list[Finding] = []
    summaries: list[SegmentSummary | RemovedSegment] = []
    for findings, summary in checked:
        found += findings
        summaries.append(summary)
    removed = [each.base_offset for each in summaries if isinstance(each, RemovedSegment)]
    if removed:
        found += _report_removed_segments(plan, removed)
        plan = _make_plan_of_segments_after(plan, max(removed))
        if not plan.bases:
            return found
    there = [each for each in summaries if isinstance(each, SegmentSummary) and each.base_offset in plan.bases]
    try:
        fold = _PartitionChecks(plan)
        for each in sorted(there, key=lambda summary: summary.base_offset):
            fold.add_segment_summary(each)
        fold.check_end_of_partition()
    except FileNotFoundError:
        if DISK.exists(plan.make_path("")):
            raise
        return found  # the partition was deleted during the check
    known = set(found)
    return found + [each for each in fold.findings if each not in known]


def _report_removed_segments(plan: PartitionPlan, bases: Sequence[int]) -> list[Finding]:
    """Return a finding for each segment that retention removed during the check."""
    findings = plan.make_findings()
    for base in bases:
        detail = "it was removed during the check; what spans segments was checked behind it"
        findings.add_problem(names.make_segment_name(base) + names.LOG_SUFFIX, Problem("vanished", -1, base, detail))
    return list(findings)


def _make_plan_of_segments_after(plan: PartitionPlan, base: int) -> PartitionPlan:
    """Return the part of a partition behind a segment, as if its log began there."""
    bases = tuple(each for each in plan.bases if each > base)
    start = {LOG_START_OFFSET_CHECKPOINT: max(bases[0], plan.log_start)} if bases else {}
    return replace(plan, bases=bases, checkpoints={**plan.checkpoints, **start}, begins_elsewhere=True)


class _PartitionChecks:
    """What is known of a partition up to a segment."""

    def __init__(self, plan: PartitionPlan) -> None:
        self._plan = plan
        self.findings: Findings = plan.make_findings()
        self._end: int | None = None  # the offset behind the segments so far
        self._end_unsure = False
        self._missing = 0
        self._damages = 0
        self._max_timestamp = -1
        self._last_clock = 0  # the newest marker's time
        self._runs: list[tuple[EpochRun, str]] = []
        self._states: dict[int, ProducerState] = {}
        self._open: dict[int, tuple[OpenTransaction, str]] = {}
        self._coordinators: dict[int, int] = {}
        self._first_offset = plan.bases[0] if plan.bases else 0
        self._snapshots = self._read_snapshots()

    def add_segment_summary(self, summary: SegmentSummary) -> None:
        """Add one more segment."""
        self._compare_snapshot(summary.base_offset)
        self._check_offsets_between_segments(summary)
        self._check_epochs_between_segments(summary)
        self._check_transactions_between_segments(summary)
        wrong = check_first_events_of_segment(self._states, summary.producers, self._missing, self._plan.log_start)
        self.findings.add_problems(summary.file, wrong)
        self._missing += summary.damages + (summary.offsets.missing if self._plan.compacted else 0)
        self._damages += summary.damages
        self._max_timestamp = max(self._max_timestamp, summary.offsets.max_timestamp)

    def check_end_of_partition(self) -> None:
        """Check what can be checked only at the end of the log."""
        end = self._end or 0
        self._compare_snapshot(end, expected=self._plan.stopped)
        self._check_open_transactions()
        for offset in self._plan.snapshots:
            if offset > end:
                name = names.make_segment_name(offset) + names.SNAPSHOT_SUFFIX
                self.findings.add_problem(name, Problem("snapshot-beyond-log", -1, offset, f"the log ends at {end}"))
        for name, offset in self._plan.checkpoints.items():
            if offset > end:
                detail = f"{name} has {offset}, the log ends at {end}"
                self.findings.add_problem(name, Problem("checkpoint-beyond-log", -1, offset, detail), of_directory=True)
        self._check_epoch_file(end)
        self._check_metadata_and_checkpoint_files()
        for image in self._plan.images:
            check_metadata_snapshot(self._plan, image, self.findings)

    # --- offsets and epochs -----------------------------------------------------------------------

    def _check_offsets_between_segments(self, summary: SegmentSummary) -> None:
        offsets, base = summary.offsets, summary.base_offset
        expected = base if self._end is None else self._end
        begin = base if offsets.first < 0 else offsets.first
        position = max(offsets.first_position, 0)
        if self._end is not None and min(begin, base) < expected:
            detail = f"the segment before it ends at {expected - 1}"
            self.findings.add_problem(summary.file, Problem("segment-overlap", position, begin, detail))
        elif begin > expected:
            if self._plan.compacted:
                self._missing += begin - expected
            elif not self._end_unsure and not offsets.unknown_before:
                detail = f"expected {expected}, the segment begins at {begin}"
                self.findings.add_problem(summary.file, Problem("gap", position, begin, detail))
        self._end = base if offsets.last < 0 else offsets.last + 1
        self._end_unsure = summary.damages > offsets.damages

    def _check_epochs_between_segments(self, summary: SegmentSummary) -> None:
        for run in summary.runs[:1]:
            if self._runs and self._runs[-1][0].epoch > run.epoch:
                detail = f"leader epoch {run.epoch}, {self._runs[-1][0].epoch} in the segment before"
                problem = Problem("leader-epoch-regression", run.position, run.first_offset, detail)
                self.findings.add_problem(summary.file, problem)
        self._runs += [(run, summary.file) for run in summary.runs]

    def _check_epoch_file(self, end: int) -> None:
        """Compare `leader-epoch-checkpoint` with the batches up to offset `end`, and with where the log starts."""
        entries: list[tuple[int, int]] = []
        problems: list[Problem] = []
        if LEADER_EPOCH_CHECKPOINT in self._plan.names:
            entries, problems = read_epochs(self._plan.make_path(LEADER_EPOCH_CHECKPOINT))
        runs = [run for run, _ in self._runs]
        wrong = find_wrong_epochs(entries, runs, self._plan.log_start, end, stopped=self._plan.stopped)
        self.findings.add_problems(LEADER_EPOCH_CHECKPOINT, problems or wrong)
        self._check_log_start(entries)

    def _check_log_start(self, epochs: list[tuple[int, int]]) -> None:
        """Check that the first segment is there: neither the epochs nor the log start offset are before it.

        After a kill, the epochs may still have segments that were just removed. The log start offset then tells, or
        their files, which are kept for a minute.
        """
        plan = self._plan
        if not plan.bases or plan.begins_elsewhere:
            return
        first, file = plan.bases[0], names.make_segment_name(plan.bases[0]) + names.LOG_SUFFIX
        start = plan.checkpoints.get(LOG_START_OFFSET_CHECKPOINT, -1)
        removed = start >= first or any(name.endswith(names.LOG_SUFFIX + names.DELETED_SUFFIX) for name in plan.names)
        detail = ""
        if epochs and epochs[0][1] < first and (plan.stopped or not removed):
            detail = f"{LEADER_EPOCH_CHECKPOINT} begins at {epochs[0][1]}, the first segment at {first}"
        elif 0 <= start < first and plan.stopped:
            detail = f"{LOG_START_OFFSET_CHECKPOINT} has {start}, the first segment begins at {first}"
        if detail:
            self.findings.add_problem(file, Problem("log-start", -1, first, detail))

    def _check_metadata_and_checkpoint_files(self) -> None:
        plan = self._plan
        if PARTITION_METADATA in plan.names:
            self.findings.add_problems(
                PARTITION_METADATA, find_wrong_topic_id(plan.make_path(PARTITION_METADATA), plan.topic_id)
            )
        elif plan.topic_id is not None and self._end and plan.directory != METADATA:
            detail = "it is missing: Kafka takes a log without a topic id for a stray one, and moves it away"
            self.findings.add_problem(PARTITION_METADATA, Problem("partition-metadata", -1, -1, detail))
        if ABORTED_TRANSACTIONS_CHECKPOINT in plan.names:
            self.findings.add_problems(
                ABORTED_TRANSACTIONS_CHECKPOINT, find_wrong_aborted_counts(plan.make_path(""), plan.bases)
            )

    # --- transactions -----------------------------------------------------------------------------

    def _check_transactions_between_segments(self, summary: SegmentSummary) -> None:
        here = summary.transactions
        for producer_id, (offset, position) in here.plain.items():
            if producer_id in self._open:
                opened, _ = self._open[producer_id]
                self.findings.add_problem(
                    summary.file,
                    make_outside_transaction_problem(producer_id, opened.offset, offset, position),
                )
        for producer_id, (first, last) in here.epochs.items():
            known = self._coordinators.get(producer_id, first)
            if first < known:
                problem = make_older_coordinator_problem(
                    here.first_markers[producer_id]._replace(coordinator_epoch=first), known
                )
                self.findings.add_problem(summary.file, problem)
            self._coordinators[producer_id] = last
        for marker in here.first_markers.values():
            if marker.first_offset < 0 and marker.kind != NO_RECORD and self._ends_no_transaction(marker):
                self.findings.add_problem(summary.file, make_marker_without_transaction_problem(marker))
        aborts = [self._complete_abort_marker(marker, here.first_markers) for marker in here.aborts]
        begins, compacted, damaged = self._first_offset, self._plan.compacted, bool(self._damages or summary.damages)
        markers = {marker.offset: marker for marker in aborts}
        index_name = names.make_segment_name(summary.base_offset) + names.TRANSACTION_INDEX_SUFFIX
        self.findings.add_problems(summary.file, find_missing_index_entries(here.entries, aborts))
        for place, entry in enumerate(here.entries):
            wrong = find_index_entry_problems(
                place, entry, markers.get(entry.last_offset), begins, compacted=compacted, damaged=damaged
            )
            self.findings.add_problems(index_name, wrong)
        self._update_open_transactions(summary)

    def _ends_no_transaction(self, marker: TransactionMarker) -> bool:
        """Return whether a marker ends no transaction, and no records are missing that may have begun one."""
        if marker.producer_id in self._open or self._plan.compacted or self._damages:
            return False
        return self._plan.log_start == 0 or marker.producer_id in self._states

    def _complete_abort_marker(
        self,
        marker: TransactionMarker,
        first_markers: dict[int, TransactionMarker],
    ) -> TransactionMarker:
        """Return an abort marker with facts of earlier segments: its own first offset, and other open transactions."""
        mine = self._open.get(marker.producer_id)
        if mine is not None and first_markers[marker.producer_id].offset == marker.offset:
            marker = marker._replace(first_offset=mine[0].offset)
        still_open = [
            opened.offset
            for producer_id, (opened, _) in self._open.items()
            if producer_id != marker.producer_id
            and (producer_id not in first_markers or first_markers[producer_id].offset > marker.offset)
        ]
        return marker._replace(stable_offset=min([marker.stable_offset, *still_open]))

    def _update_open_transactions(self, summary: SegmentSummary) -> None:
        """Update which transactions are open by those that end and begin in a segment."""
        here = summary.transactions
        for producer_id, (opened, file) in list(self._open.items()):
            if producer_id in here.first_markers:
                del self._open[producer_id]
            else:
                newest, since = here.newest.get(producer_id, opened.timestamp), opened.since or here.first_clock
                self._open[producer_id] = opened._replace(timestamp=newest, since=since), file
        for producer_id, opened in here.open.items():
            self._open.setdefault(producer_id, (opened, summary.file))
        self._last_clock = max(self._last_clock, here.last_clock)

    def _check_open_transactions(self) -> None:
        for producer_id, (opened, file) in self._open.items():
            hangs, why = self._is_transaction_hanging(producer_id, opened)
            kind = "hanging-transaction" if hangs else "open-transaction"
            self.findings.add_problem(
                file, Problem(kind, opened.position, opened.offset, f"producer {producer_id}; {why}")
            )

    def _is_transaction_hanging(self, producer_id: int, opened: OpenTransaction) -> tuple[bool, str]:
        """Return whether nothing will end an open transaction, and how that is known.

        Its coordinator knows. Without one, the times of markers count: the broker wrote them.
        """
        plan = self._plan
        if plan.in_use:
            return False, "a broker uses the directory: `minibroker transactions find-hanging` asks it"
        known = read_coordinator_states(plan.root).get(producer_id)
        if known is not None and known.will_end_transaction_on(plan.topic, plan.partition):
            said = f"it is {known.state}, with a timeout of {known.timeout_ms} ms"
            return False, f"the coordinator of {known.transactional_id!r} will end it: {said}"
        if known is not None:
            return True, f"the coordinator of {known.transactional_id!r} will not end it: it is {known.state}"
        if plan.has_coordinators:
            return True, "no coordinator knows it"
        open_ms = self._last_clock - opened.since if opened.since else 0
        if open_ms > MAX_TRANSACTION_MS:
            return True, f"by the markers of others, it has been open for {open_ms // 1000} s or longer"
        behind_ms = max(self._max_timestamp - opened.timestamp, 0)
        return False, f"by the records' times the log goes on for {behind_ms // 1000} s behind its last record"

    # --- snapshots --------------------------------------------------------------------------------

    def _read_snapshots(self) -> dict[int, list[ProducerStateEntry]]:
        """Return the entries of each producer snapshot by its offset; add the problems of the files to the findings."""
        if "snapshots" not in self._plan.checks:
            return {}
        found = {}
        for offset in self._plan.snapshots:
            name = names.make_segment_name(offset) + names.SNAPSHOT_SUFFIX
            with suppress(FileNotFoundError):  # a running broker removes the oldest ones
                found[offset], problems = read_snapshot(self._plan.make_path(name))
                self.findings.add_problems(name, problems)
        return found

    def _compare_snapshot(self, offset: int, *, expected: bool = True) -> None:
        """Compare the snapshot at this offset with the log up to it. A missing one is a finding if `expected`."""
        if expected and offset > self._first_offset and self._states and offset not in self._plan.snapshots:
            detail = f"a start must read the log before {offset} to find its producers"
            self.findings.add_problem(
                names.make_segment_name(offset) + names.SNAPSHOT_SUFFIX, Problem("snapshot-missing", -1, offset, detail)
            )
        entries = self._snapshots.pop(offset, [])
        if self._damages or self._plan.compacted and offset <= self._plan.clean_offset:
            return
        missing = max(offset - (self._end or 0), 0) if self._plan.compacted else 0
        opened = {producer_id: each.offset for producer_id, (each, _) in self._open.items()}
        problems = find_wrong_snapshot_entries(
            entries,
            self._states,
            opened,
            start=self._plan.log_start,
            compacted=self._plan.compacted,
            missing=self._missing + missing,
        )
        self.findings.add_problems(names.make_segment_name(offset) + names.SNAPSHOT_SUFFIX, problems)
