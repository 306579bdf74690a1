"""The tables of a log's statistics as text, with their columns and units."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from minibroker.pipeline.jobs.stats_report import KeySkew, Statistics, Traffic
from minibroker.quantities import bytes_text, count_text, time_text

KEY_LENGTH_MAX: Final = 60


class Column(NamedTuple):
    """A column's name, and whether it is right-aligned."""

    name: str
    is_number: bool = True


class Table(NamedTuple):
    """A table of cells with a title and a note."""

    title: str
    columns: list[Column]
    rows: list[list[str]]
    note: str = ""


def summary(statistics: Statistics) -> list[str]:
    """Return a few lines with the totals, and how sizes were found."""
    found = statistics.all
    lines = [f"{found.records:,} records in {found.batches:,} batches, {bytes_text(found.bytes)}"]
    if found.first_ms is not None:
        lines[0] += f", from {time_text(found.first_ms)} to {time_text(found.last_ms)} UTC"
    if statistics.records_outside:
        lines.append(
            f"{statistics.records_outside:,} records have times far from the others; the rates are without them"
        )
    if found.control_batches:
        lines.append(f"and {found.control_batches:,} transaction markers, {bytes_text(found.control_bytes)}")
    if found.is_measured_wholly:
        lines.append("uncompressed sizes were measured on all batches")
    else:
        lines.append(
            f"uncompressed sizes and tombstones (~) are estimates from {found.measured_batches:,} batches, "
            f"one of {statistics.measured_every:,}; --exact measures all"
        )
    return lines


def tables(statistics: Statistics, most: int | None = None, only: str | None = None) -> list[Table]:
    """Return all tables, or only the one by `only`, with at most `most` rows. Tables of keys are always last."""
    has_producers = any(row.by["producer"] != -1 for row in statistics.tables["producer"])
    names = [only] if only else [name for name in statistics.tables if name != "producer" or has_producers]
    found = []
    for name in names:
        with_records = [row for row in statistics.tables[name] if row.batches]  # others have transaction markers alone
        rows = with_records[:most]
        left_out = len(with_records) - len(rows) + statistics.left_out.get(name, 0)
        found.append(traffic_table(name, rows, left_out))
    if statistics.keys is not None:
        found.append(_skew_table(statistics.keys))
        found.append(_key_table(statistics.keys))
    return found


def traffic_table(name: str, rows: list[Traffic], left_out: int = 0) -> Table:
    """Return a table of traffic; `name` has its dimensions."""
    cells: dict[Column, Callable[[Traffic], str]] = {
        Column("records"): lambda row: f"{row.records:,}",
        Column("batches"): lambda row: f"{row.batches:,}",
        Column("bytes"): lambda row: bytes_text(row.bytes),
        Column("share"): lambda row: f"{row.share:.1%}",
        Column("records/batch"): lambda row: count_text(row.records / row.batches) if row.batches else "",
        Column("median batch"): lambda row: _or_none(row.median_batch_bytes, bytes_text),
        Column("largest"): lambda row: _or_none(row.max_batch_bytes, bytes_text),
        Column("compression"): lambda row: _or_none(row.compression_ratio, "{:.2f} x".format),
        Column("overhead/record"): lambda row: _or_none(row.overhead_per_record, bytes_text),
        Column("tombstones"): lambda row: _tombstones(row),
        Column("records/s"): lambda row: _or_none(row.records_per_second, count_text),
    }
    names = name.split(", ")
    columns = [*(Column(each, each in ("partition", "format")) for each in names), *cells]
    shown = [
        [*(_dimension(each, row.by[each]) for each in names), *(cell(row) for cell in cells.values())] for row in rows
    ]
    note = f"Left out: the {left_out:,} smallest." if left_out else ""
    return Table(f"By {name.replace(', ', ' and ')}", columns, shown, note)


def _dimension(name: str, value: object) -> str:
    return "without an id" if name == "producer" and value == -1 else str(value)


def _tombstones(row: Traffic) -> str:
    return "" if row.tombstones is None else f"{'' if row.is_measured_wholly else '~'}{row.tombstones:,}"


def _or_none(value: float | None, text: Callable[[float], str]) -> str:
    return "" if value is None else text(value)


def _skew_table(skews: Iterable[KeySkew]) -> Table:
    columns = [
        Column("topic", False),
        *map(Column, ("keys", "records", "without a key", "top 1 % of keys have", "Gini")),
    ]
    rows = [
        [
            skew.topic,
            f"{skew.keys:,}",
            f"{skew.records:,}",
            f"{skew.records_without_key:,}",
            _or_none(skew.share_of_top_percent, "{:.1%}".format),
            _or_none(skew.gini, "{:.3f}".format),
        ]
        for skew in skews
    ]
    note = "Gini: 0 if all keys have equally many records, near 1 if few have nearly all. Top 1 %: at least one key."
    return Table("How records spread over keys", columns, rows, note)


def _key_table(skews: Iterable[KeySkew]) -> Table:
    columns = [Column("topic", False), Column("key", False), Column("records"), Column("share of the topic")]
    rows = [
        [skew.topic, key_text(top.key), f"{top.records:,}", f"{top.share:.1%}"] for skew in skews for top in skew.top
    ]
    return Table("The most frequent keys", columns, rows)


def key_text(key: bytes | None) -> str:
    """Return a key in one line: as text if it is text, else in hexadecimal."""
    if key is None:
        return "(no key)"
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    shown = text if text.isprintable() and text else f"0x{key.hex()}"
    return shown if len(shown) <= KEY_LENGTH_MAX else f"{shown[: KEY_LENGTH_MAX - 1]}…"
