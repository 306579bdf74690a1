"""The latest record of each key as Spark sees it is what the broker's own cleaner keeps of the same directory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from click.testing import Result

from minibroker.pipeline.jobs.archive import read_archive
from minibroker.pipeline.jobs.compact import compact, savings, savings_here, write_compacted, write_compacted_here
from minibroker.protocol.records.batch import check_batch
from minibroker.protocol.records.formats import records_in
from minibroker.protocol.records.record import Record
from minibroker.storage.log_settings import LogSettings
from tests.pipeline.jobs.verify.support import Writer, faults, judge
from tests.storage.compaction.support import COMPACT, clean
from tests.storage.support import open_at, read_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RETENTION_MS = 10_000
SETTINGS = LogSettings(
    segment_bytes=2000,
    index_interval_bytes=200,
    cleanup_policy=COMPACT,
    file_delete_delay_ms=0,
    delete_retention_ms=RETENTION_MS,
)
Found = list[tuple[int, bytes, bytes | None]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain records, transactions of two producers that are committed or aborted, tombstones, records without a key."""
    directory = tmp_path_factory.mktemp("logs")
    writer = Writer(directory, SETTINGS)
    chance = Random(7)

    def records() -> list[Record]:
        return [
            Record(
                timestamp=writer.now_ms,
                key=None if chance.random() < 0.1 else b"key %d" % chance.randrange(40),
                value=None if chance.random() < 0.25 else b"value %d" % chance.randrange(10**6),
            )
            for _ in range(chance.randint(1, 5))
        ]

    for _ in range(80):
        writer.put(records(), compression=chance.randrange(5))
        for producer in (1, 2):
            writer.put(records(), producer=producer, transactional=True)
        for producer in (2, 1):
            writer.end(producer, commit=chance.random() < 0.6)
    writer.log.roll()
    writer.close()
    return directory


def cleaned(directory: Path, target: Path, cleanings: int) -> Path:
    """A copy that the broker's cleaner has been over; each time, what it keeps for a while is over its time."""
    shutil.copytree(directory, target)
    log = open_at(target / "orders-0", SETTINGS)
    now_ms = 2_000_000_000_000
    for _ in range(cleanings):
        clean(log, now_ms)
        now_ms += 2 * RETENTION_MS
        log.clean_offset = 0  # or it would not look again before something new comes
    log.close()
    return target


def kept(directory: Path) -> Found:
    """The records that are left in a log."""
    log = open_at(directory / "orders-0", SETTINGS)
    data = [batch for batch in read_batches(log) if not check_batch(batch).is_control]
    log.close()
    return [(each.offset, each.key or b"", each.value) for batch in data for each in records_in(batch)]


def where(directory: Path) -> dict[str, str]:
    committed = {"path": str(directory), "subscribe": "orders", "isolation.level": "read_committed"}
    return {**committed, "includeHeaders": "true"}


def read(spark: SparkSession, directory: Path) -> DataFrame:
    return spark.read.format("minibroker").options(**where(directory)).load()


def rows_of(frame: DataFrame) -> Found:
    return sorted((row.offset, row.key, row.value) for row in frame.select("offset", "key", "value").collect())


@pytest.mark.parametrize(("tombstones", "cleanings"), [(True, 1), (False, 4)])
def test_spark_keeps_the_same_records_as_the_cleaner(
    tombstones: bool, cleanings: int, spark: SparkSession, directory: Path, tmp_path: Path
) -> None:
    after = cleaned(directory, tmp_path / "cleaned", cleanings)
    expected = kept(after)
    assert rows_of(compact(read(spark, directory), tombstones=tombstones)) == expected
    assert any(value is None for _, _, value in expected) == tombstones
    assert rows_of(compact(read(spark, after), tombstones=tombstones)) == expected  # there is nothing left to do
    assert faults(judge(after, compacted=["orders"])) == []


def test_the_savings_are_those_of_the_kept_records(spark: SparkSession, directory: Path) -> None:
    everything = read(spark, directory)
    for tombstones in (True, False):
        (row,) = savings(everything, tombstones=tombstones).collect()
        before = everything.select("key", "value").collect()
        after = rows_of(compact(everything, tombstones=tombstones))
        assert (row.topic, row.partition, row.records) == ("orders", 0, len(before))
        assert row.keyless == sum(each.key is None for each in before) > 0
        assert row["keys"] == len({bytes(each.key) for each in before if each.key is not None})
        assert row.tombstones == row["keys"] - len(rows_of(compact(everything, tombstones=False))) > 0
        assert row.keptRecords == len(after)
        assert row.bytes == sum(len(each.key or b"") + len(each.value or b"") for each in before)
        assert row.keptBytes == sum(len(key) + len(value or b"") for _, key, value in after)
        assert row.savedShare == pytest.approx(1 - row.keptBytes / row.bytes)
        assert savings_here(where(directory), tombstones=tombstones) == [row.asDict()]


def test_an_empty_log_has_no_savings(tmp_path: Path) -> None:
    Writer(tmp_path).close()
    assert savings_here(where(tmp_path)) == []


def test_kept_records_are_written_as_an_archive(spark: SparkSession, directory: Path, tmp_path: Path) -> None:
    compacted = compact(read(spark, directory))
    write_compacted(compacted, str(tmp_path / "archive"))
    archive = read_archive(spark, str(tmp_path / "archive"))
    assert rows_of(archive) == rows_of(compacted)
    assert {(row.topic, row.partition) for row in archive.collect()} == {("orders", 0)}
    for tombstones in (True, False):
        here = str(tmp_path / f"here-{tombstones}")
        write_compacted_here(where(directory), here, tombstones=tombstones)
        expected = archive if tombstones else archive.where("value is not null")
        assert read_archive(spark, here).exceptAll(expected).count() == 0
        assert read_archive(spark, here).count() == expected.count()


@pytest.mark.parametrize("options", [(), ("--no-tombstones", "--uncommitted")])
def test_both_engines_print_and_write_the_same(
    job: Callable[..., Result], spark: SparkSession, directory: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    printed, written = [], []
    for engine in ("local", "spark"):
        out = tmp_path / engine
        result = job("compact", "--path", directory, "--topic", "orders", "--engine", engine, "--out", out, *options)
        assert (result.exit_code, result.stderr) == (0, "")
        printed.append(result.stdout)
        written.append(rows_of(read_archive(spark, str(out))))
    assert printed[0] == printed[1]
    assert written[0] == written[1]
    numbers = job("compact", "--path", directory, "--topic", "orders", "--json", *options).stdout
    (row,) = (json.loads(line) for line in numbers.splitlines())
    cells = [*list(row.values())[:-1], f"{row['savedShare']:.1%}"]
    assert printed[0].splitlines()[2].split() == [str(cell) for cell in cells]
    assert row["keptRecords"] == len(written[0])
    assert any(value is None for _, _, value in written[0]) == (not options)
    (committed,) = savings_here(where(directory))
    assert (row["records"] > committed["records"]) == bool(options)
