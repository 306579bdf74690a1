"""The job in Spark: it gives the findings that judging in one thread gives, and the command says so by its status."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minibroker.pipeline.jobs.verify.findings import Finding
from minibroker.pipeline.jobs.verify.verify_job import findings_of, table_of, verify
from minibroker.pipeline.log_source import OptionError
from tests.pipeline.jobs.verify.planted import FAULTS
from tests.pipeline.jobs.verify.support import judge, kinds, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FINDING = Finding("orders", 0, "orders-0/x.log", 7, 61, "crc", "error", "wrong")


def test_findings_are_converted_to_rows_and_back() -> None:
    of_directory = Finding("", -1, "cleaner-offset-checkpoint", -1, -1, "checkpoint", "error", "it is not text")
    assert findings_of(table_of([FINDING, of_directory])) == [FINDING, of_directory]
    assert table_of([of_directory]).column("offset").null_count == 1


@pytest.mark.parametrize("kind", ["crc", "segment-overlap", "txnindex-missing", "duplicate-key", "checkpoint"])
def test_spark_and_one_thread_have_the_same_findings(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    FAULTS[kind](tmp_path)
    expected = judge(tmp_path)
    assert kind in kinds(expected)
    assert sorted(findings_of(verify(spark, str(tmp_path)).toArrow())) == sorted(expected)


def test_a_valid_directory_and_one_without_segments_have_no_findings(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path)
    assert verify(spark, str(tmp_path)).count() == 0
    (tmp_path / "empty" / "nothing-0").mkdir(parents=True)
    assert verify(spark, str(tmp_path / "empty")).count() == 0


def test_invalid_arguments_are_rejected_before_spark_starts(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(OptionError, match="unknown check colours"):
        judge(tmp_path, checks=["crc", "colours"])
    with pytest.raises(OptionError, match="has no topic payments"):
        judge(tmp_path, topics=["payments"])
    with pytest.raises(OptionError, match="has no topic payments"):
        judge(tmp_path, compacted=["payments"])
    with pytest.raises(OptionError, match="has no partitions"):
        judge(empty(tmp_path))


def empty(directory: Path) -> Path:
    (directory / "empty").mkdir()
    return directory / "empty"
