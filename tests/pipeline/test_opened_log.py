"""`minibroker.pipeline.open`: a log as Arrow, without Spark, for the libraries of tables."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pytest

from minibroker import pipeline
from minibroker.pipeline.log_opening import Place
from minibroker.pipeline.log_source import CorruptData, OptionError, TopicPartition
from tests.pipeline.logs import NOW_MS, records, write_log
from tests.pipeline.sink.committed import create_topic
from tests.pipeline.verifying.support import written
from tests.running import running_broker

WITHOUT_SPARK = """
import sys
from minibroker import pipeline
print(pipeline.open(sys.argv[1]).records().to_arrow().num_rows, *({"pyspark", "py4j"} & sys.modules.keys()))
"""


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A directory with 20 records of `orders-0`, 5 of `orders-1`, and 3 of `prices-0`."""
    write_log(tmp_path, "orders", 0, records(20))
    write_log(tmp_path, "orders", 1, records(5))
    write_log(tmp_path, "prices", 0, records(3))
    return str(tmp_path)


def at(offset: int) -> datetime:
    """The time of the record with this offset."""
    return datetime.fromtimestamp((NOW_MS + offset * 1000) / 1000, UTC)


def offsets(rows: pa.Table) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows.select(["topic", "partition", "offset"]).to_pylist():
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
    return found


def test_pyarrow_pandas_polars_and_duckdb_read_the_same_rows(log: str) -> None:
    rows = pipeline.open(log, "orders").records()
    expected = rows.to_arrow()
    assert [(row["key"], row["value"]) for row in expected.to_pylist()[:20]] == [
        (each.key, each.value) for each in records(20)
    ]
    assert pa.table(rows) == expected
    assert polars.DataFrame(rows).to_arrow().column("offset").to_pylist() == expected.column("offset").to_pylist()
    assert duckdb.sql("SELECT partition, count(*) FROM rows GROUP BY ALL ORDER BY ALL").fetchall() == [(0, 20), (1, 5)]
    assert list(rows.to_arrow().to_pandas()["offset"]) == expected.column("offset").to_pylist()


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (17, None, {"orders-0": [17, 18, 19]}),
        (None, 2, {"orders-0": [0, 1], "orders-1": [0, 1]}),
        (3, 5, {"orders-0": [3, 4], "orders-1": [3, 4]}),
        (at(17), None, {"orders-0": [17, 18, 19]}),
        (at(3), at(5), {"orders-0": [3, 4], "orders-1": [3, 4]}),
        ({TopicPartition("orders", 0): 19}, None, {"orders-0": [19], "orders-1": [0, 1, 2, 3, 4]}),
        (17, 99, {"orders-0": [17, 18, 19]}),
        (at(99), None, {}),
        (5, 3, {}),
    ],
)
def test_only_the_requested_offsets_and_times_are_read(
    log: str, start: Place, end: Place, expected: dict[str, list[int]]
) -> None:
    assert offsets(pipeline.open(log, "orders", start=start, end=end).records().to_arrow()) == expected


def test_only_the_requested_partitions_and_columns_are_read(log: str) -> None:
    rows = pipeline.open(log, "orders", partitions=[1]).records(["offset", "timestampMs"]).to_arrow()
    assert rows.to_pylist() == [{"offset": each, "timestampMs": NOW_MS + each * 1000} for each in range(5)]
    assert set(offsets(pipeline.open(log).records().to_arrow())) == {"orders-0", "orders-1", "prices-0"}


def test_batches_are_read_by_their_headers(log: str) -> None:
    batches = pipeline.open(log, ["orders", "prices"]).batches(["topic", "recordCount", "crcValid"], verify_crc=True)
    assert [(row["recordCount"], row["crcValid"]) for row in batches.to_arrow().to_pylist()] == [
        (20, True),
        (5, True),
        (3, True),
    ]


def test_read_committed_omits_aborted_records(tmp_path: Path) -> None:
    written(tmp_path, rounds=6)  # of each 5 records without a transaction, 2 and 1 in two of them
    assert pipeline.open(tmp_path).records(["offset"]).to_arrow().num_rows == 48
    committed = pipeline.open(tmp_path, isolation="read_committed").records(["offset"])
    assert committed.to_arrow().num_rows == 30 + 4 * 2 + 3 * 1


def test_the_mode_determines_whether_damage_fails_is_dropped_or_kept(log: str) -> None:
    path = write_log(Path(log), "prices", 0, records(2, start=3)) / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    with pytest.raises(CorruptData):
        pipeline.open(log, "prices").records().to_arrow()
    dropped = pipeline.open(log, "prices", mode="DROPMALFORMED").records(["offset"])
    assert dropped.to_arrow().column("offset").to_pylist() == [0, 1, 2]
    kept = pipeline.open(log, "prices", mode="PERMISSIVE").records().to_arrow()
    assert [reason is None for reason in kept.column("_corrupt").to_pylist()] == [True, True, True, False]


def test_each_conversion_of_rows_reads_the_log_again(log: str) -> None:
    rows = pipeline.open(log, "prices").records(["offset"])
    assert rows.to_arrow().num_rows == 3
    write_log(Path(log), "prices", 0, records(2, start=3))
    assert rows.to_arrow().num_rows == 5


@pytest.mark.parametrize(
    ("arguments", "columns", "complaint"),
    [
        ({"topics": "orders"}, ["colour"], "there is no column 'colour'"),
        ({"topics": "orders"}, [], "there is no column"),
        ({"topics": "missing"}, None, "there is no missing"),
        ({"partitions": [0]}, None, "name their topics"),
        ({"start": datetime(2026, 1, 1)}, None, "needs a time zone"),
    ],
)
def test_unknown_columns_and_topics_and_ambiguous_arguments_are_rejected(
    log: str, arguments: dict[str, object], columns: list[str] | None, complaint: str
) -> None:
    with pytest.raises(OptionError, match=complaint):
        pipeline.open(log, **arguments).records(columns).to_arrow()


def test_a_broker_and_its_directory_give_the_same_rows(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        from confluent_kafka import Producer

        create_topic(broker.bootstrap_servers, "orders", 2)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(50):
            producer.produce("orders", key=b"%d" % number, value=b"tea", headers=[("h", b"%d" % number)])
        assert producer.flush(60) == 0
        live = pipeline.open(broker.bootstrap_servers, "orders", start=3, end=1000).records().to_arrow()
        assert live.num_rows > 40
        assert live == pipeline.open(tmp_path / "data", "orders", start=3).records().to_arrow()


def test_reading_an_opened_log_does_not_import_spark(log: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_SPARK, log]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["28"]


def test_a_missing_library_is_reported_with_its_remedy(log: str) -> None:
    program = f"import sys; sys.modules['pyarrow'] = None\n{WITHOUT_SPARK}"
    run = subprocess.run([sys.executable, "-c", program, log], capture_output=True, text=True)
    assert run.stderr.splitlines()[-1] == f"ModuleNotFoundError: {pipeline.REMEDY}"
