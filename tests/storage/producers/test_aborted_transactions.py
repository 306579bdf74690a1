"""Aborted transactions: which of them a range of offsets concerns, and what is left of them when a log is cut."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from minibroker.protocol.records.crc import crc32c
from minibroker.storage.files import Disk
from minibroker.storage.producers.aborted_transactions import (
    AbortedTransaction,
    AbortedTransactions,
    encode_aborted_transactions,
    read_aborted_transactions,
    read_entry_counts,
)
from minibroker.storage.segment_indexes import CorruptIndex
from tests.cases import for_each
from tests.storage.faulty_disk import FaultyDisk

# Three producers' transactions that overlap: (producer id, first offset, last offset, last stable offset)
FIRST = AbortedTransaction(1, 10, 20, 5)
SECOND = AbortedTransaction(2, 5, 30, 31)
THIRD = AbortedTransaction(1, 40, 45, 46)
ALL = [FIRST, SECOND, THIRD]


def read(*paths: str) -> AbortedTransactions:
    """Read what the files of these segments have."""
    return AbortedTransactions(
        Disk(), [each for path in paths for each in read_aborted_transactions(Disk(), path, 100, None)]
    )


@for_each(
    ("start", "end", "found"),
    [
        (0, 100, ALL),
        (0, 5, []),
        (0, 6, [SECOND]),
        (0, 11, [FIRST, SECOND]),
        (20, 21, [FIRST, SECOND]),
        (21, 22, [SECOND]),
        (31, 40, []),
        (31, 41, [THIRD]),
        (45, 46, [THIRD]),
        (46, 99, []),
    ],
)
def test_a_range_of_offsets_has_the_aborted_transactions_that_overlap_it(
    start: int, end: int, found: list[AbortedTransaction]
) -> None:
    assert list(AbortedTransactions(Disk(), ALL).list_transactions_between(start, end)) == found


def test_the_transaction_indexes_of_all_segments_are_read(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{offset:020d}") for offset in (0, 25)]
    for path, transactions in zip(paths, ([FIRST], [SECOND, THIRD]), strict=True):
        Path(f"{path}.txnindex").write_bytes(encode_aborted_transactions(transactions))
    assert list(read(*paths).list_transactions_between(0, 100)) == ALL


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"nonsense", "not a multiple of 34"),
        (bytes(34), "no longer has its 2 entries"),
        (encode_aborted_transactions(ALL[:1]), "no longer has its 2 entries"),
        (b"", "no longer has its 2 entries"),
        (None, "it is missing"),
    ],
)
def test_a_transaction_index_with_fewer_entries_than_its_checkpoint_is_corrupt(
    tmp_path: Path, data: bytes | None, reason: str
) -> None:
    path = str(tmp_path / f"{0:020d}")
    if data is not None:
        Path(f"{path}.txnindex").write_bytes(data)
    expected = None if data == b"nonsense" else (2, crc32c(encode_aborted_transactions(ALL[:2])))
    with pytest.raises(CorruptIndex, match=reason):
        read_aborted_transactions(Disk(), path, 100, expected)


def test_a_transaction_index_with_more_entries_than_its_checkpoint_is_accepted(tmp_path: Path) -> None:
    path = str(tmp_path / f"{0:020d}")
    Path(f"{path}.txnindex").write_bytes(encode_aborted_transactions(ALL))
    assert read_aborted_transactions(Disk(), path, 100, (2, crc32c(encode_aborted_transactions(ALL[:2])))) == ALL


@pytest.mark.parametrize(("base_offset", "end_offset"), [(21, 100), (0, 45)])
def test_a_transaction_index_entry_of_another_segment_is_corrupt(
    tmp_path: Path, base_offset: int, end_offset: int
) -> None:
    path = str(tmp_path / f"{base_offset:020d}")
    Path(f"{path}.txnindex").write_bytes(encode_aborted_transactions(ALL))
    with pytest.raises(CorruptIndex, match="another segment"):
        read_aborted_transactions(Disk(), path, end_offset, None)


def test_aborted_transaction_counts_are_written_only_for_existing_segments(tmp_path: Path) -> None:
    transactions = AbortedTransactions(Disk(), ALL)
    transactions.update_entry_count(25)
    transactions.write_entry_counts(str(tmp_path), [0, 25])
    counts = {25: (2, crc32c(encode_aborted_transactions(ALL[1:])))}
    assert read_entry_counts(Disk(), str(tmp_path)) == counts
    transactions.write_entry_counts(str(tmp_path), [0])
    assert read_entry_counts(Disk(), str(tmp_path)) == {}


def test_a_malformed_checkpoint_of_transaction_counts_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "aborted-transactions-checkpoint").write_bytes(b"\1\2\3")
    assert read_entry_counts(Disk(), str(tmp_path)) == {}
    assert "aborted-transactions-checkpoint is malformed, and is rebuilt" in caplog.text


@pytest.mark.parametrize(("end", "left"), [(46, ALL), (45, ALL[:2]), (31, ALL[:2]), (30, ALL[:1]), (20, []), (0, [])])
def test_truncation_removes_aborted_transactions_beyond_the_end(
    tmp_path: Path, end: int, left: list[AbortedTransaction]
) -> None:
    path = str(tmp_path / f"{0:020d}")
    file = Path(f"{path}.txnindex")
    file.write_bytes(encode_aborted_transactions(ALL))
    transactions = read(path)
    transactions.truncate_to(path, end)
    assert list(transactions.list_transactions_between(0, 100)) == left
    assert (file.read_bytes() if file.exists() else b"") == encode_aborted_transactions(left)


def test_truncation_keeps_the_remaining_transactions_of_each_segment(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{offset:020d}") for offset in (0, 25)]
    for path, transactions in zip(paths, ([FIRST], [SECOND, THIRD]), strict=True):
        Path(f"{path}.txnindex").write_bytes(encode_aborted_transactions(transactions))
    read(*paths).truncate_to(paths[1], 40)
    assert Path(f"{paths[0]}.txnindex").read_bytes() == encode_aborted_transactions([FIRST])
    assert Path(f"{paths[1]}.txnindex").read_bytes() == encode_aborted_transactions([SECOND])


@pytest.mark.parametrize("cut", ["beginning", "end"])
def test_the_transaction_index_of_a_removed_segment_is_not_fsynced(tmp_path: Path, cut: str) -> None:
    paths = [str(tmp_path / f"{offset:020d}") for offset in (0, 25)]
    transactions = AbortedTransactions(Disk())
    transactions.add_transaction(paths[0], FIRST)
    transactions.add_transaction(paths[1], SECOND)
    assert transactions.list_unsynced_paths() == [f"{path}.txnindex" for path in paths]
    if cut == "beginning":
        transactions.remove_transactions_before(25)
    else:
        transactions.truncate_to(paths[0], 25)
    assert transactions.list_unsynced_paths() == [f"{paths[cut == 'beginning']}.txnindex"]


def test_a_transaction_index_entry_that_could_not_be_written_is_removed_with_its_segment(tmp_path: Path) -> None:
    path = tmp_path / "missing" / f"{0:020d}"
    transactions = AbortedTransactions(Disk())
    transactions.add_transaction(str(path), FIRST)
    path.parent.mkdir()
    transactions.remove_transactions_before(25)
    transactions.write_missing_entries()
    assert not list(path.parent.iterdir())


def test_compaction_replaces_the_aborted_transactions_of_its_segments() -> None:
    transactions = AbortedTransactions(Disk(), ALL)
    transactions.replace_transactions_between(20, 45, [SECOND])
    assert list(transactions.list_transactions_between(0, 100)) == [SECOND, THIRD]
    transactions.replace_transactions_between(0, 45, [])
    assert list(transactions.list_transactions_between(0, 100)) == [THIRD]
    transactions.replace_transactions_between(0, 45, [FIRST])
    assert list(transactions.list_transactions_between(0, 100)) == [FIRST, THIRD]


def test_a_transaction_index_entry_that_does_not_fit_on_the_disk_leaves_no_part() -> None:
    disk = FaultyDisk(Random(1))
    path = f"/{0:020d}"
    transactions = AbortedTransactions(disk)
    transactions.add_transaction(path, FIRST)
    disk.room_bytes = 10
    transactions.add_transaction(path, SECOND)
    assert disk.read_whole(f"{path}.txnindex") == encode_aborted_transactions([FIRST])
    disk.heal()
    transactions.write_missing_entries()
    assert disk.read_whole(f"{path}.txnindex") == encode_aborted_transactions([FIRST, SECOND])
