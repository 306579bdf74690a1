"""An archive of plain Parquet files: whatever interrupts a run, each record is there once after the next one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.pipeline.archiving.archive_tables import ArchiveError
from minibroker.pipeline.archiving.parquet_archive import ArchiveFiles, ParquetArchive
from minibroker.pipeline.engines import LocalEngine
from minibroker.pipeline.log_source import CorruptData
from tests.pipeline.archiving.test_archive_job import expected, found_in, rows_in, run
from tests.pipeline.logs import records, write_log

CHANGES = ("write_text", "move_path", "delete_path")


class Crash(BaseException):
    """What ends a run as a kill would: nobody handles it."""


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return what makes the n-th change of a file crash, before or after it is made; 0: none."""
    left = [0]

    def failing(change: Any, *, after: bool) -> Any:
        def run(*arguments: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and not after:
                raise Crash
            result = change(*arguments)
            if left[0] == 0:
                raise Crash
            return result

        return run

    def set_crash(number: int, *, after: bool) -> None:
        left[0] = number
        for name, change in changes.items():
            monkeypatch.setattr(ArchiveFiles, name, failing(change, after=after))

    changes = {name: getattr(ArchiveFiles, name) for name in CHANGES}
    yield set_crash


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_file_operation_neither_loses_nor_duplicates_records(
    tmp_path: Path, crash_at: Any, after: bool
) -> None:
    log = tmp_path / "log"
    write_log(log, "orders", 0, records(30))
    write_log(log, "orders", 1, records(10))
    crashes = 0
    for number in range(1, 200):
        table = ParquetArchive(str(tmp_path / f"table-{number}"))
        crash_at(number, after=after)
        try:
            run(table, log, batch_offsets=20)
        except Crash:
            crashes += 1
        crash_at(0, after=after)
        run(ParquetArchive(table.location), log)
        assert found_in(table) == expected(30) + expected(10, partition=1), number
        if crashes < number:
            break
    assert crashes > 8


class Backwards:
    """An engine that begins with the last item."""

    workers = 2

    def run_on_items(self, work: Any, items: Any) -> Iterator[Any]:
        return iter([work(each) for each in reversed(items)])


def test_files_staged_by_a_failed_commit_are_not_in_the_next_commit(tmp_path: Path) -> None:
    log, table = tmp_path / "log", ParquetArchive(str(tmp_path / "table"))
    path = write_log(log, "orders", 0, records(20)) / f"{0:020}.log"
    write_log(log, "orders", 1, records(20))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\xff")
    with pytest.raises(CorruptData):
        run(table, log, engine=Backwards())
    assert list((tmp_path / "table" / "_archive" / "staging").rglob("*.parquet"))
    path.write_bytes(whole)
    run(table, log, engine=LocalEngine(1))
    assert found_in(table) == expected(20) + expected(20, partition=1)


def test_a_topic_name_of_digits_is_read_back_as_text(tmp_path: Path) -> None:
    write_log(tmp_path / "log", "007", 0, records(2))
    table = ParquetArchive(str(tmp_path / "table"))
    run(table, tmp_path / "log", "007")
    assert {row["topic"] for row in rows_in(table, "topic")} == {"007"}


def test_a_directory_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path / "log", "orders", 0, records(2))
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "file").touch()
    with pytest.raises(ArchiveError, match="is not an archive, and not empty: it has file"):
        run(ParquetArchive(str(tmp_path / "table")), tmp_path / "log")
    with pytest.raises(ArchiveError, match="is a file"):
        run(ParquetArchive(str(tmp_path / "table" / "file")), tmp_path / "log")
