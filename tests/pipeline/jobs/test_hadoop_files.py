"""Files through Hadoop's classes: what jobs ask of them, on the local file system."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from minibroker.pipeline.jobs.hadoop_files import HadoopFiles, Journal
from minibroker.pipeline.log_source import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_files_are_written_listed_moved_and_removed(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark, str(tmp_path / "root"))
    assert (files.exists(), files.names()) == (False, [])
    files.write("a/b/c d.txt", "käse")
    assert files.read("a/b/c d.txt") == "käse"
    assert files.files("a") == [("b/c d.txt", 5)]
    files.move("a/b/c d.txt", "x/y")
    assert files.names("x") == ["y"]
    assert (files.is_file("x/y"), files.is_file("x"), files.is_file("z")) == (True, False, False)
    files.delete("x")
    files.delete("x")
    assert not files.exists("x/y")
    assert files.url("x") == str(tmp_path / "root" / "x")


def test_an_impossible_move_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark, str(tmp_path))
    files._system = SimpleNamespace(mkdirs=lambda path: True, rename=lambda path, to: False)  # as HDFS says no
    with pytest.raises(OSError, match="x cannot be renamed to .*y"):
        files.move("x", "y")


def test_the_newest_text_of_a_journal_is_read(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark, str(tmp_path))
    journal = Journal(files, "j")
    assert journal.newest() is None
    for number in (8, 9, 10):
        journal.append(number, f"text {number}")
    assert journal.newest() == (10, "text 10")
    assert [name for name in files.names("j") if not name.startswith(".")] == ["000000000009", "000000000010"]
    (tmp_path / "j" / ".000000000011.unfinished").write_text("a crash left this")
    assert journal.newest() == (10, "text 10")


def test_a_session_without_a_jvm_is_rejected_in_one_line() -> None:
    connected = cast("SparkSession", SimpleNamespace())  # over Spark Connect
    with pytest.raises(PipelineError, match="^s3a://a/b: .* over Spark Connect none is here: give the cluster's own"):
        HadoopFiles(connected, "s3a://a/b")
