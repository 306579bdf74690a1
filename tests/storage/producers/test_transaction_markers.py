"""Markers of transactions: what is written is read back, and what is none says nothing."""

from __future__ import annotations

import pytest

from minibroker.protocol.records.batch import read_header
from minibroker.storage.producers.transaction_markers import Marker, marker_batch, read_marker
from tests.storage.support import NOW_MS, batch


@pytest.mark.parametrize("marker", [Marker(True, 0), Marker(False, 2**31 - 1)])
def test_a_marker_is_read_back(marker: Marker) -> None:
    data = marker_batch(7, 3, marker, NOW_MS)
    header = read_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert header.is_control and header.is_transactional and header.max_timestamp == NOW_MS
    assert read_marker(data) == marker


def test_other_batches_say_nothing_of_a_transaction() -> None:
    assert read_marker(batch(1, producer_id=7)) is None
