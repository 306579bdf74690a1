"""`minibroker pipeline archive`: what it prints, what it refuses, and that a kill -9 costs and doubles no record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import Result

from minibroker.pipeline.jobs.archive import read_archive
from tests.pipeline.jobs.logs import records, write_log
from tests.pipeline.jobs.verify.metadata_logs import config, metadata, topic
from tests.pipeline.jobs.verify.support import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    assert total == f"20 records written to {out} in 1 file; 20 records in all"
    again = json.loads(job("archive", "--path", str(log), "--out", str(out), "--json").stdout)
    assert again["written"] == {"partitions": [], "files": 0, "file_bytes": 0}
    assert again["in_all"]["partitions"][0]["records"] == 20


def test_progress_is_stored_at_the_given_path(job: Run, tmp_path: Path) -> None:
    log, out, kept = tmp_path / "log", tmp_path / "out", tmp_path / "kept"
    write_log(log, "orders", 0, records(20))
    where = ("--path", str(log), "--out", str(out), "--checkpoint", str(kept), "--json")
    assert json.loads(job("archive", *where).stdout)["written"]["files"] == 1
    assert any(kept.iterdir())
    assert {path.name for path in out.iterdir() if not path.name.startswith((".", "_"))} == {"topic=orders"}
    assert json.loads(job("archive", *where).stdout)["written"]["files"] == 0


def test_only_committed_records_and_topic_configs_are_archived(spark: SparkSession, job: Run, tmp_path: Path) -> None:
    writer = Writer(metadata(tmp_path, topic("orders"), config("orders", "compact")))
    writer.write(3)
    for number, commit in enumerate((False, True, False)):
        writer.write(2, producer=number, transactional=True)
        writer.end(number, commit=commit)
    writer.close()
    out = tmp_path / "out"
    where = ("--path", str(tmp_path), "--topic", "orders", "--out")
    result = job("archive", *where, str(out))
    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(row.offset for row in read_archive(spark, str(out)).collect()) == [0, 1, 2, 6, 7]
    kept = next((out / "_archive" / "configs").glob("0*")).read_text()
    assert json.loads(kept) == {"orders": {"cleanup.policy": "compact"}}
    everything = job("archive", *where, str(tmp_path / "all"), "--option", "isolation.level=read_uncommitted")
    assert "a replay would make them real" in everything.stderr
    assert read_archive(spark, str(tmp_path / "all")).count() == 9


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--topic", "missing"), "subscribe: there is no missing"),
        (("--option", "nonsense=1"), "unknown option nonsense"),
        (("--option", "isolation.level=maybe"), "isolation.level"),
        (("--continuous", "--trigger", "soon"), "soon"),
        (("--trigger", "1 second"), "--trigger needs --continuous"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(
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


@pytest.mark.timeout(240)
def test_the_next_run_after_a_kill_completes_the_archive(spark: SparkSession, job: Run, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write_log(log, "orders", 0, records(120))
    arguments = ["--path", str(log), "--out", str(out), "--batch-offsets", "30"]
    command = [sys.executable, "-m", "minibroker", "pipeline", "archive", *arguments, "--master", "local[1]"]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as process:
        try:
            await_batches(out, 1)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    archived = read_archive(spark, str(out)).count()
    result = job("archive", *arguments[:-1], "200")
    assert result.exit_code == 0, result.output
    rows = read_archive(spark, str(out)).select("offset", "value").collect()
    assert sorted(row.offset for row in rows) == list(range(120))
    assert 30 <= archived < 120


def await_batches(out: Path, count: int) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while len(list(out.glob("_archive/batches/0*"))) < count:
        assert time.monotonic() < give_up_at, "nothing is archived"
        time.sleep(0.05)
