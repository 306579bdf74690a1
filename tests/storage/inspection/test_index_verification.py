"""What each check asks of the log, batch by batch; whole logs are held against their files in test_inspected_files."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.protocol.records.batch import HEADER_BYTES, read_header, set_checksum, set_offset_and_epoch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.walking import FoundBatch
from minibroker.storage.files import Disk, File
from minibroker.storage.inspection.index_inspection import OffsetEntry, TimeEntry, TransactionEntry
from minibroker.storage.inspection.index_verification import (
    MAX_CONTROL_BATCH_BYTES,
    IndexCheck,
    OffsetIndexCheck,
    TimeIndexCheck,
    TransactionIndexCheck,
)
from minibroker.storage.inspection.log_inspection import DamagedBytes, LogInspection
from tests.storage.support import NOW_MS, batch

PATH = "index"


def log_of(directory: Path, *batches: bytearray, epoch: int = 0) -> File:
    """A `.log` file of these batches, which get their offsets."""
    offset = 0
    for data in batches:
        set_offset_and_epoch(data, 0, offset, epoch)
        offset = read_header(data).next_offset
    (directory / "00000000000000000000.log").write_bytes(b"".join(batches))
    return Disk().open_to_read(str(directory / "00000000000000000000.log"))


def run(log: File, check: IndexCheck) -> list[DamagedBytes]:
    said: list[DamagedBytes] = []
    for finding in LogInspection(log, base_offset=0).iterate_findings():
        if isinstance(finding, FoundBatch):
            said += check.check_batch(finding)
        elif isinstance(finding, DamagedBytes):
            check.skip_entries_of_damage(finding)
    return said + list(check.check_remaining_entries(log.size_bytes()))


def offsets_check(*entries: tuple[int, int]) -> OffsetIndexCheck:
    return OffsetIndexCheck(PATH, [OffsetEntry(8 * index, *entry) for index, entry in enumerate(entries)])


def times_check(*entries: tuple[int, int]) -> TimeIndexCheck:
    return TimeIndexCheck(PATH, [TimeEntry(12 * index, *entry) for index, entry in enumerate(entries)])


def test_an_offset_entry_must_have_a_batchs_last_offset_and_position(tmp_path: Path) -> None:
    first, second = batch(3), batch(2)
    log = log_of(tmp_path, first, second)
    size = len(first)
    assert run(log, offsets_check((4, size))) == []
    assert run(log, offsets_check((3, size))) == [
        DamagedBytes(PATH, 0, 0, 3, f"offset 4, the last of the batch at {size}", "3")
    ]
    for wrong in (size - 1, size + 1, 1 << 20):
        expected = "the position at which a batch begins"
        assert run(log, offsets_check((4, wrong))) == [DamagedBytes(PATH, 0, 0, 4, expected, str(wrong))]


def test_a_time_entry_must_have_the_largest_timestamp_so_far_and_its_batch(tmp_path: Path) -> None:
    log = log_of(tmp_path, batch(2, timestamp=NOW_MS + 5), batch(2, timestamp=NOW_MS), batch(1, timestamp=NOW_MS + 9))
    assert run(log, times_check((NOW_MS + 5, 1), (NOW_MS + 9, 4))) == []
    for wrong, expected in (
        ((NOW_MS + 6, 1), f"timestamp {NOW_MS + 5}, the largest up to offset 1"),
        ((NOW_MS, 3), f"timestamp {NOW_MS + 5}, the largest up to offset 3"),
        ((NOW_MS + 5, 0), "the last offset of a batch"),
        ((NOW_MS + 9, 7), "an offset that is in the log"),
    ):
        (damage,) = run(log, times_check(wrong))
        assert (damage.offset, damage.expected) == (wrong[1], expected)


def test_each_aborting_marker_must_have_an_index_entry(tmp_path: Path) -> None:
    options = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    marker = make_transaction_marker(committed=False, coordinator_epoch=0, timestamp=NOW_MS)
    commit = make_transaction_marker(committed=True, coordinator_epoch=0, timestamp=NOW_MS)
    log = log_of(
        tmp_path,
        batch(2, base_sequence=0, **options),
        build_batch([marker], control=True, **options),  # type: ignore[arg-type]
        batch(1, base_sequence=2, **options),
        build_batch([commit], control=True, **options),  # type: ignore[arg-type]
    )

    def check(*entries: tuple[int, int, int]) -> list[DamagedBytes]:
        made = [TransactionEntry(34 * index, 0, *entry, 0) for index, entry in enumerate(entries)]
        return run(log, TransactionIndexCheck(log, PATH, made))

    expected = "the transaction of producer 7 that offset 2 aborts"
    assert check((7, 0, 2)) == []
    assert check((9, 0, 1), (7, 0, 2)) == []
    assert check() == [DamagedBytes(PATH, 0, 0, 2, expected, "none")]
    assert check((8, 0, 2)) == [DamagedBytes(PATH, 0, 0, 2, expected, "producer 8, offset 2")]
    assert check((7, 0, 4)) == [DamagedBytes(PATH, 0, 0, 2, expected, "producer 7, offset 4")]


@pytest.mark.parametrize("padding", [b"", bytes(MAX_CONTROL_BATCH_BYTES)])
def test_a_control_batch_that_cannot_be_read_needs_no_index_entry(tmp_path: Path, padding: bytes) -> None:
    marker = make_transaction_marker(committed=False, coordinator_epoch=0, timestamp=NOW_MS)
    options = {"producer_id": 7, "producer_epoch": 0, "transactional": True, "control": True}
    if padding:
        data = build_batch([marker._replace(value=padding)], **options)  # type: ignore[arg-type]
    else:
        data = build_batch([marker], **options)  # type: ignore[arg-type]
        data[HEADER_BYTES] = 1  # the length of the record
        set_checksum(data, 0, len(data))
    log = log_of(tmp_path, data)
    assert run(log, TransactionIndexCheck(log, PATH, [])) == []


def test_index_entries_for_corrupt_bytes_of_the_log_are_not_verified(tmp_path: Path) -> None:
    first, second, third = batch(3), batch(2, timestamp=NOW_MS + 1), batch(1, timestamp=NOW_MS + 2)
    log = log_of(tmp_path, first, second, third)
    data = bytearray((tmp_path / "00000000000000000000.log").read_bytes())
    data[len(first) + 16] = 9
    (tmp_path / "00000000000000000000.log").write_bytes(data)
    assert run(log, offsets_check((4, len(first)))) == []
    assert run(log, times_check((NOW_MS, 2), (NOW_MS + 1, 4), (NOW_MS + 2, 5))) == []
