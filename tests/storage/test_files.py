"""The door to the disk, tested on a real directory.

What a faulty disk does to a log is tested in `test_log_failed_operations.py` and `test_log_faults.py`.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import socket
from pathlib import Path

import pytest

from minibroker import operating_system
from minibroker.storage.files import Disk
from tests.cases import for_each
from tests.storage.support import FailingDisk


@pytest.fixture
def disk() -> Disk:
    return Disk()


@for_each(
    ("path", "parent"),
    [("/a/b", "/a"), ("/a/b/", "/a"), ("/a", "/"), ("a/b", "a"), ("a", "."), ("./a", "."), ("/", "/")],
)
def test_the_parent_directory_of_a_path_is_found(path: str, parent: str) -> None:
    assert Disk().get_parent(path) == parent


def test_missing_directories_are_those_that_would_be_created(tmp_path: Path) -> None:
    path = f"{tmp_path}/a/b"
    assert Disk().list_missing_directories(path) == [path, f"{tmp_path}/a"]
    Disk().make_directory(path)
    assert Disk().list_missing_directories(path) == []


def test_data_is_read_at_the_position_where_it_was_written(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.write(0, b"0123456789")
    file.write(4, memoryview(b"abc"))
    assert file.read(0, 100) == b"0123abc789"
    assert file.read(3, 3) == b"3ab"
    assert file.read(10, 5) == b""
    assert file.size_bytes() == 10


def test_a_write_that_the_system_splits_is_completed(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    whole = operating_system.write_at
    monkeypatch.setattr(operating_system, "write_at", lambda fd, data, position: whole(fd, bytes(data)[:3], position))
    file.write(2, b"0123456789")
    assert file.read(0, 100) == b"\0\0" + b"0123456789"


def test_a_write_of_zero_bytes_by_the_system_fails(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    monkeypatch.setattr(operating_system, "write_at", lambda fd, data, position: 0)
    with pytest.raises(OSError, match="no more bytes"):
        file.write(0, b"0123")


def test_opening_keeps_the_content_and_creates_a_file_only_if_requested(disk: Disk, tmp_path: Path) -> None:
    disk.open(f"{tmp_path}/a", create=True).write(0, b"kept")
    assert disk.open(f"{tmp_path}/a", create=True).read(0, 10) == b"kept"
    with pytest.raises(FileNotFoundError):
        disk.open(f"{tmp_path}/b")


def test_files_of_a_read_only_file_system_can_be_read(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.open(f"{tmp_path}/a", create=True).write(0, b"kept")
    system_open = os.open

    def read_only(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system", path)
        return system_open(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only)
    file = disk.open(f"{tmp_path}/a")
    assert file.read(0, 10) == b"kept"
    with pytest.raises(OSError):
        file.write(0, b"lost")
    with pytest.raises(OSError, match="Read-only"):
        disk.open(f"{tmp_path}/a", create=True)


def test_a_file_is_closed_once_by_close_or_with_its_last_reference(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    close = operating_system.close_file
    monkeypatch.setattr(operating_system, "close_file", lambda fd: (closed.append(fd), close(fd)))
    file = disk.open(f"{tmp_path}/a", create=True)
    file.close()
    file.close()
    assert len(closed) == 1
    disk.open(f"{tmp_path}/a")
    assert len(closed) == 2


@pytest.mark.skipif(not operating_system.HAS_POSITIONED_IO, reason="open files cannot be removed there")
def test_an_open_file_can_be_read_after_its_removal(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.write(0, b"still here")
    disk.remove(f"{tmp_path}/a")
    assert not disk.exists(f"{tmp_path}/a")
    assert file.read(0, 10) == b"still here"


@pytest.mark.skipif(not operating_system.HAS_SENDFILE, reason="there is no sendfile")
def test_sendfile_sends_a_region_to_a_socket(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.write(0, b"0123456789")
    here, there = socket.socketpair()
    with here, there:
        assert file.sendfile(here.fileno(), 2, 5) == 5
        assert there.recv(100) == b"23456"


def test_write_whole_replaces_the_content_atomically_and_leaves_no_other_file(disk: Disk, tmp_path: Path) -> None:
    disk.write_whole(f"{tmp_path}/a", b"the old content", sync=False)
    disk.write_whole(f"{tmp_path}/a", b"new", sync=True)
    assert disk.read_whole(f"{tmp_path}/a") == b"new"
    assert disk.list_names(str(tmp_path)) == ["a"]


def test_a_failed_write_whole_keeps_the_old_content(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.write_whole(f"{tmp_path}/a", b"the old content", sync=False)
    disk.room_bytes = 2
    with pytest.raises(OSError, match="No space left"):
        disk.write_whole(f"{tmp_path}/a", b"new", sync=False)
    assert disk.read_whole(f"{tmp_path}/a") == b"the old content"


def test_a_file_too_large_for_memory_is_not_read_completely(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minibroker.storage.files.MAX_WHOLE_FILE_BYTES", 10)
    disk.write_whole(f"{tmp_path}/a", b"12345678901", sync=False)
    with pytest.raises(OSError) as raised:
        disk.read_whole(f"{tmp_path}/a")
    assert raised.value.errno == errno.EFBIG


def test_removing_a_missing_file_does_nothing(disk: Disk, tmp_path: Path) -> None:
    disk.remove(f"{tmp_path}/a")
    disk.remove_tree(f"{tmp_path}/a")


def test_a_directory_is_created_with_its_parents_and_removed_with_its_contents(disk: Disk, tmp_path: Path) -> None:
    disk.make_directory(f"{tmp_path}/a/b")
    disk.make_directory(f"{tmp_path}/a/b")
    assert disk.is_directory(f"{tmp_path}/a/b")
    disk.remove_tree(f"{tmp_path}/a")
    assert disk.list_names(str(tmp_path)) == []


def test_a_lock_excludes_others_in_the_same_process(disk: Disk, tmp_path: Path) -> None:
    held = disk.lock(f"{tmp_path}/.lock")
    assert held is not None
    assert disk.lock(f"{tmp_path}/.lock") is None
    held.close()
    assert disk.lock(f"{tmp_path}/.lock") is not None


def try_lock(path: str) -> bool:
    return Disk().lock(path) is not None


def test_a_lock_excludes_other_processes(disk: Disk, tmp_path: Path) -> None:
    held = disk.lock(f"{tmp_path}/.lock")
    assert held is not None
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(try_lock, (f"{tmp_path}/.lock",)) is False
        held.close()
        assert pool.apply(try_lock, (f"{tmp_path}/.lock",)) is True
