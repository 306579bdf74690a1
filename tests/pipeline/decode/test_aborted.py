"""Which batches readers of committed records skip."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.decode.decoder import AbortedRanges
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from tests.pipeline.decode.reference import Row, batch_rows, decoded
from tests.pipeline.decode.samples import marker
from tests.protocol.records.samples import T


def batch(offset: int, producer_id: int = 7, *, transactional: bool = True) -> bytes:
    """Two records."""
    records = [Record(0, T, b"k", b"v"), Record(0, T, b"k", b"w")]
    return bytes(
        build_batch(records, base_offset=offset, producer_id=producer_id, producer_epoch=0, transactional=transactional)
    )


# Producer 7 aborts, then commits; 8 commits meanwhile; the last batch of 7 is not part of a transaction.
LOG = b"".join(
    (
        batch(0),
        batch(2, 8),
        batch(4),
        marker(6, committed=False),
        batch(7),
        marker(9, 8),
        marker(10),
        batch(11, transactional=False),
    )
)


def offsets_of(rows: list[Row], name: str = "offset") -> list[int]:
    return [row[name] for row in rows]


def test_all_records_but_transaction_markers_are_decoded() -> None:
    assert offsets_of(decoded(LOG)) == [0, 1, 2, 3, 4, 5, 7, 8, 11, 12]


def test_aborted_records_are_omitted() -> None:
    assert offsets_of(decoded(LOG, aborted=AbortedRanges([(7, 0, 6)]))) == [2, 3, 7, 8, 11, 12]


def test_an_aborted_range_without_an_end_ends_at_the_next_transaction_marker() -> None:
    for chunk_bytes in (1, 200, 4 << 20):
        aborted = AbortedRanges([(7, 0, None)])
        assert offsets_of(decoded(LOG, aborted=aborted, chunk_bytes=chunk_bytes)) == [2, 3, 7, 8, 11, 12]
    assert offsets_of(decoded(LOG, aborted=AbortedRanges([(7, 4, None)]))) == [0, 1, 2, 3, 7, 8, 11, 12]


def test_aborted_ranges_may_be_added_while_reading() -> None:
    aborted = AbortedRanges()
    assert not aborted
    aborted.add_range(7, 0)
    aborted.add_range(7, 0)
    aborted.end_range_of(7, 6)
    aborted.add_range(7, 0)
    assert aborted.are_aborted(np.full(3, 7), np.array([0, 6, 7])).tolist() == [True, True, False]


def test_the_batches_table_omits_aborted_batches_but_not_markers() -> None:
    rows = batch_rows(LOG, aborted=AbortedRanges([(7, 0, 6)]))
    assert offsets_of(rows, "baseOffset") == [2, 6, 7, 9, 10, 11]
    assert len(batch_rows(LOG)) == 8


@given(
    transactions=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 5)), max_size=20),
    asked=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 120)), max_size=50),
)
def test_lookups_in_aborted_ranges_agree_with_a_linear_search(
    transactions: list[tuple[int, int, int]], asked: list[tuple[int, int]]
) -> None:
    ranges: list[tuple[int, int, int | None]] = []
    start = 0
    for producer_id, length, gap in transactions:
        ranges.append((producer_id, start + gap, start + gap + length))
        start += gap + length + 1
    aborted = AbortedRanges(ranges)
    wanted = [any(producer_id == p and f <= offset <= (e or 0) for p, f, e in ranges) for producer_id, offset in asked]
    columns = np.array(asked, np.int64).reshape(-1, 2)
    assert aborted.are_aborted(columns[:, 0], columns[:, 1]).tolist() == wanted
