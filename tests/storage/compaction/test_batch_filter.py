"""What stays of one batch, by Kafka's rules, and that all else in it is as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.records import streaming
from minibroker.protocol.records.batch import BatchHeader, check_batch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from minibroker.storage.compaction import batch_filter
from minibroker.storage.compaction.batch_filter import BatchFilter, DeleteRetention, LastRecord
from minibroker.storage.compaction.cleaned_transactions import CleanedTransactions
from minibroker.storage.compaction.offset_map import OffsetMap
from minibroker.storage.producers.aborted_transactions import AbortedTransaction
from tests.cases import for_each
from tests.storage.compaction.support import pairs
from tests.storage.support import NOW_MS


@pytest.fixture(autouse=True, params=["whole", "in pieces"])
def whole_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are held whole, as those of most batches are, or in pieces, as those of large ones are."""
    if request.param == "in pieces":
        for module in (batch_filter, streaming):
            monkeypatch.setattr(module, "WHOLE_BYTES", 0)


RETENTION_MS = 1000
HORIZON_MS = NOW_MS + RETENTION_MS
FAR = 1 << 40
PRODUCER = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 40}


def filter_with(
    latest: dict[str, int],
    *,
    known_to: int = FAR,
    now_ms: int = NOW_MS,
    last: dict[int, LastRecord] | None = None,
    end_offset: int = FAR,
    aborted: tuple[AbortedTransaction, ...] = (),
) -> BatchFilter:
    """A filter that knows these last offsets, and that the log is known up to the offset `known_to`."""
    keys = OffsetMap(1 << 16, 0.9, 1000)
    for key, offset in latest.items():
        keys.put_offset_of_key(key.encode(), offset)
    keys.latest_offset = known_to
    transactions = CleanedTransactions(aborted, 0)
    return BatchFilter(keys, transactions, last or {}, end_offset, DeleteRetention(now_ms, RETENTION_MS))


def filtered(to_clean: BatchFilter, batch: bytearray) -> bytes | None:
    """Return what stays of the batch, which must be sound."""
    kept = to_clean.filter_batch(check_batch(batch), bytes(batch))
    if kept is None:
        return None
    header, data = kept
    found = check_batch(data)
    assert (found.last_offset, found.max_timestamp) == (header.last_offset, header.max_timestamp)
    return bytes(data)


def kept_records(data: bytes | None) -> list[Record]:
    return [] if data is None else list(iterate_records_of_batch(data))


def identity(header: BatchHeader) -> tuple[int, ...]:
    """Return what never changes of a batch."""
    return (
        *(header.base_offset, header.last_offset_delta, header.partition_leader_epoch, header.compression),
        *(header.producer_id, header.producer_epoch, header.base_sequence, header.timestamp_type),
        *(header.is_transactional, header.is_control),
    )


@for_each("compression", list(Compression))
def test_records_superseded_by_later_ones_of_their_key_are_removed(compression: int) -> None:
    batch = pairs(
        *[("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")],
        **{"base_offset": 100, "compression": compression, "leader_epoch": 5, **PRODUCER},
    )
    data = filtered(filter_with({"a": 102, "b": 500, "c": 103}), batch)
    assert kept_records(data) == [record for record in iterate_records_of_batch(batch) if record.offset in (102, 103)]
    assert data is not None
    assert identity(check_batch(data)) == identity(check_batch(batch))


def test_a_batch_that_is_kept_completely_is_unchanged() -> None:
    batch = pairs(("a", "1"), ("b", "2"), base_offset=10, compression=Compression.LZ4)
    header = check_batch(batch)
    original = bytes(batch)
    kept = filter_with({"a": 10}).filter_batch(header, original)
    assert kept is not None
    assert kept[1] is original


def test_the_largest_timestamp_is_that_of_the_kept_records() -> None:
    batch = pairs(("a", "1"), ("b", "2"), ("c", "3"))
    data = filtered(filter_with({"c": 50}), batch)
    assert data is not None
    assert check_batch(data).max_timestamp == NOW_MS + 1


def test_log_append_time_is_kept_for_all_records() -> None:
    batch = pairs(("a", "1"), ("b", None), ("c", "3"), timestamp_type=1)
    data = filtered(filter_with({"c": 50}), batch)
    assert [record.timestamp for record in kept_records(data)] == [NOW_MS + 2] * 2


def test_a_batch_without_kept_records_is_removed() -> None:
    assert filtered(filter_with({"a": 50, "b": 51}), pairs(("a", "1"), ("b", "2"))) is None


def test_records_beyond_the_offset_map_are_kept() -> None:
    batch = pairs(("a", "1"), ("a", "2"), (None, "x"), ("a", None), base_offset=10)
    data = filtered(filter_with({"a": 11}, known_to=11), batch)
    assert [record.offset for record in kept_records(data)] == [11, 12, 13]
    assert data is not None
    assert check_batch(data).delete_horizon_ms is None


def test_records_without_a_key_are_removed_and_counted() -> None:
    to_clean = filter_with({})
    data = filtered(to_clean, pairs((None, "1"), ("b", "2"), (None, None)))
    assert [record.key for record in kept_records(data)] == [b"b"]
    assert to_clean.counts.keyless_records == 2


def test_the_filter_counts_read_and_written_records() -> None:
    to_clean = filter_with({"a": 50})
    first, second = pairs(("a", "1"), ("b", "2")), pairs(("a", "1"))
    data = filtered(to_clean, first)
    assert filtered(to_clean, second) is None
    counts = to_clean.counts
    assert data is not None
    assert (counts.read_records, counts.read_bytes) == (3, len(first) + len(second))
    assert (counts.written_records, counts.written_bytes) == (1, len(data))


# --- tombstones -------------------------------------------------------------------------------------------------------


@for_each("compression", list(Compression))
def test_a_tombstone_gets_a_delete_horizon_and_all_records_keep_their_timestamps(compression: int) -> None:
    batch = pairs(("a", "1"), ("b", None), ("c", "x"), base_offset=5, compression=compression, **PRODUCER)
    data = filtered(filter_with({"a": 90}), batch)
    assert data is not None
    header = check_batch(data)
    assert header.delete_horizon_ms == header.base_timestamp == HORIZON_MS
    assert kept_records(data) == list(iterate_records_of_batch(batch))[1:]
    assert header.max_timestamp == NOW_MS + 2
    assert identity(header) == identity(check_batch(batch))


def test_an_existing_delete_horizon_is_kept() -> None:
    first = filtered(filter_with({}), pairs(("a", "1"), ("b", None)))
    assert first is not None
    assert filtered(filter_with({}, now_ms=NOW_MS + 500), bytearray(first)) == first
    second = filtered(filter_with({"a": 50}, now_ms=NOW_MS + 500), bytearray(first))
    assert second is not None
    assert check_batch(second).delete_horizon_ms == HORIZON_MS
    assert [(record.key, record.timestamp) for record in iterate_records_of_batch(second)] == [(b"b", NOW_MS + 1)]


@pytest.mark.parametrize(("now_ms", "stays"), [(HORIZON_MS - 1, True), (HORIZON_MS, False)])
def test_a_tombstone_is_removed_after_its_delete_horizon(now_ms: int, stays: bool) -> None:
    first = filtered(filter_with({}), pairs(("a", "1"), ("b", None)))
    assert first is not None
    data = filtered(filter_with({}, now_ms=now_ms), bytearray(first))
    assert [record.key for record in kept_records(data)] == ([b"a", b"b"] if stays else [b"a"])


def test_a_tombstone_superseded_by_a_later_record_is_removed_immediately() -> None:
    assert filtered(filter_with({"a": 50}), pairs(("a", None))) is None


# --- batches that stay without records --------------------------------------------------------------------------------


def test_the_last_batch_of_a_producer_is_kept_without_records() -> None:
    batch = pairs(("a", "1"), ("b", "2"), base_offset=20, compression=Compression.ZSTD, leader_epoch=4, **PRODUCER)
    data = filtered(filter_with({"a": 50, "b": 51}, last={7: LastRecord(21, 3)}), batch)
    assert data is not None
    header, original = check_batch(data), check_batch(batch)
    assert (header.record_count, header.size_bytes) == (0, 61)
    assert identity(header) == identity(original._replace(attributes=0))
    assert (header.max_timestamp, header.base_timestamp) == (original.max_timestamp, -1)
    assert filtered(filter_with({}, last={7: LastRecord(21, 3)}), bytearray(data)) == data
    assert filtered(filter_with({}, last={7: LastRecord(99, 3)}), bytearray(data)) is None


def test_an_earlier_empty_batch_of_a_producer_is_removed() -> None:
    batch = pairs(("a", "1"), base_offset=20, **PRODUCER)
    assert filtered(filter_with({"a": 50}, last={7: LastRecord(30, 3)}), batch) is None
    assert filtered(filter_with({"a": 50}), batch) is None


def test_the_last_batch_of_the_cleaned_range_is_kept_to_mark_its_end() -> None:
    batch = pairs((None, "1"), (None, "2"), base_offset=8)
    data = filtered(filter_with({}, end_offset=10), batch)
    assert data is not None
    assert (check_batch(data).record_count, check_batch(data).next_offset) == (0, 10)
    assert filtered(filter_with({}, end_offset=11), batch) is None


# --- transactions -----------------------------------------------------------------------------------------------------


def marker(offset: int, *, committed: bool) -> bytearray:
    record = make_transaction_marker(committed=committed, coordinator_epoch=1, timestamp=NOW_MS)
    return build_batch([record], base_offset=offset, producer_id=7, producer_epoch=3, transactional=True, control=True)


def in_transaction(offset: int) -> bytearray:
    return pairs(("a", "1"), base_offset=offset, transactional=True, **PRODUCER)


def test_aborted_records_are_removed_even_as_the_latest_of_their_keys() -> None:
    to_clean = filter_with({}, aborted=(AbortedTransaction(7, 0, 2, 0),))
    assert filtered(to_clean, in_transaction(0)) is None
    assert filtered(to_clean, marker(2, committed=False)) == bytes(marker(2, committed=False))
    assert filtered(to_clean, in_transaction(3)) == bytes(in_transaction(3))


def test_a_marker_gets_its_delete_horizon_once_its_transaction_is_removed() -> None:
    with_records = filter_with({"a": 50})
    assert filtered(with_records, in_transaction(0)) is None
    assert filtered(with_records, marker(1, committed=True)) == bytes(marker(1, committed=True))
    waiting = filtered(filter_with({}), marker(1, committed=True))
    assert waiting is not None
    assert check_batch(waiting).delete_horizon_ms == HORIZON_MS
    assert kept_records(waiting) == list(iterate_records_of_batch(marker(1, committed=True)))
    assert filtered(filter_with({}, now_ms=HORIZON_MS - 1), bytearray(waiting)) == waiting
    assert filtered(filter_with({}, now_ms=HORIZON_MS), bytearray(waiting)) is None


@for_each(("last", "stays"), [(LastRecord(-1, 3), True), (LastRecord(-1, 4), False), (LastRecord(0, 3), False)])
def test_an_emptied_marker_is_kept_if_only_it_has_the_producers_epoch(last: LastRecord, stays: bool) -> None:
    waiting = filtered(filter_with({}), marker(1, committed=True))
    assert waiting is not None
    data = filtered(filter_with({}, now_ms=HORIZON_MS, last={7: last}), bytearray(waiting))
    assert (data is not None) == stays
    if data is not None:
        header = check_batch(data)
        assert (header.record_count, header.is_control, header.is_transactional) == (0, True, True)
        assert filtered(filter_with({}, last={7: last}), bytearray(data)) == data


# --- any batch --------------------------------------------------------------------------------------------------------

_RECORDS = st.lists(
    st.tuples(
        st.none() | st.sampled_from([b"a", b"b", b"c"]),
        st.none() | st.binary(max_size=200),
        st.integers(-(1 << 40), 1 << 40),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=12,
)


@given(_RECORDS, st.dictionaries(st.sampled_from("abc"), st.integers(0, 15)), st.integers(0, 4), st.integers(-1, 15))
def test_the_filter_keeps_the_latest_records_of_each_key_unchanged(
    made: list[tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]],
    latest: dict[str, int],
    compression: int,
    known_to: int,
) -> None:
    batch = build_batch(
        [Record(0, NOW_MS + late, key, value, headers) for key, value, late, headers in made], compression=compression
    )
    data = filtered(filter_with(latest, known_to=known_to), batch)
    assert kept_records(data) == [
        record
        for record in iterate_records_of_batch(batch)
        if record.offset > known_to or (record.key is not None and latest.get(record.key.decode(), -1) <= record.offset)
    ]
