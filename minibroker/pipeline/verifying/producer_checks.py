"""Checks the epochs and sequence numbers of producers with an id (KIP-98, KIP-360), and their transactions.

A producer's state comes from its batches, from the first one in the log on. Each segment is checked alone. Then the
first batches of each producer in it are checked again, with the state after the segments before it.

A `.snapshot` file has the producers' states at an offset (`storage/producers/producer_state.py` describes it). It is
checked by itself and against the log. So are the entries of a `.txnindex` file, against the aborted transactions in the
log. Only `partition_checks.py` knows which transactions began before a segment. Which of them hang,
`__transaction_state` in the same directory says, if this node is the coordinator: only coordinators end a transaction,
or will never do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from minibroker.pipeline.directory.cluster_metadata import ClusterMetadata, iterate_readable_records
from minibroker.pipeline.directory.finding import find_logs
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.verifying.findings import Problem
from minibroker.pipeline.verifying.log_blocks import LogBlock
from minibroker.pipeline.verifying.record_checks import UnreadableRecords, get_decompressed_payload, read_records
from minibroker.protocol.errors import InvalidRecords
from minibroker.protocol.messages.control_records import EndTxnMarker
from minibroker.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from minibroker.protocol.primitives import MalformedMessage
from minibroker.protocol.records.batch import MAX_SEQUENCE
from minibroker.protocol.records.control import ControlType, decode_control_message, decode_control_type
from minibroker.protocol.records.crc import crc32c
from minibroker.protocol.records.internal import TRANSACTIONS_TOPIC, UnknownRecord, decode_internal_record
from minibroker.storage.inspection.index_inspection import SNAPSHOT_CRC_START, SNAPSHOT_HEAD, ProducerStateEntry
from minibroker.storage.names import LOG_SUFFIX
from minibroker.storage.producers.aborted_transactions import (
    TRANSACTION_ENTRY,
    TRANSACTION_INDEX_VERSION,
    AbortedTransaction,
)
from minibroker.storage.producers.producer_state import SNAPSHOT_ENTRY, SNAPSHOT_VERSION

HALF = 1 << 30
EXPIRATION_MS = 24 * 60 * 60 * 1000  # producer.id.expiration.ms: after it, brokers forget producers that write nothing


class ProducerEvent(NamedTuple):
    """A batch of a producer, or a marker of its transaction. `missing` is that of `OffsetCheck.missing_before`."""

    epoch: int
    first_sequence: int  # -1: a marker or a coordinator's batch, which have none
    last_sequence: int
    offset: int
    last_offset: int
    timestamp: int
    position: int
    missing: int


class ProducerState(NamedTuple):
    """The state of a producer. `expected` is the next sequence, None if unknown."""

    epoch: int
    expected: int | None
    last_offset: int  # of its last batch with sequences; -1: unknown
    timestamp: int
    missing: int
    stale_epoch: int = -1  # of a batch with an older epoch that was just reported

    def apply_event(self, event: ProducerEvent) -> ProducerState:
        """Return the state after the event."""
        if event.epoch < self.epoch and event.epoch != self.stale_epoch:
            return self._replace(stale_epoch=event.epoch)
        expected: int | None
        if event.first_sequence >= 0:
            expected, last_offset = (event.last_sequence + 1) & MAX_SEQUENCE, event.last_offset
        elif event.epoch > self.epoch:  # missing batches may have begun the new epoch
            expected, last_offset = 0 if event.missing == self.missing else None, -1
        else:
            return self._replace(timestamp=event.timestamp, stale_epoch=-1)
        return ProducerState(event.epoch, expected, last_offset, event.timestamp, event.missing)


UNKNOWN = ProducerState(-1 << 16, None, -1, 0, missing=-1)  # before a producer's first event, where nothing is wrong


def find_event_problem(state: ProducerState, event: ProducerEvent, producer_id: int, log_start: int) -> Problem | None:
    """Return what is wrong with an event in this state, or None.

    Sequences may not follow each other if batches between were compacted away or are damaged, if the broker has
    forgotten the producer, or if the state is from before the log start offset.
    """
    if event.epoch < state.epoch and event.epoch != state.stale_epoch:
        detail = f"producer {producer_id} has epoch {event.epoch}, {state.epoch} before"
        return Problem("epoch-regression", event.position, event.offset, detail)
    if event.first_sequence < 0 or event.epoch < state.epoch:
        return None
    raised = event.epoch > state.epoch
    expected = 0 if raised else state.expected
    if expected is None or event.first_sequence == expected:
        return None
    forgotten = event.timestamp - state.timestamp >= EXPIRATION_MS or 0 <= state.last_offset < log_start
    ahead = (event.first_sequence - expected) & MAX_SEQUENCE
    if forgotten or event.missing != state.missing and (raised or ahead < HALF):
        return None
    what = f"producer {producer_id}, epoch {event.epoch}: sequence {event.first_sequence}, expected {expected}"
    kind = "sequence-gap" if raised or ahead < HALF else "sequence-duplicate"
    return Problem(kind, event.position, event.offset, what)


@dataclass
class ProducerCheck:
    """Takes the events of one segment in order. `heads` has those that can only be checked with earlier segments."""

    log_start: int = 0
    states: dict[int, ProducerState] = field(default_factory=dict)
    heads: dict[int, list[ProducerEvent]] = field(default_factory=dict)

    def apply_and_check_event(self, producer_id: int, event: ProducerEvent) -> Problem | None:
        """Apply an event to its producer's state. Return what is wrong with it, as far as this segment shows."""
        state = self.states.get(producer_id, UNKNOWN)
        if state.expected is None:
            self._add_event_of_segment_start(producer_id, event)
        problem = find_event_problem(state, event, producer_id, self.log_start)
        self.states[producer_id] = state.apply_event(event)
        return problem

    def _add_event_of_segment_start(self, producer_id: int, event: ProducerEvent) -> None:
        """Note an event at the head of a segment.

        Markers with the same epoch are equivalent: the last replaces the others.
        """
        heads = self.heads.setdefault(producer_id, [])
        if event.first_sequence < 0 and len(heads) > 1 and heads[-1].epoch == event.epoch == heads[-2].epoch:
            heads.pop()
        heads.append(event)


def check_first_events_of_segment(
    states: dict[int, ProducerState], segment: ProducerCheck, missing: int, log_start: int
) -> Iterator[Problem]:
    """Advance the producers' states by one more segment. Yield what is wrong with its first batches.

    `missing` is what was missing before the segment.
    """
    for producer_id, heads in segment.heads.items():
        state = states.get(producer_id, UNKNOWN)
        for head in heads:
            event = head._replace(missing=head.missing + missing)
            problem = find_event_problem(state, event, producer_id, log_start)
            if problem is not None:
                yield problem
            state = state.apply_event(event)
        end = segment.states[producer_id]
        states[producer_id] = state if end.expected is None else end._replace(missing=end.missing + missing)


def read_snapshot(path: str) -> tuple[list[ProducerStateEntry], list[Problem]]:
    """Return the entries of a snapshot, and the problems of the file by itself. Raises `OSError`."""
    data = DISK.read_whole(path)
    if len(data) < SNAPSHOT_HEAD.size:
        return [], [Problem("snapshot", 0, -1, f"{len(data)} bytes, less than its header")]
    version, stored, count = SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        return [], [Problem("snapshot", 0, -1, f"version {version}")]
    computed = crc32c(memoryview(data)[SNAPSHOT_CRC_START:])
    if stored != computed:
        return [], [Problem("snapshot", 0, -1, f"checksum {stored:08x}, computed {computed:08x}")]
    if count * SNAPSHOT_ENTRY.size != len(data) - SNAPSHOT_HEAD.size:
        return [], [Problem("snapshot", 0, -1, f"{count} entries in {len(data)} bytes")]
    rows = enumerate(SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[SNAPSHOT_HEAD.size :]))
    return [ProducerStateEntry(SNAPSHOT_HEAD.size + place * SNAPSHOT_ENTRY.size, *row) for place, row in rows], []


def find_wrong_snapshot_entries(
    entries: list[ProducerStateEntry],
    states: Mapping[int, ProducerState],
    opened: Mapping[int, int],
    *,
    start: int,
    compacted: bool,
    missing: int,
) -> Iterator[Problem]:
    """Yield where a producer snapshot differs from the log before it. `missing` counts gaps and damages up to there.

    An expired producer may be only in the log. If retention or compaction has removed records of a producer, only the
    remaining ones count.
    """
    for entry in entries:
        state = states.get(entry.producer_id)
        if state is not None and state.missing != missing:
            continue  # its last batch may have been compacted away
        said = _find_state_difference(entry, state, opened, start, compacted)
        if said:
            yield Problem("snapshot-state", entry.position, entry.last_offset, f"producer {entry.producer_id}: {said}")


def _find_state_difference(
    entry: ProducerStateEntry, state: ProducerState | None, opened: Mapping[int, int], start: int, compacted: bool
) -> str:
    """Return how a snapshot's entry differs from its producer's state by the log; empty if it does not."""
    if state is None:
        return "the log has nothing of it" if entry.last_offset >= start and not compacted else ""
    if entry.producer_epoch != state.epoch:
        return f"epoch {entry.producer_epoch}, in the log {state.epoch}"
    sequence_known = entry.last_sequence >= 0 and state.expected is not None and state.last_offset >= 0
    if sequence_known and (entry.last_sequence + 1) & MAX_SEQUENCE != state.expected:
        return f"last sequence {entry.last_sequence}, by the log {state.expected} is next"
    if sequence_known and entry.last_offset != state.last_offset:
        return f"last offset {entry.last_offset}, in the log {state.last_offset}"
    first = opened.get(entry.producer_id, -1)
    if entry.transaction_first_offset != first and not compacted and not -1 < entry.transaction_first_offset < start:
        return f"a transaction open since {entry.transaction_first_offset}, in the log {first}"
    return ""


ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
NO_RECORD = -1  # the type for a control batch that compaction has emptied


class TransactionMarker(NamedTuple):
    """The end of a transaction. `first_offset` is where it began in this segment, or -1."""

    producer_id: int
    kind: int
    coordinator_epoch: int
    offset: int
    position: int
    first_offset: int
    stable_offset: int  # the last stable offset behind it, by transactions that began in this segment
    timestamp: int  # by the clock of its broker


class OpenTransaction(NamedTuple):
    """An open transaction: its first offset and position, and the time of its newest batch.

    `since` is the time of the first marker behind its first batch, 0 if there is none. Times of records are those of
    the producers' clocks, or whatever they like; a marker has the time of its broker.
    """

    offset: int
    position: int
    timestamp: int
    since: int = 0


@dataclass
class SegmentTransactions:
    """Takes the transactional batches and the markers of one segment in order.

    By producer: `open` has its open transaction that began here, `first_markers` its first marker here, `epochs` the
    coordinator's first and last epoch, `plain` its first non-transactional batch before any of these, and `newest` the
    time of its newest transactional batch before its first marker. `first_clock` and `last_clock` are the times of the
    segment's first and last marker, 0 without one.
    """

    open: dict[int, OpenTransaction] = field(default_factory=dict)
    first_markers: dict[int, TransactionMarker] = field(default_factory=dict)
    aborts: list[TransactionMarker] = field(default_factory=list)
    epochs: dict[int, tuple[int, int]] = field(default_factory=dict)
    plain: dict[int, tuple[int, int]] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    entries: list[AbortedTransaction] = field(default_factory=list)
    first_clock: int = 0
    last_clock: int = 0

    def add_data_batch(self, producer_id: int, transactional: bool, event: ProducerEvent) -> Problem | None:
        """Add a batch of records of a producer with an id. Return a problem or None."""
        opened = self.open.get(producer_id)
        if transactional:
            begin = opened or OpenTransaction(event.offset, event.position, event.timestamp)
            self.open[producer_id] = begin._replace(timestamp=event.timestamp)
            if producer_id not in self.first_markers:
                self.newest[producer_id] = event.timestamp
            return None
        if opened is None:
            if producer_id not in self.first_markers:
                self.plain.setdefault(producer_id, (event.offset, event.position))
            return None
        return make_outside_transaction_problem(producer_id, opened.offset, event.offset, event.position)

    def add_marker(self, marker: TransactionMarker) -> list[Problem]:
        """Add the end of a transaction; its first offset and stable offset are unknown yet. Return the problems."""
        problems: list[Problem] = []
        producer_id = marker.producer_id
        opened = self.open.pop(producer_id, None)
        self.first_clock, self.last_clock = self.first_clock or marker.timestamp, marker.timestamp
        for other_id, other in self.open.items():
            if not other.since:
                self.open[other_id] = other._replace(since=marker.timestamp)
        others = min((other.offset for other in self.open.values()), default=marker.offset + 1)
        marker = marker._replace(first_offset=-1 if opened is None else opened.offset, stable_offset=others)
        if producer_id not in self.first_markers:
            self.first_markers[producer_id] = marker
        elif opened is None and marker.kind != NO_RECORD:
            problems.append(make_marker_without_transaction_problem(marker))
        if marker.kind == ABORT:
            self.aborts.append(marker)
        if marker.kind in (ABORT, COMMIT):
            first, last = self.epochs.get(producer_id, (marker.coordinator_epoch,) * 2)
            if marker.coordinator_epoch < last:
                problems.append(make_older_coordinator_problem(marker, last))
            self.epochs[producer_id] = first, marker.coordinator_epoch
        return problems


def make_marker_without_transaction_problem(marker: TransactionMarker) -> Problem:
    """Return the problem of a marker that ends no transaction."""
    what = "commits" if marker.kind == COMMIT else "aborts"
    detail = f"it {what} a transaction of producer {marker.producer_id}, which has none open here"
    return Problem("marker-without-transaction", marker.position, marker.offset, detail)


def make_older_coordinator_problem(marker: TransactionMarker, newest_epoch: int) -> Problem:
    """Return the problem of a marker that an old coordinator has written."""
    detail = f"producer {marker.producer_id}: coordinator epoch {marker.coordinator_epoch}, {newest_epoch} before"
    return Problem("coordinator-epoch", marker.position, marker.offset, detail)


def make_outside_transaction_problem(producer_id: int, opened_at: int, offset: int, position: int) -> Problem:
    """Return the problem of a batch outside its producer's transaction, which has been open since `opened_at`."""
    detail = f"producer {producer_id} has had a transaction open since offset {opened_at}"
    return Problem("outside-transaction", position, offset, detail)


def read_transaction_marker(block: LogBlock, index: int, *, compacted: bool) -> TransactionMarker | None:
    """Return the marker in a control batch, or None for one of the quorum. Raises `UnreadableRecords`."""
    header, position = block.headers.make_header(index), int(block.positions[index])
    producer_id, offset, time = header.producer_id, header.base_offset, header.max_timestamp
    if header.record_count == 0:
        if not compacted:
            raise UnreadableRecords("control-batch", "it is empty, in a log that is not compacted")
        return (
            TransactionMarker(producer_id, NO_RECORD, -1, offset, position, -1, -1, time) if producer_id >= 0 else None
        )
    records = list(read_records(get_decompressed_payload(block, index), header))
    try:
        kind, message = decode_control_type(records[0].key), decode_control_message(records[0])
    except InvalidRecords as error:
        raise UnreadableRecords("control-batch", str(error)) from error
    if not isinstance(message, EndTxnMarker):
        if header.is_transactional:
            raise UnreadableRecords("control-batch", "a control record in a transaction that does not end it")
        return None
    if not header.is_transactional or producer_id < 0:
        raise UnreadableRecords("control-batch", f"a marker that is not transactional, producer id {producer_id}")
    if len(records) != 1:
        raise UnreadableRecords("control-batch", f"a marker among {len(records)} records")
    assert kind is not None
    return TransactionMarker(producer_id, kind, message.coordinator_epoch, offset, position, -1, -1, time)


def read_transaction_index(
    path: str, base_offset: int, end_offset: int
) -> tuple[list[AbortedTransaction], list[Problem]]:
    """Return the entries of a `.txnindex` file, and the problems of the file by itself. Raises `OSError`.

    The markers of the entries are in the segment, from `base_offset` to before `end_offset`.
    """
    data = DISK.read_whole(path)
    entries: list[AbortedTransaction] = []
    problems: list[Problem] = []
    last = base_offset - 1
    for at in range(0, len(data), TRANSACTION_ENTRY.size):
        if len(data) - at < TRANSACTION_ENTRY.size:
            problems.append(Problem("txnindex-entry", at, -1, f"{len(data) - at} bytes behind the last entry"))
            break
        version, *fields = TRANSACTION_ENTRY.unpack_from(data, at)
        entry = AbortedTransaction(*fields)
        wrong = _explain_misplaced_entry(version, entry, last, end_offset)
        if wrong:
            problems.append(Problem("txnindex-entry", at, entry.last_offset, wrong))
            continue
        last = entry.last_offset
        entries.append(entry)
    return entries, problems


def _explain_misplaced_entry(version: int, entry: AbortedTransaction, last_offset_before: int, end_offset: int) -> str:
    """Return why an entry of a transaction index cannot be at its place; empty if it can."""
    if version != TRANSACTION_INDEX_VERSION or min(entry) < 0 or entry.first_offset > entry.last_offset:
        return f"an impossible entry of version {version}: {tuple(entry)}"
    if entry.last_offset <= last_offset_before:
        return f"the marker at {entry.last_offset} must not follow {last_offset_before}"
    if entry.last_offset >= end_offset:
        return f"the marker at {entry.last_offset} is not in this segment, which ends before {end_offset}"
    return ""


def find_missing_index_entries(
    entries: Sequence[AbortedTransaction], aborts: Iterable[TransactionMarker]
) -> Iterator[Problem]:
    """Yield a problem for each abort marker, with its first offset from the log, that has no entry."""
    indexed = {(entry.producer_id, entry.last_offset) for entry in entries}
    for marker in aborts:
        if marker.first_offset >= 0 and (marker.producer_id, marker.offset) not in indexed:
            detail = f"producer {marker.producer_id} aborted {marker.first_offset} to {marker.offset}; it has no entry"
            yield Problem("txnindex-missing", marker.position, marker.offset, detail)


def find_index_entry_problems(
    entry_number: int,
    entry: AbortedTransaction,
    marker: TransactionMarker | None,
    start_offset: int,
    *,
    compacted: bool,
    damaged: bool,
) -> Iterator[Problem]:
    """Yield what is wrong with an entry of the index. `marker` is the abort marker in the log at its last offset.

    If records were removed by retention (before `start_offset`) or compaction, an entry may have more than the log
    shows. `damaged` is whether not all of the log could be read.
    """
    position = entry_number * TRANSACTION_ENTRY.size
    said = f"producer {entry.producer_id}, offsets {entry.first_offset} to {entry.last_offset}"
    gone = compacted or entry.first_offset < start_offset
    if marker is None or marker.producer_id != entry.producer_id or marker.first_offset < 0 and not gone:
        if not damaged:
            yield Problem("txnindex-extra", position, entry.last_offset, f"{said}: the log has no such transaction")
        return
    if marker.first_offset < 0 or damaged:
        return
    first = marker.first_offset
    if entry.first_offset > first or entry.first_offset != first and not gone:
        yield Problem("txnindex-first-offset", position, entry.last_offset, f"{said}: in the log it begins at {first}")
    stable = marker.stable_offset
    indexed = entry.last_stable_offset
    if indexed != stable and not (compacted or indexed < start_offset):
        detail = f"{said}: last stable offset {indexed}, by the log {stable}"
        yield Problem("txnindex-stable-offset", position, entry.last_offset, detail)


# The coordinator has a timer, or markers to write, in the first of these states.
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
WITH_A_TRANSACTION = ("Ongoing", "PrepareCommit", "PrepareAbort")

FileStamp = tuple[str, int, int]


class CoordinatedProducer(NamedTuple):
    """What a coordinator knows of a producer id: its transactional id, and its transaction if there is one."""

    transactional_id: str
    state: str
    timeout_ms: int
    partitions: frozenset[tuple[str, int]]

    def will_end_transaction_on(self, topic: str, partition: int) -> bool:
        """Return whether it has a transaction with this partition, which it will end."""
        return self.state in WITH_A_TRANSACTION and (topic, partition) in self.partitions


def read_coordinator_states(root: str) -> dict[int, CoordinatedProducer]:
    """Return what the coordinators of a log directory know, by producer id. Raises `OSError`."""
    logs = (log.path for log in find_logs([root]).values() if log.partition.topic == TRANSACTIONS_TOPIC)
    files = sorted(f"{log}/{name}" for log in logs for name in DISK.list_names(log) if name.endswith(LOG_SUFFIX))
    return _read_coordinator_states(tuple((file, *DISK.get_size_and_modified_ns(file)) for file in files))


@lru_cache(maxsize=1)  # each partition with an open transaction asks
def _read_coordinator_states(files: tuple[FileStamp, ...]) -> dict[int, CoordinatedProducer]:
    """Read these files, the oldest segment of a partition first, as far as they can be read."""
    values: dict[str, TransactionLogValue] = {}
    for file, _, _ in files:
        for record, is_control in iterate_readable_records(DISK.read_whole(file), ClusterMetadata()):
            if is_control:
                continue
            try:
                key, value = decode_internal_record(TRANSACTIONS_TOPIC, record.key, record.value)
            except (UnknownRecord, MalformedMessage):
                continue
            assert isinstance(key.message, TransactionLogKey)
            values.pop(key.message.transactional_id, None)
            if value is not None and isinstance(value.message, TransactionLogValue):
                values[key.message.transactional_id] = value.message
    found: dict[int, CoordinatedProducer] = {}
    for transactional_id, state in values.items():
        known = _make_coordinated_producer(transactional_id, state)
        found |= {state.previous_producer_id: known, state.next_producer_id: known, state.producer_id: known}
    return found


def _make_coordinated_producer(transactional_id: str, value: TransactionLogValue) -> CoordinatedProducer:
    in_transaction = (
        (each.topic, index) for each in value.transaction_partitions or () for index in each.partition_ids
    )
    status = value.transaction_status
    state = STATES[status] if 0 <= status < len(STATES) else str(status)
    return CoordinatedProducer(transactional_id, state, value.transaction_timeout_ms, frozenset(in_transaction))
