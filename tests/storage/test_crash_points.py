"""A process that dies between any two operations on the disk: what was acknowledged is there at the next start.

What a torn write leaves inside a file is tested, byte by byte, in `test_recovery.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from minibroker.protocol.records.batch import check_batch
from minibroker.storage.directories.log_directory import LogDirectory
from minibroker.storage.files import Bytes, Disk, File
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from tests.storage.support import CLUSTER_ID, Surroundings, append, batch, open_at, read_batches

SETTINGS = LogSettings(segment_bytes=250, index_interval_bytes=50, file_delete_delay_ms=0)
UNIQUE = "0123456789abcdef0123456789abcdef"


class Killed(BaseException):
    """The process is no more. Not an `Exception`: nothing may catch it."""


class MortalFile(File):
    """A file of a process that is killed before one of its operations."""

    __slots__ = ("disk",)

    disk: MortalDisk

    def write(self, position: int, data: Bytes) -> None:
        self.disk.live()
        super().write(position, data)

    def truncate(self, size: int) -> None:
        self.disk.live()
        super().truncate(size)

    def sync(self) -> None:
        self.disk.live()


class MortalDisk(Disk):
    """A disk whose process is killed before the operation number `lifetime` that changes something."""

    def __init__(self, lifetime: int) -> None:
        self.left = lifetime

    def live(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            self.live()
        return super().open(path, create=create)

    def make_file(self, path: str, fd: int) -> File:
        file = MortalFile(path, fd)
        file.disk = self
        return file

    def make_directory(self, path: str) -> None:
        self.live()
        super().make_directory(path)

    def rename(self, old: str, new: str) -> None:
        self.live()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self.live()
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self.live()
        super().remove_tree(path)

    def sync_directory(self, path: str) -> None:
        self.live()


def lives(limit: int = 2000) -> range:
    """Lifetimes to try, until a test says that the process has outlived its work."""
    return range(limit)


class Work:
    """The work of a process on a log; `acknowledged` is what it may count on, `attempted` what it was at."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.acknowledged: list[bytes] = []
        self.attempted: list[bytes] = []

    def append(self, log: Log, count: int, leader_epoch: int) -> None:
        for _ in range(count):
            data = batch(2, producer_id=7, producer_epoch=0, base_sequence=log.log_end_offset)
            self.attempted = [bytes(data)]
            append(log, data, leader_epoch)
            self.acknowledged.append(bytes(data))
            self.attempted = []

    def run(self, disk: Disk) -> None:
        surroundings = Surroundings(disk)
        log = open_at(self.directory, SETTINGS, clean=False, surroundings=surroundings)
        self.append(log, 4, leader_epoch=0)
        log.flush()
        self.append(log, 3, leader_epoch=1)
        log.roll_segment_if_used()
        log.delete_records_before(4)
        surroundings.run_scheduled()
        self.append(log, 3, leader_epoch=2)
        log.close()


def survives(directory: Path, lifetime: int) -> bool:
    """Run the work in a process of this lifetime; whether it came to its end."""
    work = Work(directory)
    disk = MortalDisk(lifetime)
    with suppress(Killed):
        work.run(disk)
    log = open_at(directory, SETTINGS, clean=False)
    read = read_batches(log)
    everything = work.acknowledged + work.attempted
    contents = [data[61:] for data in read]
    first = log.segments[0].base_offset // 2
    assert contents in (
        [data[61:] for data in everything[first:end]] for end in (len(work.acknowledged), len(everything))
    )
    assert log.log_end_offset == 2 * (first + len(read))
    check_derived(log, read)
    assert append(log, batch(1)) == 2 * (first + len(read))
    return disk.left >= 0


def check_derived(log: Log, read: list[bytes]) -> None:
    """Indexes, leader epochs and producers are those of the batches."""
    for data in read:
        header = check_batch(data)
        region = log.read(header.base_offset + 1, 1)
        assert region is not None and region.read() == data
        assert log.epochs.find_epoch_at(header.base_offset) == header.partition_leader_epoch
    if read:
        assert log.producers.check_epoch_and_sequence(check_batch(read[-1])) is not None


def test_a_process_killed_between_any_operations_loses_no_acknowledged_records(tmp_path: Path) -> None:
    for lifetime in lives():
        if survives(tmp_path / f"{lifetime}", lifetime):
            break
    assert lifetime > 50


def test_a_process_killed_during_a_truncation_has_truncated_partially_or_completely(tmp_path: Path) -> None:
    for lifetime in lives():
        directory = tmp_path / f"{lifetime}"
        written = open_at(directory, SETTINGS)
        for number in range(9):
            append(written, batch(2, producer_id=7, producer_epoch=0, base_sequence=2 * number), number // 3)
        before = read_batches(written)
        written.close()
        disk = MortalDisk(1000)
        log = open_at(directory, SETTINGS, surroundings=Surroundings(disk))
        disk.left = lifetime
        with suppress(Killed):
            log.truncate_to(5)
        log = open_at(directory, SETTINGS, clean=False)
        read = read_batches(log)
        assert read == before[: len(read)]
        assert len(read) >= 2
        check_derived(log, read)
        if disk.left >= 0:
            break
    assert len(read) == 2


def steps_of_a_directory(directory: LogDirectory) -> list[Callable[[], object]]:
    """Return what a broker does with a log directory, one log after the other."""
    return [
        lambda: directory.create_log("a", 0, bytes(15) + b"\1", SETTINGS),
        lambda: append(directory.logs["a", 0], batch(3)),
        lambda: directory.logs["a", 0].delete_records_before(3),
        lambda: directory.write_checkpoints(),
        lambda: directory.delete_log(directory.logs["a", 0], UNIQUE),
        lambda: directory.create_log("a", 0, bytes(15) + b"\2", SETTINGS),
        lambda: append(directory.logs["a", 0], batch(1)),
        lambda: directory.close(),
    ]


def test_a_directory_of_a_process_killed_at_any_time_can_be_reopened(tmp_path: Path) -> None:
    for lifetime in lives():
        path = tmp_path / f"{lifetime}"
        disk = MortalDisk(lifetime)
        directory = LogDirectory(Surroundings(disk).environment, str(path))
        done = 0
        try:
            directory.create_and_lock()
            directory.open(1, CLUSTER_ID, lambda: "w5vfbY-LQWCgOIYhBGbkUg")
            for step in steps_of_a_directory(directory):
                step()
                done += 1
        except Killed:
            pass
        finally:
            directory.close_without_checkpoints()
        again = LogDirectory(Surroundings().environment, str(path))
        again.create_and_lock()
        again.open(1, CLUSTER_ID, lambda: "another-id-for-the-dir")
        assert again.clean or done < 8
        assert not (again.clean and again.list_logs()) or done >= 7
        logs = [again.open_log(topic, partition, SETTINGS) for topic, partition in again.list_logs()]
        end_offsets = {1: 0, 2: 3, 3: 3, 4: 3, 6: 0, 7: 1, 8: 1}
        if done in end_offsets:
            assert logs[0].log_end_offset in (end_offsets[done], end_offsets.get(done + 1, 0))
            assert logs[0].topic_id[15] == (1 if done < 5 else 2)
        again.close()
        if disk.left >= 0:
            break
    assert done == 8
