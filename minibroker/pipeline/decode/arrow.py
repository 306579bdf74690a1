"""Makes the Arrow arrays of the records table from columns of positions and numbers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from minibroker.pipeline.array_types import Int64s, UInt8s
from minibroker.pipeline.decode.record_field_columns import FieldColumns, HeaderParts, RecordParts
from minibroker.pipeline.log_source import TopicPartition
from minibroker.pipeline.schemas import CORRUPT, HEADERS, TIMESTAMP

_MAX_MS: Final = ((1 << 63) - 1) // 1000
_MIN_CONSTANTS: Final = 1 << 16


class RowMaker:
    """Makes the rows of one partition. Columns with a single value are made only once."""

    def __init__(self, schema: pa.Schema, partition: TopicPartition) -> None:
        self.schema = schema
        self.names: dict[str, Any] = {"topic": partition.topic, "partition": partition.partition}
        self._constants: dict[tuple[Any, pa.DataType], pa.Array] = {}

    def make_record_rows(self, data: UInt8s, fields: FieldColumns) -> pa.RecordBatch:
        """Return the rows of these records. Their bytes are copied out of `data`."""
        columns = [self._make_column(field, data, fields) for field in self.schema]
        return make_record_batch(columns, self.schema, fields.count)

    def make_damage_row(self, message: str, **known_values: Any) -> pa.RecordBatch:
        """Return the row for a damaged batch, with what is known of it."""
        known_values |= {**self.names, CORRUPT: message}
        return make_record_batch(
            [pa.array([known_values.get(field.name)], field.type) for field in self.schema], self.schema, 1
        )

    def _make_column(self, field: pa.Field, data: UInt8s, fields: FieldColumns) -> pa.Array:
        kinds, times, made = fields.timestamp_types, fields.timestamps_ms, None
        match field.name:
            case "key":
                made = _copy_parts_to_array(data, fields.keys)
            case "value":
                made = _copy_parts_to_array(data, fields.values)
            case "headers":
                made = _make_headers(data, fields.headers)
            case "offset" if fields.offsets is not None:
                made = pa.array(fields.offsets)
            case "timestamp" if times is not None:
                made = convert_times(times)
            case "timestampMs" if times is not None:
                made = pa.array(times)
            case "timestampType" if isinstance(kinds, int):
                return self.get_constant_column(kinds, field.type, fields.count)
            case "timestampType":
                made = pa.array(kinds).cast(field.type)
        return self.get_constant_column(self.names.get(field.name), field.type, fields.count) if made is None else made

    def get_constant_column(self, value: Any, kind: pa.DataType, count: int) -> pa.Array:
        """Return an array of `count` times this value; None is null."""
        known = self._constants.get((value, kind))
        if known is None or len(known) < count:
            known = pa.repeat(pa.scalar(value, kind), max(count, _MIN_CONSTANTS))
            self._constants[value, kind] = known
        return known.slice(0, count)


def make_record_batch(columns: list[pa.Array], schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Return `count` rows of these columns; there may be no columns."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


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


def _make_headers(data: UInt8s, parts: HeaderParts | None) -> pa.Array | None:
    """Return lists of key and value. A record without headers has null, as in Spark's own source."""
    if parts is None or len(parts.keys.start) == 0:
        return None
    offsets = np.zeros(len(parts.per_record) + 1, np.int32)
    np.cumsum(parts.per_record, out=offsets[1:])
    validity = np.packbits(parts.per_record > 0, bitorder="little")
    entries = pa.StructArray.from_arrays(
        [_decode_text(_copy_parts_to_array(data, parts.keys)), _copy_parts_to_array(data, parts.values)],
        fields=list(HEADERS.value_type),
    )
    buffers = [pa.py_buffer(validity), pa.py_buffer(offsets)]
    return pa.ListArray.from_buffers(HEADERS, len(parts.per_record), buffers, children=[entries])


def _decode_text(binary: pa.Array) -> pa.Array:
    """Return the keys as strings. Replace invalid UTF-8, as the JVM does not check it."""
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in binary.to_pylist()], pa.string())
