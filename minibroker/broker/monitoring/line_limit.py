"""A limit on the log lines that clients cause: `LINES` per second of each kind, then one line that counts the rest.

A bad request is worth a line, but a client that sends only bad requests must not fill the disk.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Iterator

from minibroker.broker.clock import Clock, Timer
from minibroker.named_tuples import NamedTuple

LINES = 20
WINDOW_MS = 1000
# Loggers whose lines are caused by requests and connections. Lines about files and damage are never left out.
LIMITED = tuple(
    f"minibroker.{name}"
    for name in (
        "authorizer",
        "configs",
        "connections",
        "controller",
        "coordinators",
        "groups",
        "metadata",
        "moves",
        "produce",
        "proxy",
        "quotas",
        "requests",
        "transactions",
    )
)


class LineKind(NamedTuple):
    """Lines that differ only in their client; `code` is the name of the error, if the line has one."""

    logger: str
    level: int
    message: str
    code: str | None


class LineLimit(logging.Filter):
    """Passes `LINES` lines of a kind per second, and all critical lines; limits only the thread that made it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._thread = threading.get_ident()
        self._seen: Counter[LineKind] = Counter()  # only of the current second, so it stays small
        self._until_ms = 0.0
        self._timer: Timer | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record; leave it out if many of its kind were logged within the second."""
        if record.levelno >= logging.CRITICAL or record.thread != self._thread or hasattr(record, "left_out"):
            return True
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._until_ms:
            self.log_left_out_lines()
            self._until_ms = now_ms + WINDOW_MS
        kind = LineKind(record.name, record.levelno, str(record.msg), getattr(record, "code", None))
        self._seen[kind] += 1
        if self._seen[kind] <= LINES:
            return True
        if self._timer is None:
            self._timer = self._clock.call_later(self._until_ms - now_ms, self.log_left_out_lines)
        return False

    def log_left_out_lines(self) -> None:
        """Log how many lines of each kind were left out, and begin to count anew."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        seen, self._seen = self._seen, Counter()
        for kind, count in seen.items():
            if count > LINES:
                _log_number_of_left_out_lines(kind, count - LINES)


def _log_number_of_left_out_lines(kind: LineKind, left_out: int) -> None:
    message = "lines left out within a second: %d of the kind %r" + ("" if kind.code is None else " for %s")
    arguments = (left_out, kind.message.replace("%s", "..."), *(() if kind.code is None else (kind.code,)))
    logging.getLogger(kind.logger).log(kind.level, message, *arguments, extra={"left_out": left_out, "code": kind.code})


@contextlib.contextmanager
def limit_log_lines(clock: Clock) -> Iterator[None]:
    """Limit the lines of the process inside the block."""
    limit = LineLimit(clock)
    loggers = [logging.getLogger(name) for name in LIMITED]
    for logger in loggers:
        logger.addFilter(limit)
    try:
        yield
    finally:
        limit.log_left_out_lines()
        for logger in loggers:
            logger.removeFilter(limit)
