"""Makes the Arrow arrays of the records table from columns of positions and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from minibroker.pipeline.array_types import Int64s, UInt8s
from minibroker.pipeline.decode.record_columns import FieldColumns, HeaderParts, RecordParts
from minibroker.pipeline.log_source import TopicPartition
from minibroker.pipeline.schemas import CORRUPT, HEADERS, TIMESTAMP

_MAX_MS: Final = ((1 << 63) - 1) // 1000
_MIN_CONSTANTS: Final = 1 << 16


class RowMaker:
    """Makes the rows of one partition. Columns with a single value are made only once."""

    def __init__(self, schema: pa.Schema, partition: TopicPartition) -> None:
        self._schema = schema
        self._headers: pa.DataType = schema.field("headers").type if "headers" in schema.names else HEADERS
        self._names: dict[str, Any] = {"topic": partition.topic, "partition": partition.partition}
        self._constants: dict[tuple[Any, pa.DataType], pa.Array] = {}

    def make_record_rows(self, data: UInt8s, fields: FieldColumns) -> pa.RecordBatch:
        """Return the rows of these records. Their bytes are copied out of `data`."""
        times = fields.timestamps_ms
        columns = {
            "key": _copy_parts_to_array(data, fields.keys),
            "value": _copy_parts_to_array(data, fields.values),
            "headers": _make_headers(data, fields.headers, self._headers),
            "offset": fields.offsets,
            "timestamp": None if times is None else convert_times(times),
            "timestampMs": times,
            "timestampType": fields.timestamp_types,
        }
        return self.make_rows(columns, fields.count)

    def make_damage_row(self, message: str, **known_values: Any) -> pa.RecordBatch:
        """Return the row for a damaged batch, with what is known of it."""
        known_values[CORRUPT] = message
        return self.make_rows({name: pa.array([value]) for name, value in known_values.items()}, 1)

    def make_rows(self, columns: Mapping[str, Any], count: int) -> pa.RecordBatch:
        """Return `count` rows. A column is an array, or one value for all rows; None, or a missing column, is null."""
        known = {**self._names, **columns}
        arrays = [self._make_array(known.get(field.name), field.type, count) for field in self._schema]
        if arrays:
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))

    def _make_array(self, column: Any, kind: pa.DataType, count: int) -> pa.Array:
        """Return `count` rows of a column, an array or one value for all rows, as this type."""
        if isinstance(column, np.ndarray):
            column = pa.array(column)
        if isinstance(column, pa.Array):
            return column if column.type == kind else column.cast(kind)
        known = self._constants.get((column, kind))
        if known is None or len(known) < count:
            known = self._constants[column, kind] = pa.repeat(pa.scalar(column, kind), max(count, _MIN_CONSTANTS))
        return known.slice(0, count)


def _copy_parts_to_array(data: UInt8s, parts: RecordParts | pa.Array | None) -> pa.Array | None:
    """Copy these parts of `data` into a binary array, unless they are one already.

    An array of twice as many elements over all of `data` has the parts at even places, and the bytes between them at
    odd places. Arrow then takes the even ones.
    """
    if not isinstance(parts, RecordParts):
        return parts
    count = len(parts.start)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0 : 2 * count : 2] = parts.start
    offsets[1 : 2 * count : 2] = parts.start + parts.length
    offsets[2 * count] = offsets[2 * count - 1] if count else 0
    everything = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    even = np.arange(0, 2 * count, 2, dtype=np.int32)
    return everything.take(pa.array(even, mask=parts.is_null))


def convert_times(timestamps_ms: Int64s) -> pa.Array:
    """Return times in microseconds. -1 becomes null, and so do times that these cannot express."""
    is_null = (timestamps_ms == -1) | (timestamps_ms > _MAX_MS) | (timestamps_ms < -_MAX_MS)
    micros = timestamps_ms * 1000
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if is_null.any() else None
    return pa.Array.from_buffers(TIMESTAMP, len(micros), [validity, pa.py_buffer(micros)])


def _make_headers(data: UInt8s, parts: HeaderParts | None, kind: pa.DataType) -> pa.Array | None:
    """Return an array with the headers of each record, as structs of key and value; null for a record without any."""
    if parts is None or len(parts.keys.start) == 0:
        return None
    offsets = np.zeros(len(parts.per_record) + 1, np.int32)
    np.cumsum(parts.per_record, out=offsets[1:])
    validity = np.packbits(parts.per_record > 0, bitorder="little")
    keys = _copy_parts_to_array(data, parts.keys)
    entries = pa.StructArray.from_arrays(
        [_decode_text(keys) if kind == HEADERS else keys, _copy_parts_to_array(data, parts.values)],
        fields=list(kind.value_type),
    )
    buffers = [pa.py_buffer(validity), pa.py_buffer(offsets)]
    return pa.ListArray.from_buffers(kind, len(parts.per_record), buffers, children=[entries])


def _decode_text(binary: pa.Array) -> pa.Array:
    """Return the keys as strings. Replace invalid UTF-8, as the JVM does not check it."""
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in binary.to_pylist()], pa.string())
