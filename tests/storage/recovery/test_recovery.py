"""Opening logs after clean stops and after crashes: the damage is made by hand, in copies of a log's directory.

That a log behaves once it is open is tested in `test_log.py` and the files beside it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from minibroker.operating_system import remove_tree
from minibroker.protocol.records.batch import check_batch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.recovery.recovery import LogDirectoryError
from tests.storage.support import (
    NOW_MS,
    FailingDisk,
    Surroundings,
    append,
    batch,
    files_in,
    offset_for_timestamp,
    open_at,
    read_batches,
    read_values,
)

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)
LOG_FILE = "00000000000000000000.log"


def write_log(directory: Path, batches: int = 12, settings: LogSettings = SMALL) -> Log:
    """A log of `batches` batches of two records of one producer, with a new leader epoch each fifth."""
    log = open_at(directory, settings)
    for number in range(batches):
        data = batch(
            2,
            timestamp=NOW_MS + number,
            producer_id=7,
            producer_epoch=0,
            base_sequence=2 * number,
            compression=number % 5,
        )
        append(log, data, leader_epoch=number // 5)
    return log


def crashed(directory: Path, settings: LogSettings = SMALL, **known: int) -> Log:
    return open_at(directory, settings, clean=False, **known)


def indexes_of(log: Log) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for segment in log.segments:
        segment.load_last_entries()
        segment.indexes.load_entries()
        indexes = segment.indexes
        closing = (indexes.max_timestamp, indexes.offset_of_max_timestamp)
        times = [entry for entry in indexes.times.list_entries() if entry != closing]
        found.append((segment.base_offset, segment.size_bytes, indexes.offsets.list_entries(), times, closing))
    return found


def states_of(log: Log) -> tuple[object, ...]:
    return log.log_end_offset, log.epochs.list_entries(), log.producers.encode_snapshot(), log.producers.end_offset


def test_a_log_is_unchanged_after_a_clean_stop(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    before = read_batches(log), indexes_of(log), states_of(log)
    log.close()
    log = open_at(tmp_path, SMALL)
    assert (read_batches(log), indexes_of(log), states_of(log)) == before
    assert log.recovery_point == log.log_end_offset


def test_a_log_is_unchanged_after_a_crash(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    before = read_batches(log), indexes_of(log), states_of(log)
    log.close_without_flush()
    log = crashed(tmp_path)
    assert (read_batches(log), indexes_of(log), states_of(log)) == before
    assert log.recovery_point == 0


def test_a_clean_start_reads_only_the_last_batches(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    log.close()
    first = tmp_path / LOG_FILE
    first.write_bytes(bytes(first.stat().st_size))
    log = open_at(tmp_path, SMALL)
    assert log.log_end_offset == 24
    assert len(read_batches(log, log.segments[1].base_offset)) > 0


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_opens_no_file_before_it_is_used(tmp_path: Path, clean: bool) -> None:
    write_log(tmp_path).close()
    log = open_at(tmp_path, SMALL, clean=clean)
    assert all(segment._file is None for segment in log.segments)
    append(log, batch(1))
    assert len(read_values(log)) == 25


def test_only_segments_from_the_recovery_point_on_are_read_after_a_crash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = write_log(tmp_path)
    before = states_of(log)
    point = log.segments[1].base_offset + 1
    log.close_without_flush()
    first = tmp_path / LOG_FILE
    first.write_bytes(bytes(first.stat().st_size))
    log = crashed(tmp_path, recovery_point=point)
    assert states_of(log) == before
    assert log.recovery_point == point
    assert not caplog.records


def test_a_flushed_log_is_read_from_the_segment_of_its_recovery_point(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    log.flush()
    assert log.recovery_point == log.log_end_offset == 24
    before = read_batches(log), indexes_of(log), states_of(log)
    log.close_without_flush()
    log = crashed(tmp_path, recovery_point=24)
    assert (read_batches(log), indexes_of(log), states_of(log)) == before


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes], list[bytes]]:
    """The directory of an abandoned log of two segments, all its batches, and snapshots of the states before each."""
    directory = tmp_path_factory.mktemp("written")
    log = open_at(directory, LogSettings(segment_bytes=400, index_interval_bytes=100))
    batches, states = [], [log.producers.encode_snapshot()]
    while len(log.segments) < 2 or len(log.segments[-1].file.read(0, 1000)) < 250:
        sequence = log.log_end_offset
        append(log, batch(2, producer_id=7, producer_epoch=0, base_sequence=sequence), leader_epoch=sequence // 4)
        states.append(log.producers.encode_snapshot())
    batches = read_batches(log)
    log.close_without_flush()
    return directory, batches, states


def copy(written: Path, to: Path) -> Path:
    return Path(shutil.copytree(written, to))


def assert_holds(log: Log, batches: list[bytes], state: bytes) -> None:
    """Exactly these batches, and everything derived from them as if nothing else had ever been there."""
    assert read_batches(log) == batches
    assert log.log_end_offset == 2 * len(batches)
    assert log.producers.encode_snapshot() == state
    epochs = sorted({check_batch(data).partition_leader_epoch for data in batches})
    assert [epoch for epoch, _ in log.epochs.list_entries()] == epochs
    for number, data in enumerate(batches):
        region = log.read(2 * number + 1, 1)
        assert region is not None and region.read() == data


def test_a_log_truncated_at_any_byte_keeps_all_complete_batches(
    tmp_path: Path, written: tuple[Path, list[bytes], list[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    source, batches, states = written
    base_offsets = sorted(int(path.stem) for path in source.glob("*.log"))
    size = len(batches[0])
    for base_offset in base_offsets:
        whole = (source / f"{base_offset:020d}.log").stat().st_size
        for cut in range(whole):
            caplog.clear()
            directory = copy(source, tmp_path / f"{base_offset}-{cut}")
            with open(directory / f"{base_offset:020d}.log", "r+b") as file:
                file.truncate(cut)
            log = crashed(directory)
            left = base_offset // 2 + cut // size
            last = base_offset == base_offsets[-1]
            if not last and cut % size == 0:  # a whole segment before a later one: nothing shows that batches are gone
                assert read_batches(log)[:left] == batches[:left]
                continue
            assert_holds(log, batches[:left], states[left])
            told = len(caplog.records)
            assert told == 1 if cut % size else told <= 1  # the file of the epochs may have one that is gone
            assert append(log, batch(1)) == 2 * left
            log.close()
            assert len(read_batches(open_at(directory))) == left + 1
            remove_tree(str(directory))  # with files of the log that are still open


def test_damage_at_any_byte_truncates_the_log_before_the_damaged_batch(
    tmp_path: Path, written: tuple[Path, list[bytes], list[bytes]]
) -> None:
    source, batches, states = written
    base_offset = max(int(path.stem) for path in source.glob("*.log"))
    whole = (source / f"{base_offset:020d}.log").read_bytes()
    size = len(batches[0])
    uncovered = {*range(8), *range(12, 16)}  # base offset and leader epoch
    for at in range(len(whole)):
        if at % size in uncovered:
            continue
        directory = copy(source, tmp_path / f"{at}")
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        (directory / f"{base_offset:020d}.log").write_bytes(data)
        log = crashed(directory)
        left = base_offset // 2 + at // size
        assert_holds(log, batches[:left], states[left])
        assert log.segments[-1].file.size_bytes() == log.segments[-1].size_bytes
        remove_tree(str(directory))  # with files of the log that are still open


def test_a_decreasing_or_excessive_base_offset_is_damage(
    tmp_path: Path, written: tuple[Path, list[bytes], list[bytes]]
) -> None:
    source, batches, states = written
    base_offset = max(int(path.stem) for path in source.glob("*.log"))
    path = tmp_path / "log" / f"{base_offset:020d}.log"
    size = len(batches[0])
    for wrong in (0, base_offset + 1, base_offset + (1 << 31), 1 << 60):
        copy(source, tmp_path / "log")
        data = path.read_bytes()
        path.write_bytes(data[:size] + wrong.to_bytes(8, "big") + data[size + 8 :])
        left = base_offset // 2 + 1
        assert_holds(crashed(tmp_path / "log"), batches[:left], states[left])
        remove_tree(str(tmp_path / "log"))


def test_a_truncation_is_logged_once_with_everything_that_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = write_log(tmp_path)
    first, *later = [segment.size_bytes for segment in log.segments]
    log.close_without_flush()
    path = tmp_path / LOG_FILE
    data = bytearray(path.read_bytes())
    second = check_batch(data).size_bytes
    data[second + 70] ^= 1
    path.write_bytes(data)
    log = crashed(tmp_path)
    assert log.log_end_offset == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    message = caplog.records[0].getMessage()
    assert message.startswith(
        f"orders-0: {path} is cut at position {second}, offset 2; "
        f"lost are {first - second} bytes of it and {len(later)} later segments of {sum(later)} bytes: "
    )
    assert "checksum" in message
    assert [name for name in files_in(tmp_path) if name.endswith(".log")] == [LOG_FILE]


def test_indexes_and_snapshots_beyond_the_truncation_are_not_used(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    log.close()
    path = tmp_path / LOG_FILE
    path.write_bytes(path.read_bytes()[:-1])
    log = crashed(tmp_path)
    end = log.log_end_offset
    again = batch(2, producer_id=7, producer_epoch=0, base_sequence=end)
    assert log.producers.check_epoch_and_sequence(check_batch(again)) is None
    append(log, again)
    log.close()
    assert all(int(name[:20]) <= end + 2 for name in files_in(tmp_path) if name[:20].isdigit())
    assert open_at(tmp_path, SMALL).log_end_offset == end + 2


def test_damage_despite_a_clean_stop_is_recovered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = write_log(tmp_path, 3, LogSettings())
    log.close()
    path = tmp_path / LOG_FILE
    path.write_bytes(path.read_bytes()[:-1])
    log = open_at(tmp_path)
    assert log.log_end_offset == 4
    assert "although the last stop was clean" in caplog.text


def test_an_empty_directory_is_an_empty_log_at_its_checkpointed_start_offset(tmp_path: Path) -> None:
    log = open_at(tmp_path, clean=False, log_start_offset=42)
    assert (log.log_start_offset, log.log_end_offset) == (42, 42)
    assert list(files_in(tmp_path)) == [f"{42:020d}.log"]


def test_a_log_that_ends_before_its_start_offset_restarts_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_log(tmp_path).close()
    log = crashed(tmp_path, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert [name for name in files_in(tmp_path) if name.endswith(".log")] == [f"{100:020d}.log"]
    assert "an empty log begins there" in caplog.text
    assert append(log, batch(1)) == 100


def test_the_checkpointed_log_start_offset_is_kept(tmp_path: Path) -> None:
    write_log(tmp_path).close()
    log = open_at(tmp_path, SMALL, log_start_offset=5)
    assert log.log_start_offset == 5
    assert log.epochs.list_entries()[0] == (0, 5)


def test_an_empty_segment_of_a_failed_roll_is_removed(tmp_path: Path) -> None:
    log = write_log(tmp_path, 3, LogSettings())
    log.close()
    (tmp_path / f"{2:020d}.log").write_bytes(b"")
    for clean in (True, False):
        log = open_at(tmp_path, clean=clean)
        assert log.log_end_offset == 6
        assert len(read_batches(log)) == 3
        assert append(log, batch(1)) == 6
        log.truncate_to(6)
        log.close()


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_last_segment_is_kept(tmp_path: Path, clean: bool) -> None:
    log = write_log(tmp_path, 3, LogSettings())
    log.roll_segment_if_used()
    log.close()
    log = open_at(tmp_path, clean=clean)
    assert [segment.base_offset for segment in log.segments] == [0, 6]
    assert append(log, batch(1)) == 6


@pytest.mark.parametrize("content", [b"", b"0\n0\n", b"nonsense", b"0\n1\n", None])
def test_unreadable_leader_epochs_are_rebuilt_from_the_batches(
    tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    log = write_log(tmp_path)
    epochs = log.epochs.list_entries()
    assert len(epochs) == 3
    log.close()
    checkpoint = tmp_path / "leader-epoch-checkpoint"
    checkpoint.write_bytes(content) if content is not None else checkpoint.unlink()
    assert open_at(tmp_path, SMALL).epochs.list_entries() == epochs
    assert ("malformed" in caplog.text) == (content in (b"nonsense", b"0\n1\n"))


def test_leader_epochs_beyond_the_log_end_are_removed(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    epochs = log.epochs.list_entries()
    log.close()
    (tmp_path / "leader-epoch-checkpoint").write_bytes(b"0\n4\n0 0\n1 10\n2 20\n9 24\n")
    assert open_at(tmp_path, SMALL).epochs.list_entries() == epochs


@pytest.mark.parametrize("clean", [True, False])
def test_a_corrupt_snapshot_is_removed_and_the_log_is_read_instead(
    tmp_path: Path, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = write_log(tmp_path)
    before = states_of(log)
    log.close()
    for path in tmp_path.glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-1])
    assert states_of(open_at(tmp_path, SMALL, clean=clean, recovery_point=20)) == before
    assert "the log is read instead" in caplog.text


def test_a_log_without_snapshots_is_read(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    before = states_of(log)
    log.close()
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    assert states_of(open_at(tmp_path, SMALL)) == before


def test_snapshots_without_a_segment_are_removed_except_the_last(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    log.close()
    bases = [segment.base_offset for segment in log.segments]
    for stray in (1, 3):
        (tmp_path / f"{stray:020d}.snapshot").write_bytes(b"")
    open_at(tmp_path, SMALL)
    snapshots = sorted(int(path.stem) for path in tmp_path.glob("*.snapshot"))
    assert snapshots == [*bases[1:], 24]


def test_producer_states_of_an_unreadable_log_are_restored_up_to_the_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = write_log(tmp_path)
    log.close()
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    first = tmp_path / LOG_FILE
    first.write_bytes(bytes(first.stat().st_size))
    log = open_at(tmp_path, SMALL)
    assert log.log_end_offset == 24
    assert "incomplete" in caplog.text


def test_a_recovery_restores_open_and_ended_transactions(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, batch(2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    record = make_transaction_marker(committed=False, coordinator_epoch=5, timestamp=NOW_MS)
    append(log, build_batch([record], producer_id=7, producer_epoch=0, transactional=True, control=True))
    append(log, batch(2, producer_id=8, producer_epoch=0, base_sequence=0, transactional=True))
    before = states_of(log)
    log.close_without_flush()
    log = crashed(tmp_path)
    assert states_of(log) == before
    entries = dict(log.producers.iterate_entries())
    assert (entries[7].coordinator_epoch, entries[7].transaction_first_offset) == (5, -1)
    assert entries[8].transaction_first_offset == 3


def test_the_topic_id_is_read_and_may_be_missing(tmp_path: Path) -> None:
    write_log(tmp_path).close()
    assert open_at(tmp_path, SMALL).topic_id == bytes(16)
    (tmp_path / "partition.metadata").write_bytes(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    assert open_at(tmp_path, SMALL).topic_id == bytes(15) + b"\x01"
    (tmp_path / "partition.metadata").write_bytes(b"version: 7")
    with pytest.raises(LogDirectoryError, match="cannot be opened"):
        open_at(tmp_path, SMALL)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("left", [b"", bytes(43)])
def test_a_topic_id_lost_in_a_power_failure_is_unknown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, left: bytes, clean: bool
) -> None:
    """The power may be cut after an orderly stop, too."""
    write_log(tmp_path).close()
    (tmp_path / "partition.metadata").write_bytes(left)
    assert open_at(tmp_path, SMALL, clean=clean).topic_id == bytes(16)
    assert "partition.metadata is ignored, as a crash has damaged it" in caplog.text


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_of_all_message_formats_is_opened_unchanged(tmp_path: Path, clean: bool) -> None:
    kept = [Record(offset, NOW_MS + offset, b"k", b"v%d" % offset) for offset in range(8)]
    data = bytes(
        build_message_set(kept[:2], 0)
        + build_batch(kept[2:4], base_offset=2)
        + build_message_set(kept[4:6], 1, compression=Compression.GZIP)
        + build_message_set(kept[6:], 0, compression=Compression.SNAPPY)
    )
    (tmp_path / LOG_FILE).write_bytes(data)
    log = open_at(tmp_path, clean=clean)
    assert (log.log_start_offset, log.log_end_offset) == (0, 8)
    assert (tmp_path / LOG_FILE).read_bytes() == data
    assert read_values(log) == [(record.offset, record.value) for record in kept]
    found = offset_for_timestamp(log, NOW_MS + 5)
    assert found is not None
    assert (found.offset, found.timestamp, found.leader_epoch) == (5, NOW_MS + 5, -1)


@pytest.mark.parametrize("operation", ["read", "open", "create"])
def test_a_failing_disk_creates_no_log(tmp_path: Path, operation: str) -> None:
    write_log(tmp_path).close_without_flush()
    disk = FailingDisk()
    disk.failing = {operation}
    with pytest.raises(LogDirectoryError, match="Input/output error"):
        open_at(tmp_path, SMALL, clean=False, surroundings=Surroundings(disk))
    assert len(read_values(crashed(tmp_path))) == 24
