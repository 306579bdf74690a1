"""The epochs and sequence numbers of producers with an id (KIP-98, KIP-360): nothing left out, nothing twice.

The state of a producer is what its batches say, from the first one that is still in the log on. A segment is judged for
itself; the first batches of each producer in it are judged again by what the segments before it have shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from minibroker.pipeline.jobs.verify.findings import Problem

MAX_SEQUENCE = 0x7FFFFFFF
HALF = 1 << 30
EXPIRATION_MS = 24 * 60 * 60 * 1000  # producer.id.expiration.ms: a broker forgets who was silent for so long


class Event(NamedTuple):
    """A batch of a producer, or a marker of its transaction. `missing` as of `OffsetCheck.missing_before`."""

    epoch: int
    first_sequence: int  # -1: a marker, or a coordinator's batch, which have none
    last_sequence: int
    offset: int
    last_offset: int
    timestamp: int
    position: int
    missing: int


class State(NamedTuple):
    """Where a producer stands. `expected` is the next sequence, None as long as nobody can know it."""

    epoch: int
    expected: int | None
    last_offset: int  # of its last batch with sequences, -1: none is known
    timestamp: int
    missing: int
    stale_epoch: int = -1  # of a batch under an older epoch that was just told of

    def after(self, event: Event) -> State:
        """The state behind the event."""
        if event.epoch < self.epoch and event.epoch != self.stale_epoch:
            return self._replace(stale_epoch=event.epoch)
        expected: int | None
        if event.first_sequence >= 0:
            expected, last_offset = (event.last_sequence + 1) & MAX_SEQUENCE, event.last_offset
        elif event.epoch > self.epoch:  # what is missing between may have been of the new epoch already
            expected, last_offset = 0 if event.missing == self.missing else None, -1
        else:
            return self._replace(timestamp=event.timestamp, stale_epoch=-1)
        return State(event.epoch, expected, last_offset, event.timestamp, event.missing)

    @classmethod
    def of(cls, event: Event) -> State:
        """Return the state after the first event of a producer."""
        if event.first_sequence < 0:
            return cls(event.epoch, None, -1, event.timestamp, event.missing)
        expected = (event.last_sequence + 1) & MAX_SEQUENCE
        return cls(event.epoch, expected, event.last_offset, event.timestamp, event.missing)


def judged(state: State, event: Event, producer_id: int, log_start: int) -> Problem | None:
    """Return what is wrong with an event that follows a state.

    Nothing is known to be wrong with a sequence where batches in between were compacted away or are damaged, where the
    broker has forgotten the producer, or where what was known lies before the log's start.
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
    """Takes the events of one segment in order; `heads` has those that only the segments before it let judge."""

    log_start: int = 0
    states: dict[int, State] = field(default_factory=dict)
    heads: dict[int, list[Event]] = field(default_factory=dict)

    def take(self, producer_id: int, event: Event) -> Problem | None:
        """Take in the event; return what is wrong with it, as far as the segment itself shows."""
        state = self.states.get(producer_id)
        if state is None:
            self.heads[producer_id] = [event]
            self.states[producer_id] = State.of(event)
            return None
        if state.expected is None:
            self._note_head(producer_id, event)
        problem = judged(state, event, producer_id, self.log_start)
        self.states[producer_id] = state.after(event)
        return problem

    def _note_head(self, producer_id: int, event: Event) -> None:
        """Markers under one epoch all say the same: the last of them stands for all behind the first."""
        heads = self.heads[producer_id]
        if event.first_sequence < 0 and len(heads) > 1 and heads[-1].epoch == event.epoch == heads[-2].epoch:
            heads.pop()
        heads.append(event)


def carried_on(
    states: dict[int, State], segment: ProducerCheck, missing: int, log_start: int
) -> Iterator[tuple[int, Problem]]:
    """Bring the producers' states over one more segment; what is wrong with its first batches.

    `missing` is what was missing before the segment.
    """
    for producer_id, heads in segment.heads.items():
        state = states.get(producer_id)
        for head in heads:
            event = head._replace(missing=head.missing + missing)
            if state is None:
                state = State.of(event)
                continue
            problem = judged(state, event, producer_id, log_start)
            if problem is not None:
                yield producer_id, problem
            state = state.after(event)
        end = segment.states[producer_id]
        if end.expected is not None:
            state = end._replace(missing=end.missing + missing)
        assert state is not None
        states[producer_id] = state
