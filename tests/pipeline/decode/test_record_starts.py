"""Where records begin, found many at once: the same as one after the other."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.decode.record_columns import (
    find_record_starts,
    find_record_starts_in_payload,
)
from minibroker.protocol.records.building import encode_record
from minibroker.protocol.records.record import Record
from tests.cases import for_each
from tests.protocol.records.samples import T, damaged, payload, similar_records

PADDING = bytes(16)


def batch_of_one_kind(count: int, value_bytes: int) -> bytes:
    random = Random(count)
    return b"".join(
        encode_record(Record(0, T, None, random.randbytes(random.randrange(value_bytes))), index, index)
        for index in range(count)
    )


def starts_of(payloads: list[bytes], counts: list[int]) -> list[list[int] | None]:
    """The starts in each of the batches, None for an unsound one."""
    data = np.frombuffer(b"".join(payloads) + PADDING, np.uint8)
    sizes = np.array([len(each) for each in payloads], np.int64)
    ends = np.cumsum(sizes)
    records = np.array(counts, np.int64)
    positions, sound = find_record_starts(data, ends - sizes, ends, records)
    found: list[list[int] | None] = []
    at = 0
    for start, count, is_sound in zip((ends - sizes).tolist(), counts, sound.tolist(), strict=True):
        found.append([position - start for position in positions[at : at + count].tolist()] if is_sound else None)
        at += count if is_sound else 0
    return found


def walked(content: bytes, count: int) -> list[int] | None:
    if not 0 <= count * 6 <= len(content):
        return None
    found = find_record_starts_in_payload(content, count)
    return None if found is None else found.tolist()


@given(seed=st.integers(0, 2**32), batches=st.integers(1, 40), is_damaged=st.booleans())
def test_the_positions_of_the_records_of_many_batches_are_found(seed: int, batches: int, is_damaged: bool) -> None:
    random = Random(seed)
    kept = [similar_records(random) for _ in range(batches)]
    payloads = [payload(batch) for batch in kept]
    if is_damaged:
        payloads = [damaged(random, each) if random.random() < 0.5 else each for each in payloads]
    counts = [len(batch) for batch in kept]
    found = starts_of(payloads, counts)
    assert found == [walked(each, count) for each, count in zip(payloads, counts, strict=True)]


@given(seed=st.integers(0, 2**32))
def test_the_positions_of_records_in_batches_of_mixed_sizes_with_damage_are_found(seed: int) -> None:
    random = Random(seed)
    counts = [random.choice((1, 5, 700, 2000)) for _ in range(4)]
    payloads = [batch_of_one_kind(count, random.choice((2, 30, 90))) for count in counts]
    payloads = [damaged(random, each) if random.random() < 0.3 else each for each in payloads]
    found = starts_of(payloads, counts)
    assert found == [walked(each, count) for each, count in zip(payloads, counts, strict=True)]


@for_each("more", [-1, 1, 2, 30])
@for_each("behind", [b"", b"\0\0", b"\x01", b"\xff\xff"])
def test_wrong_record_counts_of_batches_scanned_together_are_detected(more: int, behind: bytes) -> None:
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
    assert starts_of([content, content], [count, 1000]) == [None, walked(content, 1000)]
