"""An offset checkpoint is replaced as a whole, by another thread if it may take time, and never by older content."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.storage.checkpoints.offset_checkpoint import OffsetCheckpoint
from minibroker.storage.environment import Environment
from minibroker.storage.recovery.recovery import LogDirectoryError
from tests.storage.support import Aside, FailingDisk

ORDERS, OTHERS = ("orders", 0), ("others", 1)


class Checkpointing:
    """A checkpoint in a directory, its disk, and the other thread."""

    def __init__(self, directory: Path) -> None:
        self.disk = FailingDisk()
        self.aside = Aside()
        self.path = directory / "checkpoint"
        environment = Environment(self.disk, lambda: 0, lambda delay_ms, callback: None, self.aside.take)
        self.checkpoint = OffsetCheckpoint(environment, str(self.path))

    def content(self) -> list[str]:
        return self.path.read_text().splitlines()[2:] if self.path.exists() else []


@pytest.fixture
def made(tmp_path: Path) -> Checkpointing:
    return Checkpointing(tmp_path)


def test_only_checkpoint_rows_of_existing_logs_are_read(made: Checkpointing) -> None:
    made.path.write_text("0\n2\norders 0 17\nothers 1 4\n")
    made.checkpoint.read_offsets([OTHERS, ("new", 0)])
    assert made.checkpoint.offsets == {OTHERS: 4}


def test_a_missing_checkpoint_has_no_rows(made: Checkpointing) -> None:
    made.checkpoint.read_offsets([ORDERS])
    assert made.checkpoint.offsets == {}


def test_a_malformed_checkpoint_is_reported_to_the_user(made: Checkpointing) -> None:
    made.path.write_text("0\n7\n")
    with pytest.raises(LogDirectoryError, match="checkpoint is malformed"):
        made.checkpoint.read_offsets([ORDERS])


def test_offsets_that_change_during_a_checkpoint_write_are_written_afterwards(made: Checkpointing) -> None:
    made.checkpoint.offsets[ORDERS] = 5
    made.checkpoint.write_offsets_soon()
    assert made.content() == [] and len(made.aside.jobs) == 1
    made.checkpoint.offsets[ORDERS] = 6
    made.checkpoint.write_offsets_soon()
    assert len(made.aside.jobs) == 1  # not beside the first, whose file it would write
    made.aside.do()
    assert made.content() == ["orders 0 5"]
    while made.aside.jobs:
        made.aside.do()
    assert made.content() == ["orders 0 6"]


def test_unchanged_offsets_are_not_written_again(made: Checkpointing) -> None:
    made.checkpoint.offsets[ORDERS] = 5
    made.checkpoint.write_offsets(sync=False)
    made.checkpoint.write_offsets_soon()
    assert not made.aside.jobs


def test_removing_many_logs_writes_the_checkpoint_once(made: Checkpointing) -> None:
    made.checkpoint.offsets.update({ORDERS: 5, OTHERS: 6})
    made.checkpoint.write_offsets(sync=False)
    assert made.checkpoint.remove_row(ORDERS) and made.checkpoint.remove_row(OTHERS)
    assert made.content() == ["orders 0 5", "others 1 6"]
    made.checkpoint.write_offsets_soon()
    made.aside.do()
    assert made.content() == []


def test_a_logs_old_checkpoint_row_is_removed_before_it_is_created(made: Checkpointing) -> None:
    made.checkpoint.offsets.update({ORDERS: 5, OTHERS: 6})
    made.checkpoint.write_offsets(sync=False)
    made.checkpoint.remove_row(ORDERS)
    made.checkpoint.remove_row_from_file(ORDERS)
    assert made.content() == ["others 1 6"]


def test_a_new_log_does_not_inherit_the_offset_of_its_namesake(made: Checkpointing) -> None:
    made.path.write_text("0\n2\norders 0 17\nothers 1 4\n")
    made.checkpoint.read_offsets([OTHERS])
    made.checkpoint.remove_row_from_file(ORDERS)
    assert made.content() == ["others 1 4"]


def test_a_write_in_progress_does_not_restore_a_removed_offset(made: Checkpointing) -> None:
    made.checkpoint.offsets.update({ORDERS: 5, OTHERS: 6})
    made.checkpoint.write_offsets_soon()
    made.checkpoint.remove_row(ORDERS)
    made.checkpoint.remove_row_from_file(ORDERS)
    assert made.content() == ["others 1 6"]
    made.aside.do()
    assert made.content() == ["others 1 6"] and not made.aside.jobs
    made.checkpoint.offsets[ORDERS] = 7
    made.checkpoint.write_offsets_soon()
    made.aside.do()
    assert made.content() == ["orders 0 7", "others 1 6"]


def test_a_row_of_a_failed_checkpoint_write_can_still_be_removed_from_the_file(made: Checkpointing) -> None:
    made.checkpoint.offsets[ORDERS] = 5
    made.disk.failing, made.disk.suffix = {"sync"}, made.path.parent.name
    with pytest.raises(OSError, match="Errno 5"):
        made.checkpoint.write_offsets(sync=True)
    assert made.content() == ["orders 0 5"]
    made.disk.failing = set()
    made.checkpoint.remove_row_from_file(ORDERS)
    assert made.content() == []


def test_a_new_log_without_checkpoint_rows_causes_no_write(made: Checkpointing) -> None:
    assert not made.checkpoint.remove_row(ORDERS)
    made.checkpoint.remove_row_from_file(ORDERS)
    assert not made.path.exists()


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
def test_a_failed_write_is_logged_keeps_the_old_file_and_is_retried(
    made: Checkpointing, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    made.checkpoint.offsets[ORDERS] = 5
    made.checkpoint.write_offsets(sync=False)
    made.checkpoint.offsets[ORDERS] = 6
    made.disk.failing = {operation}
    made.checkpoint.write_offsets_soon()
    made.aside.do()
    assert made.content() == ["orders 0 5"]
    assert f"{made.path} could not be written: [Errno 5]" in caplog.text
    made.disk.failing = set()
    made.checkpoint.write_offsets_soon()
    made.aside.do()
    assert made.content() == ["orders 0 6"]
