"""What may stand in a connection's output besides regions of files: bytes, marks, and the order to close."""

from __future__ import annotations

from typing import Protocol

from minibroker.protocol.primitives import Output

CLOSE = None  # close the socket once what is before it has left


class Sent(Protocol):
    """Whoever wants to know whether an answer has left."""

    def sent(self, sent_bytes: int) -> None:
        """Take note that the answer has left."""

    def lost(self) -> None:
        """Take note that it never will."""


class Mark:
    """Stands behind an answer, to tell when this has left."""

    __slots__ = ("_answer", "_sent_bytes")

    size_bytes = 0

    def __init__(self, answer: Sent, sent_bytes: int) -> None:
        self._answer = answer
        self._sent_bytes = sent_bytes

    def reached(self) -> None:
        """All that stood before it has left."""
        self._answer.sent(self._sent_bytes)

    def lost(self) -> None:
        """It will never be reached."""
        self._answer.lost()


BYTES = frozenset({bytes, bytearray, Output})
JOINED = BYTES | {Mark}
