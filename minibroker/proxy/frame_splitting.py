"""Splits a stream into frames. Frames that somebody wants are collected whole, all others pass in pieces.

    size | head ... |  wanted: one call of `process_frame`
                    |  else: `begin_frame_in_pieces` with the head, then `process_frame_piece` for each part

A stream whose sizes make no sense is no stream of frames; it passes as it is from there on.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Protocol, cast

SIZE: Final = Struct(">i")
HEAD_BYTES: Final = 4 << 10  # what decides whether a frame is wanted: of a request, the header and a little more
SMALL_BYTES: Final = 64 << 10
LARGEST_BYTES: Final = 100 << 20  # of a frame that is collected; Kafka's limit of requests
BACKLOG_BYTES: Final = 64 << 10


class FrameMemory:
    """The memory of all frames above 64 KiB that are being collected. Frames that do not fit pass in pieces."""

    def __init__(self, limit_bytes: int = 256 << 20) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    def try_to_reserve(self, size_bytes: int) -> bool:
        """Reserve memory for a frame, if there is any left."""
        if size_bytes <= SMALL_BYTES:
            return True
        if size_bytes > LARGEST_BYTES or self.held_bytes + size_bytes > self.limit_bytes:
            return False
        self.held_bytes += size_bytes
        return True

    def release_bytes(self, size_bytes: int) -> None:
        """Release the memory of a frame."""
        if size_bytes > SMALL_BYTES:
            self.held_bytes -= size_bytes


class FrameReceiver(Protocol):
    """Takes the frames of a stream. All bytes include the size of their frame."""

    def needs_whole_frame(self, frame_start: memoryview) -> bool:
        """Return whether a frame that is not here whole must be collected, rather than pass in pieces."""

    def process_frame(self, data: bytes | bytearray) -> None:
        """Take a whole frame, whose memory is its own from now on."""

    def begin_frame_in_pieces(self, frame_start: memoryview, size_bytes: int) -> None:
        """Expect the pieces of a frame. Its head is in the first one, too."""

    def process_frame_piece(self, data: bytes, *, is_last: bool) -> None:
        """Process a piece of a frame that is not collected."""

    def pass_bytes_without_frames(self, data: bytes) -> None:
        """Take bytes of a stream that has no frames, or none any more."""


class FrameSplitter:
    """The state of one stream. While it is `held`, bytes wait in its backlog; `resume_after_hold` goes on with them."""

    __slots__ = (
        "_backlog",
        "_collected",
        "_left_bytes",
        "_memory",
        "_filled_bytes",
        "_receiver",
        "_whole",
        "held",
        "is_plain",
    )

    def __init__(self, receiver: FrameReceiver, memory: FrameMemory) -> None:
        self.held = False
        self.is_plain = False  # whether the stream has no frames
        self._receiver = receiver
        self._memory = memory
        self._backlog = bytearray()
        self._collected: bytearray | None = None  # the beginning of a frame, until it is decided who wants it
        self._whole = memoryview(b"")  # the memory of a wanted frame, of which so many bytes are there:
        self._filled_bytes = 0
        self._left_bytes = 0  # of a frame that passes in pieces

    @property
    def is_full(self) -> bool:
        """Return whether so many bytes wait that no more should be received."""
        return len(self._backlog) >= BACKLOG_BYTES

    @property
    def is_idle(self) -> bool:
        """Return whether no received bytes wait."""
        return not self._backlog

    @property
    def is_passing_frame_in_pieces(self) -> bool:
        """Return whether the rest of a frame that passes in pieces is still to come."""
        return self._left_bytes > 0

    def get_buffer(self, scratch: memoryview) -> memoryview:
        """Return the buffer for the next bytes: that of a frame that is being collected, or else `scratch`."""
        if self._whole and not self.held:
            return self._whole[self._filled_bytes : self._filled_bytes + len(scratch)]
        return scratch

    def process_received_bytes(self, scratch: memoryview, count: int) -> None:
        """Process the first `count` bytes of the buffer that `get_buffer` has returned."""
        if self._whole and not self.held:
            self._count_filled_bytes(count)
        else:
            self.process_bytes(scratch[:count])

    def process_bytes(self, data: memoryview) -> None:
        """Process the next bytes of the stream, which are copied."""
        if self._backlog:
            self._backlog += data
            if self.held:
                return
            data = memoryview(bytes(self._backlog))
            self._backlog.clear()
        position = self._split_frames(data)
        if position < len(data):
            self._backlog += data[position:]

    def resume_after_hold(self) -> None:
        """Split the bytes that have waited for the end of a hold."""
        self.held = False
        if self._backlog:
            self.process_bytes(memoryview(b""))

    def pass_incomplete_frame(self) -> None:
        """Pass on the bytes of a frame whose rest will never come."""
        collected = bytes(self._whole[: self._filled_bytes] if self._whole else self._collected or b"")
        self.close()
        self.is_plain = True
        if collected:
            self._receiver.pass_bytes_without_frames(collected)

    def close(self) -> None:
        """Release the memory of a frame that will never be whole."""
        self._memory.release_bytes(len(self._whole))
        self._collected, self._whole = None, memoryview(b"")

    def _split_frames(self, data: memoryview) -> int:
        """Pass on frames and pieces of frames, up to a hold; return how many bytes were taken."""
        position, end = 0, len(data)
        while position < end and not self.held:
            if self.is_plain:
                self._receiver.pass_bytes_without_frames(bytes(data[position:]))
                return end
            if self._left_bytes:
                stop = min(position + self._left_bytes, end)
                self._left_bytes -= stop - position
                self._receiver.process_frame_piece(bytes(data[position:stop]), is_last=not self._left_bytes)
                position = stop
            elif self._whole:
                stop = min(position + len(self._whole) - self._filled_bytes, end)
                self._whole[self._filled_bytes : self._filled_bytes + stop - position] = data[position:stop]
                self._count_filled_bytes(stop - position)
                position = stop
            elif self._collected is not None:
                position = self._collect_bytes(self._collected, data, position)
            else:
                position = self._begin_frame(data, position)
        return position

    def _begin_frame(self, data: memoryview, position: int) -> int:
        """Pass on a whole frame, or begin to collect one. Return the position after the bytes that were used."""
        if len(data) - position >= SIZE.size:
            size = _read_size(data, position)
            stop = position + SIZE.size + size
            if size < 0:
                self.is_plain = True
                return position
            if stop <= len(data):
                self._receiver.process_frame(bytes(data[position:stop]))
                return stop
        self._collected = bytearray()
        return position

    def _collect_bytes(self, collected_bytes: bytearray, data: memoryview, position: int) -> int:
        """Add bytes to the frame that is being collected. Return the position after them."""
        wanted = self._count_bytes_until_decision(collected_bytes)
        stop = min(position + wanted - len(collected_bytes), len(data))
        collected_bytes += data[position:stop]
        if len(collected_bytes) < wanted:
            return stop
        if len(collected_bytes) > SIZE.size or _read_size(collected_bytes) <= 0:
            self._collect_or_pass_frame(collected_bytes)
        return stop

    def _count_bytes_until_decision(self, collected_bytes: bytearray) -> int:
        """Return how many bytes a frame must have here for the next decision: its size field, or its head."""
        if len(collected_bytes) < SIZE.size:
            return SIZE.size
        return min(SIZE.size + max(_read_size(collected_bytes), 0), HEAD_BYTES)

    def _count_filled_bytes(self, count: int) -> None:
        """Count bytes that were put into the memory of a collected frame; pass it on once it is whole."""
        self._filled_bytes += count
        if self._filled_bytes == len(self._whole):
            frame = cast(bytearray, self._whole.obj)
            self.close()
            self._receiver.process_frame(frame)

    def _collect_or_pass_frame(self, collected_bytes: bytearray) -> None:
        """Decide by a frame's head whether to collect the rest, or to pass it on in pieces."""
        size = _read_size(collected_bytes)
        size_bytes = SIZE.size + size
        head = bytes(collected_bytes)
        if size < 0:
            self._collected, self.is_plain = None, True
            self._receiver.pass_bytes_without_frames(head)
        elif len(head) == size_bytes:
            self._collected = None
            self._receiver.process_frame(head)
        elif self._receiver.needs_whole_frame(memoryview(head)) and self._memory.try_to_reserve(size_bytes):
            self._collected = None
            self._whole = memoryview(bytearray(size_bytes))  # the system finds the memory as bytes arrive
            self._whole[: len(head)] = head
            self._filled_bytes = len(head)
        else:
            self._collected = None
            self._left_bytes = size_bytes - len(head)
            self._receiver.begin_frame_in_pieces(memoryview(head), size_bytes)
            self._receiver.process_frame_piece(head, is_last=False)


def _read_size(data: bytearray | memoryview, position: int = 0) -> int:
    size: int = SIZE.unpack_from(data, position)[0]
    return size
