"""The tables of statistics: their cells in the units of a reader, and what is left out."""

from __future__ import annotations

from dataclasses import replace

from minibroker.pipeline.jobs.stats_tables import key_text, summary, tables
from tests.pipeline.jobs.made_up import statistics, traffic


def test_a_traffic_row_has_units() -> None:
    table = tables(statistics())[0]
    cells = dict(zip((column.name for column in table.columns), table.rows[0], strict=True))
    assert cells == {
        "topic": "orders",
        "partition": "0",
        "records": "100",
        "batches": "100",
        "bytes": "5 kB",
        "share": "0.5%",
        "records/batch": "1",
        "median batch": "500 B",
        "largest": "900 B",
        "compression": "3.00 x",
        "overhead/record": "20 B",
        "tombstones": "~3",
        "records/s": "0.167",
    }


def test_large_averages_have_a_unit_prefix() -> None:
    found = statistics()
    row = found.tables["topic, partition"][0]
    large = replace(row, records=500_000, batches=100, overhead_per_record=1990.0)
    found.tables["topic, partition"] = [large]
    (table,) = tables(found, only="topic, partition")[:1]
    cells = dict(zip((column.name for column in table.columns), table.rows[0], strict=True))
    assert (cells["records/batch"], cells["overhead/record"]) == ("5 k", "1.99 kB")


def test_the_first_of_many_rows_are_shown_and_the_others_counted() -> None:
    by_partition, _, by_producer, *_ = tables(statistics(partitions=30), 20)
    assert (len(by_partition.rows), by_partition.note) == (20, "Left out: the 10 smallest.")
    assert by_producer.note == "Left out: the 3 smallest."
    assert [row[0] for row in by_producer.rows] == ["without an id", "4711"]


def test_a_single_table_can_be_shown() -> None:
    found = tables(statistics(keys=False), only="codec, format")
    assert [table.title for table in found] == ["By codec and format"]


def test_partitions_with_only_transaction_markers_have_no_row() -> None:
    found = statistics()
    zstd, none = found.tables["codec, format"]
    found.tables["codec, format"] = [zstd, replace(none, batches=0, records=0, bytes=0, control_batches=2)]
    (table,) = tables(found, only="codec, format")[:1]
    assert ([row[0] for row in table.rows], table.note) == (["zstd"], "")


def test_producers_have_a_table_only_if_there_are_any() -> None:
    found = statistics(keys=False)
    found.tables["producer"] = [traffic(producer=-1)]
    assert [table.title for table in tables(found)] == ["By topic and partition", "By codec and format"]


def test_estimates_are_marked() -> None:
    found = statistics()
    lines = summary(found)
    assert lines[0] == "1,000 records in 100 batches, 50 kB, from 2026-09-21 14:13:20 to 2026-09-21 14:23:20 UTC"
    assert "estimates from 10 batches, one of 10; --exact measures all" in lines[-1]
    found.all = replace(found.all, measured_batches=100, control_batches=2, control_bytes=156)
    assert summary(found)[1:] == [
        "and 2 transaction markers, 156 B",
        "uncompressed sizes were measured on all batches",
    ]


def test_keys_are_shown_as_text_within_one_line() -> None:
    assert key_text(b"k\xc3\xa4se") == "käse"
    assert key_text(None) == "(no key)"
    assert key_text(b"\xff\x00") == "0xff00"
    assert key_text(b"a\nb") == "0x610a62"
    assert key_text(b"") == "0x"
    assert len(key_text(b"x" * 1000)) == 60
