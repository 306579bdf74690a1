"""The columns of a writer, with the names, types and meaning of Spark's own Kafka sink.

They are converted to rows of one form.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.schemas import HEADERS
from minibroker.pipeline.sink.sink_errors import RecordRefused

# The types of each column, by Spark's names.
_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("double", "timestamp"),
}

# The form of rows. `row` is a row's number in the task, for messages.
ROWS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),  # ms since 1970, -1: none
        ("headers", HEADERS),
        ("row", pa.int64()),
    ]
)


def check_columns(types: Mapping[str, str], topic: str | None) -> None:
    """Check a DataFrame's columns (name to Spark's type) as Spark's own sink does. Raises `OptionError`.

    Columns of other names are ignored.
    """
    if topic is None and "topic" not in types:
        raise OptionError("topic option required when no 'topic' attribute is present")
    if "value" not in types:
        raise OptionError("required attribute 'value' not found")
    for name, allowed in _TYPES.items():
        if name in types and types[name] not in allowed and not (name == "topic" and topic is not None):
            raise OptionError(
                f"{name} attribute unsupported type {types[name]}: {name} must be a(n) {' or '.join(allowed)}"
            )


class Rows:
    """Converts Spark's rows to `ROWS`, and counts them.

    The option `topic` overrides the column. If a timestamp is null, missing or not to be kept, the row gets the current
    time; with `keep_none` a null stays none (-1), as in message format 0.
    """

    def __init__(self, topic: str | None, keep_timestamps: bool = True, keep_none: bool = False) -> None:
        self._topic = topic
        self._keep_timestamps = keep_timestamps
        self._keep_none = keep_none
        self.count = 0

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return one batch's rows.

        Raises `RecordRefused` for null topics, partitions and times below 0, and headers without a key.
        """
        count, first = batch.num_rows, self.count
        self.count += count
        columns = [
            self._get_topics(batch, first),
            _refuse_below_0("partition", _cast_column(batch, "partition", pa.int32()), first),
            _cast_column(batch, "key", pa.binary()),
            _cast_column(batch, "value", pa.binary()),
            self._get_timestamps(batch, first),
            _get_headers(batch, first),
            pa.array(np.arange(first, first + count, dtype=np.int64)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ROWS)

    def _get_topics(self, batch: pa.RecordBatch, first: int) -> pa.Array:
        if self._topic is not None:
            return pa.repeat(pa.scalar(self._topic, pa.string()), batch.num_rows)
        topics = _cast_column(batch, "topic", pa.string())
        if topics.null_count:
            row = first + int(pc.index(topics.is_null(), True).as_py())
            raise RecordRefused(f"row {row}: null topic present in the data: the option topic sets one for all rows")
        return topics

    def _get_timestamps(self, batch: pa.RecordBatch, first: int) -> pa.Array:
        given = _get_column(batch, "timestamp") if self._keep_timestamps else None
        if given is None:
            given = pa.nulls(batch.num_rows, pa.int64())
        if pa.types.is_floating(given.type):  # seconds, as in Spark's casts
            given = pc.floor(pc.multiply(given, 1000.0)).cast(pa.int64())
        elif pa.types.is_timestamp(given.type):
            micros = given.cast(pa.timestamp("us", given.type.tz)).cast(pa.int64())
            given = _refuse_below_0("timestamp", pc.divide(micros, 1000), first, micros)
        times = _refuse_below_0("timestamp", given.cast(pa.int64()), first)
        return times.fill_null(-1 if self._keep_none else int(time.time() * 1000))


def _get_headers(batch: pa.RecordBatch, first: int) -> pa.Array:
    headers = _cast_column(batch, "headers", HEADERS)
    keys = headers.flatten().field("key") if headers.null_count < len(headers) else None
    if keys is not None and keys.null_count:
        parents = pc.list_parent_indices(headers)
        row = first + int(parents[int(pc.index(keys.is_null(), True).as_py())].as_py())
        raise RecordRefused(f"row {row}: a header has no key")
    return headers


def _refuse_below_0(name: str, numbers: pa.Array, first: int, signs: pa.Array | None = None) -> pa.Array:
    below = pc.index(pc.less(numbers if signs is None else signs, 0), True).as_py()
    if below >= 0:
        raise RecordRefused(f"row {first + below}: {name} {numbers[below].as_py()} is below 0")
    return numbers


def _cast_column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """Return the column in this type; all null if it does not exist."""
    column = _get_column(batch, name)
    return pa.nulls(batch.num_rows, kind) if column is None else column if column.type == kind else column.cast(kind)


def _get_column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)
