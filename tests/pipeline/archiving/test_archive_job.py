"""Archives of each format: every record once, whatever the batches, the commits and what was there before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minibroker.pipeline.archiving import lake_archive
from minibroker.pipeline.archiving.archive_decoding import SeenStructFields, ValueDecoder
from minibroker.pipeline.archiving.archive_job import LogArchive, find_newest_note
from minibroker.pipeline.archiving.archive_tables import ArchiveError, ArchiveTable, CommitNote, OffsetWindow
from minibroker.pipeline.archiving.lake_archive import DeltaArchive, IcebergArchive
from minibroker.pipeline.archiving.parquet_archive import ParquetArchive
from minibroker.pipeline.engines import LocalEngine, SparkEngine
from minibroker.pipeline.log_source import CorruptData, TopicPartition
from minibroker.pipeline.schema_decoding import GivenSchema, get_cached_decoder
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from minibroker.registry.decoding import GivenDecoder, MissingLibrary
from minibroker.registry.state.schema_records import StoredSchema
from tests.pipeline.logs import NOW_MS, records, write_log
from tests.pipeline.schemas_topic import ANN, USER, write_schemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOURS_MS = 3_600_000
OLDER_USER = StoredSchema(
    "users-value",
    2,
    6,
    '{"type":"record","name":"User","fields":[{"name":"name","type":"string"},'
    '{"name":"age","type":["null","int"],"default":null},{"name":"tags","type":{"type":"array","items":"string"}}]}',
)
BOB = b"\0\0\0\0\6\6bob\2\x54\2\2x\0"  # 42, with one tag


@pytest.fixture
def iceberg(tmp_path: Path) -> IcebergArchive:
    (tmp_path / "warehouse").mkdir()
    catalog = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    return IcebergArchive("lake.orders", catalog)


@pytest.fixture(params=["parquet", "iceberg", "delta"])
def table(request: pytest.FixtureRequest, tmp_path: Path, iceberg: IcebergArchive) -> ArchiveTable:
    made: dict[str, Callable[[], ArchiveTable]] = {
        "parquet": lambda: ParquetArchive(str(tmp_path / "table")),
        "iceberg": lambda: iceberg,
        "delta": lambda: DeltaArchive(str(tmp_path / "table")),
    }
    return made[request.param]()


def run(table: ArchiveTable, log: Path, topics: str = "orders", **settings: Any) -> int:
    """Archive what there is; the number of records that were written."""
    ids = dict.fromkeys(topics.split(","), "one")
    archive = LogArchive(table, {"path": str(log), "subscribe": topics}, **{"topic_ids": ids, **settings})
    return sum(totals.records for totals in archive.run())


def rows_in(table: ArchiveTable, *columns: str, window: OffsetWindow | None = None) -> list[dict[str, Any]]:
    found = pa.Table.from_batches(list(table.open_scan()((*columns, "partition", "offset"), window)))
    return found.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()


def expected(count: int, partition: int = 0, step_ms: int = 1000) -> list[tuple[Any, ...]]:
    return [
        (partition, each.offset, each.key, each.value, each.timestamp, list(each.headers))
        for each in records(count, step_ms=step_ms)
    ]


def found_in(table: ArchiveTable) -> list[tuple[Any, ...]]:
    return [
        (
            *(row[name] for name in ("partition", "offset", "key", "value")),
            int(row["timestamp"].timestamp() * 1000),
            [(each["key"], each["value"]) for each in row["headers"] or []],
        )
        for row in rows_in(table, "key", "value", "timestamp", "headers")
    ]


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_each_record_is_archived_once_over_several_runs(
    table: ArchiveTable, tmp_path: Path, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_archive, "CHUNK_BYTES", chunk_bytes)
    log = tmp_path / "log"
    write_log(log, "orders", 0, records(60, step_ms=HOURS_MS))
    write_log(log, "orders", 1, records(20))
    assert run(table, log, batch_offsets=30) == 80
    write_log(log, "orders", 0, records(10, start=60, step_ms=HOURS_MS))
    assert [run(table, log), run(table, log)] == [10, 0]
    assert found_in(table) == expected(70, step_ms=HOURS_MS) + expected(20, partition=1)
    assert table.count_records() == 90
    of_window = OffsetWindow(TopicPartition("orders", 0), 58, 62)
    assert [row["offset"] for row in rows_in(table, window=of_window)] == [58, 59, 60, 61]
    assert {str(row["date"]) for row in rows_in(table, "date", window=of_window)} == {"2026-09-24"}


def test_a_failed_commit_leaves_no_rows_in_the_archive(table: ArchiveTable, tmp_path: Path) -> None:
    log = tmp_path / "log"
    write_log(log, "orders", 0, records(20))
    path = write_log(log, "orders", 1, records(20)) / f"{0:020}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\xff")
    with pytest.raises(CorruptData):
        run(table, log)
    path.write_bytes(whole)
    assert run(table, log) == 40
    assert found_in(table) == expected(20) + expected(20, partition=1)


def test_timestamps_out_of_range_are_archived_only_in_ms(table: ArchiveTable, tmp_path: Path) -> None:
    far = 1_700_000_000_000_000_000  # nanoseconds
    (tmp_path / "log" / "orders-0").mkdir(parents=True)
    batch = build_batch([Record(each, time, b"k") for each, time in enumerate((far, -1, 7))])
    (tmp_path / "log" / "orders-0" / f"{0:020d}.log").write_bytes(batch)
    run(table, tmp_path / "log")
    rows = rows_in(table, "timestamp", "timestampMs", "date")
    assert [(row["timestampMs"], row["timestamp"] is None, row["date"] is None) for row in rows] == [
        (far, True, True),
        (None, True, True),
        (None, False, False),
    ]


def test_an_archive_of_other_or_more_topics_is_rejected(table: ArchiveTable, tmp_path: Path) -> None:
    log = tmp_path / "log"
    write_log(log, "orders", 0, records(2))
    write_log(log, "prices", 0, records(2))
    run(table, log)
    with pytest.raises(ArchiveError, match="is of another source: its orders is one, this one two"):
        run(table, log, topic_ids={"orders": "two"})
    with pytest.raises(ArchiveError, match="also has orders, which is not selected now"):
        run(table, log, "prices")
    assert run(table, log, "orders,prices") == 2


def test_an_archive_without_a_commit_note_is_continued_after_its_last_rows(
    table: ArchiveTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "log", "orders", 0, records(4))
    run(table, tmp_path / "log")
    monkeypatch.setattr(type(table), "read_newest_note", lambda _: None)
    assert find_newest_note(table) == CommitNote(offsets={"orders": {"0": 4}})


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_one_of_two_concurrent_archive_runs_fails(kind: str, tmp_path: Path, iceberg: IcebergArchive) -> None:
    log = tmp_path / "log"
    write_log(log, "orders", 0, records(4))
    table: Any = iceberg if kind == "iceberg" else DeltaArchive(str(tmp_path / "table"))
    run(table, log)
    write_log(log, "orders", 0, records(4, start=4))

    class Interfering:
        """Another run commits between this one's first look at the table and its own commit."""

        def __call__(self, rows: Any) -> Any:
            batches = list(rows)
            run(table, log)
            yield from batches

    with pytest.raises(ArchiveError, match="another run writes to it at the same time"):
        run(table, log, decoder=Interfering())
    assert [row["offset"] for row in rows_in(table)] == [*range(8)]


def test_one_of_two_runs_that_create_the_table_fails(tmp_path: Path, iceberg: IcebergArchive) -> None:
    log = tmp_path / "log"
    write_log(log, "orders", 0, records(4))

    def archive_by_another_run(rows: Any) -> Any:
        run(iceberg, log)
        yield from rows

    with pytest.raises(ArchiveError, match="another run writes to it at the same time"):
        run(iceberg, log, decoder=archive_by_another_run)
    assert [row["offset"] for row in rows_in(iceberg)] == [*range(4)]


def test_decoded_columns_follow_the_schemas_of_their_values(table: ArchiveTable, tmp_path: Path) -> None:
    log = tmp_path / "log"
    get_cached_decoder.cache_clear()
    write_schemas(log, USER)
    decoder = ValueDecoder((("path", str(log)),))
    write_log(log, "users", 0, [Record(each, NOW_MS, None, value) for each, value in enumerate((b"ann", None))])
    run(table, log, "users", decoder=decoder)  # nothing that can be decoded: there is no column yet
    write_log(log, "users", 0, [Record(2, NOW_MS, None, ANN)])
    run(table, log, "users", decoder=decoder)
    write_schemas(log, OLDER_USER, start=1)
    write_log(log, "users", 0, [Record(3, NOW_MS, None, ANN), Record(4, NOW_MS, None, BOB)])
    run(table, log, "users", decoder=decoder)
    run(table, log, "users")  # a run without the decoder goes on, too
    rows = decoded_in(table)
    ann = {"name": "ann", "age": None, "tags": None}
    bob = {"name": "bob", "age": 42, "tags": ["x"]}
    assert [row["value_decoded"] for row in rows] == [None, None, ann, ann, bob]
    assert ["names no schema" in (row["value_error"] or "") for row in rows] == [True, *[False] * 4]


def archive_json(log: Path, table: ArchiveTable, values: list[bytes]) -> list[dict[str, Any]]:
    """Archive and decode values of JSON; the rows."""
    get_cached_decoder.cache_clear()
    write_log(log, "users", 0, [Record(each, NOW_MS, None, value) for each, value in enumerate(values)])
    run(table, log, "users", decoder=ValueDecoder(GivenSchema("JSON", '{"type": "object"}')), engine=LocalEngine(1))
    return decoded_in(table)


def test_a_too_deeply_nested_json_value_is_an_error_of_only_that_value(table: ArchiveTable, tmp_path: Path) -> None:
    levels = [20, 21, 900]
    values = [b'{"a":' * each + b"1" + b"}" * each for each in levels]
    values += [b'{"b":' + b"[" * each + b"1" + b"]" * each + b"}" for each in levels]
    rows = archive_json(tmp_path / "log", table, [*values, b'{"c": 1}'])
    said = ["is nested deeper than 20 levels" in (row["value_error"] or "") for row in rows]
    assert said == [False, True, True, True, True, True, False]
    assert rows[-1]["value_decoded"]["c"] == 1


@pytest.mark.parametrize("inside", [b"%s", b'{"of": %s}', b'{"of": [%s]}'])
def test_fields_of_a_struct_column_are_limited_and_further_ones_become_json(
    inside: bytes, table: ArchiveTable, tmp_path: Path
) -> None:
    rows = archive_json(tmp_path / "log", table, [inside % (b'{"key%d": 1}' % each) for each in range(700)])
    assert [row["value_error"] for row in rows] == [None] * 700
    structs = [row["value_decoded"] for row in rows]
    structs = structs if inside == b"%s" else [each["of"] for each in structs]
    structs = [each[0] if isinstance(each, list) else each for each in structs]
    assert len(structs[0]) == 501
    assert structs[3]["key3"] == 1 and structs[699]["json"] == '{"key699": 1}'


def test_the_fields_of_all_struct_columns_together_are_limited() -> None:
    shape = SeenStructFields()
    admitted = [shape.try_add_fields((f"of{each % 100}",), {f"key{each}"}) for each in range(9000)]
    assert admitted == [True] * 5000 + [False] * 4000
    assert shape.try_add_fields(("of0",), {"key0"})


def test_a_library_missing_for_decoding_ends_the_archive_run(
    table: ArchiveTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise MissingLibrary("PROTOBUF needs minibroker[registry]")

    monkeypatch.setattr(GivenDecoder, "decode", fail)
    with pytest.raises(ArchiveError, match="PROTOBUF needs"):
        archive_json(tmp_path / "log", table, [b"{}"])


def decoded_in(table: ArchiveTable) -> list[dict[str, Any]]:
    if not isinstance(table, ParquetArchive):
        return rows_in(table, "value_decoded", "value_error")
    found = [row for path in Path(table.location).rglob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    fields = dict.fromkeys(name for row in found for name in row.get("value_decoded") or ())
    for row in found:
        value = row.get("value_decoded")
        row["value_decoded"] = None if value is None else {**fields, **value}
    return sorted(found, key=lambda row: int(row["offset"]))


def test_spark_writes_the_same_archive_as_a_local_run(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    write_log(log, "orders", 0, records(60))
    write_log(log, "orders", 1, records(20))
    table = ParquetArchive(str(tmp_path / "table"))
    assert run(table, log, batch_offsets=50, engine=SparkEngine(spark)) == 80
    assert found_in(replace(table)) == expected(60) + expected(20, partition=1)
