"""What each side of a conversation sends, on its way from the splitter of its stream to the conversation."""

from __future__ import annotations

from typing import Protocol

from minibroker.proxy.frame_splitting import SIZE
from minibroker.proxy.sides import ProxySide


class ConversationReceiver(Protocol):
    """A conversation: it takes requests and answers, whole or in pieces."""

    client: ProxySide
    upstream: ProxySide

    def wants_request(self, frame: memoryview) -> bool:
        """Return whether a request is needed whole."""

    def take_request(self, data: bytes | bytearray) -> None:
        """Take a whole request."""

    def on_request_begins(self, head: memoryview, size_bytes: int) -> None:
        """Expect the pieces of a request, which pass as they are."""

    def on_request_passed(self) -> None:
        """Go on after the last piece of a request."""

    def wants_next_answer(self) -> bool:
        """Return whether the next answer is needed whole."""

    def take_answer(self, data: bytes | bytearray) -> None:
        """Take a whole answer."""

    def on_answer_begins(self, size_bytes: int) -> None:
        """Expect the pieces of an answer."""

    def pass_answer_piece(self, data: bytes, *, is_last: bool) -> None:
        """Take a part of an answer."""


class FromClient:
    """What the client sends."""

    def __init__(self, conversation: ConversationReceiver) -> None:
        self._of = conversation

    def wants_whole_frame(self, head: memoryview) -> bool:
        return self._of.wants_request(head[SIZE.size :])

    def take_frame(self, data: bytes | bytearray) -> None:
        self._of.take_request(data)

    def on_frame_begins(self, head: memoryview, size_bytes: int) -> None:
        self._of.on_request_begins(head, size_bytes)

    def take_piece(self, data: bytes, *, is_last: bool) -> None:
        self._of.upstream.write(data)
        if is_last:
            self._of.on_request_passed()

    def take_unframed(self, data: bytes) -> None:
        self._of.upstream.write(data)


class FromNode:
    """What the node sends."""

    def __init__(self, conversation: ConversationReceiver) -> None:
        self._of = conversation

    def wants_whole_frame(self, head: memoryview) -> bool:
        return self._of.wants_next_answer()

    def take_frame(self, data: bytes | bytearray) -> None:
        self._of.take_answer(data)

    def on_frame_begins(self, head: memoryview, size_bytes: int) -> None:
        self._of.on_answer_begins(size_bytes)

    def take_piece(self, data: bytes, *, is_last: bool) -> None:
        self._of.pass_answer_piece(data, is_last=is_last)

    def take_unframed(self, data: bytes) -> None:
        self._of.client.write(data)
