"""The job `compact` in this process, without Spark: the same rows, from Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from minibroker.pipeline.jobs.archive import DAY_US, DIRECTORIES, ORDER
from minibroker.pipeline.log_opening import read_here
from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.options import parse_options
from minibroker.pipeline.schemas import RECORDS, chosen
from minibroker.storage.files import Disk

KEY: Final = ("topic", "partition", "key")
PARTITION: Final = KEY[:2]
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def savings_here(options: Mapping[str, str], *, tombstones: bool = True) -> list[dict[str, Any]]:
    """Return the rows of `compact.savings` of the log that these options name, sorted by partition."""
    sized = pa.concat_tables([_sized(batch) for batch in _read(options, (*KEY, "value"))] or [_sized(_empty())])
    # In the order of the log, so that the last row of a key is its latest record.
    by_key = sized.group_by(list(KEY), use_threads=False).aggregate(
        [("size", "count"), ("size", "sum"), ("size", "last"), ("is_null", "last")]
    )
    has_key, is_null = pc.is_valid(by_key["key"]), by_key["is_null_last"]
    stays = has_key if tombstones else pc.and_(has_key, pc.invert(is_null))
    counted = pa.table(
        {
            "topic": by_key["topic"],
            "partition": by_key["partition"],
            "records": by_key["size_count"],
            "keyless": pc.if_else(has_key, 0, by_key["size_count"]),
            "keys": has_key.cast(pa.int64()),
            "tombstones": pc.and_(has_key, is_null).cast(pa.int64()),
            "keptRecords": stays.cast(pa.int64()),
            "bytes": by_key["size_sum"],
            "keptBytes": pc.if_else(stays, by_key["size_last"], 0),
        }
    )
    names = counted.column_names[len(PARTITION) :]
    rows = counted.group_by(list(PARTITION)).aggregate([(name, "sum") for name in names])
    ordered = rows.sort_by([(name, "ascending") for name in PARTITION])
    return [_with_share(row) for row in ordered.rename_columns(counted.column_names).to_pylist()]


def write_compacted_here(options: Mapping[str, str], path: str, *, tombstones: bool = True) -> None:
    """Write the latest record of each key in the form of an archive. Raises `OptionError` if `path` exists."""
    if Disk().exists(path):
        raise OptionError(f"{path} exists already")
    records = pa.Table.from_batches(_read(options, COLUMNS), chosen(RECORDS, COLUMNS))
    numbered = records.select(KEY).append_column("row", pa.array(range(len(records)), pa.int64()))
    latest = numbered.group_by(list(KEY), use_threads=False).aggregate([("row", "last")])
    kept = records.take(latest.filter(pc.is_valid(pc.field("key")))["row_last"])
    if not tombstones:
        kept = kept.filter(pc.is_valid(pc.field("value")))
    micros = kept["timestamp"].cast(pa.int64())
    days = pc.floor(pc.divide(micros.cast(pa.float64()), DAY_US)).cast(pa.int32()).cast(pa.date32())
    rows = kept.append_column("date", days).sort_by([(name, "ascending") for name in ORDER])
    schema = pa.schema([rows.schema.field(name) for name in DIRECTORIES])
    ds.write_dataset(rows, path, format="parquet", partitioning=ds.partitioning(schema, flavor="hive"))


def _read(options: Mapping[str, str], columns: tuple[str, ...]) -> Any:
    return read_here(parse_options(options, "records", "batch"), columns)


def _empty() -> pa.RecordBatch:
    schema = chosen(RECORDS, (*KEY, "value"))
    return pa.RecordBatch.from_pylist([], schema)


def _sized(batch: pa.RecordBatch) -> pa.Table:
    """Return the keys of records, their sizes in bytes, and whether their values are null."""
    sizes = [pc.fill_null(pc.binary_length(batch[name]), 0).cast(pa.int64()) for name in ("key", "value")]
    columns = {name: batch[name] for name in KEY}
    return pa.table({**columns, "size": pc.add(*sizes), "is_null": pc.is_null(batch["value"])})


def _with_share(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "savedShare": 1 - row["keptBytes"] / row["bytes"] if row["bytes"] else None}
