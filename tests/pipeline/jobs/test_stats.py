"""What Spark counts in a log: by partition, codec and producer, over time and by key; from headers and a sample."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import Result
from matplotlib.figure import Figure

from minibroker.pipeline.encode.encoder import BatchSettings, Producer
from minibroker.pipeline.jobs.stats import BATCH_COLUMNS, grouped, grouped_by_each, set_id
from minibroker.pipeline.jobs.stats_plots import record_rates
from minibroker.pipeline.jobs.stats_run import gather, sample_of
from minibroker.pipeline.jobs.stats_tables import summary
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.formats import batches_in, records_in
from tests.cases import for_each
from tests.pipeline.jobs.logs import NOW_MS, records, write_log
from tests.pipeline.jobs.verify.support import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., Result]
FAR = (1_700_000_000_000_000_000, 1, -1)  # nanoseconds, a day of 1970, none
PLAIN = BatchSettings(batch_records=20)
PACKED = BatchSettings(batch_records=50, codec=Compression.GZIP)
OLD = BatchSettings(magic=1, batch_records=10, codec=Compression.GZIP, drop_headers=True)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics, three codecs and formats, one producer with an id."""
    root = tmp_path_factory.mktemp("log")
    write_log(root, "orders", 0, records(200), PLAIN)
    write_log(root, "orders", 1, records(100), PACKED, Producer(4711, 0, 0))
    write_log(root, "old", 0, records(30), OLD)
    return root


def test_counted_statistics_equal_those_of_the_brokers_codec(spark: SparkSession, log: Path) -> None:
    found = gather(spark, {"path": str(log), "subscribePattern": "."}, name="x", by=("codec", "topic"), top_keys=3)
    assert found.measured_every == 1
    for row in found.tables["topic, partition"]:
        data = (log / f"{row.by['topic']}-{row.by['partition']}" / f"{0:020}.log").read_bytes()
        every = [record for at, header in batches_in(data) for record in records_in(data[at : at + header.size_bytes])]
        assert row.records == len(every)
        assert (row.batches, row.bytes) == (len(list(batches_in(data))), len(data))
        assert row.key_bytes == sum(len(record.key or b"") for record in every)
        assert row.value_bytes == sum(len(record.value or b"") for record in every)
        assert row.tombstones == sum(record.value is None for record in every)
        assert (row.first_ms, row.last_ms) == (
            min(header.max_timestamp for _, header in batches_in(data)),
            max(record.timestamp for record in every),
        )
    assert {row.by["producer"]: row.records for row in found.tables["producer"]} == {-1: 230, 4711: 100}
    assert {(row.by["codec"], row.by["format"]): row.records for row in found.tables["codec, format"]} == {
        ("none", 2): 200,
        ("gzip", 2): 100,
        ("gzip", 1): 30,
    }
    assert {tuple(row.by.values()): row.batches for row in found.tables["codec, topic"]} == {
        ("none", "orders"): 10,
        ("gzip", "orders"): 2,
        ("gzip", "old"): 3,
    }
    assert found.all.batches == 15
    plain = next(row for row in found.tables["codec, format"] if row.by["codec"] == "none")
    assert plain.compression_ratio == 1.0
    assert sum(size.batches for size in found.sizes) == 15
    assert sum(rate.records for rate in found.rates) == 330
    assert {rate.start_ms % found.span_ms for rate in found.rates} == {0}
    skews = {skew.topic: skew for skew in found.keys or ()}
    assert (skews["orders"].keys, skews["orders"].records_without_key) == (7, 60)
    counted = Counter(record.key for record in records(30) if record.key is not None)
    most = sorted(counted.items(), key=lambda each: (-each[1], each[0]))[:3]
    assert [(top.key, top.records) for top in skews["old"].top] == [*most, (None, 6)]
    assert sum(skew.records for skew in skews.values()) == 330 * 4 // 5


def test_the_stats_command_prints_tables_and_json_and_draws_plots(job: Run, log: Path, tmp_path: Path) -> None:
    picture = tmp_path / "plots.png"
    where = ("--path", str(log), "--topic", "orders")
    result = job("stats", *where, "--plot", str(picture), "--keys", "--top", "1")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("300 records in 12 batches, ")
    assert "\nBy topic and partition\n" in result.stdout and "Left out: the 1 smallest." in result.stdout
    assert "\nBy producer\n" in result.stdout and "\nThe most frequent keys\n" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    parsed = json.loads(job("stats", *where, "--by", "format, topic", "--json", "--span", "1m").stdout)
    assert parsed["tables"]["format, topic"][0]["by"] == {"format": 2, "topic": "orders"}
    assert parsed["span_ms"] == 60_000
    assert parsed["all"]["records"] == 300
    assert parsed["keys"] is None
    late = json.loads(job("stats", *where, "--json", "--option", f"startingTimestamp={NOW_MS + 50_000}").stdout)
    assert late["all"]["records"] < 300


@for_each(
    ("arguments", "complaint"),
    [
        (("--by", "topic,colour"), "'colour': it can be topic, partition, producer, codec, format"),
        (("--plot", "plots.html"), "does not end with .png"),
        (("--plot", "no/such/place/plots.png"), "there is no directory"),
        (("--span", "never"), "'never' is not a time like"),
        (("--topic", "missing"), "there is no missing"),
        (("--option", "includeHeaders=true"), "includeHeaders: not an option of"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(
    job: Run, log: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    result = job("stats", "--path", str(log), *arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1 and complaint in result.stderr


def test_an_empty_log_has_statistics(job: Run, tmp_path: Path) -> None:
    (tmp_path / "log" / "t-0").mkdir(parents=True)
    (tmp_path / "log" / "t-0" / f"{0:020}.log").touch()
    result = job("stats", "--path", str(tmp_path / "log"), "--keys", "--plot", str(tmp_path / "plots.png"))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("0 records in 0 batches, 0 B\n")
    assert (tmp_path / "plots.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("topics", [".", "none of them"])
def test_one_process_and_spark_count_alike(spark: SparkSession, log: Path, topics: str, tmp_path: Path) -> None:
    shutil.copytree(log, tmp_path / "log")
    writer = Writer(tmp_path / "log" / "more")
    for commit in (True, False):
        writer.write(2, producer=7, transactional=True)
        writer.end(7, commit=commit)
    shutil.move(writer.close(), tmp_path / "log" / "transactions-0")
    options = {"path": str(tmp_path / "log"), "subscribePattern": topics, "isolation.level": "read_uncommitted"}
    by_spark, here = (
        gather(each, options, name="x", by=("producer", "topic"), top_keys=2, exact=True) for each in (spark, None)
    )
    assert here == by_spark
    assert here.all.control_batches == (2 if topics == "." else 0)


def test_an_outlying_timestamp_does_not_distort_the_rates(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path, "orders", 0, records(200), BatchSettings(batch_records=2))
    far = [
        record._replace(offset=200 + n, timestamp=time)
        for n, (record, time) in enumerate(zip(records(3), FAR, strict=True))
    ]
    with (tmp_path / "orders-0" / f"{0:020d}.log").open("ab") as file:
        for record in far:
            file.write(build_batch([record._replace(offset=0)], base_offset=record.offset))
    options = {"path": str(tmp_path), "subscribe": "orders"}
    here, there = gather(None, options, name="x"), gather(spark, options, name="x")
    assert here.as_json() == there.as_json()
    assert (here.all.first_ms, here.all.last_ms, here.all.records) == (1, FAR[0], 203)
    assert here.records_outside == 2  # one has no time
    assert (here.span_ms, len(here.rates), sum(rate.records for rate in here.rates)) == (5000, 40, 200)
    assert "2 records have times far from the others; the rates are without them" in summary(here)
    axes = Figure().subplots()
    record_rates(axes, here)
    assert axes.get_xlabel() == "time (UTC), a value each 5 seconds; 2 records are outside"


def test_a_large_log_is_sampled() -> None:
    assert [sample_of(count) for count in (0, 1_000_000, 1_600_000, 250_000_000)] == [1, 1, 2, 250]


def test_each_table_has_the_given_number_of_largest_rows(spark: SparkSession, log: Path) -> None:
    options = {"path": str(log), "subscribePattern": ".", "measure": "all"}
    batches = spark.read.format("minibroker-batches").options(**options).schema(BATCH_COLUMNS).load()
    by = ["topic", "partition"]
    rows = grouped_by_each(batches, [by, ["codec"]], 2).collect()
    assert [(row.set, row.rows) for row in rows] == [(set_id(by), 3)] * 2 + [(set_id(["codec"]), 2)] * 2
    alone = grouped(batches, by).collect()
    assert [(row.topic, row.partition, row.bytes) for row in rows[:2]] == [
        (row.topic, row.partition, row.bytes) for row in alone[:2]
    ]
