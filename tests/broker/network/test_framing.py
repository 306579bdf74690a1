"""Partial frames: memory grows with the bytes that came, and all of a loop share one budget."""

from __future__ import annotations

from struct import pack

import pytest

from minibroker.broker.network.framing import (
    LEAST_PROGRESS_BYTES,
    OWN_BYTES,
    PATIENCE_MS,
    READ_BYTES,
    SMALL_FRAME_BYTES,
    SPARE_BYTES,
    FrameBudget,
    FrameError,
    PartialFrame,
    read_frame_size,
)
from tests.broker.manual_clock import ManualClock

LIMIT_BYTES = 100 << 20
MEBIBYTE = 1 << 20


def nobody() -> None:
    raise AssertionError("nobody waits so long")


def start_of_frame(size: int, body: bytes = b"") -> memoryview:
    return memoryview(pack(">i", size) + body)


def large_frame(budget: FrameBudget, came_bytes: int = 0) -> PartialFrame:
    """The start of a frame of the largest size, of whose body so many bytes came."""
    return PartialFrame(start_of_frame(LIMIT_BYTES, bytes(came_bytes)), LIMIT_BYTES, budget, nobody)


def fill(frame: PartialFrame, held_bytes: int) -> None:
    """Fill the frame until it holds so many bytes."""
    while frame.grow_buffer() and len(frame.bytes) < held_bytes:
        frame.count_filled_bytes(len(frame.get_buffer_for_next_bytes()))


@pytest.mark.parametrize("size", [-1, 0, 7, LIMIT_BYTES + 1, 0x47455420])
def test_a_frame_size_out_of_bounds_is_rejected(size: int) -> None:
    with pytest.raises(FrameError, match=str(size)):
        read_frame_size(start_of_frame(size), 0, LIMIT_BYTES)


@pytest.mark.parametrize("size", [8, LIMIT_BYTES])
def test_frame_sizes_at_the_bounds_are_accepted(size: int) -> None:
    assert read_frame_size(start_of_frame(size), 0, LIMIT_BYTES) == size


def test_an_announced_size_allocates_no_memory_before_its_bytes_arrive() -> None:
    budget = FrameBudget()
    frame = PartialFrame(start_of_frame(LIMIT_BYTES), LIMIT_BYTES, budget, nobody)
    assert frame.grow_buffer()
    assert budget.held_bytes == OWN_BYTES
    assert frame.grow_buffer() and budget.held_bytes == OWN_BYTES, "there is room still"


@pytest.mark.parametrize("total_bytes", [100_000, 3 << 20])
def test_a_buffer_is_at_most_twice_as_large_as_the_received_bytes(total_bytes: int) -> None:
    budget = FrameBudget()
    budget.get_buffer(1, SPARE_BYTES)  # somebody has the shared one
    frame = PartialFrame(start_of_frame(total_bytes), LIMIT_BYTES, budget, nobody)
    came_bytes = 4
    while frame.grow_buffer() and not frame.is_complete:
        assert len(frame.bytes) == budget.held_bytes <= max(OWN_BYTES, 2 * came_bytes)
        count = min(1000, len(frame.get_buffer_for_next_bytes()))
        frame.count_filled_bytes(count)
        came_bytes += count
    assert budget.held_bytes == 4 + total_bytes


def test_the_frame_budget_counts_received_bytes_even_when_it_is_exhausted() -> None:
    budget = FrameBudget(limit_bytes=0)
    first, second = large_frame(budget), large_frame(budget, 100_000)
    assert first.grow_buffer() and not second.grow_buffer()
    assert budget.held_bytes == OWN_BYTES + 4 + 100_000
    assert budget.full


def test_a_frame_that_arrives_byte_by_byte_becomes_complete() -> None:
    content = pack(">i", 9) + b"123456789"
    frame = PartialFrame(memoryview(content[:1]), LIMIT_BYTES, FrameBudget(), nobody)
    for byte in content[1:]:
        assert frame.grow_buffer()
        assert not frame.is_complete
        frame.get_buffer_for_next_bytes()[0] = byte
        frame.count_filled_bytes(1)
    assert frame.grow_buffer()
    assert frame.is_complete
    assert bytes(frame.bytes) == content


def test_a_frame_keeps_its_content_while_its_buffer_grows() -> None:
    size = 3 << 20
    content = pack(">i", size) + bytes(range(256)) * (size // 256)
    frame = PartialFrame(memoryview(content[:10]), LIMIT_BYTES, FrameBudget(), nobody)
    position = 10
    while frame.grow_buffer() and not frame.is_complete:
        room = frame.get_buffer_for_next_bytes()
        count = min(len(room), 100_000)
        room[:count] = content[position : position + count]
        frame.count_filled_bytes(count)
        position += count
    assert bytes(frame.bytes) == content


def test_the_buffer_of_a_large_frame_grows_without_being_copied() -> None:
    frame = large_frame(FrameBudget())
    fill(frame, 2 * SPARE_BYTES)
    memory = frame.bytes.obj
    frame.bytes[:1] = b"x"
    fill(frame, LIMIT_BYTES)
    assert frame.bytes.obj is memory
    assert (len(frame.bytes), bytes(frame.bytes[:1])) == (LIMIT_BYTES + 4, b"x")


def test_one_read_receives_a_limited_part_of_a_large_frame() -> None:
    frame = large_frame(FrameBudget())
    while frame.grow_buffer() and not frame.is_complete:
        assert 0 < len(frame.get_buffer_for_next_bytes()) <= READ_BYTES
        frame.count_filled_bytes(len(frame.get_buffer_for_next_bytes()))


def test_all_frames_but_the_oldest_wait_if_the_budget_is_exhausted() -> None:
    budget = FrameBudget(MEBIBYTE)
    oldest, other = large_frame(budget), large_frame(budget)
    woken: list[str] = []
    fill(oldest, MEBIBYTE)
    assert other.grow_buffer(), "its first bytes are its own"
    other.count_filled_bytes(len(other.get_buffer_for_next_bytes()))
    assert not other.grow_buffer()
    other.call_when_memory_is_free(lambda: woken.append("other"))
    assert other.waits_for_memory and not oldest.waits_for_memory
    oldest.count_filled_bytes(len(oldest.get_buffer_for_next_bytes()))
    assert oldest.grow_buffer(), "one frame always gets on, or nobody would"
    oldest.close()
    assert woken == ["other"]
    assert other.grow_buffer() and not other.waits_for_memory
    other.close()
    assert budget.held_bytes == 0 and not budget.full


def test_the_next_frame_gets_memory_once_the_oldest_is_complete() -> None:
    budget = FrameBudget(0)
    done, other, last = large_frame(budget), large_frame(budget, 100_000), large_frame(budget, 100_000)
    while done.grow_buffer() and not done.is_complete:
        done.count_filled_bytes(len(done.get_buffer_for_next_bytes()))
    assert done.is_complete
    assert other.grow_buffer()
    assert not last.grow_buffer()


def test_only_as_many_waiting_frames_are_woken_as_fit_into_memory() -> None:
    budget = FrameBudget(MEBIBYTE)
    holder = large_frame(budget)
    fill(holder, MEBIBYTE)
    waiting = [large_frame(budget, 200_000) for _ in range(4)]
    woken: list[int] = []
    for number, frame in enumerate(waiting):
        assert not frame.grow_buffer()
        frame.call_when_memory_is_free(lambda number=number: woken.append(number))  # type: ignore[misc]
    waiting.pop().close()
    assert woken == []
    holder.close()
    assert woken == [0, 1], "1 MiB has room for the 600,000 bytes that are there and for two that grow by 200,000"
    assert waiting[2].waits_for_memory and not waiting[1].waits_for_memory and not budget.full


def test_the_frame_nearest_to_completion_is_woken_first() -> None:
    budget = FrameBudget(MEBIBYTE)
    oldest, holder = large_frame(budget), large_frame(budget)
    oldest.grow_buffer()
    fill(holder, MEBIBYTE)
    budget.large.limit_bytes = 530_000  # once the holder is gone, room for one of those that wait
    far, near = (
        large_frame(budget, 200_000),
        PartialFrame(start_of_frame(300_000, bytes(200_000)), LIMIT_BYTES, budget, nobody),
    )
    woken: list[str] = []
    for name, frame in ("far", far), ("near", near):
        assert not frame.grow_buffer()
        frame.call_when_memory_is_free(lambda name=name: woken.append(name))  # type: ignore[misc]
    holder.close()
    assert woken == ["near"]
    oldest.close()
    assert woken == ["near", "far"], "it is the oldest now"


def test_small_frames_are_received_while_large_ones_exhaust_the_budget() -> None:
    budget = FrameBudget(0)
    hogs = [large_frame(budget, 100_000) for _ in range(5)]
    assert [frame.grow_buffer() for frame in hogs] == [True, False, False, False, False]
    small = PartialFrame(start_of_frame(SMALL_FRAME_BYTES - 4, bytes(10_000)), LIMIT_BYTES, budget, nobody)
    while not small.is_complete:
        assert small.grow_buffer()
        small.count_filled_bytes(len(small.get_buffer_for_next_bytes()))


def test_tiny_frames_are_received_when_small_ones_exhaust_their_part_of_the_budget() -> None:
    budget = FrameBudget()
    budget.small.limit_bytes = 0
    start = start_of_frame(SMALL_FRAME_BYTES - 4, bytes(10_000))
    first, second = PartialFrame(start, LIMIT_BYTES, budget, nobody), PartialFrame(start, LIMIT_BYTES, budget, nobody)
    assert first.grow_buffer()
    assert not second.grow_buffer()
    tiny = PartialFrame(start_of_frame(200), LIMIT_BYTES, budget, nobody)
    assert tiny.grow_buffer() and len(tiny.get_buffer_for_next_bytes()) == 200


def test_a_frame_closed_while_it_waits_for_memory_is_not_woken() -> None:
    budget = FrameBudget(0)
    oldest, gone = large_frame(budget), large_frame(budget, 100_000)
    woken: list[str] = []
    assert oldest.grow_buffer() and not gone.grow_buffer()
    gone.call_when_memory_is_free(lambda: woken.append("gone"))
    gone.close()
    oldest.close()
    assert woken == []
    assert budget.held_bytes == 0


class Crowd:
    """Large frames that hold the budget of 1 MiB in full, and more that wait for it; `gone` is who gave way."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.budget = FrameBudget(MEBIBYTE, self.clock)
        self.gone: list[str] = []
        self.woken: list[str] = []

    def frame(self, name: str, came_bytes: int, total_bytes: int = LIMIT_BYTES) -> PartialFrame:
        """A frame of whose body so many bytes came."""

        def give_up() -> None:
            self.gone.append(name)
            frame.close()

        start = start_of_frame(total_bytes, bytes(came_bytes))
        frame = PartialFrame(start, LIMIT_BYTES, self.budget, give_up)
        if not frame.grow_buffer():
            frame.call_when_memory_is_free(lambda: self.woken.append(name))
        return frame


def test_the_frames_that_received_nothing_for_longest_are_closed_first_to_free_memory() -> None:
    crowd = Crowd()
    for name in "abc":
        crowd.frame(name, 170_000)
        crowd.clock.advance(1)
    crowd.clock.advance(PATIENCE_MS)
    crowd.frame("working", 200_000, 300_000)
    assert (crowd.gone, crowd.woken) == (["a"], ["working"])


def test_only_frames_received_too_slowly_are_closed_to_free_memory() -> None:
    crowd = Crowd()
    busy, lazy = crowd.frame("busy", 250_000), crowd.frame("lazy", 250_000)
    crowd.clock.advance(PATIENCE_MS)
    busy.count_filled_bytes(LEAST_PROGRESS_BYTES)
    lazy.count_filled_bytes(LEAST_PROGRESS_BYTES - 1)
    crowd.frame("working", 100_000, 200_000)
    assert (crowd.gone, crowd.woken) == (["lazy"], ["working"])


def test_a_slowly_received_frame_is_closed_only_after_a_grace_period() -> None:
    crowd = Crowd()
    crowd.frame("first", 400_000)
    crowd.clock.advance(PATIENCE_MS - 1)
    crowd.frame("second", 200_000)
    crowd.frame("working", 200_000, 300_000)
    assert (crowd.gone, crowd.woken) == ([], [])
    crowd.clock.advance(PATIENCE_MS)
    assert (crowd.gone, crowd.woken) == (["first"], ["second", "working"])


def test_the_grace_period_of_a_frame_restarts_after_it_waited_for_memory() -> None:
    crowd = Crowd()
    crowd.frame("first", 400_000)
    crowd.frame("second", 400_000)
    crowd.clock.advance(PATIENCE_MS)
    assert (crowd.gone, crowd.woken) == (["first"], ["second"])
    crowd.frame("third", 400_000)
    assert crowd.gone == ["first"], "the time in which it was not read is not the client's"


def test_large_frames_share_one_buffer_one_after_the_other() -> None:
    budget = FrameBudget()
    first, second = budget.get_buffer(1000, 100_000), budget.get_buffer(2000, 100_000)
    assert first.obj is not second.obj
    assert (len(first), len(second)) == (100_000, 2000), "the shared one is there anyway, so all of it is lent"
    budget.keep_buffer_for_next_frame(second)
    assert budget.get_buffer(3000, 100_000).obj is not first.obj, "the first is still in use"
    budget.keep_buffer_for_next_frame(first)
    assert budget.get_buffer(3000, SPARE_BYTES).obj is first.obj


@pytest.mark.parametrize("total_bytes", [SMALL_FRAME_BYTES, SPARE_BYTES + 1])
def test_small_frames_and_very_large_ones_do_not_use_the_shared_buffer(total_bytes: int) -> None:
    assert len(FrameBudget().get_buffer(1000, total_bytes)) == 1000
