"""Frames: where a request that did not arrive in one piece waits for the rest of its bytes.

A frame is an int32 size and as many bytes. Memory for it is taken as the bytes arrive, never on the word of the size,
and all partial frames of a loop share one budget. What is in a frame is not known here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from struct import Struct

PREFIX = Struct(">i")
MINIMUM_FRAME_BYTES = 8  # an API key, a version and a correlation id
FIRST_ALLOCATION_BYTES = 1 << 20
PARTIAL_FRAMES_BUDGET_BYTES = 256 << 20
SPARE_BYTES = 2 << 20  # one buffer of this size serves the large frames in turn


class FrameError(Exception):
    """A size that no Kafka client sends; an HTTP request ("GET ") reads as one of 1.2 GB."""


def frame_size(data: memoryview, position: int, limit_bytes: int) -> int:
    """The size that stands at `position`. Raises FrameError outside of 8 to `limit_bytes`."""
    size: int = PREFIX.unpack_from(data, position)[0]
    if not MINIMUM_FRAME_BYTES <= size <= limit_bytes:
        raise FrameError(f"a frame of {size} bytes, which is not between {MINIMUM_FRAME_BYTES} and {limit_bytes}")
    return size


class FrameBudget:
    """The bytes that all partial frames of one loop may hold together.

    Whoever would exceed it waits, but for the oldest holder: so one frame always gets on.
    """

    def __init__(self, limit_bytes: int = PARTIAL_FRAMES_BUDGET_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._memory: bytearray | None = None
        self._lent = False
        self._holders: OrderedDict[PartialFrame, int] = OrderedDict()
        self._waiting: OrderedDict[PartialFrame, Callable[[], None]] = OrderedDict()

    def take(self, frame: PartialFrame, size_bytes: int) -> bool:
        """Book `size_bytes` in all for `frame`; False, and nothing booked, when it has to wait."""
        more_bytes = size_bytes - self._holders.get(frame, 0)
        oldest = next(iter(self._holders), frame)
        if self.held_bytes + more_bytes > self.limit_bytes and oldest is not frame:
            return False
        self._holders[frame] = size_bytes
        self.held_bytes += more_bytes
        return True

    def buffer(self, size_bytes: int) -> memoryview:
        """A buffer of exactly `size_bytes`; what is in it is anybody's."""
        if self._lent or size_bytes > SPARE_BYTES:
            return memoryview(bytearray(size_bytes))
        if self._memory is None:
            self._memory = bytearray(SPARE_BYTES)
        self._lent = True
        return memoryview(self._memory)[:size_bytes]

    def take_back(self, buffer: memoryview) -> None:
        """Nobody needs `buffer` any more: the next frame may have its memory, which is warm and need not be zeroed."""
        if buffer.obj is self._memory:
            self._lent = False

    def wait(self, frame: PartialFrame, wake: Callable[[], None]) -> None:
        """Have `wake` called once bytes are given back."""
        self._waiting[frame] = wake

    def give_back(self, frame: PartialFrame) -> None:
        """Forget `frame`, and let those that wait try again."""
        self._waiting.pop(frame, None)
        self.held_bytes -= self._holders.pop(frame, 0)
        waiting, self._waiting = self._waiting, OrderedDict()
        for wake in waiting.values():
            wake()


class PartialFrame:
    """The bytes of one frame that came so far, and room for the next ones. Starts with one byte or more."""

    __slots__ = ("_budget", "_buffer", "_filled", "_limit_bytes", "_total", "__weakref__")

    def __init__(self, start: memoryview, limit_bytes: int, budget: FrameBudget) -> None:
        self._budget = budget
        self._limit_bytes = limit_bytes
        self._filled = len(start)
        self._total = 0  # unknown before the four bytes of the size are there
        size = max(PREFIX.size, self._filled)
        self._buffer = memoryview(bytearray(size))
        self._buffer[: self._filled] = start

    @property
    def complete(self) -> bool:
        return self._filled == self._total

    @property
    def bytes(self) -> memoryview:
        """The whole frame with its size, once it is complete."""
        return self._buffer

    def room(self) -> memoryview:
        """Where the next bytes go; never empty, after `grow`."""
        return self._buffer[self._filled :]

    def filled(self, count: int) -> None:
        """`count` bytes were written to the start of `room()`."""
        self._filled += count

    def grow(self) -> bool:
        """Make room if there is none; False if the budget says wait. Raises FrameError for an impossible size."""
        if self._total == 0 and self._filled >= PREFIX.size:
            self._total = PREFIX.size + frame_size(self._buffer, 0, self._limit_bytes)
        if self._filled < len(self._buffer) or self.complete:
            return True
        size = min(self._total, max(FIRST_ALLOCATION_BYTES, 2 * self._filled))
        if not self._budget.take(self, size):
            return False
        larger = self._budget.buffer(size)
        larger[: self._filled] = self._buffer[: self._filled]
        self._budget.take_back(self._buffer)
        self._buffer = larger
        return True

    def wait(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when `grow` is worth another try."""
        self._budget.wait(self, wake)

    def close(self) -> None:
        """The frame is over: give its memory back, which others may then write to."""
        self._budget.take_back(self._buffer)
        self._budget.give_back(self)
