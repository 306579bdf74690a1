"""`minibroker pipeline archive`: what it prints, what it refuses, and that a kill -9 costs and doubles no record."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from minibroker.pipeline.archiving.parquet_archive import ParquetArchive
from tests.pipeline.logs import records, write_log
from tests.pipeline.verifying.metadata_logs import config, metadata, topic
from tests.pipeline.verifying.support import Writer

Run = Callable[..., Result]
PATIENCE_S = 110


def test_the_archive_command_prints_what_it_has_written(job: Run, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write_log(log, "orders", 0, records(20))
    result = job("archive", "--path", str(log), "--out", str(out))
    assert result.exit_code == 0, result.output
    head, _, row, _, total = [line.rstrip() for line in result.stdout.splitlines()]
    assert head.split("   ")[0] == "topic"
    assert row.split() == ["orders", "0", "20", "252", "0", "19"]
    assert total == f"20 records written to {out}; 20 records in all"
    again = json.loads(job("archive", "--path", str(log), "--out", str(out), "--json").stdout)
    assert again == {"archive": str(out), "written": {"partitions": []}, "in_all": 20}


def test_only_committed_records_and_topic_configs_are_archived(job: Run, tmp_path: Path) -> None:
    writer = Writer(metadata(tmp_path, topic("orders"), config("orders", "compact")))
    writer.write(3)
    for number, commit in enumerate((False, True, False)):
        writer.write(2, producer=number, transactional=True)
        writer.end(number, commit=commit)
    writer.close()
    out = tmp_path / "out"
    where = ("--path", str(tmp_path), "--topic", "orders", "--out")
    result = job("archive", *where, str(out), "--engine", "local")
    assert (result.exit_code, result.stderr) == (0, "")
    assert offsets_in(out) == [0, 1, 2, 6, 7]
    note = ParquetArchive(str(out)).read_newest_note()
    assert note is not None and note.configs == {"orders": {"cleanup.policy": "compact"}}
    everything = job("archive", *where, str(tmp_path / "all"), "--option", "isolation.level=read_uncommitted")
    assert "a replay would make them real" in everything.stderr
    assert len(offsets_in(tmp_path / "all")) == 9


def offsets_in(archive: Path) -> list[int]:
    batches = ParquetArchive(str(archive)).open_scan()(("offset",), None)
    return sorted(row["offset"] for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--topic", "missing"), "subscribe: there is no missing"),
        (("--option", "nonsense=1"), "unknown option nonsense"),
        (("--option", "isolation.level=maybe"), "isolation.level"),
        (("--continuous", "--trigger", "soon"), "soon"),
        (("--trigger", "1s"), "--trigger needs --continuous"),
        (("--format", "iceberg"), "is not like NAMESPACE.TABLE"),
        (("--format", "iceberg", "--out", "a.b", "--catalog", "uri=sqlite:////missing/c.db"), "the catalog: "),
        (("--format", "iceberg", "--out", "a.b", "--catalog", "uri=sqlite:///:memory:"), "No default path is set"),
        (("--format", "delta", "--engine", "spark"), "are written by one process"),
        (("--catalog", "uri=x"), "--catalog is for iceberg and delta"),
    ],
)
def test_invalid_arguments_of_archive_are_reported_in_one_line(
    job: Run, tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    write_log(tmp_path / "log", "orders", 0, records(1))
    result = job("archive", "--path", str(tmp_path / "log"), "--out", str(tmp_path / "out"), *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("minibroker: ") and result.stderr.count("\n") == 1
    assert complaint in result.stderr


def test_a_directory_without_topics_cannot_be_archived(job: Run, tmp_path: Path) -> None:
    result = job("archive", "--path", str(tmp_path), "--out", str(tmp_path / "out"))
    assert (result.exit_code, result.stderr) == (2, "minibroker: there is no topic to archive\n")


def test_the_next_run_after_a_kill_completes_the_archive(job: Run, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write_log(log, "orders", 0, records(1200))
    arguments = ["--path", str(log), "--out", str(out), "--batch-offsets", "20"]
    command = [sys.executable, "-m", "minibroker", "pipeline", "archive", *arguments]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        await_notes(out)
        process.kill()
    archived = len(offsets_in(out))
    result = job("archive", *arguments[:-1], "2000")
    assert result.exit_code == 0, result.output
    assert offsets_in(out) == [*range(1200)]
    assert archived < 1200  # a commit whose files are not in place yet counts nothing, and the next run moves them


def await_notes(out: Path) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not list(out.glob("_archive/notes/0*")):
        assert time.monotonic() < give_up_at, "nothing is archived"
        time.sleep(0.005)
