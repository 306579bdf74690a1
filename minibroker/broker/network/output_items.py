"""The items of a connection's output besides file regions: bytes, marks, and CLOSE."""

from __future__ import annotations

from typing import Protocol

from minibroker.protocol.primitives import Output

CLOSE = None  # close the socket once everything before it is sent


class Sent(Protocol):
    """An observer of whether an answer was sent."""

    def sent(self, sent_bytes: int) -> None:
        """Handle that the answer was sent."""

    def lost(self) -> None:
        """Handle that the answer will never be sent."""


class Mark:
    """A mark behind an answer, which reports when the answer was sent."""

    __slots__ = ("_answer", "_sent_bytes")

    size_bytes = 0

    def __init__(self, answer: Sent, sent_bytes: int) -> None:
        self._answer = answer
        self._sent_bytes = sent_bytes

    def reached(self) -> None:
        """Report that everything before the mark was sent."""
        self._answer.sent(self._sent_bytes)

    def lost(self) -> None:
        """Report that the mark will never be reached."""
        self._answer.lost()


BYTES = frozenset({bytes, bytearray, Output})
JOINED = BYTES | {Mark}
