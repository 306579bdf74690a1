"""The files of a log together: what each name means, and a log whose every byte is held against what is beside it."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.protocol.records.walking import FoundBatch
from minibroker.storage.files import Disk
from minibroker.storage.inspection.inspected_files import (
    FileKind,
    InspectedFile,
    InspectedItem,
    InspectionOptions,
    identify_file,
    iterate_file_contents,
)
from minibroker.storage.inspection.inspected_records import FoundRecord
from minibroker.storage.inspection.log_inspection import DamagedBytes, InspectionNote
from minibroker.storage.log_settings import LogSettings
from tests.cases import for_each
from tests.storage.support import NOW_MS, FailingDisk, append, batch, open_at

BASE = "00000000000000000000"
COUNTS = (1, 2, 3, 2)
SETTINGS = LogSettings(index_interval_bytes=100)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of one segment, closed: its indexes and its leader epochs are on the disk."""
    directory = tmp_path_factory.mktemp("data") / "orders-0"
    log = open_at(directory, SETTINGS)
    for index, count in enumerate(COUNTS):
        append(log, batch(count, timestamp=NOW_MS + index), leader_epoch=index // 2)
    log.close()
    return directory


@pytest.fixture
def log(written: Path, tmp_path: Path) -> Path:
    """A copy of that log's directory."""
    return Path(shutil.copytree(written, tmp_path / "orders-0"))


def look(path: Path, *, records: bool = False, verify: bool = True, disk: Disk | None = None) -> list[InspectedItem]:
    inspected = identify_file(str(path))
    assert inspected is not None
    return list(iterate_file_contents(disk or Disk(), inspected, InspectionOptions(records=records, verify=verify)))


def batches_in(found: list[InspectedItem]) -> list[FoundBatch]:
    return [each for each in found if isinstance(each, FoundBatch)]


def said_in(found: list[InspectedItem]) -> list[DamagedBytes | InspectionNote]:
    return [each for each in found if isinstance(each, DamagedBytes | InspectionNote)]


@for_each(
    ("name", "kind", "base_offset"),
    [
        (f"{BASE}.log", FileKind.LOG, 0),
        ("00000000000000000042.log.deleted", FileKind.LOG, 42),
        (f"{BASE}.index.swap", FileKind.OFFSET_INDEX, 0),
        (f"{BASE}.timeindex", FileKind.TIME_INDEX, 0),
        (f"{BASE}.txnindex", FileKind.TRANSACTION_INDEX, 0),
        ("00000000000000000007.snapshot", FileKind.PRODUCER_SNAPSHOT, 7),
        (f"{BASE}-0000000000.checkpoint", FileKind.METADATA_SNAPSHOT, None),
        ("bootstrap.checkpoint", FileKind.METADATA_SNAPSHOT, None),
        ("copy.log", FileKind.LOG, None),
        ("leader-epoch-checkpoint", FileKind.LEADER_EPOCHS, None),
        ("cleaner-offset-checkpoint", FileKind.OFFSETS, None),
        ("aborted-transactions-checkpoint", FileKind.ABORTED_COUNTS, None),
        ("partition.metadata", FileKind.PARTITION_METADATA, None),
        ("meta.properties", FileKind.META_PROPERTIES, None),
        ("quorum-state", FileKind.QUORUM_STATE, None),
        (".kafka_cleanshutdown", FileKind.CLEAN_SHUTDOWN, None),
    ],
)
def test_a_file_name_determines_the_kind_of_file(name: str, kind: FileKind, base_offset: int | None) -> None:
    assert identify_file(f"/data/orders-0/{name}") == InspectedFile(f"/data/orders-0/{name}", kind, base_offset)


@pytest.mark.parametrize("name", [".lock", "log", ".log", f"{BASE}.log.tmp", "notes.txt"])
def test_file_names_that_cannot_be_inspected_have_no_kind(name: str) -> None:
    assert identify_file(name) is None


@for_each(
    ("name", "is_kafkas"),
    [
        (f"{BASE}.log", True),
        (f"{BASE}.snapshot", True),
        ("server.log", False),
        ("home.index", False),
        ("lvm.snapshot", False),
        ("meta.properties", True),
        ("bootstrap.checkpoint", True),
    ],
)
def test_a_segments_file_has_an_offset_in_its_name(name: str, is_kafkas: bool) -> None:
    inspected = identify_file(name)
    assert inspected is not None and inspected.has_name_used_by_kafka == is_kafkas


def test_the_topic_and_the_neighbouring_paths_of_a_file_are_found_by_its_path() -> None:
    index = InspectedFile(f"/data/__a-b-12/{BASE}.index.deleted", FileKind.OFFSET_INDEX, 0)
    assert index.topic == "__a-b"
    assert index.make_path_with_suffix(".log") == f"/data/__a-b-12/{BASE}.log.deleted"
    assert InspectedFile("/data/bootstrap.checkpoint", FileKind.METADATA_SNAPSHOT, None).topic == "__cluster_metadata"
    assert InspectedFile("/data/meta.properties", FileKind.META_PROPERTIES, None).topic is None


def test_no_damage_is_reported_in_the_files_of_a_valid_log(log: Path) -> None:
    for path in log.iterdir():
        assert said_in(look(path, records=True)) == []
    found = look(log / f"{BASE}.log", records=True)
    assert [each.header.record_count for each in batches_in(found)] == list(COUNTS)
    assert [each.record.offset for each in found if isinstance(each, FoundRecord)] == list(range(sum(COUNTS)))


@pytest.mark.parametrize("mask", [0x01, 0x08, 0x80, 0xFF])
def test_damage_at_any_byte_of_a_log_is_reported_only_at_its_batch(log: Path, mask: int) -> None:
    path = log / f"{BASE}.log"
    good, batches = path.read_bytes(), batches_in(look(path))
    for position in range(len(good)):
        data = bytearray(good)
        data[position] ^= mask
        path.write_bytes(data)
        found = look(path)
        (hit,) = (each for each in batches if each.position <= position < each.position + each.header.size_bytes)
        assert hit.position in [each.position for each in said_in(found)], position
        others = [each for each in batches_in(found) if each.position != hit.position]
        assert others == [each for each in batches if each is not hit], position


def test_damage_of_an_index_that_is_inspected_too_is_not_reported_with_its_log(log: Path) -> None:
    path = log / f"{BASE}.index"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    inspected = identify_file(str(log / f"{BASE}.log"))
    assert inspected is not None
    assert (
        said_in(
            list(iterate_file_contents(Disk(), inspected, InspectionOptions(verify=True, shown=frozenset({str(path)}))))
        )
        == []
    )


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_damage_at_any_byte_of_an_index_is_reported(log: Path, suffix: str) -> None:
    path = log / f"{BASE}.{suffix}"
    good = path.read_bytes()
    assert good
    for position in range(len(good)):
        data = bytearray(good)
        data[position] ^= 0x01
        path.write_bytes(data)
        with_log = [each.path for each in said_in(look(log / f"{BASE}.log"))]
        alone = [each.path for each in said_in(look(path))]
        assert set(with_log) == set(alone) == {str(path)}, position


def test_an_index_is_not_compared_with_the_log_by_default(log: Path) -> None:
    path = log / f"{BASE}.index"
    data = bytearray(path.read_bytes())
    data[3] += 1
    path.write_bytes(data)
    assert said_in(look(path, verify=False)) == []
    assert said_in(look(log / f"{BASE}.log", verify=False)) == []


def test_entries_of_an_index_for_damaged_bytes_are_not_reported(log: Path) -> None:
    path = log / f"{BASE}.log"
    data = bytearray(path.read_bytes())
    for each in batches_in(look(path)):
        data[each.position + 16] = 9
    path.write_bytes(data)
    assert {each.path for each in said_in(look(path))} == {str(path)}


def test_missing_index_files_are_not_reported_for_the_log(log: Path) -> None:
    for path in log.iterdir():
        if path.suffix != ".log":
            path.unlink()
    assert said_in(look(log / f"{BASE}.log")) == []


def test_an_index_without_its_log_is_shown_alone(log: Path) -> None:
    (log / f"{BASE}.log").unlink()
    assert said_in(look(log / f"{BASE}.index")) == []


def test_offsets_beyond_the_start_of_the_next_segment_are_reported(tmp_path: Path) -> None:
    made = open_at(tmp_path / "orders-0", SETTINGS)
    append(made, batch(2))
    made.roll_segment_if_used()
    append(made, batch(2))
    made.close()
    first = tmp_path / "orders-0" / f"{BASE}.log"
    data = bytearray(first.read_bytes())
    data[7] = 1
    first.write_bytes(data)
    damages = [each for each in said_in(look(first)) if isinstance(each, DamagedBytes)]
    assert [each.expected for each in damages] == ["offsets from 0 on and below 2"]


def test_a_failing_disk_is_reported_as_damage(log: Path) -> None:
    disk = FailingDisk()
    disk.failing, disk.suffix = {"read"}, ".log"
    (damage,) = look(log / f"{BASE}.log", disk=disk)
    path = str(log / f"{BASE}.log")
    assert damage == DamagedBytes(path, 0, 0, None, "a file that can be read to its end", "Input/output error")
    disk.suffix = ".timeindex"
    said = said_in(look(log / f"{BASE}.log", disk=disk))
    assert [each.path for each in said] == [str(log / f"{BASE}.timeindex")]


def test_a_file_that_cannot_be_opened_raises_an_error(tmp_path: Path) -> None:
    missing = InspectedFile(str(tmp_path / f"{BASE}.log"), FileKind.LOG, 0)
    with pytest.raises(FileNotFoundError) as caught:
        list(iterate_file_contents(Disk(), missing, InspectionOptions()))
    assert caught.value.errno == errno.ENOENT


def test_an_inspection_writes_no_file(log: Path) -> None:
    def state() -> Iterator[tuple[str, bytes, int]]:
        for path in sorted(log.iterdir()):
            yield path.name, path.read_bytes(), path.stat().st_mtime_ns

    before = list(state())
    for path in log.iterdir():
        path.chmod(0o400)
        look(path)
    assert list(state()) == before
