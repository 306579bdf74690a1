"""`preallocate`: a segment that is written to has its full size, and nobody takes the zeros at its end for records."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from tests.storage.support import append, batch, open_at, read_values

SETTINGS = LogSettings(segment_bytes=500, index_interval_bytes=100, preallocate=True)
FIRST = "00000000000000000000.log"


def sizes(directory: Path) -> list[int]:
    return [path.stat().st_size for path in sorted(directory.glob("*.log"))]


def filled(directory: Path, batches: int, settings: LogSettings = SETTINGS) -> Log:
    log = open_at(directory, settings)
    for number in range(batches):
        append(log, batch(value=b"%d-" % number))
    return log


def test_a_preallocated_segment_has_its_full_size_until_it_is_rolled(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS)
    assert sizes(tmp_path) == [500]
    each = len(batch(value=b"0-"))
    for number in range(500 // each):
        append(log, batch(value=b"%d-" % number))
    assert sizes(tmp_path) == [500]
    append(log, batch(value=b"x-"))
    assert sizes(tmp_path) == [500 // each * each, 500]
    assert log.size_bytes == (500 // each + 1) * each


def test_consumers_see_no_preallocated_zeros(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    assert read_values(log) == [(number, b"%d-0" % number) for number in range(3)]


def test_a_clean_stop_removes_preallocated_zeros(tmp_path: Path) -> None:
    filled(tmp_path, 3).close()
    assert sizes(tmp_path) == [3 * len(batch(value=b"0-"))]
    assert len(read_values(open_at(tmp_path, SETTINGS))) == 3


@pytest.mark.parametrize("batches", [0, 1, 9])
def test_preallocated_zeros_after_a_crash_are_truncated_silently(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, batches: int
) -> None:
    caplog.set_level(logging.INFO)
    filled(tmp_path / "log", batches)
    shutil.copytree(tmp_path / "log", tmp_path / "crashed")
    log = open_at(tmp_path / "crashed", SETTINGS, clean=False)
    assert len(read_values(log)) == batches
    assert {record.levelname for record in caplog.records} == {"INFO"}
    assert sum(sizes(tmp_path / "crashed")) == log.size_bytes
    append(log, batch())
    assert log.log_end_offset == batches + 1


def test_a_torn_batch_in_a_preallocated_segment_is_logged_as_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path / "log", 3)
    shutil.copytree(tmp_path / "log", tmp_path / "crashed")
    with (tmp_path / "crashed" / FIRST).open("r+b") as file:
        file.seek(3 * len(batch(value=b"0-")))
        file.write(batch(value=b"torn", base_offset=3)[:30])
    log = open_at(tmp_path / "crashed", SETTINGS, clean=False)
    assert len(read_values(log)) == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_unexpected_zeros_are_logged_as_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(tmp_path / "log", 3)
    shutil.copytree(tmp_path / "log", tmp_path / "crashed")
    open_at(tmp_path / "crashed", SETTINGS._replace(preallocate=False), clean=False)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_changed_preallocate_setting_takes_effect_at_the_next_segment(tmp_path: Path) -> None:
    log = filled(tmp_path, 3, SETTINGS._replace(preallocate=False))
    size = log.size_bytes
    log.update_settings(SETTINGS)
    log.roll_segment_if_used()
    assert sizes(tmp_path) == [size, 500]
    log.update_settings(SETTINGS._replace(preallocate=False))
    append(log, batch())
    log.roll_segment_if_used()
    assert sizes(tmp_path) == [size, len(batch()), 0]


def test_a_truncation_leaves_no_bytes_after_it(tmp_path: Path) -> None:
    log = filled(tmp_path, 4)
    log.truncate_to(2)
    append(log, batch(value=b"new-"))
    log.close()
    assert read_values(open_at(tmp_path, SETTINGS)) == [(0, b"0-0"), (1, b"1-0"), (2, b"new-0")]
