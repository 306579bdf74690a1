"""Frames in a stream: whole if they are wanted, in pieces if not, and every byte once, however the stream is cut."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from minibroker.proxy.frame_splitting import HEAD_BYTES, LARGEST_BYTES, SMALL_BYTES, FrameMemory, FrameSplitter


class Receiver:
    def __init__(self, wanted: bool = True) -> None:
        self.wanted = wanted
        self.frames: list[bytes] = []
        self.begun: list[int] = []
        self.passed = b""
        self.plain = b""
        self.hold_after = -1
        self.splitter: FrameSplitter | None = None

    def needs_whole_frame(self, frame_start: memoryview) -> bool:
        return self.wanted

    def process_frame(self, data: bytes) -> None:
        self.frames.append(data)
        self.passed += data
        if len(self.frames) == self.hold_after and self.splitter is not None:
            self.splitter.held = True

    def begin_frame_in_pieces(self, head: memoryview, size_bytes: int) -> None:
        self.begun.append(size_bytes)

    def process_frame_piece(self, data: bytes, *, is_last: bool) -> None:
        self.passed += data

    def pass_bytes_without_frames(self, data: bytes) -> None:
        self.plain += data
        self.passed += data


def frame(size: int) -> bytes:
    return struct.pack(">i", size) + bytes(each % 251 for each in range(size))


def fed(receiver: Receiver, data: bytes, step: int, memory: FrameMemory | None = None) -> FrameSplitter:
    splitter = receiver.splitter = FrameSplitter(receiver, memory or FrameMemory())
    for start in range(0, len(data), step):
        splitter.process_bytes(memoryview(data)[start : start + step])
    return splitter


@given(
    st.lists(st.integers(0, 3 * HEAD_BYTES), max_size=8), st.integers(1, 2 * HEAD_BYTES), st.booleans(), st.booleans()
)
def test_frames_are_complete_and_in_order_however_the_stream_is_split(
    sizes: list[int], step: int, wanted: bool, ends_early: bool
) -> None:
    frames = [frame(size) for size in sizes]
    data = b"".join(frames)
    if ends_early:
        data = data[:-1]
    receiver = Receiver(wanted)
    splitter = fed(receiver, data, step)
    if wanted and not ends_early:
        assert receiver.frames == frames
    assert all(each in frames for each in receiver.frames)
    splitter.pass_incomplete_frame()
    assert receiver.passed == data


def test_a_large_frame_that_the_proxy_need_not_decode_is_forwarded_as_it_arrives() -> None:
    receiver = Receiver(wanted=False)
    data = frame(SMALL_BYTES)
    fed(receiver, data[: 2 * HEAD_BYTES], HEAD_BYTES)
    assert receiver.begun == [len(data)]
    assert receiver.passed == data[: 2 * HEAD_BYTES]


def test_bytes_behind_a_held_frame_wait_until_it_is_released() -> None:
    receiver = Receiver()
    receiver.hold_after = 1
    data = frame(3) + frame(5) + frame(7)
    splitter = fed(receiver, data, len(data))
    assert receiver.frames == [frame(3)]
    splitter.process_bytes(memoryview(frame(9)))
    assert receiver.frames == [frame(3)]
    splitter.resume_after_hold()
    assert receiver.passed == data + frame(9)


def test_a_stream_that_does_not_consist_of_frames_is_forwarded_unchanged() -> None:
    receiver = Receiver()
    fed(receiver, frame(3) + b"\xff\xff\xff\xff and more", 2)
    assert receiver.frames == [frame(3)]
    assert receiver.plain == b"\xff\xff\xff\xff and more"


def test_frames_beyond_the_memory_limit_of_the_proxy_are_forwarded_in_pieces() -> None:
    memory = FrameMemory(SMALL_BYTES + 100)
    first, second = Receiver(), Receiver()
    data = frame(SMALL_BYTES + 8)
    splitter = fed(first, data[:-1], HEAD_BYTES, memory)
    fed(second, data, HEAD_BYTES, memory)
    assert second.begun == [len(data)] and second.passed == data
    splitter.process_bytes(memoryview(data[-1:]))
    assert first.frames == [data]
    assert memory.held_bytes == 0


def test_an_announced_size_allocates_no_memory_beyond_the_limit() -> None:
    memory, receiver = FrameMemory(), Receiver()
    splitter = fed(receiver, struct.pack(">i", 2**31 - 1) + bytes(2 * HEAD_BYTES), 100, memory)
    assert receiver.begun and memory.held_bytes == 0
    splitter.close()
    for _ in range(10):
        fed(Receiver(), struct.pack(">i", LARGEST_BYTES - 100) + bytes(2 * HEAD_BYTES), 4096, memory)
    assert memory.held_bytes <= memory.limit_bytes
