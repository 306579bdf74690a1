"""The disk that fails on demand does what it says, so that what is proved with it means something."""

from __future__ import annotations

import errno
from random import Random

import pytest

from tests.cases import for_each
from tests.storage.faulty_disk import SECTOR_BYTES, Crash, FaultyDisk


def disk_of(seed: int = 1) -> FaultyDisk:
    disk = FaultyDisk(Random(seed))
    disk.make_directory("/data/log")
    disk.sync_directory("/data")
    disk.sync_directory("/")
    return disk


def write(disk: FaultyDisk, path: str, data: bytes, position: int = 0, *, sync: bool = False) -> None:
    file = disk.open(path, create=True)
    file.write(position, data)
    if sync:
        file.sync()


def read(disk: FaultyDisk, path: str) -> bytes | None:
    return disk.read_whole(path) if disk.exists(path) else None


def test_a_faulty_disk_without_faults_behaves_as_a_disk() -> None:
    disk = disk_of()
    write(disk, "/data/log/a", b"0123456789")
    write(disk, "/data/log/a", b"xy", 4)
    write(disk, "/data/log/b", b"end", 5)
    assert read(disk, "/data/log/a") == b"0123xy6789"
    assert read(disk, "/data/log/b") == bytes(5) + b"end"
    disk.open("/data/log/a").truncate(3)
    disk.rename("/data/log/a", "/data/log/c")
    disk.write_whole("/data/log/d", b"whole", sync=False)
    assert disk.list_names("/data/log") == ["b", "c", "d"]
    assert disk.size_bytes("/data/log/c") == 3
    kept = disk.open("/data/log/c")
    disk.remove("/data/log/c")
    disk.remove("/data/log/c")
    assert kept.read(0, 10) == b"012"
    with pytest.raises(FileNotFoundError):
        disk.open("/data/log/c")
    disk.remove_tree("/data/log")
    assert not disk.exists("/data/log")
    assert disk.is_directory("/data")


def test_a_killed_process_loses_nothing_that_was_written() -> None:
    disk = disk_of()
    write(disk, "/data/log/a", b"0123")
    disk.lifetime = 0
    with pytest.raises(Crash):
        disk.rename("/data/log/a", "/data/log/b")
    with pytest.raises(Crash):
        disk.exists("/data")
    disk.heal()
    assert read(disk, "/data/log/a") == b"0123"


def test_a_write_during_a_kill_is_partially_written() -> None:
    found = set()
    for seed in range(30):
        disk = disk_of(seed)
        file = disk.open("/data/log/a", create=True)
        disk.lifetime = 0
        with pytest.raises(Crash):
            file.write(0, b"0123")
        disk.heal()
        found.add(read(disk, "/data/log/a"))
    assert found == {b"", b"0", b"01", b"012", b"0123"}


def test_a_power_loss_keeps_fsynced_data_and_any_part_of_the_rest() -> None:
    found = set()
    for seed in range(200):
        disk = disk_of(seed)
        write(disk, "/data/log/a", b"aaaa", sync=True)
        disk.sync_directory("/data/log")
        write(disk, "/data/log/a", b"bb", 4)
        write(disk, "/data/log/a", b"c", 6)
        disk.cut_power()
        found.add(read(disk, "/data/log/a"))
    assert found == {b"aaaa", b"aaaabb", b"aaaabbc", b"aaaa\0\0c", b"aaaa\0\0"}  # the last: its size, but no data


def test_a_large_write_is_torn_at_a_sector_boundary() -> None:
    sizes = set()
    for seed in range(200):
        disk = disk_of(seed)
        write(disk, "/data/log/a", b"", sync=True)
        disk.sync_directory("/data/log")
        write(disk, "/data/log/a", bytes(3 * SECTOR_BYTES))
        disk.cut_power()
        sizes.add(disk.size_bytes("/data/log/a"))
    assert sizes == {0, SECTOR_BYTES, 2 * SECTOR_BYTES, 3 * SECTOR_BYTES}


def test_a_power_loss_loses_unsynced_file_names_from_the_last_on() -> None:
    found = set()
    for seed in range(100):
        disk = disk_of(seed)
        write(disk, "/data/log/a", b"a", sync=True)
        disk.sync_directory("/data/log")
        disk.rename("/data/log/a", "/data/log/b")
        write(disk, "/data/log/c", b"c", sync=True)
        disk.remove("/data/log/b")
        disk.cut_power()
        found.add(tuple(disk.list_names("/data/log")))
    assert found == {("a",), ("b",), ("b", "c"), ("c",)}


def test_an_unsynced_directory_is_lost_with_its_contents() -> None:
    outcomes = set()
    for seed in range(20):
        disk = disk_of(seed)
        disk.make_directory("/data/new")
        write(disk, "/data/new/a", b"a", sync=True)
        disk.sync_directory("/data/new")
        disk.cut_power()
        outcomes.add(disk.exists("/data/new/a"))
    assert outcomes == {True, False}


def test_data_of_a_failed_fsync_is_not_written_by_the_next() -> None:
    for seed in range(30):
        disk = disk_of(seed)
        write(disk, "/data/log/a", b"a", sync=True)
        disk.sync_directory("/data/log")
        file = disk.open("/data/log/a")
        file.write(1, b"b")
        disk.failing = {"sync"}
        with pytest.raises(OSError) as raised:
            file.sync()
        assert raised.value.errno == errno.EIO
        disk.failing = set()
        file.sync()
        assert read(disk, "/data/log/a") == b"ab"
        disk.cut_power()
        assert read(disk, "/data/log/a") == b"a"


@for_each("operation", ["read", "write", "truncate", "sync", "open", "create", "rename", "remove"])
def test_disk_operations_fail_as_configured(operation: str) -> None:
    disk = disk_of()
    write(disk, "/data/log/a", b"0123")
    file = disk.open("/data/log/a")
    attempts = {
        "read": lambda: file.read(0, 1),
        "write": lambda: file.write(0, b"0"),
        "truncate": lambda: file.truncate(1),
        "sync": lambda: file.sync(),
        "open": lambda: disk.open("/data/log/a"),
        "create": lambda: disk.open("/data/log/new", create=True),
        "rename": lambda: disk.rename("/data/log/a", "/data/log/a2"),
        "remove": lambda: disk.remove("/data/log/a2"),
    }
    disk.failing = {operation}
    disk.suffix = "b"
    attempts[operation]()
    disk.suffix = ""
    if operation == "remove":
        write(disk, "/data/log/a2", b"")
    if operation == "create":
        attempts["create"] = lambda: disk.open("/data/log/newer", create=True)
    if operation == "rename":
        attempts["rename"] = lambda: disk.rename("/data/log/a2", "/data/log/a")
    with pytest.raises(OSError) as raised:
        attempts[operation]()
    assert raised.value.errno == errno.EIO
    assert disk.failures == 1


def test_a_full_disk_accepts_what_fits_and_still_overwrites() -> None:
    disk = disk_of()
    write(disk, "/data/log/a", b"0123")
    disk.room_bytes = 2
    with pytest.raises(OSError) as raised:
        write(disk, "/data/log/a", b"abcdef", 2)
    assert raised.value.errno == errno.ENOSPC
    assert read(disk, "/data/log/a") == b"01abcd"
    with pytest.raises(OSError):
        disk.open("/data/log/b", create=True)
    write(disk, "/data/log/a", b"xy")
    disk.heal()
    write(disk, "/data/log/b", b"room")


def test_a_file_system_remounted_read_only_can_be_read() -> None:
    disk = disk_of()
    write(disk, "/data/log/a", b"0123")
    file = disk.open("/data/log/a")
    disk.read_only = True
    for attempt in (lambda: file.write(0, b"x"), lambda: disk.rename("/data/log/a", "/data/log/b")):
        with pytest.raises(OSError) as raised:
            attempt()
        assert raised.value.errno == errno.EROFS
    with pytest.raises(OSError):
        disk.open("/data/log/a").write(0, b"x")
    assert disk.open("/data/log/a").read(0, 10) == b"0123"


def test_a_flipped_bit_persists() -> None:
    disk = disk_of()
    write(disk, "/data/log/a", b"0123", sync=True)
    disk.sync_directory("/data/log")
    disk.flip_bit("/data/log/a", 1)
    disk.cut_power()
    assert read(disk, "/data/log/a") == b"0023"
