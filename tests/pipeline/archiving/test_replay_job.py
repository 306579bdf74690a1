"""`minibroker pipeline replay`: an archive goes back to a broker as it was, and a second time not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from minibroker.pipeline.archiving.archive_tables import (
    ArchivedPartition,
    CommitNote,
    OffsetWindow,
    RowsScan,
    list_archived_partitions,
)
from minibroker.pipeline.archiving.parquet_archive import ParquetArchive
from minibroker.pipeline.archiving.replay_job import PartitionReplay, ReplayTask, replay_archive, replay_settings
from minibroker.pipeline.engines import SparkEngine
from minibroker.pipeline.log_source import TopicPartition
from tests.cases import for_each
from tests.pipeline.archiving.replaying import T_MS, rows
from tests.pipeline.sink.committed import create_topic, read
from tests.running import RunningBroker, running_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Two partitions of `old` and one of `7`, in files as the archive has them, none of which is in order."""
    path = tmp_path / "archive"
    add_to(path, "old", "2026-11-02", rows(500, 700, 1), rows(0, 300))
    add_to(path, "old", "2026-11-01", rows(0, 500, 1), rows(300, 600))
    add_to(path, "7", "2026-11-01", rows(0, 10, topic="7"))
    return path


def add_to(archive: Path, topic: str, date: str, *batches: pa.RecordBatch) -> None:
    directory = archive / f"topic={topic}" / f"date={date}"
    directory.mkdir(parents=True, exist_ok=True)
    number = len(list(directory.iterdir()))
    pq.write_table(pa.Table.from_batches(batches).drop(["topic"]), directory / f"part-{number}.parquet")
    notes = archive / "_archive" / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    (notes / f"{0:012}").write_text(CommitNote().encode_as_text())


@pytest.fixture
def run(job: Run, archive: Path, broker: RunningBroker) -> Run:
    """Replay the archive."""
    return partial(job, "replay", "--from", archive, "--bootstrap-server", broker.bootstrap_servers)


def test_an_archive_is_replayed_unchanged_and_only_once(run: Run, archive: Path, broker: RunningBroker) -> None:
    result = run("--topic-map", "old=new")
    assert result.exit_code == 0, result.output
    table = [line.split() for line in result.stdout.splitlines()[2:]]
    assert table == [
        ["7", "0", "7", "10", "10", "0"],
        ["old", "0", "new", "600", "600", "0"],
        ["old", "1", "new", "700", "700", "0"],
    ]
    found = read(broker.bootstrap_servers, "new")
    assert [(each.partition, each.value) for each in found] == [
        *[(0, b"%d" % offset) for offset in range(600)],
        *[(1, b"%d" % offset) for offset in range(700)],
    ]
    assert {each.timestamp_ms for each in found} == {T_MS}
    assert all(each.headers == [("h", each.value)] for each in found)

    add_to(archive, "old", "2026-11-01", rows(600, 650))
    again = json.loads(run("--topic-map", "old=new", "--json").stdout)
    assert again["created"] == []
    assert [each["written"] for each in again["partitions"]] == [0, 50, 0]
    assert [each["already"] for each in again["partitions"]] == [10, 600, 700]
    assert len(read(broker.bootstrap_servers, "new")) == 1350


def test_records_outside_of_a_replayed_range_do_not_count_as_written(run: Run) -> None:
    arguments = ("--topic", "old", "--topic-map", "old=part", "--start", "690", "--json")
    for written in (10, 0):
        report = json.loads(run(*arguments).stdout)["partitions"]
        assert [(each["written"], each["already"]) for each in report] == [(0, None), (written, None)]


@pytest.mark.parametrize("on_spark", [False, True])
def test_an_archive_is_replayed_by_key(
    spark: SparkSession, archive: Path, broker: RunningBroker, on_spark: bool
) -> None:
    target = f"by-key-{on_spark}"
    create_topic(broker.bootstrap_servers, target, 3, retention_ms="-1")
    table = ParquetArchive(str(archive))
    found = [each for each in list_archived_partitions(table) if each.partition.topic == "old"]
    assert found == [
        ArchivedPartition(TopicPartition("old", 0), 600, 0, 599, T_MS),
        ArchivedPartition(TopicPartition("old", 1), 700, 0, 699, T_MS),
    ]
    settings = replay_settings(broker.bootstrap_servers)
    task = ReplayTask(settings, target, {"old": target}, repartition=True, commit_records=90)
    report = replay_archive(table, task, found, engine=SparkEngine(spark) if on_spark else None)
    assert [(str(each.partition), each.records, each.first, each.last) for each in report] == [
        ("old-0", 600, 0, 599),
        ("old-1", 700, 0, 699),
    ]
    rows = read(broker.bootstrap_servers, target)
    assert len(rows) == 1300
    places: dict[bytes | None, set[int]] = {}
    for each in rows:
        places.setdefault(each.key, set()).add(each.partition)
    assert all(len(of_key) == 1 for of_key in places.values())


def test_small_commits_share_a_scan_of_the_archive(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows: list[OffsetWindow | None] = []
    open_scan = ParquetArchive.open_scan

    def open_counted(table: ParquetArchive) -> RowsScan:
        scan = open_scan(table)

        def run_scan(columns: Sequence[str], window: OffsetWindow | None) -> Iterator[pa.RecordBatch]:
            windows.append(window)
            return scan(columns, window)

        return run_scan

    monkeypatch.setattr(ParquetArchive, "open_scan", open_counted)
    table = ParquetArchive(str(archive))
    (archived,) = [each for each in list_archived_partitions(table) if each.partition == TopicPartition("old", 0)]
    windows.clear()
    task = ReplayTask(replay_settings("broker:9092"), "r", commit_records=90)
    pieces = list(PartitionReplay(table, task).iterate_rows_by_transaction(archived, 5))
    assert [piece.num_rows for piece in pieces] == [90] * 6 + [55]
    assert windows == [OffsetWindow(archived.partition, 5, 600)]


@for_each(
    ("arguments", "expected"),
    [
        (("--start", "590"), [*range(590, 600)]),
        (("--start", "5", "--end", "8"), [5, 6, 7]),
        (("--start", "2026-11-01T00:00:00Z", "--end", "3"), [0, 1, 2]),
        (("--start", "2026-11-01T00:00:01Z"), []),
        (("--end", "2026-11-01T00:00:00Z"), []),
    ],
)
def test_a_range_of_offsets_or_times_is_replayed(
    run: Run, broker: RunningBroker, arguments: tuple[str, ...], expected: list[int]
) -> None:
    target = "-".join(("range", *arguments)).replace(":", ".").replace("--", "")
    for _ in range(2):  # the second time writes nothing
        result = run("--topic", "old", "--topic-map", f"old={target}", *arguments)
        assert result.exit_code == 0, result.output
    found = [each.value for each in read(broker.bootstrap_servers, target) if each.partition == 0]
    assert found == [b"%d" % offset for offset in expected]


def test_a_replay_with_another_id_writes_all_records_again(run: Run, broker: RunningBroker) -> None:
    for replay_id, written in (("one", 10), ("one", 0), ("two", 10)):
        found = json.loads(run("--topic", "7", "--topic-map", "7=twice", "--id", replay_id, "--json").stdout)
        assert (found["id"], [each["written"] for each in found["partitions"]]) == (replay_id, [written])
    assert len(read(broker.bootstrap_servers, "twice")) == 20


@for_each(
    ("arguments", "complaint"),
    [
        (("--topic", "missing"), "the archive has no topic missing"),
        (
            (
                "--topic-map",
                "old=7",
            ),
            "7 and old would both be written to partition 0 of 7",
        ),
        (("--topic-map", "odl=new"), "--topic-map odl=new: odl is none of the topics to replay, 7, old"),
        (("--topic", "7", "--topic-map", "old=new"), "old is none of the topics to replay, 7"),
    ],
)
def test_invalid_arguments_of_replay_are_reported_in_one_line(
    run: Run, arguments: tuple[str, ...], complaint: str
) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr
