"""Writes exchanges to a file in a thread, so that the disk never holds up a request.

The thread only writes, after it has waited a moment for more. It would share the interpreter with the loop while it
formats, and to be woken for each exchange would cost more than the writing. But large exchanges it formats in pieces.

What waits to be written is bounded. If the disk is slower than the clients, exchanges are left out, and counted.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import BinaryIO, Final, NamedTuple

from minibroker.testing.seen.exchange import Exchange

WAITING_BYTES: Final = 64 << 20
GATHERING_S: Final = 0.05  # from the first exchange to the write
GATHERED_BYTES: Final = 1 << 20  # after which the write is not put off any longer

LARGE_BYTES: Final = 256 << 10  # of the frames of an exchange

FormatExchange = Callable[[Exchange, str], Iterable[bytes]]
"""Returns the pieces of what a file has of an exchange with the node at this address. A thread may make them."""


class WaitingBytes(NamedTuple):
    """What waits to be written, and about how many bytes that is."""

    pieces: Iterable[bytes]
    size_bytes: int


class ExchangeRecording:
    """A file that is being written. `left_out` counts exchanges."""

    def __init__(self, file: BinaryIO, head: bytes, format: FormatExchange) -> None:
        """Begin to write to an open file, which belongs to the caller. Raises OSError."""
        self._file = file
        self._file.write(head)
        self._format = format
        self._queue: SimpleQueue[WaitingBytes | None] = SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._is_enough = threading.Event()
        self.left_out = 0
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._write_exchanges, name="minibroker-recording", daemon=True)
        self._thread.start()

    def add_exchange(self, exchange: Exchange, server: str) -> None:
        """Write an exchange soon, or leave it out."""
        if self.failure is not None or self._waiting_bytes > WAITING_BYTES:
            self.left_out += 1
            return
        pieces = self._format(exchange, server)
        if exchange.size_bytes > LARGE_BYTES:
            waiting = WaitingBytes(pieces, exchange.size_bytes)
        else:
            data = b"".join(pieces)
            waiting = WaitingBytes((data,), len(data))
        with self._lock:
            self._waiting_bytes += waiting.size_bytes
        self._queue.put(waiting)
        if self._waiting_bytes > GATHERED_BYTES:
            self._is_enough.set()

    def close(self) -> None:
        """Write what waits, and end. Raises OSError if something could not be written."""
        self._queue.put(None)
        self._is_enough.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _write_exchanges(self) -> None:
        is_last = False
        while not is_last:
            waiting = [self._queue.get()]
            self._is_enough.wait(GATHERING_S)
            self._is_enough.clear()
            with contextlib.suppress(Empty):
                while True:
                    waiting.append(self._queue.get_nowait())
            is_last = None in waiting
            self._write_waiting_bytes([each for each in waiting if each is not None])

    def _write_waiting_bytes(self, waiting_bytes: list[WaitingBytes]) -> None:
        try:
            if self.failure is None:
                self._file.writelines(piece for each in waiting_bytes for piece in each.pieces)
                self._file.flush()
        except OSError as error:
            self.failure = error
        with self._lock:
            self._waiting_bytes -= sum(each.size_bytes for each in waiting_bytes)
