"""Frames of a file: what the view of frames asks of a journal, from exchanges that were saved."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from minibroker.testing.seen.exchange import Exchange
from minibroker.testing.seen.journal import JournalMark

MOST_FRAMES: Final = 100_000
MOST_BYTES: Final = 256 << 20


class FrameSource(Protocol):
    """Where frames come from: the journal of a broker or a proxy, or a file."""

    @property
    def marks(self) -> Iterable[JournalMark]:
        """Return the marks that a test has set between requests."""

    @property
    def oldest(self) -> int:
        """Return the number of the oldest request that there is."""

    def list_exchanges_after(self, number: int, count: int) -> Iterable[Exchange]:
        """Return the next `count` requests after the one with this number. Numbers have no gaps."""

    def get_exchange(self, number: int) -> Exchange | None:
        """Return the request with this number, if there is one."""


class SavedFrames:
    """The newest exchanges of a file, at most so many and so many bytes, in the order in which they began.

    A proxy writes an exchange when it has ended, and may leave some out, so the exchanges are sorted and numbered anew.
    """

    marks: Sequence[JournalMark] = ()
    oldest = 1

    def __init__(
        self, exchanges: Iterable[Exchange], max_frames: int = MOST_FRAMES, max_bytes: int = MOST_BYTES
    ) -> None:
        kept: deque[Exchange] = deque()
        size_bytes = 0
        for exchange in exchanges:
            kept.append(exchange)
            size_bytes += exchange.size_bytes
            while len(kept) > max_frames or size_bytes > max_bytes:
                size_bytes -= kept.popleft().size_bytes
        self.exchanges = sorted(kept, key=lambda exchange: exchange.number)
        for number, exchange in enumerate(self.exchanges, 1):
            exchange.number = number

    def list_exchanges_after(self, number: int, count: int) -> Iterable[Exchange]:
        """Return the next `count` exchanges after the one with this number."""
        first = max(number, 0)
        return self.exchanges[first : first + count]

    def get_exchange(self, number: int) -> Exchange | None:
        """Return the exchange with this number."""
        return self.exchanges[number - 1] if 0 < number <= len(self.exchanges) else None
