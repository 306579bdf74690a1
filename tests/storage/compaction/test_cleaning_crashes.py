"""A process that dies in a cleaning, between any two operations on the disk: each group is cleaned or is not.

Whatever is left, the next start finds the latest value of each key and no leftovers, and cleaning goes on from there.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from minibroker.operating_system import HAS_POSITIONED_IO
from minibroker.storage.checkpoints.checkpoint_texts import CLEANER_OFFSET_CHECKPOINT
from minibroker.storage.directories.log_directory import LogDirectory
from minibroker.storage.files import Disk
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from tests.storage.compaction.support import COMPACT, clean, contents, fill, log_headers, pairs
from tests.storage.support import CLUSTER_ID, Surroundings, append, files_in
from tests.storage.test_crash_points import Killed, MortalDisk, lives

SETTINGS = LogSettings(segment_bytes=450, index_interval_bytes=50, cleanup_policy=COMPACT, file_delete_delay_ms=0)
KEYS = 4


def open_directory(path: Path, disk: Disk) -> tuple[LogDirectory, Surroundings, Log]:
    surroundings = Surroundings(disk)
    directory = LogDirectory(surroundings.environment, str(path))
    directory.create_and_lock()
    directory.open(1, CLUSTER_ID, lambda: "d" * 22)
    if ("orders", 0) in directory.list_logs():
        return directory, surroundings, directory.open_log("orders", 0, SETTINGS)
    return directory, surroundings, directory.create_log("orders", 0, bytes(16), SETTINGS)


def undying() -> Disk:
    """A disk that never ends, and does not sync either, as no power is cut here."""
    return MortalDisk(1 << 40)


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A directory with a log of two producers, several groups of segments, of which the first are clean already."""
    path = tmp_path / "original"
    directory, surroundings, log = open_directory(path, undying())
    sequences = {7: 0, 8: 0}
    for number in range(10):
        producer = 7 + number % 2
        made = [(f"k{(number + extra) % KEYS}", f"v{number}.{extra}" * 8) for extra in range(2)]
        made += [(f"gone{number}", None)]
        fill(log, [pairs(*made, producer_id=producer, producer_epoch=0, base_sequence=sequences[producer])])
        sequences[producer] += 3
        if number == 2:
            clean(log)
    append(log, pairs(("active", "value")))
    surroundings.run_scheduled()
    directory.close()
    return path


def latest(found: list[tuple[int, str | None, str | None]]) -> dict[str | None, tuple[int, str | None]]:
    return {key: (offset, value) for offset, key, value in found}


def clean_until_killed(path: Path, lifetime: int) -> bool:
    """Whether the process has outlived its cleaning and the stop after it."""
    with suppress(Killed):
        directory, surroundings, log = open_directory(path, MortalDisk(lifetime))
        clean(log)
        directory.write_checkpoint_soon(CLEANER_OFFSET_CHECKPOINT)
        surroundings.run_scheduled()
        directory.close()
        return True
    return False


@pytest.mark.skipif(not HAS_POSITIONED_IO, reason="a dead broker's open files cannot be removed there")
def test_a_cleaning_interrupted_by_a_crash_is_completed_or_undone(original: Path, tmp_path: Path) -> None:
    directory, _, log = open_directory(original, undying())
    before, headers, end = contents(log), log_headers(log), log.log_end_offset
    producers = {producer: (entry.epoch, entry.batches[-1]) for producer, entry in log.producers.iterate_entries()}
    directory.close()
    sizes = set()
    for lifetime in lives():
        path = tmp_path / "copy"
        shutil.copytree(original, path)
        outlived = clean_until_killed(path, lifetime)
        directory, _, log = open_directory(path, undying())
        found = contents(log)
        assert latest(found) == latest(before)
        assert set(found) <= set(before)
        assert set(log_headers(log)) >= {header for header in headers if header.base_offset >= 30}
        assert log.log_end_offset == end
        assert {
            producer: (entry.epoch, entry.batches[-1]) for producer, entry in log.producers.iterate_entries()
        } == producers
        names = files_in(path / "orders-0")
        assert not any(name.endswith((".cleaned", ".swap", ".deleted")) for name in names)
        assert log.clean_offset in (9, 30)
        sizes.add(log.size_bytes)
        clean(log)
        assert contents(log)[:-1] == [record for record in before if latest(before)[record[1]][0] == record[0]][:-1]
        directory.close_without_checkpoints()
        shutil.rmtree(path)
        if outlived:
            break
    assert outlived
    assert len(sizes) > 3, "the groups are not swapped in one by one"
