"""Syncing a log (fsync): one flush at a time, on which several requests can wait (group commit).

    event loop            begin: what must be synced -----> finish: move the recovery point, call the waiters
    another thread                               sync ---/

Requests during a flush wait for the next one together. The log decides which files to sync, and moves the recovery
point.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import KafkaError
from minibroker.storage.environment import RunAside
from minibroker.storage.files import File
from minibroker.storage.log_settings import MAX_LONG

if TYPE_CHECKING:
    from minibroker.storage.log import Log

logger = logging.getLogger("minibroker.storage")

# Called when all that was appended before the request is synced, with None, or with the error.
FlushWaiter = Callable[[KafkaError | None], None]


class LogFlush(NamedTuple):
    """The files to sync so that nothing below `end_offset` can be lost. They stay open until then.

    `active_base_offset` and `truncation_generation` are those of the log when the flush began. With `whole`, the
    indexes of the active segment are among the files.
    """

    end_offset: int
    active_base_offset: int
    truncation_generation: int
    whole: bool
    files: Sequence[File]
    directories: Sequence[str]
    sync_directory: Callable[[str], None]

    def sync(self) -> None:
        """Sync all files and directories. May run in any thread, as it changes no state. Raises `OSError`."""
        for file in self.files:
            file.sync()
        for path in self.directories:
            self.sync_directory(path)


class LogFlusher:
    """The flushes of one log. `close` lets go of it, so that a deleted log is freed without a collection of cycles."""

    __slots__ = ("_log", "_run_aside", "_on_its_way", "_again", "_held", "_successor", "_waiters", "_next_waiters")

    def __init__(self, log: Log, run_in_thread: RunAside) -> None:
        self._log: Log | None = log
        self._run_aside = run_in_thread
        self._on_its_way: LogFlush | None = None
        self._again = False
        self._held = False
        self._successor: LogFlusher | None = None
        self._waiters: list[FlushWaiter] = []
        self._next_waiters: list[FlushWaiter] = []

    @property
    def is_needed(self) -> bool:
        """Whether acknowledgements must wait for a flush: one is due (`flush.messages`), or has begun."""
        log = self._log
        if log is None:
            return False
        begun = self._on_its_way is not None and log.settings.flush_messages != MAX_LONG
        return begun or log.next_offset >= log.flush_at

    def request_flush(self, waiter: FlushWaiter | None = None) -> None:
        """Sync all that the log contains now, and then call `waiter`."""
        if self._successor is not None:
            self._successor.request_flush(waiter)
            return
        flush = self._on_its_way
        log = self._log
        covered = flush is not None and log is not None and _covers_all_appends(flush, log)
        if waiter is not None:
            (self._waiters if covered else self._next_waiters).append(waiter)
        if flush is None and not self._held:
            self._begin_flush()
        elif not covered:
            self._again = True

    def hold_back_flushes(self) -> bool:
        """Begin no flush until `release_held_flushes`. Return whether none is running."""
        self._held = True
        return self._on_its_way is None

    def release_held_flushes(self) -> None:
        """Allow flushes again, and begin the one that was requested since `hold_back_flushes`."""
        self._held = False
        if self._again and self._on_its_way is None:
            self._begin_flush()

    def transfer_requests_to_successor(self, successor: LogFlusher) -> None:
        """Pass all requests since `hold_back_flushes`, and all later ones, to the flusher of the log's replacement."""
        self._successor = successor
        waiters, self._next_waiters = self._next_waiters, []
        for waiter in waiters:
            successor.request_flush(waiter)
        successor.request_flush()

    def close(self) -> None:
        """Begin no flush any more."""
        self._log = None

    def _begin_flush(self) -> None:
        """Begin a flush in another thread, unless nothing is to be synced, and answer its waiters then."""
        self._again = False
        waiters, self._next_waiters = self._next_waiters, []
        log = self._log
        try:
            flush = None if log is None else log.begin_flush()
        except KafkaError as error:
            call_all_waiters(waiters, error)
            return
        if flush is None or log is None:
            call_all_waiters(waiters, None)
            return
        self._on_its_way, self._waiters = flush, waiters
        self._run_aside(flush.sync, partial(self._finish_flush, log, flush))

    def _finish_flush(self, log: Log, flush: LogFlush, error: Exception | None) -> None:
        """Finish a flush in the log, begin the next one if it was requested, and call the waiters."""
        self._on_its_way = None
        waiters = self._waiters
        failure = log.finish_flush(flush, error)
        if self._again and not self._held:
            self._begin_flush()  # before calling the waiters, for which the disk need not wait
        call_all_waiters(waiters, failure)


def _covers_all_appends(flush: LogFlush, log: Log) -> bool:
    """Return whether the log has not changed since the flush began."""
    begun = flush.end_offset, flush.active_base_offset, flush.truncation_generation
    return begun == (log.log_end_offset, log.segments[-1].base_offset, log.truncation_generation)


def call_all_waiters(waiters: Iterable[Callable[..., None]], *arguments: Any) -> None:
    """Call each waiter with `arguments`. An exception in one is logged, and does not affect the others."""
    for waiter in waiters:
        try:
            waiter(*arguments)
        except Exception:
            logger.exception("a callback after a flush has failed; the others are called")
