"""The archive in a table: what is read next, what a commit notes, and crashes before and after it.

The table here is Parquet files, with a directory for each commit; those of Iceberg and Delta are in conformance/lake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import Result

from minibroker.pipeline.jobs import lake_tables
from minibroker.pipeline.jobs.archive import archived
from minibroker.pipeline.jobs.archive_batches import ArchiveError
from minibroker.pipeline.jobs.lake_archive import LakeArchive
from minibroker.pipeline.jobs.lake_tables import NOTE, ArchiveNote, note_in
from minibroker.pipeline.log_source import DataLoss
from tests.pipeline.jobs.logs import records, write_log
from tests.pipeline.jobs.verify.metadata_logs import config, metadata, topic
from tests.pipeline.jobs.verify.support import Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IDS = {"orders": "an id"}


class Crash(Exception):
    """The end of a run."""


class DirectoryTable:
    """A table that is a directory for each commit, with its note in the directory's name."""

    unfinished = re.compile(r"0-/_temporary/.*")

    def __init__(self, spark: SparkSession, target: str) -> None:
        self.target = target
        self.crash: str | None = None
        self.compacted: ArchiveNote | None = None
        self.skips_empty_commits = False
        self.mended = False
        self._spark = spark
        self._home = Path(target)

    def exists(self) -> bool:
        return self._home.joinpath("0-", "_SUCCESS").exists()

    def mend(self) -> None:
        self.mended = True

    def create(self, rows: DataFrame) -> None:
        rows.limit(0).write.mode("overwrite").parquet(str(self._home / "0-"))

    def append(self, rows: DataFrame, note: ArchiveNote, compression: str) -> None:
        if self.crash == "before":
            raise Crash
        if self.skips_empty_commits and rows.isEmpty():
            return
        number = len(list(self._home.iterdir()))
        rows.write.option("compression", compression).parquet(str(self._home / f"{number}-"))
        (self._home / f"{number}-" / "_note").write_text(note.text())
        if self.crash == "after":
            raise Crash

    def notes(self) -> Iterator[ArchiveNote]:
        commits = sorted(self._home.iterdir(), key=lambda path: -int(path.name[:-1]))
        for path in (commit / "_note" for commit in commits):
            note = note_in(path.read_text()) if path.exists() else None
            if note is not None:
                yield note

    def read(self) -> DataFrame:
        return self._spark.read.option("mergeSchema", "true").parquet(*map(str, self._home.iterdir()))

    def compact(self, note: ArchiveNote) -> None:
        self.compacted = note

    def offsets(self) -> list[tuple[int, int]]:
        return sorted((row.partition, row.offset) for row in self.read().select("partition", "offset").collect())


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> DirectoryTable:
    return DirectoryTable(spark, str(tmp_path / "table"))


def opened(
    spark: SparkSession, table: DirectoryTable, log: Path, ids: Mapping[str, str] = IDS, **more: Any
) -> LakeArchive:
    options = {"path": str(log), "subscribePattern": "^orders$", "isolation.level": "read_committed"}
    return LakeArchive(spark, table, options, topic_ids=ids, batch_offsets=30, **more)


def test_the_table_equals_the_log_and_grows_with_it(spark: SparkSession, table: DirectoryTable, tmp_path: Path) -> None:
    log = tmp_path / "log"
    write_log(log, "orders", 0, records(40))
    write_log(log, "orders", 1, records(5))
    first = opened(spark, table, log, topic_configs={"orders": {"cleanup.policy": "compact"}})
    assert [each.records for each in first.run()] == [29, 16]
    assert first.note.offsets == {"orders": {"0": 40, "1": 5}}
    write_log(log, "orders", 0, records(3, start=40))
    write_log(log, "orders", 2, records(2))
    second = opened(spark, table, log)
    assert second.note.configs == {"orders": {"cleanup.policy": "compact"}}
    (added,) = second.run()
    assert {str(each): (row.records, row.first_offset) for each, row in added.partitions.items()} == {
        "orders-0": (3, 40),
        "orders-2": (2, 0),
    }
    assert list(opened(spark, table, log).run()) == []
    assert table.offsets() == [(0, n) for n in range(43)] + [(1, n) for n in range(5)] + [(2, 0), (2, 1)]


@pytest.mark.parametrize("crash", ["before", "after"])
def test_a_crash_causes_no_loss_or_duplicates(
    spark: SparkSession, table: DirectoryTable, tmp_path: Path, crash: str
) -> None:
    log = tmp_path / "log"
    write_log(log, "orders", 0, records(70))
    run = opened(spark, table, log).run()
    assert next(run).records == 30
    table.crash = crash
    with pytest.raises(Crash):
        next(run)
    table.crash = None
    assert [each.records for each in opened(spark, table, log).run()] == ([30, 10] if crash == "before" else [10])
    assert table.offsets() == [(0, n) for n in range(70)]


def test_a_table_started_by_a_killed_run_is_created(spark: SparkSession, table: DirectoryTable, tmp_path: Path) -> None:
    write_log(tmp_path / "log", "orders", 0, records(3))
    left = tmp_path / "table" / "0-" / "_temporary" / "file"
    left.parent.mkdir(parents=True)
    left.touch()
    assert [each.records for each in opened(spark, table, tmp_path / "log").run()] == [3]
    assert not table.mended
    opened(spark, table, tmp_path / "log")
    assert table.mended


@pytest.mark.parametrize("skips_empty_commits", [False, True])
def test_the_table_has_only_committed_records(
    spark: SparkSession, table: DirectoryTable, tmp_path: Path, skips_empty_commits: bool
) -> None:
    table.skips_empty_commits = skips_empty_commits
    (tmp_path / "log").mkdir()
    writer = Writer(metadata(tmp_path / "log", topic("orders"), config("orders", "compact")))
    writer.write(3)
    for number, commit in enumerate((False, True, False)):
        writer.write(2, producer=number, transactional=True)
        writer.end(number, commit=commit)
    writer.close()
    options = {"path": str(tmp_path / "log"), "subscribe": "orders", "isolation.level": "read_committed"}
    archive = LakeArchive(spark, table, options, topic_ids=IDS, batch_offsets=3)
    assert [each.records for each in archive.run()] == [3, 0, 2, 0]
    assert archive.note.number == (1 if skips_empty_commits else 3)
    assert table.offsets() == [(0, 0), (0, 1), (0, 2), (0, 6), (0, 7)]


def test_a_concurrent_run_is_detected(spark: SparkSession, table: DirectoryTable, tmp_path: Path) -> None:
    write_log(tmp_path / "log", "orders", 0, records(40))
    one = opened(spark, table, tmp_path / "log").run()
    other = opened(spark, table, tmp_path / "log").run()
    assert next(one).records == 30
    with pytest.raises(ArchiveError, match="another run writes to it at the same time"):
        next(other)


def test_other_topics_and_other_tables_are_rejected(spark: SparkSession, table: DirectoryTable, tmp_path: Path) -> None:
    log = tmp_path / "log"
    write_log(log, "orders", 0, records(3))
    list(opened(spark, table, log).run())
    for ids, complaint in (({"orders": "new"}, "is of another source"), ({}, "also has orders")):
        with pytest.raises(ArchiveError, match=complaint):
            opened(spark, table, log, ids)
    strange = DirectoryTable(spark, str(tmp_path / "strange"))
    strange.create(spark.range(1))
    with pytest.raises(ArchiveError, match="is not an archive: it has no offset, partition, topic"):
        opened(spark, strange, log)
    with pytest.raises(ArchiveError, match="not a table of this format, and not empty"):
        opened(spark, DirectoryTable(spark, str(log)), log)


def test_lost_progress_is_recovered_from_the_rows(spark: SparkSession, table: DirectoryTable, tmp_path: Path) -> None:
    write_log(tmp_path / "log", "orders", 0, records(3))
    list(opened(spark, table, tmp_path / "log").run())
    for path in (tmp_path / "table").glob("*/_note"):
        path.unlink()
    assert opened(spark, table, tmp_path / "log").note == ArchiveNote(-1, {"orders": {"0": 3}}, IDS)


def test_missing_offsets_fail_the_run_or_are_skipped(
    spark: SparkSession, table: DirectoryTable, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    write_log(log, "orders", 0, records(3))
    list(opened(spark, table, log).run())
    (log / "orders-0" / f"{0:020}.log").unlink()
    write_log(log, "orders", 0, records(5, start=50))
    (log / "orders-0" / f"{0:020}.log").rename(log / "orders-0" / f"{50:020}.log")
    with pytest.raises(DataLoss):
        list(opened(spark, table, log).run())
    options = {"path": str(log), "subscribe": "orders", "failOnDataLoss": "false"}
    archive = LakeArchive(spark, table, options, topic_ids=IDS, batch_offsets=20)
    assert [each.records for each in archive.run() if each.records] == [5]


def test_rows_may_have_additional_columns(spark: SparkSession, table: DirectoryTable, tmp_path: Path) -> None:
    write_log(tmp_path / "log", "orders", 0, records(3))
    more = opened(spark, table, tmp_path / "log", rows=lambda rows: archived(rows).selectExpr("*", "1 AS one"))
    list(more.run())
    assert table.read().where("one = 1").count() == 3


def test_progress_of_other_runs_is_ignored() -> None:
    assert note_in(None) is note_in("a commit by hand") is None
    note = ArchiveNote(3, {"orders": {"0": 1}}, IDS, {"orders": {"cleanup.policy": "compact"}})
    assert NOTE in note.text() and note_in(note.text()) == note


@pytest.fixture
def run(job: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Archive into such a table."""

    def table_of(spark: SparkSession, _: str, target: str) -> DirectoryTable:
        return DirectoryTable(spark, target)

    monkeypatch.setattr(lake_tables, "lake_table", table_of)
    return partial(job, "archive")


def test_the_lake_command_prints_what_it_has_written(run: Callable[..., Result], tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write_log(log, "orders", 0, records(20))
    where = ("--path", str(log), "--out", str(out), "--format", "delta", "--conf", "spark.jars=delta-spark.jar")
    result = run(*where, "--compact")
    assert result.exit_code == 0, result.output
    head, _, row, _, total = [line.rstrip() for line in result.stdout.splitlines()]
    assert (head.split("   ")[0], row.split()) == ("topic", ["orders", "0", "20", "252", "0", "19"])
    assert total == f"20 records written to {out}; 20 records in all"
    again = run(*where, "--json")
    assert again.stdout == f'{{"archive": "{out}", "written": {{"partitions": []}}, "in_all": {{"records": 20}}}}\n'


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--format", "delta", "--checkpoint", "x"), "--checkpoint is for parquet"),
        (("--compact",), "--compact needs --format iceberg or delta"),
        (
            ("--format", "iceberg", "--continuous", "--trigger", "soon", "--conf", "spark.jars=iceberg-spark-runtime"),
            "soon",
        ),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(
    run: Callable[..., Result], tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    write_log(tmp_path / "log", "orders", 0, records(1))
    result = run("--path", str(tmp_path / "log"), "--out", str(tmp_path / "out"), *arguments)
    assert (result.exit_code, complaint in result.stderr) == (2, True), result.stderr
