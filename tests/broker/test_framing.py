"""Partial frames: memory grows with the bytes that came, and all of a loop share one budget."""

from __future__ import annotations

from struct import pack

import pytest

from minibroker.broker.framing import (
    FIRST_ALLOCATION_BYTES,
    SPARE_BYTES,
    FrameBudget,
    FrameError,
    PartialFrame,
    frame_size,
)

LIMIT_BYTES = 100 << 20


def start_of_frame(size: int, body: bytes = b"") -> memoryview:
    return memoryview(pack(">i", size) + body)


@pytest.mark.parametrize("size", [-1, 0, 7, LIMIT_BYTES + 1, 0x47455420])
def test_a_size_outside_of_the_bounds_is_refused(size: int) -> None:
    with pytest.raises(FrameError, match=str(size)):
        frame_size(start_of_frame(size), 0, LIMIT_BYTES)


@pytest.mark.parametrize("size", [8, LIMIT_BYTES])
def test_the_bounds_themselves_are_accepted(size: int) -> None:
    assert frame_size(start_of_frame(size), 0, LIMIT_BYTES) == size


def test_an_announced_size_takes_no_memory_before_its_bytes_come() -> None:
    budget = FrameBudget()
    frame = PartialFrame(start_of_frame(LIMIT_BYTES), LIMIT_BYTES, budget)
    assert frame.grow()
    assert budget.held_bytes == FIRST_ALLOCATION_BYTES
    assert len(frame.room()) == FIRST_ALLOCATION_BYTES - 4


def test_a_frame_completes_byte_by_byte() -> None:
    content = pack(">i", 9) + b"123456789"
    frame = PartialFrame(memoryview(content[:1]), LIMIT_BYTES, FrameBudget())
    for byte in content[1:]:
        assert frame.grow()
        assert not frame.complete
        frame.room()[0] = byte
        frame.filled(1)
    assert frame.grow()
    assert frame.complete
    assert bytes(frame.bytes) == content


def test_growing_keeps_what_is_there() -> None:
    size = 3 * FIRST_ALLOCATION_BYTES
    content = pack(">i", size) + bytes(range(256)) * (size // 256)
    frame = PartialFrame(memoryview(content[:10]), LIMIT_BYTES, FrameBudget())
    position = 10
    while frame.grow() and not frame.complete:
        room = frame.room()
        count = min(len(room), 100_000)
        room[:count] = content[position : position + count]
        frame.filled(count)
        position += count
    assert bytes(frame.bytes) == content


def test_beyond_the_budget_all_but_the_oldest_wait_until_bytes_are_given_back() -> None:
    budget = FrameBudget(FIRST_ALLOCATION_BYTES)
    oldest = PartialFrame(start_of_frame(LIMIT_BYTES), LIMIT_BYTES, budget)
    other = PartialFrame(start_of_frame(LIMIT_BYTES), LIMIT_BYTES, budget)
    woken: list[str] = []
    assert oldest.grow()
    assert not other.grow()
    other.wait(lambda: woken.append("other"))
    oldest.filled(len(oldest.room()))
    assert oldest.grow(), "one frame always gets on, or nobody would"
    oldest.close()
    assert woken == ["other"]
    assert other.grow()
    other.close()
    assert budget.held_bytes == 0


def test_a_frame_that_is_given_up_is_not_woken() -> None:
    budget = FrameBudget(FIRST_ALLOCATION_BYTES)
    oldest = PartialFrame(start_of_frame(LIMIT_BYTES), LIMIT_BYTES, budget)
    gone = PartialFrame(start_of_frame(LIMIT_BYTES), LIMIT_BYTES, budget)
    woken: list[str] = []
    oldest.grow()
    gone.wait(lambda: woken.append("gone"))
    gone.close()
    oldest.close()
    assert woken == []
    assert budget.held_bytes == 0


def test_large_frames_share_one_buffer_in_turn_but_never_at_once() -> None:
    budget = FrameBudget()
    first, second = budget.buffer(1000), budget.buffer(2000)
    assert first.obj is not second.obj
    assert (len(first), len(second)) == (1000, 2000)
    budget.take_back(second)
    assert budget.buffer(3000).obj is not first.obj, "the first is still in use"
    budget.take_back(first)
    assert budget.buffer(SPARE_BYTES).obj is first.obj


def test_a_frame_above_the_shared_buffer_gets_its_own() -> None:
    assert len(FrameBudget().buffer(SPARE_BYTES + 1)) == SPARE_BYTES + 1
