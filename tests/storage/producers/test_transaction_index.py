"""The bytes of a `.txnindex` file, and which ones are refused."""

from __future__ import annotations

import pytest

from minibroker.storage.producers.aborted_transactions import (
    AbortedTransaction,
    decode_aborted_transactions,
    encode_aborted_transactions,
)
from minibroker.storage.segment_indexes import CorruptIndex

FIRST = AbortedTransaction(producer_id=7, first_offset=10, last_offset=14, last_stable_offset=12)
SECOND = AbortedTransaction(producer_id=8, first_offset=12, last_offset=20, last_stable_offset=21)


def test_a_transaction_index_entry_is_encoded_as_in_kafka() -> None:
    assert encode_aborted_transactions([FIRST]) == bytes.fromhex(
        "00000000000000000007000000000000000a000000000000000e000000000000000c"
    )


def test_encoded_transactions_are_decoded_unchanged() -> None:
    assert decode_aborted_transactions(encode_aborted_transactions([FIRST, SECOND])) == [FIRST, SECOND]
    assert decode_aborted_transactions(b"") == []


@pytest.mark.parametrize(
    "data",
    [
        encode_aborted_transactions([FIRST])[:-1],
        b"\x00\x01" + encode_aborted_transactions([FIRST])[2:],
        encode_aborted_transactions([FIRST._replace(first_offset=-1)]),
        encode_aborted_transactions([FIRST._replace(first_offset=15)]),
    ],
    ids=["cut", "version 1", "negative", "backwards"],
)
def test_an_invalid_transaction_index_is_rejected(data: bytes) -> None:
    with pytest.raises(CorruptIndex):
        decode_aborted_transactions(data)
