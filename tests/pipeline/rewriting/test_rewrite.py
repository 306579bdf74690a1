"""The job `rewrite`: on Spark as in one process, and its command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from minibroker.pipeline.engines import SparkEngine
from minibroker.pipeline.rewriting.batch_conversion import RewriteSettings
from minibroker.pipeline.rewriting.directory import DirectoryRewriting, SegmentRewriting, rewrite_directory
from minibroker.protocol.records.compression import Compression
from tests.pipeline.rewriting.directories import (
    all_files,
    batches_of,
    every_codec,
    idempotent,
    make_log,
    seen,
    transactions,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = RewriteSettings(Compression.ZSTD, batch_bytes=300)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A directory of three logs of several segments each, one of them with transactions."""
    make_log(tmp_path / "old" / "orders-0", idempotent, every_codec)
    make_log(tmp_path / "old" / "orders-1", every_codec)
    make_log(tmp_path / "old" / "payments-0", transactions)
    return tmp_path / "old"


def test_spark_and_one_process_write_the_same_files_and_can_complete_each_others_rewrite(
    spark: SparkSession, old: Path, tmp_path: Path
) -> None:
    whole, target = tmp_path / "whole", tmp_path / "new"
    rewrite_directory(str(old), str(whole), SETTINGS)
    with DirectoryRewriting(str(old), str(target), SETTINGS) as rewriting:
        work = SegmentRewriting(rewriting.source, rewriting.target, SETTINGS)
        assert len(rewriting.list_unfinished_segments()) > 6
        for task in rewriting.list_unfinished_segments()[:4]:
            work(task)
    report = rewrite_directory(str(old), str(target), SETTINGS, engine=SparkEngine(spark))
    assert all_files(target) == all_files(whole)
    assert [space.topic for space in report.topics] == ["orders", "payments"]
    assert report.total.bytes_after == sum(path.stat().st_size for path in target.rglob("*.log"))


def test_the_rewrite_command_shows_the_space_of_each_topic(job: Any, old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    result = job("rewrite", "--path", old, "--output", new, "--compression", "gzip")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert " ".join(lines[0].split()) == "topic partitions segments batches records bytes before bytes after left"
    assert [line.split()[0] for line in lines[2:5]] == ["orders", "payments", "(all)"]
    assert lines[-1] == f"{new} is complete; 0 other logs were copied to it"
    assert {header.compression for header, _ in batches_of(new / "orders-1")} == {Compression.GZIP}


def test_the_rewrite_command_prints_json(job: Any, old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    result = job(
        "rewrite",
        "--path",
        old,
        "--output",
        new,
        "--topic",
        "orders",
        "--json",
        "--compression",
        "zstd",
        "--batch-size",
        2000,
    )
    said = json.loads(result.stdout)
    (orders,) = said["topics"]
    assert (orders["topic"], orders["partitions"], said["copied"]) == ("orders", 2, ["payments-0"])
    assert orders["ratio"] == orders["bytes_after"] / orders["bytes_before"] < 1
    assert orders["bytes_after"] == sum(path.stat().st_size for path in new.glob("orders-*/*.log"))
    assert seen(new / "orders-0") == seen(old / "orders-0")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--compression", "snappy", "--level", "3"), "the codec snappy has no level 3"),
        (("--level", "3"), "a level needs a codec"),
        (("--topic", "nothing"), "there is no topic nothing in the directory"),
    ],
)
def test_invalid_arguments_of_rewrite_are_reported_in_one_line_with_status_2(
    job: Any, old: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    result = job("rewrite", "--path", old, "--output", tmp_path / "new", "--engine", "local", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("minibroker: ") and words in result.stderr and result.stderr.count("\n") == 1


def test_damage_is_reported_by_the_task_that_finds_it(job: Any, old: Path, tmp_path: Path) -> None:
    path = sorted((old / "payments-0").glob("*.log"))[0]
    path.write_bytes(path.read_bytes()[:-1] + b"\xff\xfe")
    result = job("rewrite", "--path", old, "--output", tmp_path / "new", "--engine", "local")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"minibroker: {path}: the batch at position")
    assert result.stderr.count("\n") == 1
