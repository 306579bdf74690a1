"""Checks the epochs and sequence numbers of producers with an id (KIP-98, KIP-360): no gaps, no repetitions.

A producer's state comes from its batches, from the first one in the log on. Each segment is checked alone. Then the
first batches of each producer in it are checked again, with the state after the segments before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from minibroker.pipeline.jobs.verify.findings import Problem

MAX_SEQUENCE = 0x7FFFFFFF
HALF = 1 << 30
EXPIRATION_MS = (
    24 * 60 * 60 * 1000
)  # producer.id.expiration.ms: brokers forget producers that write nothing for so long


class Event(NamedTuple):
    """A batch of a producer, or a marker of its transaction. `missing` is that of `OffsetCheck.missing_before`."""

    epoch: int
    first_sequence: int  # -1: a marker or a coordinator's batch, which have none
    last_sequence: int
    offset: int
    last_offset: int
    timestamp: int
    position: int
    missing: int


class State(NamedTuple):
    """The state of a producer. `expected` is the next sequence, None if unknown."""

    epoch: int
    expected: int | None
    last_offset: int  # of its last batch with sequences; -1: unknown
    timestamp: int
    missing: int
    stale_epoch: int = -1  # of a batch with an older epoch that was just reported

    def after(self, event: Event) -> State:
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
        return State(event.epoch, expected, last_offset, event.timestamp, event.missing)


UNKNOWN = State(-1 << 16, None, -1, 0, missing=-1)  # before a producer's first event, where nothing is wrong


def problem_with(state: State, event: Event, producer_id: int, log_start: int) -> Problem | None:
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
    states: dict[int, State] = field(default_factory=dict)
    heads: dict[int, list[Event]] = field(default_factory=dict)

    def take(self, producer_id: int, event: Event) -> Problem | None:
        """Add the event. Return what is wrong with it, as far as this segment shows."""
        state = self.states.get(producer_id, UNKNOWN)
        if state.expected is None:
            self._note_head(producer_id, event)
        problem = problem_with(state, event, producer_id, self.log_start)
        self.states[producer_id] = state.after(event)
        return problem

    def _note_head(self, producer_id: int, event: Event) -> None:
        """Note an event at the head of a segment.

        Markers with the same epoch are equivalent: the last replaces the others.
        """
        heads = self.heads.setdefault(producer_id, [])
        if event.first_sequence < 0 and len(heads) > 1 and heads[-1].epoch == event.epoch == heads[-2].epoch:
            heads.pop()
        heads.append(event)


def carried_on(states: dict[int, State], segment: ProducerCheck, missing: int, log_start: int) -> Iterator[Problem]:
    """Advance the producers' states by one more segment. Yield what is wrong with its first batches.

    `missing` is what was missing before the segment.
    """
    for producer_id, heads in segment.heads.items():
        state = states.get(producer_id, UNKNOWN)
        for head in heads:
            event = head._replace(missing=head.missing + missing)
            problem = problem_with(state, event, producer_id, log_start)
            if problem is not None:
                yield problem
            state = state.after(event)
        end = segment.states[producer_id]
        states[producer_id] = state if end.expected is None else end._replace(missing=end.missing + missing)
