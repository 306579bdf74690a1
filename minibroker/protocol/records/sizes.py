"""Measures the overhead of the formats: the bytes besides keys and values, in batches that are really encoded.

docs/message-formats.md has the history of the formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from minibroker.protocol.records.batch import MAGIC, check_batch
from minibroker.protocol.records.conversion import build_records_in_format
from minibroker.protocol.records.elision import elide_attributes
from minibroker.protocol.records.record import Record

START_MS = 1_700_000_000_000

# The expectation in the first draft of format 2 (KIP-98): an old message, a new set, and a message in it.
OLD_MESSAGE_BYTES = 34
DRAFT_SET_BYTES = 45
DRAFT_MESSAGE_BYTES = 17


class FormatOverhead(NamedTuple):
    """The bytes besides keys and values of `records` records, in each format, and as the first draft expected them."""

    records: int
    format_0: int
    format_1: int
    format_2: int
    format_2_without_attributes: int
    expected_before: int
    expected_after: int


def measure_format_overhead(count: int, key_bytes: int, value_bytes: int) -> FormatOverhead:
    """Measure `count` records (1 or more), a millisecond apart, without headers and compression."""
    old = [len(build_records_in_format(_make_records(count, key_bytes, value_bytes), magic)) for magic in (0, 1)]
    batch = build_records_in_format(_make_records(count, key_bytes, value_bytes), MAGIC)
    shorter = elide_attributes(batch, check_batch(batch))
    assert shorter is not None
    carried = count * (key_bytes + value_bytes)
    return FormatOverhead(
        records=count,
        format_0=old[0] - carried,
        format_1=old[1] - carried,
        format_2=len(batch) - carried,
        format_2_without_attributes=len(shorter) - carried,
        expected_before=OLD_MESSAGE_BYTES * count,
        expected_after=DRAFT_SET_BYTES + DRAFT_MESSAGE_BYTES * count,
    )


def _make_records(count: int, key_bytes: int, value_bytes: int) -> Iterator[Record]:
    key, value = bytes(key_bytes), bytes(value_bytes)
    for offset in range(count):
        yield Record(offset, START_MS + offset, key, value)
