"""Writes exchanges to a file in a thread, so that the disk never holds up a request.

The thread only writes, after it has waited a moment for more. It would share the interpreter with the loop while it
formats, and to be woken for each exchange would cost more than the writing.

What waits to be written is bounded. If the disk is slower than the clients, exchanges are left out, and counted.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import BinaryIO, Final

from minibroker.testing.exchange import Exchange

WAITING_BYTES: Final = 64 << 20
GATHERING_S: Final = 0.05  # from the first exchange to the write
GATHERED_BYTES: Final = 1 << 20  # after which the write is not put off any longer

Format = Callable[[Exchange, str], bytes]
"""Returns what a file has of an exchange with the node at this address."""


class Recording:
    """A file that is being written. `left_out` counts exchanges."""

    def __init__(self, file: BinaryIO, head: bytes, format: Format) -> None:
        """Begin to write to an open file, which belongs to the caller. Raises OSError."""
        self._file = file
        self._file.write(head)
        self._format = format
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._is_enough = threading.Event()
        self.left_out = 0
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._write, name="minibroker-recording", daemon=True)
        self._thread.start()

    def add(self, exchange: Exchange, server: str) -> None:
        """Write an exchange soon, or leave it out."""
        if self.failure is not None or self._waiting_bytes > WAITING_BYTES:
            self.left_out += 1
            return
        data = self._format(exchange, server)
        with self._lock:
            self._waiting_bytes += len(data)
        self._queue.put(data)
        if self._waiting_bytes > GATHERED_BYTES:
            self._is_enough.set()

    def close(self) -> None:
        """Write what waits, and end. Raises OSError if something could not be written."""
        self._queue.put(None)
        self._is_enough.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _write(self) -> None:
        is_last = False
        while not is_last:
            waiting = [self._queue.get()]
            self._is_enough.wait(GATHERING_S)
            self._is_enough.clear()
            with contextlib.suppress(Empty):
                while True:
                    waiting.append(self._queue.get_nowait())
            is_last = None in waiting
            self._write_all([each for each in waiting if each is not None])

    def _write_all(self, lines: list[bytes]) -> None:
        try:
            if self.failure is None:
                self._file.writelines(lines)
                self._file.flush()
        except OSError as error:
            self.failure = error
        with self._lock:
            self._waiting_bytes -= sum(map(len, lines))
