"""Checks the cleaned part of a log: each key occurs once, and no record lacks a key.

`cleaner-offset-checkpoint` says how far the log was cleaned. `verify_job` compares the keys of all segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from minibroker.pipeline.array_types import Bools, Int64s
from minibroker.pipeline.verifying.findings import BY_CODE, Finding, Problem
from minibroker.pipeline.verifying.log_blocks import Block
from minibroker.pipeline.verifying.record_checks import Records
from minibroker.protocol.records.batch import DELETE_HORIZON_BIT, MAGIC

SHOWN_KEY_BYTES = 60
KEYS = pa.schema(
    [
        ("key", pa.binary()),
        ("offset", pa.int64()),
        ("file", pa.string()),
        ("position", pa.int64()),
    ]
)


def find_wrong_in_cleaned(block: Block, records: Records, start_offset: int, clean_offset: int) -> Iterator[Problem]:
    """Yield records without a key, and tombstones without a delete horizon, one for each batch."""
    cleaned = _mark_cleaned(block, records, start_offset, clean_offset)
    for row in np.flatnonzero(cleaned & (records.key_size < 0)).tolist():
        batch = int(records.batch[row])
        yield Problem("keyless-record", int(block.positions[batch]), int(records.offset[row]), "the record has no key")
    headers = block.headers
    is_cleaned_batch = (headers.magic == MAGIC) & (headers.last_offset < clean_offset)
    is_old = is_cleaned_batch & (headers.attributes & DELETE_HORIZON_BIT == 0)
    tombstones = cleaned & (records.key_size >= 0) & ~records.has_value & is_old[records.batch]
    for batch in np.unique(records.batch[tombstones]).tolist():
        yield block.problem("tombstone-horizon", batch, f"cleaned up to {clean_offset}, no delete horizon")


def find_keys_in_cleaned(
    block: Block, records: Records, start_offset: int, clean_offset: int
) -> tuple[list[bytes], Int64s, Int64s]:
    """Return (keys, offsets, positions of their batches) in the cleaned part."""
    rows = np.flatnonzero(_mark_cleaned(block, records, start_offset, clean_offset) & (records.key_size >= 0))
    starts, sizes = records.key_start[rows].tolist(), records.key_size[rows].tolist()
    keys = [records.data[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    return keys, records.offset[rows], block.positions[records.batch[rows]]


def make_duplicate_key(
    topic: str, partition: int, key: bytes, count: int, first: Mapping[str, Any], last: int
) -> Finding:
    """Return the finding for a repeated key. `first` has the `offset`, `file` and `position` of its first record."""
    shown = repr(key[:SHOWN_KEY_BYTES])[1:] + ("..." if len(key) > SHOWN_KEY_BYTES else "")
    detail = f"key {shown} occurs {count} times, last at offset {last}"
    kind = BY_CODE["duplicate-key"]
    return Finding(
        topic, partition, first["file"], first["offset"], first["position"], kind.code, kind.severity, detail
    )


def _mark_cleaned(block: Block, records: Records, start_offset: int, clean_offset: int) -> Bools:
    in_range = (records.offset >= start_offset) & (records.offset < clean_offset)
    cleaned: Bools = in_range & ~block.headers.is_control[records.batch]
    return cleaned
