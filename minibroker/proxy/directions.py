"""What each side of a conversation sends, on its way from the splitter of its stream to the conversation."""

from __future__ import annotations

from typing import Protocol

from minibroker.proxy.frame_splitting import SIZE
from minibroker.proxy.sides import ProxySide


class ConversationReceiver(Protocol):
    """A conversation: it takes requests and answers, whole or in pieces."""

    client: ProxySide
    upstream: ProxySide

    def needs_whole_request(self, frame: memoryview) -> bool:
        """Return whether a request must be here whole before it is forwarded."""

    def process_request(self, data: bytes | bytearray) -> None:
        """Take a whole request."""

    def begin_request_in_pieces(self, frame_start: memoryview, size_bytes: int) -> None:
        """Expect the pieces of a request, which pass as they are."""

    def hold_requests_if_login_is_due(self) -> None:
        """Hold requests behind the last piece of one, if the proxy is to log in."""

    def needs_whole_next_answer(self) -> bool:
        """Return whether the next answer must be here whole before it is passed on."""

    def process_answer(self, data: bytes | bytearray) -> None:
        """Take a whole answer."""

    def begin_answer_in_pieces(self, size_bytes: int) -> None:
        """Expect the pieces of an answer."""

    def pass_answer_piece(self, data: bytes, *, is_last: bool) -> None:
        """Send a piece of an answer to the client, after all earlier answers."""


class ClientFrameReceiver:
    """What the client sends."""

    def __init__(self, conversation: ConversationReceiver) -> None:
        self._of = conversation

    def needs_whole_frame(self, frame_start: memoryview) -> bool:
        """Return whether a request must be here whole before it is forwarded."""
        return self._of.needs_whole_request(frame_start[SIZE.size :])

    def process_frame(self, data: bytes | bytearray) -> None:
        """Process a whole request."""
        self._of.process_request(data)

    def begin_frame_in_pieces(self, frame_start: memoryview, size_bytes: int) -> None:
        """Forward a request whose pieces follow."""
        self._of.begin_request_in_pieces(frame_start, size_bytes)

    def process_frame_piece(self, data: bytes, *, is_last: bool) -> None:
        """Forward a piece of a request."""
        self._of.upstream.write(data)
        if is_last:
            self._of.hold_requests_if_login_is_due()

    def pass_bytes_without_frames(self, data: bytes) -> None:
        """Forward bytes that are no frames."""
        self._of.upstream.write(data)


class NodeFrameReceiver:
    """What the node sends."""

    def __init__(self, conversation: ConversationReceiver) -> None:
        self._of = conversation

    def needs_whole_frame(self, frame_start: memoryview) -> bool:
        """Return whether an answer must be here whole before it is passed on."""
        return self._of.needs_whole_next_answer()

    def process_frame(self, data: bytes | bytearray) -> None:
        """Process a whole answer."""
        self._of.process_answer(data)

    def begin_frame_in_pieces(self, frame_start: memoryview, size_bytes: int) -> None:
        """Expect the pieces of an answer."""
        self._of.begin_answer_in_pieces(size_bytes)

    def process_frame_piece(self, data: bytes, *, is_last: bool) -> None:
        """Pass a piece of an answer to the client."""
        self._of.pass_answer_piece(data, is_last=is_last)

    def pass_bytes_without_frames(self, data: bytes) -> None:
        """Pass bytes that are no frames to the client."""
        self._of.client.write(data)
