"""The job `rewrite`: on Spark as in one process, and its command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from minibroker.pipeline.engines import OnSpark
from minibroker.pipeline.rewriting.directory import Rewriting, SegmentRewriting, rewrite_directory
from minibroker.pipeline.rewriting.rewrite_settings import RewriteSettings
from minibroker.protocol.records.batch import ELIDED_BIT, MAGIC
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

SETTINGS = RewriteSettings(MAGIC, Compression.ZSTD, batch_bytes=300)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A directory of three logs of several segments each, one of them with transactions."""
    make_log(tmp_path / "old" / "orders-0", idempotent, every_codec)
    make_log(tmp_path / "old" / "orders-1", every_codec)
    make_log(tmp_path / "old" / "payments-0", transactions)
    return tmp_path / "old"


def test_spark_and_one_process_rewrite_alike_and_continue_each_other(
    spark: SparkSession, old: Path, tmp_path: Path
) -> None:
    whole, target = tmp_path / "whole", tmp_path / "new"
    rewrite_directory(str(old), str(whole), SETTINGS)
    with Rewriting(str(old), str(target), SETTINGS) as rewriting:
        work = SegmentRewriting(rewriting.source, rewriting.target, SETTINGS)
        assert len(rewriting.left()) > 6
        for task in rewriting.left()[:4]:
            work(task)
    report = rewrite_directory(str(old), str(target), SETTINGS, engine=OnSpark(spark))
    assert all_files(target) == all_files(whole)
    assert [space.topic for space in report.topics] == ["orders", "payments"]
    assert report.total.bytes_after == sum(path.stat().st_size for path in target.rglob("*.log"))


def test_the_rewrite_command_shows_the_space_of_each_topic(job: Any, old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    result = job("rewrite", "--path", old, "--output", new, "--format", 1, "--compression", "gzip", "--committed-only")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert " ".join(lines[0].split()) == "topic partitions segments batches records bytes before bytes after left"
    assert [line.split()[0] for line in lines[2:5]] == ["orders", "payments", "(all)"]
    assert "payments: 9 batches were markers, or not committed, and are gone" in lines
    assert "orders: message.format.version must be set to 0.10.2" in lines
    assert lines[-1] == f"{new} is complete; 0 other logs were copied to it"
    assert {header.magic for header, _ in batches_of(new / "orders-1")} == {1}


def test_the_rewrite_command_prints_json(job: Any, old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    result = job(
        "rewrite", "--path", old, "--output", new, "--topic", "orders", "--elide", "--json", "--batch-size", 2000
    )
    said = json.loads(result.stdout)
    (orders,) = said["topics"]
    assert (orders["topic"], orders["partitions"], said["copied"]) == ("orders", 2, ["payments-0"])
    assert orders["ratio"] == orders["bytes_after"] / orders["bytes_before"] < 1
    assert orders["bytes_after"] == sum(path.stat().st_size for path in new.glob("orders-*/*.log"))
    assert said["configs"] == [{"topic": "orders", "name": "record.attributes.elide", "value": "true"}]
    assert seen(new / "orders-0") == seen(old / "orders-0")
    back = job("rewrite", "--path", new, "--output", tmp_path / "back", "--topic", "orders", "--no-elide", "--json")
    assert json.loads(back.stdout)["topics"][0]["bytes_after"] > orders["bytes_after"]
    assert not any(header.attributes & ELIDED_BIT for header, _ in batches_of(tmp_path / "back" / "orders-0"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--format", "1"), "payments-0 holds transactions, which formats 0 and 1 do not have"),
        (("--format", "0", "--compression", "zstd"), "message format 0 does not have the codec zstd"),
        (("--format", "1", "--elide"), "only message format 2 can leave out the attributes"),
        (("--compression", "snappy", "--level", "3"), "the codec snappy has no level 3"),
        (("--level", "3"), "a level needs a codec"),
        (("--committed-only",), "format 2 keeps transactions"),
        (("--format", "2", "--drop-headers"), "format 2 keeps transactions and headers"),
        (("--topic", "nothing"), "there is no topic nothing in the directory"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line_with_status_2(
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
