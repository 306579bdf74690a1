"""A walk over damaged bytes: what is a batch there, what is passed over, and where it goes on.

How a log is walked whole, at every byte that may be damaged, is tested with the inspection in the storage layer.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.records.batch import set_checksum
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.conversion import build_records_in_format
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.walking import (
    BatchProblem,
    BatchWalker,
    FoundBatch,
    SkippedBytes,
    find_next_sound_batch,
)


def placed(offset: int, magic: int = 2, value: bytes = b"a value") -> bytes:
    record = Record(offset=offset, timestamp=5, value=value)
    if magic == 2:
        return bytes(build_batch([record], base_offset=offset))
    return bytes(build_records_in_format([record], magic))


def walker(data: bytes, **more: int) -> BatchWalker:
    view = memoryview(data)
    return BatchWalker(lambda: lambda position, size: view[position : position + size], len(data), **more)


def walked(data: bytes, **more: int) -> list[FoundBatch | SkippedBytes]:
    """All steps to the end, offsets moving on as in a log."""
    walk, steps, position = walker(data, **more), [], 0
    while position < len(data):
        step = walk.read_batch_or_damage_at(position)
        steps.append(step)
        if isinstance(step, FoundBatch):
            walk.next_offset = step.header.next_offset
            position += step.header.size_bytes
        else:
            position += step.size_bytes
    return steps


def offsets(data: bytes) -> list[int]:
    return [step.header.base_offset for step in walked(data) if isinstance(step, FoundBatch) and step.is_sound]


@given(st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.binary(max_size=40)), max_size=6))
def test_valid_batches_are_found_between_any_bytes(parts: list[tuple[int, bytes]]) -> None:
    data = b"".join(between + placed(number, magic) for number, (magic, between) in enumerate(parts))
    assert offsets(data) == list(range(len(parts)))


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_walk_continues_after_damage_in_any_format(magic: int) -> None:
    data = placed(0) + b"\xff" * 100 + placed(7, magic)
    first, passed, last = walked(data)
    assert isinstance(first, FoundBatch) and isinstance(passed, SkippedBytes) and isinstance(last, FoundBatch)
    assert (passed.position, passed.size_bytes, passed.wrong) == (len(placed(0)), 100, BatchProblem.MAGIC)
    assert last.header.base_offset == 7


@pytest.mark.parametrize(
    ("position", "byte", "wrong"),
    [
        (16, 1, BatchProblem.MAGIC),
        (16, 9, BatchProblem.MAGIC),
        (8, 0x70, BatchProblem.LENGTH),
        (11, 3, BatchProblem.LENGTH),
    ],
)
def test_the_walk_reports_whether_magic_or_length_of_a_header_is_wrong(
    position: int, byte: int, wrong: BatchProblem
) -> None:
    data = bytearray(placed(0, value=bytes(60)))
    data[position] = byte
    (step,) = walked(bytes(data))
    assert isinstance(step, SkippedBytes) and step.wrong is wrong


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_with_a_wrong_checksum_is_skipped(magic: int) -> None:
    data = bytearray(placed(0, magic) + placed(1, magic))
    data[30] ^= 1
    passed, found = walked(bytes(data))
    assert isinstance(passed, SkippedBytes) and passed.wrong is BatchProblem.CHECKSUM
    assert isinstance(found, FoundBatch) and found.header.base_offset == 1


def test_a_batch_with_a_wrong_checksum_is_returned_only_if_another_batch_follows_it() -> None:
    data = bytearray(placed(0) + placed(1))
    data[-len(placed(1)) - 1] ^= 1
    first, second = walked(bytes(data))
    assert isinstance(first, FoundBatch) and not first.is_sound
    assert isinstance(second, FoundBatch) and second.is_sound
    astray = bytes(data[: len(placed(0))]) + b"?" * 61 + placed(1)
    passed, found = walked(astray)
    assert isinstance(passed, SkippedBytes) and passed.wrong is BatchProblem.CHECKSUM
    assert isinstance(found, FoundBatch) and found.header.base_offset == 1


def test_the_walk_skips_batches_with_offsets_out_of_bounds() -> None:
    data = b"?" * 70 + placed(3) + placed(20) + placed(9)
    steps = walked(data, next_offset=5, limit=15)
    assert [step.header.base_offset for step in steps if isinstance(step, FoundBatch)] == [9]


def test_a_torn_end_and_zeros_are_reported_by_the_walk() -> None:
    cut, zeros = walker(placed(0)[:60]).read_batch_or_damage_at(0), walker(bytes(5000)).read_batch_or_damage_at(0)
    assert isinstance(cut, SkippedBytes) and (cut.wrong, cut.size_bytes) == (BatchProblem.HEADER, 60)
    assert isinstance(zeros, SkippedBytes) and (zeros.wrong, zeros.size_bytes) == (BatchProblem.ZEROS, 5000)


def test_the_walk_accepts_a_header_only_if_its_batch_fits_into_the_data() -> None:
    data = placed(4, 1) + placed(5)
    assert walker(data).read_header_at(0) is not None
    assert walker(data[:-1]).read_header_at(len(placed(4, 1))) is None


def test_the_next_valid_batch_is_found_at_any_position() -> None:
    first, second = placed(0), placed(1, value=b"v" * 600)
    data = b"\2" * 50 + first + second
    assert find_next_sound_batch(data, 0) == find_next_sound_batch(data, 50) == 50
    assert find_next_sound_batch(data, 51) == 50 + len(first)
    assert find_next_sound_batch(data, 51 + len(first)) is None


def test_a_batch_with_a_negative_offset_delta_is_not_found() -> None:
    data = bytearray(placed(5))
    data[23:27] = (-3).to_bytes(4, signed=True)
    set_checksum(data, 0, len(data))
    assert find_next_sound_batch(bytes(data), 0) is None
