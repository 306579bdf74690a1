"""The `.txnindex` file of a segment: the transactions whose abort markers lie in it.

Only the entries are read and made here. When a transaction ends, and what its readers must skip, is decided elsewhere.

    byte  size  field of an entry, 34 bytes
       0     2  version                  0
       2     8  producer id
      10     8  first offset of the transaction
      18     8  last offset, that of the marker which aborted it
      26     8  last stable offset when it was aborted
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from minibroker.storage.sparse_index import CorruptIndex

TRANSACTION_INDEX_VERSION = 0
TRANSACTION_ENTRY = Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """A transaction whose records no committed reader sees."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def transactions_bytes(transactions: Iterable[AbortedTransaction]) -> bytes:
    """The content of a `.txnindex` file."""
    return b"".join(TRANSACTION_ENTRY.pack(TRANSACTION_INDEX_VERSION, *transaction) for transaction in transactions)


def transactions_from_bytes(data: bytes) -> list[AbortedTransaction]:
    """The transactions in a `.txnindex` file. Raises `CorruptIndex`."""
    if len(data) % TRANSACTION_ENTRY.size:
        raise CorruptIndex(f"its size is {len(data)}, not a multiple of {TRANSACTION_ENTRY.size}")
    found = []
    for version, *fields in TRANSACTION_ENTRY.iter_unpack(data):
        if version != TRANSACTION_INDEX_VERSION or min(fields) < 0 or fields[1] > fields[2]:
            raise CorruptIndex(f"an entry of version {version} that cannot be: {fields}")
        found.append(AbortedTransaction(*fields))
    return found
