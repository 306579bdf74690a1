"""Where records begin, found many at once: the same as one after the other, also where what is guessed is wrong."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.decode.record_starts import Lanes, find_record_starts, find_starts, split_into_lanes
from minibroker.protocol.records.building import encode_record
from minibroker.protocol.records.record import Record
from tests.cases import for_each
from tests.protocol.records.samples import T, damaged, payload, similar_records

PADDING = bytes(16)


def batch_of_one_kind(count: int, value_bytes: int, gap: int = 1) -> bytes:
    """Many records of which every `gap`th offset is left."""
    random = Random(count)
    return b"".join(
        encode_record(Record(0, T, None, random.randbytes(random.randrange(value_bytes))), index * gap, index)
        for index in range(count)
    )


def starts_of(payloads: list[bytes], counts: list[int]) -> tuple[list[list[int] | None], int]:
    """The starts in each of the batches, None for an unsound one; and how many lanes they were walked in."""
    data = np.frombuffer(b"".join(payloads) + PADDING, np.uint8)
    sizes = np.array([len(each) for each in payloads], np.int64)
    ends = np.cumsum(sizes)
    records = np.array(counts, np.int64)
    positions, sound = find_record_starts(data, ends - sizes, ends, records)
    lanes = split_into_lanes(data, Lanes(ends - sizes, ends, records, np.arange(len(counts))))
    found: list[list[int] | None] = []
    at = 0
    for start, count, is_sound in zip((ends - sizes).tolist(), counts, sound.tolist(), strict=True):
        found.append([position - start for position in positions[at : at + count].tolist()] if is_sound else None)
        at += count if is_sound else 0
    return found, len(lanes.start)


def walked(content: bytes, count: int) -> list[int] | None:
    if not 0 <= count * 6 <= len(content):
        return None
    found = find_starts(content, count)
    return None if found is None else found.tolist()


@given(seed=st.integers(0, 2**32), batches=st.integers(1, 40), is_damaged=st.booleans())
def test_record_starts_of_many_batches_are_found(seed: int, batches: int, is_damaged: bool) -> None:
    random = Random(seed)
    kept = [similar_records(random) for _ in range(batches)]
    payloads = [payload(batch) for batch in kept]
    if is_damaged:
        payloads = [damaged(random, each) if random.random() < 0.5 else each for each in payloads]
    counts = [len(batch) for batch in kept]
    found, _ = starts_of(payloads, counts)
    assert found == [walked(each, count) for each, count in zip(payloads, counts, strict=True)]


@pytest.mark.parametrize(("count", "value_bytes"), [(3000, 10), (3000, 200), (20000, 100), (600, 8000)])
def test_a_large_batch_is_processed_in_lanes(count: int, value_bytes: int) -> None:
    content = batch_of_one_kind(count, value_bytes)
    found, lanes = starts_of([content], [count])
    assert found == [walked(content, count)]
    assert lanes > 0.8 * count / 128


@given(seed=st.integers(0, 2**32))
def test_record_starts_in_mixed_sizes_with_damage_are_found(seed: int) -> None:
    random = Random(seed)
    counts = [random.choice((1, 5, 700, 2000)) for _ in range(4)]
    payloads = [batch_of_one_kind(count, random.choice((2, 30, 90))) for count in counts]
    payloads = [damaged(random, each) if random.random() < 0.3 else each for each in payloads]
    found, _ = starts_of(payloads, counts)
    assert found == [walked(each, count) for each, count in zip(payloads, counts, strict=True)]


def test_offset_deltas_may_differ_from_record_indexes() -> None:
    content = batch_of_one_kind(3000, 50, gap=3)
    assert starts_of([content], [3000])[0] == [walked(content, 3000)]


@pytest.mark.parametrize("first_delta", [0, 1, 700, 1000000])
def test_values_that_look_like_records_are_not_record_starts(first_delta: int) -> None:
    """Guesses are wrong then, in all or in some of the places."""
    decoys = [encode_record(Record(0, T, None, b"v"), first_delta + index, 0) for index in range(40)]
    content = b"".join(
        encode_record(Record(0, T, None, b"".join(decoys[index % 30 : index % 30 + 9])), index, 0)
        for index in range(2000)
    )
    assert starts_of([content], [2000])[0] == [walked(content, 2000)]


@for_each("more", [-1, 1, 2, 30])
@for_each("behind", [b"", b"\0\0", b"\x01", b"\xff\xff"])
def test_wrong_record_counts_are_detected_in_adjacent_lanes(more: int, behind: bytes) -> None:
    """Also where what follows the batch leads nowhere, so that the walk stays at its end."""
    content = batch_of_one_kind(50, 20)
    counts = [50 + more * (index % 3 == 0) for index in range(60)]
    data = np.frombuffer((content + behind) * 60 + PADDING, np.uint8)
    starts = np.arange(60) * len(content + behind)
    _, sound = find_record_starts(data, starts, starts + len(content), np.array(counts))
    assert sound.tolist() == [count == 50 for count in counts]


@for_each("count", [-1, 0, 1, 999, 1001, 1 << 30])
def test_a_wrong_record_count_is_detected(count: int) -> None:
    content = batch_of_one_kind(1000, 20)
    assert starts_of([content, content], [count, 1000])[0] == [None, walked(content, 1000)]
