"""Writes exchanges to a file in a thread, so that the disk never holds up a request.

What waits to be written is bounded. If the disk is slower than the clients, exchanges are left out, and counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import BinaryIO, Final

from minibroker.testing.exchange import Exchange

WAITING_BYTES: Final = 64 << 20
LEAST_BYTES: Final = 1 << 10  # of memory for any exchange

Format = Callable[[Exchange, str], bytes]
"""Returns what a file has of an exchange with the node at this address. It is called in the thread."""


class Recording:
    """A file that is being written. `written` and `left_out` count exchanges."""

    def __init__(self, file: BinaryIO, head: bytes, format: Format) -> None:
        """Begin to write to an open file, which belongs to the caller. Raises OSError."""
        self._file = file
        self._file.write(head)
        self._format = format
        self._queue: SimpleQueue[tuple[Exchange, str] | None] = SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self.written = self.left_out = 0
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._write, name="minibroker-recording", daemon=True)
        self._thread.start()

    def add(self, exchange: Exchange, server: str) -> None:
        """Write an exchange soon, or leave it out."""
        with self._lock:
            if self.failure is not None or self._waiting_bytes > WAITING_BYTES:
                self.left_out += 1
                return
            self._waiting_bytes += exchange.size_bytes + LEAST_BYTES
        self._queue.put((exchange, server))

    def close(self) -> None:
        """Write what waits, and end. Raises OSError if something could not be written."""
        self._queue.put(None)
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _write(self) -> None:
        while (found := self._queue.get()) is not None:
            exchange, server = found
            try:
                if self.failure is None:
                    self._file.write(self._format(exchange, server))
                    self.written += 1
                    if self._queue.empty():
                        self._file.flush()
            except OSError as error:
                self.failure = error
            with self._lock:
                self._waiting_bytes -= exchange.size_bytes + LEAST_BYTES
