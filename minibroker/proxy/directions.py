"""What each side of a conversation sends, on its way from the splitter of its stream to the conversation."""

from __future__ import annotations

from typing import Protocol

from minibroker.proxy.frame_splitting import SIZE
from minibroker.proxy.sides import Side


class Conversing(Protocol):
    """A conversation: it takes requests and answers, whole or in pieces."""

    client: Side
    upstream: Side

    def wants_request(self, frame: memoryview) -> bool:
        """Return whether a request is needed whole."""

    def request(self, data: bytes | bytearray) -> None:
        """Take a whole request."""

    def request_begins(self, head: memoryview, size_bytes: int) -> None:
        """Expect the pieces of a request, which pass as they are."""

    def request_passed(self) -> None:
        """Go on after the last piece of a request."""

    def wants_next_answer(self) -> bool:
        """Return whether the next answer is needed whole."""

    def answer(self, data: bytes | bytearray) -> None:
        """Take a whole answer."""

    def answer_begins(self, size_bytes: int) -> None:
        """Expect the pieces of an answer."""

    def answer_piece(self, data: bytes, *, is_last: bool) -> None:
        """Take a part of an answer."""


class FromClient:
    """What the client sends."""

    def __init__(self, conversation: Conversing) -> None:
        self._of = conversation

    def wants(self, head: memoryview) -> bool:
        return self._of.wants_request(head[SIZE.size :])

    def frame(self, data: bytes | bytearray) -> None:
        self._of.request(data)

    def frame_begins(self, head: memoryview, size_bytes: int) -> None:
        self._of.request_begins(head, size_bytes)

    def piece(self, data: bytes, *, is_last: bool) -> None:
        self._of.upstream.write(data)
        if is_last:
            self._of.request_passed()

    def unframed(self, data: bytes) -> None:
        self._of.upstream.write(data)


class FromNode:
    """What the node sends."""

    def __init__(self, conversation: Conversing) -> None:
        self._of = conversation

    def wants(self, head: memoryview) -> bool:
        return self._of.wants_next_answer()

    def frame(self, data: bytes | bytearray) -> None:
        self._of.answer(data)

    def frame_begins(self, head: memoryview, size_bytes: int) -> None:
        self._of.answer_begins(size_bytes)

    def piece(self, data: bytes, *, is_last: bool) -> None:
        self._of.answer_piece(data, is_last=is_last)

    def unframed(self, data: bytes) -> None:
        self._of.client.write(data)
