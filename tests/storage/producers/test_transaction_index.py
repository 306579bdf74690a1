"""The bytes of a `.txnindex` file, and which ones are refused."""

from __future__ import annotations

import pytest

from minibroker.storage.producers.aborted_transactions import (
    AbortedTransaction,
    transactions_bytes,
    transactions_from_bytes,
)
from minibroker.storage.segment_indexes import CorruptIndex

FIRST = AbortedTransaction(producer_id=7, first_offset=10, last_offset=14, last_stable_offset=12)
SECOND = AbortedTransaction(producer_id=8, first_offset=12, last_offset=20, last_stable_offset=21)


def test_an_entry_is_written_as_kafka_writes_it() -> None:
    assert transactions_bytes([FIRST]) == bytes.fromhex(
        "00000000000000000007000000000000000a000000000000000e000000000000000c"
    )


def test_written_transactions_are_read_back() -> None:
    assert transactions_from_bytes(transactions_bytes([FIRST, SECOND])) == [FIRST, SECOND]
    assert transactions_from_bytes(b"") == []


@pytest.mark.parametrize(
    "data",
    [
        transactions_bytes([FIRST])[:-1],
        b"\x00\x01" + transactions_bytes([FIRST])[2:],
        transactions_bytes([FIRST._replace(first_offset=-1)]),
        transactions_bytes([FIRST._replace(first_offset=15)]),
    ],
    ids=["cut", "version 1", "negative", "backwards"],
)
def test_an_index_that_cannot_be_right_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptIndex):
        transactions_from_bytes(data)
