"""Readers of tables of Iceberg and Delta other than Spark: each returns rows with bytes in hex and times in ms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Rows = Iterable[list[Any]]
COLUMNS = ("topic", "partition", "offset", "key", "value", "timestamp", "headers")


def _row(values: Iterable[Any]) -> list[Any]:
    topic, partition, offset, key, value, timestamp, headers = values
    pairs = [[each["key"], each["value"].hex()] for each in headers or ()] or None  # pyiceberg returns [] for null
    hexed = [None if each is None else each.hex() for each in (key, value)]
    return [topic, partition, offset, *hexed, round(timestamp.timestamp() * 1000), pairs]


def by_pyiceberg(table: str) -> Rows:
    from pyiceberg.table import StaticTable

    found = StaticTable.from_metadata(table).scan(selected_fields=COLUMNS).to_arrow().select(COLUMNS).to_pylist()
    return [_row(row.values()) for row in found]


def by_deltalake(table: str) -> Rows:
    from deltalake import DeltaTable

    found = DeltaTable(table).to_pyarrow_table(columns=list(COLUMNS)).select(COLUMNS).to_pylist()
    return [_row(row.values()) for row in found]


def _by_duckdb(scan: str, *extensions: str) -> Callable[[str], Rows]:
    def rows(table: str) -> Rows:
        import duckdb

        with duckdb.connect() as connection:
            for name in extensions:
                spec = find_spec(f"duckdb_extension_{name}")
                assert spec is not None and spec.origin is not None
                (file,) = Path(spec.origin).parent.glob(f"extensions/*/{name}.duckdb_extension")
                connection.execute(f"LOAD '{file}'")
            names = ", ".join(f'"{name}"' for name in COLUMNS)
            return [_row(row) for row in connection.execute(f"SELECT {names} FROM {scan}('{table}')").fetchall()]

    return rows


READERS: dict[str, Callable[[str], Rows]] = {
    "pyiceberg": by_pyiceberg,
    "deltalake": by_deltalake,
    "duckdb-iceberg": _by_duckdb("iceberg_scan", "avro", "iceberg"),
    "duckdb-delta": _by_duckdb("delta_scan", "delta"),
}
