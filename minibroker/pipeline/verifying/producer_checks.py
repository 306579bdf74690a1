"""Checks the epochs and sequence numbers of producers with an id (KIP-98, KIP-360): no gaps, no repetitions.

A producer's state comes from its batches, from the first one in the log on. Each segment is checked alone. Then the
first batches of each producer in it are checked again, with the state after the segments before it.

A `.snapshot` file has the producers' states at an offset (`storage/producers/producer_state.py` describes it). It is
checked by itself and against the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.verifying.findings import Problem
from minibroker.protocol.records.batch import MAX_SEQUENCE
from minibroker.protocol.records.crc import crc32c
from minibroker.storage.inspection.index_inspection import SNAPSHOT_CRC_START, SNAPSHOT_HEAD, ProducerStateEntry
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

    def check_event(self, producer_id: int, event: ProducerEvent) -> Problem | None:
        """Add the event. Return what is wrong with it, as far as this segment shows."""
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
    """Yield where a snapshot differs from the log up to its offset. `missing` is that of `ProducerState`, up to there.

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
