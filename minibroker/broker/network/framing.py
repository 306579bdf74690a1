"""Frames, and the buffers of requests that did not arrive in one piece.

A frame is an int32 size and that many bytes. Memory is allocated as the bytes arrive, whatever the size: a buffer is at
most twice as large as its content. All partial frames of a loop share a budget, with separate parts for small and large
ones, so that large frames never block small ones. When a frame waits for memory, frames that hardly grow are dropped.

Copying what has arrived into a larger buffer takes up to 2 ms for a MB, since the kernel has to find the memory. So the
largest frames get the addresses of all their bytes at once, and memory as these arrive: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from mmap import mmap
from struct import Struct
from typing import Final

from minibroker.broker.clock import Clock
from minibroker.broker.network.purgatory import Purgatory
from minibroker.operating_system import reserve_memory

PREFIX: Final = Struct(">i")
PREFIX_BYTES: Final = PREFIX.size
MINIMUM_FRAME_BYTES: Final = 8  # an API key, a version and a correlation id
OWN_BYTES: Final = 4 << 10  # each connection may hold this much, whatever others hold
SMALL_FRAME_BYTES: Final = 64 << 10
SMALL_FRAMES_BYTES: Final = 128 << 20  # 2,000 of them, each with all its bytes but one
LARGE_FRAMES_BYTES: Final = 256 << 20
SPARE_BYTES: Final = 2 << 20  # one buffer of this size serves the large frames in turn
READ_BYTES: Final = 256 << 10  # from a socket at once: libuv reads 32 times before others have their turn
LEAST_PROGRESS_BYTES: Final = 16 << 10  # the bytes that must arrive while others wait for memory, in
PATIENCE_MS: Final = 1_000
TLS_HANDSHAKES: Final = range(0x160300, 0x160304)  # the first three bytes of a TLS client


class FrameError(Exception):
    """An invalid size, such as from an HTTP request: "GET " reads as 1.2 GB."""


def read_frame_size(data: memoryview, position: int, limit_bytes: int, min_bytes: int = MINIMUM_FRAME_BYTES) -> int:
    """Return the size at `position`. Raises FrameError unless it is between `min_bytes` and `limit_bytes`."""
    size: int = PREFIX.unpack_from(data, position)[0]
    if not min_bytes <= size <= limit_bytes:
        if size >> 8 in TLS_HANDSHAKES:
            raise FrameError("what begins a TLS connection, and this listener has none")
        raise FrameError(f"a frame of {size} bytes, which is not between {min_bytes} and {limit_bytes}")
    return size


class FrameMemoryPool:
    """The memory of all partial frames of one kind.

    A frame that would exceed the limit waits, except the oldest incomplete one, so that one always makes progress.
    Frames that have hardly grown for a while are dropped for waiting ones, the oldest first.
    """

    def __init__(self, limit_bytes: int, now_ms: Callable[[], float]) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.waiting: dict[PartialFrame, Callable[[], None]] = {}
        self._now_ms = now_ms
        self._holders: dict[PartialFrame, int] = {}  # in the order in which the frames began
        self._growing: dict[PartialFrame, float] = {}  # since when each has hardly grown, the oldest first

    def set_held_bytes(self, frame: PartialFrame, size_bytes: int) -> None:
        """Set the memory of `frame` to `size_bytes`."""
        self.held_bytes += size_bytes - self._holders.get(frame, 0)
        self._holders[frame] = size_bytes
        if size_bytes > OWN_BYTES and frame not in self._growing:
            self.record_progress(frame)

    def record_progress(self, frame: PartialFrame) -> None:
        """Record that `frame` has made progress."""
        self._growing.pop(frame, None)
        self._growing[frame] = self._now_ms()

    def call_when_memory_is_free(self, frame: PartialFrame, callback: Callable[[], None]) -> None:
        """Call `callback` when the next bytes of `frame` fit; drop stalled frames to make room for them."""
        self.waiting[frame] = callback
        self._growing.pop(frame, None)  # it waits for memory, not for its client
        self.drop_stalled_frames_until_room([frame])

    def drop_stalled_frames_until_room(self, waiting_frames: Iterable[PartialFrame]) -> None:
        """Drop frames that have hardly grown for a while, until the waiting ones have room."""
        lacking_bytes = self.held_bytes - self.limit_bytes + sum(map(self._count_bytes_to_reserve, waiting_frames))
        since_ms = self._now_ms() - PATIENCE_MS
        while lacking_bytes > 0 and self._growing:
            frame, grew_ms = next(iter(self._growing.items()))
            if grew_ms > since_ms:
                return
            del self._growing[frame]
            if not frame.is_complete:
                lacking_bytes -= self._holders[frame]
                frame.give_up()

    def has_room_for_frame(self, frame: PartialFrame, size_bytes: int) -> bool:
        """Return whether `frame` may hold `size_bytes` in total."""
        more_bytes = size_bytes - self._holders.get(frame, 0)
        return (
            size_bytes <= OWN_BYTES or self.held_bytes + more_bytes <= self.limit_bytes or frame is self._find_oldest()
        )

    def _find_oldest(self) -> PartialFrame | None:
        """Return the incomplete frame that began first, or None."""
        return next((frame for frame in self._holders if not frame.is_complete), None)

    def release_frame(self, frame: PartialFrame) -> None:
        """Remove `frame`, and let waiting frames grow that now fit: first those with the fewest missing bytes."""
        self.waiting.pop(frame, None)
        self._growing.pop(frame, None)
        self.held_bytes -= self._holders.pop(frame, 0)
        if not self.waiting:
            return
        oldest = self._find_oldest()
        free_bytes = self.limit_bytes - self.held_bytes
        if oldest is not None and oldest in self.waiting:
            free_bytes -= self._count_bytes_to_reserve(oldest)
            self._call_back_waiting_frame(oldest)
        for waiting in sorted(self.waiting, key=lambda frame: frame.missing_bytes):
            free_bytes -= self._count_bytes_to_reserve(waiting)
            if free_bytes < 0:
                break
            self._call_back_waiting_frame(waiting)

    def _call_back_waiting_frame(self, frame: PartialFrame) -> None:
        self.record_progress(frame)
        self.waiting.pop(frame)()

    def _count_bytes_to_reserve(self, frame: PartialFrame) -> int:
        """Return how many more bytes the frame's next buffer takes than it holds now."""
        return frame.choose_next_buffer_bytes() - self._holders.get(frame, 0)


class FrameBudget:
    """The memory limits of all partial frames, and of all bytes behind unfinished requests, on one loop.

    With `full`, sockets should be read in small pieces, as the bytes must be kept. Without a clock no frame gives way.
    """

    def __init__(self, limit_bytes: int = LARGE_FRAMES_BYTES, clock: Clock | None = None) -> None:
        now_ms = _return_zero_ms if clock is None else clock.monotonic_ms
        self.small = FrameMemoryPool(SMALL_FRAMES_BYTES, now_ms)
        self.large = FrameMemoryPool(limit_bytes, now_ms)
        self._clock = clock
        self._looks_again = False
        self.purgatory = Purgatory()
        self.backlog_bytes = 0
        self.full = False
        self._memory: bytearray | None = None
        self._lent = False

    @property
    def held_bytes(self) -> int:
        return self.small.held_bytes + self.large.held_bytes + self.backlog_bytes

    def set_held_bytes(self, frame: PartialFrame, size_bytes: int) -> None:
        """Set the memory of `frame` to `size_bytes`, which have already arrived."""
        frame.pool.set_held_bytes(frame, size_bytes)
        self._update_full_flag()

    def try_to_reserve_memory(self, frame: PartialFrame, size_bytes: int) -> bool:
        """Book `size_bytes` in total for `frame`; return False, and book nothing, if it must wait."""
        if not frame.pool.has_room_for_frame(frame, size_bytes):
            return False
        self.set_held_bytes(frame, size_bytes)
        return True

    def release_frame(self, frame: PartialFrame) -> None:
        """Remove `frame`, and let waiting frames try again."""
        frame.pool.release_frame(frame)
        self._update_full_flag()

    def call_when_memory_is_free(self, frame: PartialFrame, callback: Callable[[], None]) -> None:
        """Call `callback` when `try_to_reserve_memory` may succeed for `frame`."""
        frame.pool.call_when_memory_is_free(frame, callback)
        self._schedule_stalled_check()

    def _schedule_stalled_check(self) -> None:
        if self._clock is not None and not self._looks_again and (self.small.waiting or self.large.waiting):
            self._looks_again = True
            self._clock.call_later(PATIENCE_MS, self._disconnect_stalled_frames)

    def _disconnect_stalled_frames(self) -> None:
        self._looks_again = False
        for pool in (self.small, self.large):
            pool.drop_stalled_frames_until_room(list(pool.waiting))
        self._schedule_stalled_check()

    def add_backlog_bytes(self, more_bytes: int) -> None:
        """Add `more_bytes`, which may be negative, to the bytes behind unfinished requests."""
        self.backlog_bytes += more_bytes
        self._update_full_flag()

    def _update_full_flag(self) -> None:
        """Set whether frames and unfinished requests hold as much memory as large frames may."""
        self.full = self.held_bytes >= self.large.limit_bytes

    def get_buffer(self, size_bytes: int, total_bytes: int) -> memoryview:
        """Return a buffer of `size_bytes`, or of the whole frame if one is at hand; its content is arbitrary."""
        if size_bytes > SPARE_BYTES:
            return memoryview(reserve_memory(total_bytes))[:size_bytes]
        if self._lent or not SMALL_FRAME_BYTES < total_bytes <= SPARE_BYTES:
            return memoryview(bytearray(size_bytes))
        if self._memory is None:
            self._memory = bytearray(SPARE_BYTES)
        self._lent = True
        return memoryview(self._memory)[:total_bytes]

    def keep_buffer_for_next_frame(self, buffer: memoryview) -> None:
        """Keep the memory of `get_buffer` for the next frame, as it is warm and need not be zeroed."""
        if buffer.obj is self._memory:
            self._lent = False


def _return_zero_ms() -> float:
    return 0.0


class PartialFrame:
    """The received bytes of a frame, and room for the next ones. Starts with one byte or more.

    `give_up` closes it and its connection, as others need the memory.
    """

    __slots__ = (
        "_budget",
        "_buffer",
        "_filled",
        "_least_bytes",
        "_limit_bytes",
        "_seen_bytes",
        "_total",
        "give_up",
        "pool",
    )

    def __init__(
        self,
        start: memoryview,
        limit_bytes: int,
        budget: FrameBudget,
        disconnect: Callable[[], None],
        min_bytes: int = MINIMUM_FRAME_BYTES,
    ) -> None:
        self.give_up = disconnect
        self.pool = budget.small
        self._budget = budget
        self._limit_bytes = limit_bytes
        self._least_bytes = min_bytes
        self._filled = len(start)
        self._seen_bytes = self._filled  # when it last made progress
        self._total = 0  # unknown before the four bytes of the size have arrived
        size = max(PREFIX_BYTES, self._filled)
        self._buffer = memoryview(bytearray(size))
        self._buffer[: self._filled] = start

    @property
    def is_complete(self) -> bool:
        return self._filled == self._total

    @property
    def bytes(self) -> memoryview:
        """Return the complete frame with its size."""
        return self._buffer

    @property
    def waits_for_memory(self) -> bool:
        """Return whether the frame waits for memory."""
        return self in self.pool.waiting

    def get_buffer_for_next_bytes(self) -> memoryview:
        """Return the buffer for the next bytes; it is not empty after `grow_buffer`."""
        return self._buffer[self._filled : self._filled + READ_BYTES]

    def count_filled_bytes(self, count: int) -> None:
        """Record that `count` bytes were written to the start of `get_buffer_for_next_bytes()`."""
        self._filled += count
        if self._filled - self._seen_bytes >= LEAST_PROGRESS_BYTES:
            self._seen_bytes = self._filled
            self.pool.record_progress(self)

    @property
    def missing_bytes(self) -> int:
        """Return how many bytes of the frame have not been received, once its size is known."""
        return self._total - self._filled

    def choose_next_buffer_bytes(self) -> int:
        """Return the next size of the buffer."""
        return min(self._total, max(OWN_BYTES, 2 * self._filled))

    def grow_buffer(self) -> bool:
        """Enlarge a full buffer; return False if memory must be waited for. Raises FrameError for a bad size."""
        if self._total == 0 and self._filled >= PREFIX_BYTES:
            self._read_frame_size_and_choose_pool()
        if self._filled < len(self._buffer) or self.is_complete:
            return True
        size = self.choose_next_buffer_bytes()
        if not self._budget.try_to_reserve_memory(self, size):
            return False
        if isinstance(self._buffer.obj, mmap):
            self._buffer = memoryview(self._buffer.obj)[:size]
            return True
        larger = self._budget.get_buffer(size, self._total)
        larger[: self._filled] = self._buffer[: self._filled]
        self._budget.keep_buffer_for_next_frame(self._buffer)
        self._buffer = larger
        return True

    def _read_frame_size_and_choose_pool(self) -> None:
        """Read the size field, and take memory from the pool of large frames if the frame is one. Raises FrameError."""
        self._total = PREFIX_BYTES + read_frame_size(self._buffer, 0, self._limit_bytes, self._least_bytes)
        if self._total > SMALL_FRAME_BYTES:
            self.pool = self._budget.large
        self._budget.set_held_bytes(self, len(self._buffer))

    def call_when_memory_is_free(self, callback: Callable[[], None]) -> None:
        """Call `callback` when `grow_buffer` may succeed."""
        self._budget.call_when_memory_is_free(self, callback)

    def close(self) -> None:
        """Release the frame's memory, to which other frames may then write."""
        self._budget.keep_buffer_for_next_frame(self._buffer)
        self._budget.release_frame(self)
