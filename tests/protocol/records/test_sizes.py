"""The space that formats take, against figures worked out by hand."""

from __future__ import annotations

import pytest

from minibroker.protocol.records.sizes import measure_format_overhead

# The figures of KIP-98 for 1, 3, 10, 50 and 100 messages.
EXPECTED = {1: (34, 62), 3: (102, 96), 10: (340, 215), 50: (1700, 895), 100: (3400, 1745)}


@pytest.mark.parametrize("count", EXPECTED)
def test_the_documented_record_sizes_equal_real_ones(count: int) -> None:
    found = measure_format_overhead(count, 100, 1024)
    assert (found.expected_before, found.expected_after) == EXPECTED[count]
    assert (found.format_0, found.format_1) == (26 * count, 34 * count)


def test_a_documented_record_has_ten_bytes_of_overhead() -> None:
    # length 2, attributes 1, timestamp delta 1, offset delta 1, key's size 2, value's size 2, count of headers 1
    assert measure_format_overhead(1, 100, 1024).format_2 == 61 + 10
    assert measure_format_overhead(50, 100, 1024).format_2 == 61 + 50 * 10
    # From 64 on, the deltas of offset and timestamp take two bytes each.
    assert measure_format_overhead(100, 100, 1024).format_2 == 61 + 100 * 10 + 36 * 2


def test_records_without_attributes_are_one_byte_smaller() -> None:
    for count in (1, 3, 100):
        found = measure_format_overhead(count, 100, 1024)
        assert found.format_2 - found.format_2_without_attributes == count


def test_small_records_have_short_length_fields() -> None:
    assert measure_format_overhead(1, 0, 0) == (1, 26, 34, 61 + 7, 61 + 6, 34, 62)
