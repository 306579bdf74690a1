"""Markers of transactions: what is written is read back, and what is none says nothing."""

from __future__ import annotations

import pytest

from minibroker.protocol.records.batch import read_header
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.storage.producers.transaction_markers import TransactionMarker, make_marker_batch, read_marker
from tests.storage.support import NOW_MS, batch


@pytest.mark.parametrize("marker", [TransactionMarker(True, 0), TransactionMarker(False, 2**31 - 1)])
def test_a_marker_is_decoded_unchanged(marker: TransactionMarker) -> None:
    data = make_marker_batch(7, 3, marker, NOW_MS)
    header = read_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert header.is_control and header.is_transactional and header.max_timestamp == NOW_MS
    assert read_marker(data) == marker


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_is_a_batch_of_one_control_record(committed: bool) -> None:
    record = make_transaction_marker(committed=committed, coordinator_epoch=5, timestamp=NOW_MS)
    built = build_batch([record], producer_id=7, producer_epoch=3, transactional=True, control=True)
    assert make_marker_batch(7, 3, TransactionMarker(committed, 5), NOW_MS) == built


def test_a_differently_encoded_marker_is_decoded() -> None:
    record = make_transaction_marker(committed=True, coordinator_epoch=5, timestamp=NOW_MS)
    longer = record._replace(value=bytes(record.value or b"") + b"more of a later version")
    built = build_batch([longer], producer_id=7, producer_epoch=3, transactional=True, control=True)
    assert read_marker(built) == TransactionMarker(True, 5)


def test_other_batches_are_not_transaction_markers() -> None:
    assert read_marker(batch(1, producer_id=7)) is None
