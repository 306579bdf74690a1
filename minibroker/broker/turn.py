"""The turn: all appends of a turn of the event loop are written together, and only then reported.

    sockets that are ready --> requests run --> appends are pending --+     (the turn goes on: more sockets, timers)
                                                                      |
    end of the turn:  each log writes once --> answers are sent --> requests that wait for its records check again

An answer waits until what it reports is written (it survives the death of the process) or synced (it survives the death
of the machine), as `flush.messages` and the metadata log require. A failed write fails exactly the answers that wait
for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from minibroker.broker.metadata.partitions import Partition
from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.log import Log
from minibroker.storage.pending import PendingBatches

log = logging.getLogger("minibroker.requests")

CallSoon = Callable[[Callable[[], None]], object]
Then = Callable[[KafkaError | None], None]  # called with the failure, or None
Refuse = Callable[[KafkaError], None]  # puts the failure into the answer

NOT_WRITTEN: Final = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "It was not written when its turn ended.")


class AppendWait(NamedTuple):
    """A condition for sending an answer: the batches `pending` in `log` are written, and with `synced` also synced.

    It can also be checked in a later turn. `translated_codes` maps the log's error codes to those for the client.
    """

    log: Log
    pending: PendingBatches | None
    synced: bool = False
    translated_codes: Mapping[ErrorCode, ErrorCode] = {}

    @property
    def is_over(self) -> bool:
        """Return whether there is nothing to wait for."""
        return not self.synced and self.pending is None


def make_append_wait(log: Log, translated_codes: Mapping[ErrorCode, ErrorCode] = {}) -> AppendWait:
    """Return the wait for everything that was appended to the log so far."""
    return AppendWait(log, log.pending_batches, log.flusher.is_needed, translated_codes)


def write_pending_appends(wait: AppendWait) -> None:
    """Write the pending batches now, before what depends on them is appended to another log. Raises KafkaError."""
    wait.log.write_pending_batches()
    failure = find_append_failure(wait)
    if failure is not None:
        raise failure


class TurnListener(Protocol):
    """What waits for the end of the turn: a connection with answers, or a request that waits for records."""

    def on_turn_ended(self) -> None:
        """Continue after the end of the turn, when everything is written or has failed (`find_append_failure`)."""


def find_append_failure(wait: AppendWait) -> KafkaError | None:
    """Return why the batches of `wait` were not written, or None if they were; call it after the write."""
    return (
        None if wait.pending is None else _translate_append_failure(wait, find_failure_of_pending_batches(wait.pending))
    )


def find_failure_of_pending_batches(pending: PendingBatches) -> KafkaError | None:
    """Return why these batches were not written, or None if they were; call it after the write."""
    return NOT_WRITTEN if pending.headers else pending.failure


def _translate_append_failure(wait: AppendWait, failure: KafkaError | None) -> KafkaError | None:
    """Return the failure with its code translated for the wait's clients; None for None."""
    if failure is None or failure.code not in wait.translated_codes:
        return failure
    return KafkaError(wait.translated_codes[failure.code], failure.message)


class Turn:
    """The work at the end of the current turn of the loop. Without a loop, appends are written at once."""

    __slots__ = ("_call_soon", "_due", "_logs", "_listeners", "_waits")

    def __init__(self) -> None:
        self._call_soon: CallSoon | None = None
        self._due = False
        self._logs: dict[Log, tuple[Partition, int]] = {}
        self._listeners: dict[TurnListener, None] = {}
        self._waits: list[tuple[AppendWait, Then]] = []

    def bind_to_loop(self, call_soon: CallSoon) -> None:
        """End turns by this loop's `call_soon` from now on."""
        self._call_soon = call_soon

    @property
    def may_delay_appends(self) -> bool:
        """Return whether small appends may wait for the end of the turn."""
        return self._call_soon is not None

    # --- what happens in the turn ---------------------------------------------------------------

    def write_log_at_turn_end(self, partition: Partition, size_bytes: int) -> None:
        """Write the partition's log at the end of the turn, and then wake those who wait for its records."""
        known = self._logs.get(partition.log)
        self._logs[partition.log] = (partition, size_bytes if known is None else known[1] + size_bytes)
        self._schedule_turn_end()

    def add_listener(self, listener: TurnListener) -> None:
        """Call `on_turn_ended` of `listener` when everything is written."""
        self._listeners[listener] = None
        self._schedule_turn_end()

    def call_when_wait_is_over(self, wait: AppendWait, callback: Then) -> None:
        """Call `callback` once the wait is over or has failed; now, if that is already known."""
        if wait.pending is not None and wait.pending.headers:
            self._waits.append((wait, callback))
            self._schedule_turn_end()
        else:
            _call_when_wait_is_flushed(wait, callback)

    def _schedule_turn_end(self) -> None:
        if not self._due and self._call_soon is not None:
            self._due = True
            self._call_soon(self.end)

    # --- its end --------------------------------------------------------------------------------

    def end(self) -> None:
        """Write all pending batches, move the high watermarks, and call listeners and those who wait for records."""
        logs, self._logs = self._logs, {}
        waits, self._waits = self._waits, []  # those that come from now on are for the next turn's writes
        for each, (partition, size_bytes) in logs.items():
            try:
                each.write_pending_batches()
                if partition.waiters:  # even after a failure, as a part may have been written before
                    partition.notify_waiters_of_records(size_bytes)
            except Exception:
                log.exception("a log could not be written")
        self._due = False  # only now, as those who wait for records become listeners of this end
        if self._logs or self._waits:
            self._schedule_turn_end()
        listeners, self._listeners = self._listeners, {}
        for listener in listeners:
            try:
                listener.on_turn_ended()
            except Exception:
                log.exception("a request failed when its turn ended")
        for wait, then in waits:
            try:
                _call_when_wait_is_flushed(wait, then)
            except Exception:
                log.exception("a request failed when its turn ended")


def _call_when_wait_is_flushed(wait: AppendWait, callback: Then) -> None:
    """Call `callback` with the failure of the write, or of the sync if the wait needs one, or with None."""
    failure = find_append_failure(wait)
    if failure is None and wait.synced:
        wait.log.flush_soon(lambda failure: callback(_translate_append_failure(wait, failure)))
    else:
        callback(failure)
