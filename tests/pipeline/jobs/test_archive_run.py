"""Runs of the archive: each goes on where the last one ended, and not with what is another's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from minibroker.pipeline.jobs.archive import read_archive
from minibroker.pipeline.jobs.archive_batches import ArchiveError
from minibroker.pipeline.jobs.archive_run import ArchiveRun
from minibroker.pipeline.spark_errors import reason_of
from tests.pipeline.jobs.logs import DAY_MS, records, write_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IDS = {"a": "id of a", "b": "id of b"}
TIMEOUT_S = 100


def stream(spark: SparkSession, log: Path) -> DataFrame:
    options = {"path": str(log), "subscribePattern": "^[ab]$", "includeHeaders": "true", "maxOffsetsPerTrigger": "30"}
    return spark.readStream.format("minibroker").options(startingOffsets="earliest", **options).load()


def run(
    spark: SparkSession, log: Path, out: Path, ids: Mapping[str, str] = IDS, checkpoint: Path | None = None
) -> ArchiveRun:
    where = str(checkpoint) if checkpoint else None
    begun = ArchiveRun(stream(spark, log), str(out), topic_ids=ids, checkpoint=where)
    assert begun.query.awaitTermination(TIMEOUT_S)
    return begun


def test_the_archive_equals_the_log_and_grows_with_it(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write_log(log, "a", 0, records(40, step_ms=DAY_MS // 10))
    write_log(log, "b", 1, records(5))
    first = run(spark, log, out)
    assert (first.batches.written.records, first.batches.batch) == (45, 1)
    write_log(log, "a", 0, records(12, start=40, step_ms=DAY_MS // 10))
    second = run(spark, log, out)
    assert (second.batches.written.records, second.batches.totals.records) == (12, 57)
    reader = spark.read.format("minibroker").options(path=str(log), subscribe="a,b", includeHeaders="true")
    columns = [name for name in read_archive(spark, str(out)).columns if name not in ("timestampMs", "date")]
    archive = read_archive(spark, str(out))
    assert archive.select(*columns).exceptAll(reader.load().select(*columns)).count() == 0
    assert archive.count() == 57
    assert archive.where("date <> to_date(timestamp)").count() == 0
    assert len(list(out.glob("topic=a/date=*"))) == 6
    assert run(spark, log, out).batches.written.records == 0


def test_directories_of_other_programs_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    log, out, checkpoint = tmp_path / "log", tmp_path / "out", tmp_path / "checkpoint"
    write_log(log, "a", 0, records(3))
    run(spark, log, out, checkpoint=checkpoint)
    refusals: list[tuple[str, Path, Mapping[str, str], Path | None]] = [
        ("was written with a checkpoint that is not at", out, IDS, None),
        ("is not of the archive", tmp_path / "other", IDS, checkpoint),
        ("of another source: its a is id of a, this one another", out, {**IDS, "a": "another"}, checkpoint),
        ("also has b, which", out, {"a": "id of a"}, checkpoint),
        ("is not an archive, and not empty: it has a-0", log, IDS, None),
        ("is a file", log / "a-0" / f"{0:020}.log", IDS, None),
    ]
    for complaint, path, ids, where in refusals:
        with pytest.raises(ArchiveError, match=complaint):
            run(spark, log, path, ids, where)
    assert run(spark, log, out, {**IDS, "c": "id of c"}, checkpoint).batches.totals.records == 3


def test_an_archive_of_another_stream_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    write_log(log, "a", 0, records(3))
    run(spark, log, tmp_path / "one", checkpoint=tmp_path / "checkpoint one")
    run(spark, log, tmp_path / "two", checkpoint=tmp_path / "checkpoint two")
    with pytest.raises(ArchiveError, match="is of another archive than"):
        run(spark, log, tmp_path / "one", checkpoint=tmp_path / "checkpoint two")


def test_a_failed_batch_is_reported_in_one_line_and_repeated_by_the_next_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    segment = write_log(log, "a", 0, records(9)) / f"{0:020}.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    begun = ArchiveRun(stream(spark, log), str(out), topic_ids=IDS)
    with pytest.raises(StreamingQueryException) as caught:
        begun.query.awaitTermination(TIMEOUT_S)
    assert f"ArchiveError: {segment}" in str(caught.value)
    assert reason_of(str(caught.value)).startswith(f"{segment}")
    segment.write_bytes(whole)
    assert run(spark, log, out).batches.totals.records == 9
