"""Bringing a log to the disk itself: one flush at a time, and who waits for it (group commit).

    event loop            begin: what must be synced -----> finish: the recovery point moves, waiters are told
    another thread                               sync ---/

While a flush is on its way, all who ask for one wait for the next, together. What a flush consists of, and what follows
from it, is decided by the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from minibroker.protocol.errors import KafkaError
from minibroker.storage.environment import RunAside
from minibroker.storage.files import File
from minibroker.storage.log_settings import MAX_LONG

if TYPE_CHECKING:
    from minibroker.storage.log import Log

logger = logging.getLogger("minibroker.storage")

# Is told once all that had been appended when it asked is on the disk itself, or why it is not.
Waiter = Callable[[KafkaError | None], None]


class Flush(NamedTuple):
    """The files to sync so that nothing below `end_offset` can be lost any more; they stay open until then.

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
        """Return once all is on the disk itself. May run in any thread, as it changes nothing. Raises `OSError`."""
        for file in self.files:
            file.sync()
        for path in self.directories:
            self.sync_directory(path)


class Flusher:
    """The flushes of one log."""

    __slots__ = ("_log", "_run_aside", "_on_its_way", "_again", "_held", "_successor", "_waiters", "_next_waiters")

    def __init__(self, log: Log, run_aside: RunAside) -> None:
        self._log = log
        self._run_aside = run_aside
        self._on_its_way: Flush | None = None
        self._again = False
        self._held = False
        self._successor: Flusher | None = None
        self._waiters: list[Waiter] = []
        self._next_waiters: list[Waiter] = []

    @property
    def is_needed(self) -> bool:
        """Whether what the log holds may be acknowledged only after a flush: one is due (flush.messages), or begun."""
        log = self._log
        begun = self._on_its_way is not None and log.settings.flush_messages != MAX_LONG
        return begun or log.next_offset >= log.flush_at

    def request(self, waiter: Waiter | None = None) -> None:
        """Bring all that the log holds now to the disk itself, and then call `waiter`."""
        if self._successor is not None:
            self._successor.request(waiter)
            return
        flush = self._on_its_way
        covered = flush is not None and self._covers(flush)
        if waiter is not None:
            (self._waiters if covered else self._next_waiters).append(waiter)
        if flush is None and not self._held:
            self._begin()
        elif not covered:
            self._again = True

    def hold(self) -> bool:
        """Begin no further flush until `release`; whether none is on its way any more."""
        self._held = True
        return self._on_its_way is None

    def release(self) -> None:
        """Go on, with what was asked for meanwhile."""
        self._held = False
        if self._again and self._on_its_way is None:
            self._begin()

    def hand_over(self, successor: Flusher) -> None:
        """Let another log's flusher do what is asked of this one, which is held, from now on and since it is held."""
        self._successor = successor
        waiters, self._next_waiters = self._next_waiters, []
        for waiter in waiters:
            successor.request(waiter)
        successor.request()

    def _covers(self, flush: Flush) -> bool:
        """Whether nothing has happened to the log since the flush began."""
        log = self._log
        begun = flush.end_offset, flush.active_base_offset, flush.truncation_generation
        return begun == (log.log_end_offset, log.segments[-1].base_offset, log.truncation_generation)

    def _begin(self) -> None:
        self._again = False
        waiters, self._next_waiters = self._next_waiters, []
        try:
            flush = self._log.begin_flush()
        except KafkaError as error:
            tell_each(waiters, error)
            return
        if flush is None:
            tell_each(waiters, None)
            return
        self._on_its_way, self._waiters = flush, waiters
        self._run_aside(flush.sync, partial(self._finish, flush))

    def _finish(self, flush: Flush, error: Exception | None) -> None:
        self._on_its_way = None
        waiters = self._waiters
        failure = self._log.finish_flush(flush, error)
        if self._again and not self._held:
            self._begin()  # before anybody is told, as the disk need not wait for that
        tell_each(waiters, failure)


def tell_each(waiters: Iterable[Callable[..., None]], *told: Any) -> None:
    """Call each waiter with `told`. One that raises is a mistake in it alone, and goes to the log."""
    for waiter in waiters:
        try:
            waiter(*told)
        except Exception:
            logger.exception("somebody who waited could not be told; the others are")
