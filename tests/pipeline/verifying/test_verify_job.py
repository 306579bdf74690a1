"""The job in Spark: it gives the findings that judging in one thread gives, and the command says so by its status."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minibroker.pipeline.engines import SparkEngine
from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.verifying.findings import Finding, sort_findings
from minibroker.pipeline.verifying.verify_job import make_finding_row, make_findings_table, verify
from tests.pipeline.verifying.planted import FAULTS
from tests.pipeline.verifying.support import judge, kinds, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FINDING = Finding("orders", 0, "orders-0/x.log", 7, 61, "crc", "error", "wrong")


def test_findings_are_converted_to_rows() -> None:
    of_directory = Finding("", -1, "cleaner-offset-checkpoint", -1, -1, "checkpoint", "error", "it is not text")
    rows = make_findings_table([FINDING, of_directory]).to_pylist()
    assert rows == [make_finding_row(FINDING), make_finding_row(of_directory)]
    assert (rows[1]["offset"], rows[1]["topic"]) == (None, None)


@pytest.mark.parametrize("kind", ["crc", "segment-overlap", "txnindex-missing", "duplicate-key", "checkpoint"])
def test_spark_and_one_thread_have_the_same_findings(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    FAULTS[kind](tmp_path)
    expected = judge(tmp_path)
    assert kind in kinds(expected)
    assert verify(str(tmp_path), engine=SparkEngine(spark)) == make_findings_table(sort_findings(expected))


def test_a_valid_directory_and_one_without_segments_have_no_findings(tmp_path: Path) -> None:
    written(tmp_path)
    assert verify(str(tmp_path)).num_rows == 0
    (tmp_path / "empty" / "nothing-0").mkdir(parents=True)
    assert verify(str(tmp_path / "empty")).num_rows == 0


def test_invalid_arguments_of_verify_are_rejected(tmp_path: Path) -> None:
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
