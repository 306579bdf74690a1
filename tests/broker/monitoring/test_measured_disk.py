"""Syncs are noted whatever comes of them, and happen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minibroker.broker.monitoring.measured_disk import MeasuredDisk, SyncStatistics
from minibroker.broker.monitoring.request_statistics import DURATION_BUCKETS_MS


@pytest.mark.skipif(not hasattr(os, "O_DIRECTORY"), reason="directories cannot be synced there")
def test_file_and_directory_fsyncs_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    disk = MeasuredDisk()
    file = disk.open(str(tmp_path / "file"), create=True)
    file.sync()
    disk.open_to_read(str(tmp_path / "file")).sync()
    disk.sync_directory(str(tmp_path))
    disk.write_whole(str(tmp_path / "whole"), b"content", sync=True)
    assert len(synced) == sum(disk.syncs.durations) == 5
    assert disk.syncs.duration_ms > 0
    assert disk.syncs.failures == 0


def test_each_duration_is_counted_in_the_first_bucket_that_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = SyncStatistics()
    for took_ms in (0.25, 0.26, 60_000):
        times = iter((0, int(took_ms * 1e6)))
        monkeypatch.setattr("time.monotonic_ns", lambda times=times: next(times))
        syncs.measure_sync(lambda: None)
    assert syncs.durations == [1, 1] + [0] * (len(DURATION_BUCKETS_MS) - 2) + [1]
    assert syncs.duration_ms == pytest.approx(60_000.51)


@pytest.mark.skipif(not hasattr(os, "O_DIRECTORY"), reason="directories cannot be synced there")
def test_a_failed_fsync_is_counted_and_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    disk = MeasuredDisk()
    with pytest.raises(OSError, match="Input/output error"):
        disk.open(str(tmp_path / "file"), create=True).sync()
    with pytest.raises(OSError, match="Input/output error"):
        disk.sync_directory(str(tmp_path))
    assert (disk.syncs.failures, sum(disk.syncs.durations)) == (2, 2)
