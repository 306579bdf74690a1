"""The items of a connection's output besides file regions: bytes, marks, and CLOSE."""

from __future__ import annotations

from typing import Any, Final, Protocol

from minibroker.protocol.primitives import Output

CLOSE: Final = None  # close the socket once everything before it is sent


class AnswerObserver(Protocol):
    """An observer of whether an answer was sent."""

    def add_mark_to_answer(self, items: list[Any]) -> list[Any]:
        """Return the items to send for an answer, with a mark behind them."""

    def report_answer_sent(self, sent_bytes: int) -> None:
        """Handle that the answer was sent."""

    def report_answer_lost(self) -> None:
        """Handle that the answer will never be sent."""


class AnswerEndMark:
    """A mark behind an answer, which reports when the answer was sent."""

    __slots__ = ("_answer", "_sent_bytes")

    size_bytes = 0

    def __init__(self, answer: AnswerObserver, sent_bytes: int) -> None:
        self._answer = answer
        self._sent_bytes = sent_bytes

    def report_answer_sent(self) -> None:
        """Tell the observer that the answer before the mark was sent."""
        self._answer.report_answer_sent(self._sent_bytes)

    def report_answer_lost(self) -> None:
        """Tell the observer that the answer before the mark will never be sent."""
        self._answer.report_answer_lost()


class ErrorAnswerItems(list[Any]):
    """The items of an answer with an error, where those before had none."""


class DueAnswer(Protocol):
    """An answer that may be sent at the end of the loop's turn, and no earlier."""

    def list_answer_parts(self) -> list[Any]:
        """Return the answer's items to send; call it only once the turn has ended."""


class ObservedDueAnswer:
    """An answer that its observer sees at the end of the turn."""

    __slots__ = ("_due", "_observer")

    def __init__(self, due: DueAnswer, observer: AnswerObserver) -> None:
        self._due = due
        self._observer = observer

    def list_answer_parts(self) -> list[Any]:
        """Return the items to send, once the turn has ended."""
        try:
            return self._observer.add_mark_to_answer(self._due.list_answer_parts())
        except BaseException:
            self.report_answer_lost()
            raise

    def report_answer_lost(self) -> None:
        """Report that the answer will never be sent."""
        self._observer.report_answer_lost()


BYTES: Final = frozenset({bytes, bytearray, Output})
